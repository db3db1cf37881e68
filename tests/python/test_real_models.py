"""Small models with their trained weights, against answers that ONNX Runtime gave.

`TENURE_SHARED/data/real` holds the models, and `io/NAME` inputs and answers; skipped without them.
"""

import json

import numpy as np
import pytest

from onnx_cases import safe
from tool import SHARED, tenure

FOLDER = SHARED / "data/real"
MODELS = sorted(path.name for path in (FOLDER / "io").glob("*")) if FOLDER.exists() else []


@pytest.mark.parametrize("name", MODELS)
def test_answers_are_those_of_onnx_runtime(name, tmp_path):
    """The outputs are as close as float32 allows, and the same bits with memory apart."""
    data = FOLDER / "io" / name
    tensors = json.loads((data / "io.json").read_text())
    arguments = ["run", FOLDER / f"{name}.onnx", "--verify", "--output-dir", tmp_path]
    for tensor, file, *_ in tensors["inputs"]:
        arguments += ["--input", f"{tensor}={data / file}"]
    result = tenure(*arguments, seconds=60)
    assert result.code == 0, result.err
    for tensor, file, *_ in tensors["outputs"]:
        found, wanted = np.load(tmp_path / f"{safe(tensor)}.npy"), np.load(data / file)
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=2e-5)
