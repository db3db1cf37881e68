"""No input may crash the program, hang it, fill the memory or leave half a file behind.

A refused input gives exit 2, one error on standard error, nothing on standard output and no
output file. An accepted one gives a plan that `tenure check` proves.
"""

import os
import re
from pathlib import Path

import pytest

import hostile
import random_models
from tool import Result, tenure

PANIC = re.compile(r"panicked|RUST_BACKTRACE|memory allocation of|stack overflow|unreachable")
LONGEST_MESSAGE = 64 << 10


def refused(result: Result) -> list[str]:
    """What is wrong with a refusal."""
    wrong = []
    if len(re.findall(r"^\W*error\b", result.err, re.IGNORECASE | re.MULTILINE)) != 1:
        wrong.append("not exactly one error on standard error")
    if result.out.strip():
        wrong.append("something on standard output")
    if len(result.err) > LONGEST_MESSAGE:
        wrong.append(f"a message of {len(result.err)} characters")
    return wrong


def judge(attack: hostile.Attack, folder: Path) -> list[str]:
    """What is wrong with the answer to one attack, a line each."""
    saved = folder / "out"
    saved.unlink(missing_ok=True)
    result = tenure(attack.command, attack.path, "--json", "-o", saved)
    wrong = []
    said = result.out + result.err
    if PANIC.search(said):
        wrong.append("a panic")
    if re.search(r"[\x00-\x08\x0b-\x1f\x7f]", result.err.replace("\r\n", "\n")):
        wrong.append("control characters on the terminal")
    if str(hostile.SECRET) in said or str(4 * hostile.SECRET) in said:
        wrong.append("a file outside the model's folder was read")
    match result.code:
        case None:
            wrong.append(f"no answer after {result.cpu:.0f} s of processor time")
        case 2:
            wrong += refused(result)
            if saved.exists():
                wrong.append("an output file beside the error")
            if attack.verdict == hostile.ACCEPT:
                wrong.append("a valid model was refused")
        case 0 if attack.verdict == hostile.REFUSE:
            wrong.append("a bad input was accepted")
        case 0:
            wrong += proven(attack, saved)
        case code:
            wrong.append(f"exit {code}")
    first = result.err.strip().splitlines()[:3]
    return [f"{attack.name}: {' '.join(result.command)}: {w}; said {first}" for w in wrong]


def proven(attack: hostile.Attack, saved: Path) -> list[str]:
    """What is wrong with an accepted input's plan."""
    if not saved.exists():
        return ["no output file"]
    if attack.command != "plan":
        return []
    check = tenure("check", attack.path, saved)
    return [] if check.code == 0 else [f"its own check says exit {check.code}: {check.err[:200]}"]


def report(wrong: list[str]) -> None:
    assert not wrong, f"{len(wrong)} wrong answers:\n" + "\n".join(wrong)


def test_attacks(tmp_path):
    (tmp_path / "in").mkdir()
    report([line for a in hostile.attacks(tmp_path / "in") for line in judge(a, tmp_path)])


def test_mutations(tmp_path):
    """`TENURE_MUTATIONS` says how many (default 400)."""
    (tmp_path / "in").mkdir()
    count = int(os.environ.get("TENURE_MUTATIONS", "400"))
    made = hostile.mutations(tmp_path / "in", count)
    report([line for a in made for line in judge(a, tmp_path)])


@pytest.fixture
def good(tmp_path) -> Path:
    path = tmp_path / "good.onnx"
    path.write_bytes(random_models.make("control", 1).SerializeToString())
    return path


def test_damaged_plans(tmp_path, good):
    """A damaged plan is refuted, refused, or harmless; never a crash."""
    saved = tmp_path / "plan.json"
    tenure("plan", good, "--json", "-o", saved).json()
    assert tenure("check", good, saved).code == 0
    wrong = []
    for name, path in hostile.plans(tmp_path, saved.read_text()):
        result = tenure("check", good, path)
        if result.code not in (0, 1, 2) or PANIC.search(result.err):
            wrong.append(f"{name}: exit {result.code}: {result.err[:300]}")
        elif result.code == 2:
            wrong += [f"{name}: {w}: {result.err[:300]}" for w in refused(result)]
    report(wrong)


def test_an_earlier_output_survives_a_bad_input(tmp_path):
    saved = tmp_path / "plan.json"
    saved.write_text("earlier")
    bad = tmp_path / "bad.onnx"
    bad.write_bytes(b"no model")
    assert tenure("plan", bad, "-o", saved).code == 2
    assert saved.read_text() == "earlier"


@pytest.mark.parametrize("place", ["missing/plan.json", "."])
def test_a_place_that_cannot_be_written(tmp_path, good, place):
    result = tenure("plan", good, "-o", tmp_path / place)
    assert result.code == 2
    assert not refused(result), result


def test_a_full_disk(good):
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    result = tenure("plan", good, "-o", "/dev/full")
    assert result.code == 2
    assert not refused(result), result


@pytest.mark.parametrize(
    "option",
    [
        ["--align", "0"],
        ["--align", "3"],
        ["--align", "18446744073709551616"],
        ["--align", "-1"],
        ["--dim", "x"],
        ["--dim", "=4"],
        ["--dim", "batch=-4"],
        ["--dim", "batch=99999999999999999999"],
        ["--dim", "batch=4..2"],
        ["--capacity", "-1"],
        ["--capacity", "12 parsecs"],
        ["--capacity", "99999999999 GiB"],
        ["--strategy", "guess"],
        ["--time-limit", "soon"],
        ["--threads", "-1"],
        ["--inputs", "mine"],
        ["--nonsense"],
    ],
    ids=" ".join,
)
def test_bad_usage(good, option):
    result = tenure("plan", good, *option)
    assert result.code == 2, result
    assert not refused(result), result
