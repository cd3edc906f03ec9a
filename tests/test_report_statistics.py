"""Medians with censored steps, intervals and the permutation test, against figures found by hand."""

import numpy as np
import pytest

from dara_trl.report import statistics
from dara_trl.report.statistics import code, coded_median, decode, interval, median_of, permutation_test, smallest_p
from dara_trl.report.thresholds import Reached


def beyond(step):
    return Reached(step, reached=False)


@pytest.mark.parametrize(
    ("steps", "median"),
    [
        ([Reached(3), Reached(9), Reached(5)], Reached(5)),
        ([Reached(3), Reached(6)], Reached(4.5)),
        ([Reached(3), beyond(40), Reached(5)], Reached(5)),
        ([beyond(40), Reached(3), beyond(60)], beyond(40)),
        ([Reached(12), beyond(45)], beyond(12)),  # an even number, the upper middle one censored
        ([beyond(45), beyond(40)], beyond(40)),
        ([beyond(40), beyond(40), Reached(7), Reached(8)], beyond(8)),
        ([Reached(100), beyond(40), Reached(7)], Reached(100)),  # not reached is more than any number
        ([beyond(9)], beyond(9)),
    ],
)
def test_median_of_censored_steps(steps, median):
    assert decode(float(coded_median(code(steps)))) == median


def test_interval_is_of_values_that_occur_and_the_same_each_time():
    values = code([Reached(3), Reached(5), Reached(9), beyond(40), Reached(4)])
    ends = interval(median_of(values), 5)
    assert ends == interval(median_of(values), 5)
    assert decode(ends[0]) == Reached(3)
    assert decode(ends[1]) == beyond(40)
    assert interval(median_of(values[:1]), 1) is None
    assert interval(median_of(np.array([2.0, 2.0])), 2) == (2.0, 2.0)


def test_groups_of_one_size_have_the_same_resamples():
    assert (statistics.resamples(4) == statistics.resamples(4)).all()
    assert statistics.resamples(4).shape == (2000, 4)
    assert set(np.unique(statistics.resamples(4))) == {0, 1, 2, 3}
    # 95 of 100 resampled medians lie within: a known case, the median of 0 and 1 is 0, 0.5 or 1 (1/4, 1/2, 1/4).
    assert interval(median_of(np.array([0.0, 1.0])), 2) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("differences", "p"),
    [
        ([-4, -5, -3], 0.25),
        ([4, 5, 3], 0.25),
        ([-1, -1, -1, -1], 0.125),
        ([1, -1], 1.0),
        ([3, -1], 1.0),  # |3-1| is the least of 2, 4, 4, 2
        ([3, 1], 0.5),
        ([0, 0, 0], 1.0),
        ([-2, 0], 1.0),  # a difference of 0 stays in
        ([-2, -2, 0], 0.5),
        ([-3, -2, 1], 0.5),  # sums 4, 6, 2, 0 of either sign: 4 of 8 are at least 4
        ([0.1, 0.2, 0.3, -0.1, 0.1], 0.25),
    ],
)
def test_permutation_test_by_hand(differences, p):
    assert permutation_test(differences) == (pytest.approx(p), "exact")


def test_permutation_test_of_a_single_pair_is_none():
    assert permutation_test([3.0])[0] is None
    assert permutation_test([])[0] is None


def test_permutation_test_beyond_16_pairs_is_monte_carlo_and_agrees():
    p16, exact = permutation_test([1, -1, 1, 1] * 4)
    assert exact == "exact"
    differences = [1, -1, 1, 1] * 4 + [0]  # a 0 changes nothing
    p17, test = permutation_test(differences)
    assert test.startswith("Monte Carlo")
    assert p17 == permutation_test(differences)[0]
    assert p17 == pytest.approx(p16, abs=0.01)
    assert permutation_test([1.0] * 40)[0] == 1 / 20_001  # never 0


def test_smallest_p_is_attained():
    for pairs in (2, 3, 6):
        assert permutation_test([1.0] * pairs)[0] == smallest_p(pairs)
