"""A fixed sample of the backend tests of ONNX: none is wrong, and hardly any is refused."""

import collections

import onnx_cases

EVERY = 5
"""Which part of all cases is run; `onnx_cases.py` itself runs all."""

RIGHT = 0.9
"""Least share of the cases on tensors of numbers that must be right."""


def test_a_sample_of_the_backend_tests():
    """Each case is right or refused in words, and the arena gives the bits of memory apart."""
    outcomes = onnx_cases.run_all(onnx_cases.cases(EVERY))
    wrong = [f"{o.name}: {o.reason}" for o in outcomes if o.kind == onnx_cases.WRONG]
    assert not wrong, "\n".join(wrong)
    count = collections.Counter(outcome.kind for outcome in outcomes)
    numeric = len(outcomes) - count[onnx_cases.APART]
    assert count[onnx_cases.RIGHT] >= RIGHT * numeric, count
    unclear = [o.name for o in outcomes if o.kind == onnx_cases.REFUSED and "error: " not in o.reason]
    assert not unclear, unclear
