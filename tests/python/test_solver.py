"""Judges `tenure solve` by CP-SAT of OR-tools: random small tables, least heights compared.

A buffer is a rectangle for each part of its life, all at one offset; CP-SAT looks for the least
height at which none overlap. `TENURE_TABLES` sets how many tables there are.
"""

import os
import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tool import tenure

cp_model = pytest.importorskip("ortools.sat.python.cp_model", reason="ortools is not installed")

TABLES = int(os.environ.get("TENURE_TABLES", 40))


@dataclass
class Buffer:
    """A row of a table; `gaps` are half-open parts of its life in which it is lent out."""

    lower: int
    upper: int
    size: int
    alignment: int = 1
    offset: int | None = None
    gaps: list[tuple[int, int]] = field(default_factory=list)

    def row(self, number: int) -> str:
        offset = "" if self.offset is None else self.offset
        gaps = " ".join(f"{lower}-{upper}" for lower, upper in self.gaps)
        return f"b{number},{self.lower},{self.upper},{self.size},{self.alignment},{offset},{gaps}"

    def spans(self) -> list[tuple[int, int]]:
        ends = [self.lower, *(end for gap in self.gaps for end in gap), self.upper]
        return [(a, b) for a, b in zip(ends[::2], ends[1::2]) if a < b]

    def meets(self, other: "Buffer") -> bool:
        spans = [(a, b) for a in self.spans() for b in other.spans()]
        return any(a[0] < b[1] and b[0] < a[1] for a, b in spans)


def random_table(seed: int) -> list[Buffer]:
    """Up to 14 buffers; every second table has alignments, every third gaps and a fixed one."""
    rng = random.Random(seed)
    buffers = []
    for _ in range(rng.randint(3, 14)):
        lower = rng.randrange(12)
        buffer = Buffer(lower, lower + rng.randint(1, 8), rng.randint(1, 40))
        if seed % 2:
            buffer.alignment = rng.choice([1, 1, 2, 3, 4, 8, 16])
        if seed % 3 == 0 and buffer.upper - buffer.lower > 3:
            start = rng.randrange(buffer.lower + 1, buffer.upper - 1)
            buffer.gaps = [(start, rng.randrange(start + 1, buffer.upper))]
        buffers.append(buffer)
    if seed % 3 == 0:
        buffers[0].offset = buffers[0].alignment * rng.randrange(6)
    return buffers


def least_height(buffers: list[Buffer]) -> int:
    model = cp_model.CpModel()
    most = sum(buffer.size + buffer.alignment for buffer in buffers) + max(
        (buffer.offset or 0) + buffer.size for buffer in buffers
    )
    height = model.new_int_var(0, most, "height")
    times, bytes_ = [], []
    for buffer in buffers:
        if buffer.offset is None:
            multiple = model.new_int_var(0, most // buffer.alignment, "")
            start = multiple * buffer.alignment
        else:
            start = buffer.offset
        model.add(start + buffer.size <= height)
        for lower, upper in buffer.spans():
            times.append(model.new_fixed_size_interval_var(lower, upper - lower, ""))
            bytes_.append(model.new_fixed_size_interval_var(start, buffer.size, ""))
    model.add_no_overlap_2d(times, bytes_)
    model.minimize(height)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_time_in_seconds = 20
    assert solver.solve(model) == cp_model.OPTIMAL, "CP-SAT was cut"
    return round(solver.objective_value)


def placed(path: Path, buffers: list[Buffer]) -> int:
    """The height of a written table, after looking at each buffer and each pair."""
    header, *rows = path.read_text().splitlines()
    column = header.split(",").index("offset")
    offsets = [int(row.split(",")[column]) for row in rows]
    for number, (buffer, offset) in enumerate(zip(buffers, offsets, strict=True)):
        assert offset % buffer.alignment == 0
        assert buffer.offset in (None, offset)
        for other, below in zip(buffers[:number], offsets):
            apart = offset >= below + other.size or below >= offset + buffer.size
            assert apart or not buffer.meets(other)
    return max(offset + buffer.size for buffer, offset in zip(buffers, offsets))


@pytest.mark.parametrize("seed", range(TABLES))
def test_the_least_height_is_what_cp_sat_finds(seed, tmp_path):
    buffers = random_table(seed)
    table, out = tmp_path / "table.csv", tmp_path / "placed.csv"
    rows = [buffer.row(number) for number, buffer in enumerate(buffers)]
    table.write_text("\n".join(["id,lower,upper,size,alignment,offset,gaps", *rows, ""]))
    found = tenure("solve", table, "--json", "-o", out).json()
    assert placed(out, buffers) == found["height"]
    assert found["lower_bound"] <= found["height"]
    least = least_height(buffers)
    assert found["height"] == least
    assert found["proven_optimal"] and found["lower_bound"] == least
    # Told one byte less, it says that nothing fits, and why.
    if least:
        below = tenure("solve", table, "--json", "--capacity", least - 1)
        assert below.code == 1, below.err
        assert '"conflict"' in below.out
