"""The backend tests of ONNX, one operator each, run by `tenure run` and compared with their answers.

    python tests/python/onnx_cases.py [--every N] [--list FILE] [NAME…]

A case is right, refused with a message that says what is not supported, or wrong. Cases whose
inputs or outputs are no tensors of numbers (strings, sequences, optionals) are counted apart: a
file of NumPy cannot hold them.
"""

import argparse
import collections
import json
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper
from onnx.backend.test.case.node import collect_testcases

from tool import tenure

RANDOM = {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
          "RandomUniformLike", "ImageDecoder"}
"""Operators whose answers are not to be compared: random, or a codec."""

STEPS = {"float16": 2.0**-9, "bfloat16": 2.0**-6}
"""What two answers of a small type may differ by, relative to the number: two steps, since the
reference rounds between its own steps, too."""

RIGHT, REFUSED, WRONG, APART = "right", "refused", "wrong", "apart"


@dataclass
class Outcome:
    """What became of a case."""

    name: str
    ops: list[str]
    kind: str
    reason: str = ""


def ops_of(model):
    """The operators of a model, those of its functions left out."""
    return sorted({node.op_type for node in model.graph.node})


def is_numeric(value) -> bool:
    """Whether an input or output is a tensor of numbers."""
    kind = value.type.WhichOneof("value")
    return kind == "tensor_type" and value.type.tensor_type.elem_type not in (
        TensorProto.STRING,
        TensorProto.UNDEFINED,
    )


def as_array(tensor, value) -> np.ndarray:
    """The array of an input or answer, which may be a tensor of the file format."""
    if isinstance(tensor, TensorProto):
        return onnx.numpy_helper.to_array(tensor)
    dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
    return np.asarray(tensor).astype(dtype, copy=False)


def safe(name: str) -> str:
    """The name of an output's file."""
    plain = "._-"
    return "".join(c if c.isascii() and (c.isalnum() or c in plain) else "_" for c in name)


def load(path: Path, like: np.ndarray) -> np.ndarray:
    """An output; types that NumPy does not know are raw bytes in the file."""
    found = np.load(path)
    return found.view(like.dtype) if found.dtype.kind == "V" else found.astype(like.dtype)


def difference(found: np.ndarray, wanted: np.ndarray, rtol: float, atol: float) -> str:
    """In what two arrays differ; empty when they are close enough."""
    if found.shape != wanted.shape:
        return f"shape {found.shape}, and {wanted.shape} is right"
    if wanted.dtype.kind in "biu":
        return "" if np.array_equal(found, wanted) else f"{found.ravel()[:4]} for {wanted.ravel()[:4]}"
    rtol = max(rtol, STEPS.get(wanted.dtype.name, 0))
    wide = np.complex128 if wanted.dtype.kind == "c" else np.float64
    a, b = found.astype(wide), wanted.astype(wide)
    # Where large terms cancel out, the reference itself leaves as much.
    atol = max(atol, 2.0**-23 * np.max(np.abs(b), initial=0, where=np.isfinite(b)))
    if np.allclose(a, b, rtol=rtol, atol=atol, equal_nan=True):
        return ""
    off = np.abs(a - b)
    return f"off by {np.nanmax(off) if off.size else 0:.3g}: {a.ravel()[:4]} for {b.ravel()[:4]}"


def run(case) -> Outcome:
    """Runs a case with each of its sets of data."""
    model, name = case.model, case.name
    ops = ops_of(model)
    outcome = Outcome(name, ops, RIGHT)
    initialized = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in initialized]
    if not all(map(is_numeric, [*inputs, *model.graph.output])) or RANDOM & set(ops):
        return Outcome(name, ops, APART)
    for given, wanted in case.data_sets:
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            path = folder / "model.onnx"
            path.write_bytes(model.SerializeToString())
            arguments = ["run", path, "--verify", "--json", "--output-dir", folder / "out"]
            for i, (value, tensor) in enumerate(zip(inputs, given)):
                np.save(folder / f"{i}.npy", as_array(tensor, value))
                arguments += ["--input", f"{value.name}={folder / f'{i}.npy'}"]
            result = tenure(*arguments)
            if result.code == 2:
                return Outcome(name, ops, REFUSED, result.err.replace(str(folder), "…").strip())
            if result.code != 0:
                return Outcome(name, ops, WRONG, f"exit {result.code}: {result.err.strip()[:300]}")
            json.loads(result.out)
            for value, tensor in zip(model.graph.output, wanted):
                answer = as_array(tensor, value)
                found = load(folder / "out" / f"{safe(value.name)}.npy", answer)
                reason = difference(found, answer, case.rtol, case.atol)
                if reason:
                    return Outcome(name, ops, WRONG, f"{value.name}: {reason}")
    return outcome


def cases(every: int = 1, names: list[str] = ()):
    """The cases by name; of all of them each `every`th."""
    # Answers that are infinite by intent make NumPy warn.
    with np.errstate(all="ignore"):
        found = sorted(collect_testcases(None), key=lambda case: case.name)
    if names:
        return [case for case in found if case.name in names]
    return found[::every]


def run_all(chosen, threads: int = 2) -> list[Outcome]:
    """Runs cases side by side, and gives what became of each in order."""
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(run, chosen))


def main() -> int:
    """Prints how many cases are right, and each that is not; exit 1 when one is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--list", type=Path, help="write what became of each case")
    options = parser.parse_args()
    outcomes = run_all(cases(options.every, options.names))
    count = collections.Counter(outcome.kind for outcome in outcomes)
    if options.list:
        lines = (f"{o.kind}\t{o.name}\t{','.join(o.ops)}\t{o.reason!r}" for o in outcomes)
        options.list.write_text("\n".join(lines) + "\n")
    for outcome in outcomes:
        if outcome.kind == WRONG or (options.names and outcome.kind != RIGHT):
            print(f"{outcome.kind}: {outcome.name}: {outcome.reason}")
    refused = collections.Counter(
        op for outcome in outcomes if outcome.kind == REFUSED for op in outcome.ops
    )
    print("refused:", ", ".join(f"{op} {n}" for op, n in refused.most_common()) or "none")
    numeric = len(outcomes) - count[APART]
    share = 100 * count[RIGHT] / max(numeric, 1)
    print(
        f"{numeric} cases on tensors of numbers: {count[RIGHT]} right ({share:.1f} %), "
        f"{count[REFUSED]} refused, {count[WRONG]} wrong; {count[APART]} others"
    )
    return 1 if count[WRONG] else 0


if __name__ == "__main__":
    sys.exit(main())
