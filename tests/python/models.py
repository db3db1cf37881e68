"""The ONNX models to test with, and the dimensions to plan them for."""

import csv
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx

import bounds
import random_models
import tool

BATCH, LENGTH = 2, 576
"""Sizes for free dimensions that nobody says anything about: of a first axis, of others."""


@dataclass(frozen=True)
class Case:
    """A model file, and values for its free dimensions."""

    path: Path
    dims: tuple[tuple[str, int], ...] = ()

    @property
    def arguments(self) -> list[str]:
        """The command line's words for the model and its dimensions."""
        return [str(self.path), *(f"--dim={name}={size}" for name, size in self.dims)]

    def __str__(self) -> str:
        return " ".join([self.path.stem, *(f"{name}={size}" for name, size in self.dims)])


def free_dims(path: Path) -> tuple[tuple[str, int], ...]:
    """A value for each dimension of the model's inputs that has none."""
    model = onnx.load(path, load_external_data=False)
    constants = {t.name for t in model.graph.initializer}
    found = {}
    for info in model.graph.input:
        if info.name in constants or not info.type.HasField("tensor_type"):
            continue
        for axis, dim in enumerate(info.type.tensor_type.shape.dim):
            size = LENGTH if axis else BATCH
            if dim.HasField("dim_param") and dim.dim_param not in ("", "?"):
                found.setdefault(dim.dim_param, size)
            elif not dim.HasField("dim_value") or dim.dim_value < 0:
                # No name, or the sign that some exporters write for none.
                found[f"{info.name}@{axis}"] = size
    # A formula (`past + 1`) follows from the names in it.
    plain = {name: size for name, size in found.items() if name.isidentifier()}
    return tuple(
        (name, size)
        for name, size in found.items()
        if name in plain or bounds.evaluate(name, plain) is None
    )


def examples() -> list[Case]:
    """The models that this repository ships."""
    files = sorted((tool.REPOSITORY / "examples/models").rglob("*.onnx"))
    return [Case(path, free_dims(path)) for path in files]


def extra() -> list[Case]:
    """The models below the folder that `TENURE_EXTRA` names, if it names one."""
    folder = os.environ.get("TENURE_EXTRA")
    files = sorted(Path(folder).rglob("*.onnx")) if folder else []
    return [Case(path, free_dims(path)) for path in files]


def reference() -> list[dict[str, str]]:
    """The rows of the shared reference figures; none when they are not there."""
    table = tool.SHARED / "data/onnx/reference.csv"
    if not table.exists():
        return []
    with table.open(newline="") as file:
        return list(csv.DictReader(file))


def reference_case(row: dict[str, str]) -> Case:
    """The model of one row, with the dimensions that it was measured at."""
    pairs = (text.rpartition("=") for text in row["bind"].split(";") if text)
    dims = tuple((name, int(size)) for name, _, size in pairs)
    return Case(tool.SHARED / "data/onnx" / f"{row['name']}.onnx", dims)


def shared() -> list[Case]:
    """The shared weightless and real models."""
    cases = [reference_case(row) for row in reference()]
    known = {case.path for case in cases}
    for path in sorted((tool.SHARED / "data/onnx").glob("*.onnx")):
        if path not in known:
            cases.append(Case(path, free_dims(path)))
    for path in sorted((tool.SHARED / "data/real").glob("*.onnx")):
        cases.append(Case(path, measured_dims(path)))
    return cases


def measured_dims(path: Path) -> tuple[tuple[str, int], ...]:
    """The free dimensions of a real model, as its recorded inputs have them."""
    record = json.loads((path.parent / "io" / path.stem / "io.json").read_text())
    shapes = {name: shape for name, _, shape, _ in record["inputs"]}
    model = onnx.load(path, load_external_data=False)
    dims = {}
    for info in model.graph.input:
        for axis, dim in enumerate(info.type.tensor_type.shape.dim):
            if dim.HasField("dim_value") and dim.dim_value >= 0 or info.name not in shapes:
                continue
            # A name that stands for no one thing ('?') is given place by place.
            named = dim.dim_param.replace("_", "a").isalnum()
            key = dim.dim_param if named else f"{info.name}@{axis}"
            dims[key] = shapes[info.name][axis]
    return tuple(dims.items())


def onnx_data() -> Iterator[Case]:
    """The model files that the `onnx` package ships for backend tests."""
    folder = Path(onnx.__file__).parent / "backend/test/data"
    for path in sorted(folder.rglob("*.onnx")):
        yield Case(path, free_dims(path))


def onnx_nodes(folder: Path) -> Iterator[Case]:
    """The `onnx` package's models of single operators, written into `folder`."""
    from onnx.backend.test.case.node import collect_testcases

    for case in collect_testcases(None):
        path = folder / f"{case.name}.onnx"
        onnx.save(case.model, path)
        yield Case(path, free_dims(path))


def generated(family: str, folder: Path) -> Iterator[Case]:
    """Random models of one family; `TENURE_MODELS` says how many (default 60)."""
    for seed in range(int(os.environ.get("TENURE_MODELS", "60"))):
        path = folder / f"{family}_{seed}.onnx"
        onnx.save(random_models.make(family, seed), path)
        yield Case(path)
