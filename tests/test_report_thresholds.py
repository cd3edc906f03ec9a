"""The rules on curves whose answers are known, and the lasting rule against a plain reading of its definition."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dara_trl.report.thresholds import (
    Reached,
    common_steps,
    first_step,
    lasting_step,
    median_step,
    smoothed_step,
)


def curve(values, first=1):
    """Steps without a value (None) are not in a curve."""
    pairs = [(step, value) for step, value in enumerate(values, first) if value is not None]
    return [step for step, _ in pairs], [value for _, value in pairs]


def test_first_step():
    assert first_step(curve([0.1, 0.8, 0.2]), 0.8, 3) == Reached(2)  # exactly equal counts, crossing back too
    assert first_step(curve([0.1, None, 0.9]), 0.8, 3) == Reached(3)
    assert first_step(curve([0.1, 0.79]), 0.8, 2) == Reached(2, reached=False)
    assert first_step(curve([-0.5, -0.2]), -0.3, 2) == Reached(2)
    assert first_step(curve([0.0, 0.0]), 0.0, 2) == Reached(1)
    assert first_step(([], []), 0.8, 7) == Reached(7, reached=False)
    assert str(Reached(7, reached=False)) == "> 7"


@pytest.mark.parametrize("threshold", [0.1, 0.7, 0.8, 0.99, 2.3])
def test_a_threshold_reached_exactly_in_float32_is_reached(threshold):
    logged = float(np.float32(threshold))
    assert first_step(curve([logged]), threshold, 1) == Reached(1)
    assert lasting_step(curve([logged] * 30), threshold, 30) == Reached(10)
    assert smoothed_step(curve([logged] * 3), threshold, 3) == Reached(3)
    assert not first_step(curve([threshold - 1e-4]), threshold, 1).reached


def test_lasting_step():
    assert lasting_step(curve([1.0] * 29), 0.8, 29) == Reached(10)  # 10 to 29 are 20 steps
    assert lasting_step(curve([1.0] * 28), 0.8, 28) == Reached(28, reached=False, held_from=10)
    assert lasting_step(curve([1.0] * 9), 0.8, 9) == Reached(9, reached=False)
    assert lasting_step(curve([0.0] * 40), 0.8, 40) == Reached(40, reached=False)
    late = [0.0] * 10 + [1.0] * 40
    assert lasting_step(curve(late), 0.8, 50) == Reached(18)  # 8 of 10 ones
    assert str(lasting_step(curve([1.0] * 28), 0.8, 28)) == "> 28 (held from 10)"


def test_lasting_step_starts_anew_after_crossing_back():
    values = [1.0] * 20 + [0.0] * 5 + [1.0] * 40
    # At step 23 three of ten values are 0; at step 33 only two still are.
    assert lasting_step(curve(values), 0.8, 65) == Reached(33)
    assert lasting_step(curve(values), 0.8, 65, stay=5) == Reached(10)
    assert lasting_step(curve(values), 0.8, 65, window=1) == Reached(1)


def test_lasting_step_passes_over_steps_without_a_value():
    values = [1.0] * 5 + [None] * 3 + [1.0] * 24
    # The tenth value is at step 13, and the twentieth from there at step 32.
    assert lasting_step(curve(values), 0.8, 32) == Reached(13)
    assert not lasting_step(curve(values[:-1]), 0.8, 31).reached


def naive(values, threshold, window, stay):
    """The definition word by word; None where it is not met."""
    present = [(step, Fraction(value)) for step, value in enumerate(values, 1) if value is not None]

    def holds(i):
        if i >= len(present) or i - window + 1 < 0:
            return False
        return sum(value for _, value in present[i - window + 1 : i + 1]) / window >= threshold

    for i, (step, _) in enumerate(present):
        if all(holds(j) for j in range(i, i + stay)):
            return step
    return None


@given(
    st.lists(st.one_of(st.none(), st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])), max_size=60),
    st.sampled_from([0.25, 0.5, 0.625]),
    st.integers(1, 6),
    st.integers(1, 8),
)
def test_lasting_step_is_its_definition(values, threshold, window, stay):
    found = lasting_step(curve(values), threshold, len(values), window, stay)
    expected = naive(values, Fraction(threshold), window, stay)
    assert found.reached == (expected is not None)
    assert found.step == (len(values) if expected is None else expected)


def test_smoothed_step():
    assert smoothed_step(curve([0.0, 0.9, 0.9, 0.7, 0.8, 0.9]), 0.8, 6) == Reached(4)
    assert smoothed_step(curve([0.9, None, 0.9, 0.9]), 0.8, 4) == Reached(4)
    assert smoothed_step(curve([1.0, 1.0]), 0.8, 2) == Reached(2, reached=False)


def test_median_step_counts_only_steps_that_every_run_has():
    one, two, three = curve([0.1, 0.9, 0.1, 0.9]), curve([0.9, None, 0.1, 0.9]), curve([0.0, 0.9, 0.9, 0.0])
    steps, values = common_steps([one, two, three])
    assert steps == [1, 3, 4]
    assert median_step(steps, values, 0.8, 4) == Reached(4)
    assert median_step(*common_steps([one, three]), 0.8, 4) == Reached(2)
    assert median_step(*common_steps([one, ([], [])]), 0.8, 4) == Reached(4, reached=False)
    # The median of two is their mean.
    assert median_step(*common_steps([curve([0.7]), curve([0.9])]), 0.8, 1) == Reached(1)
