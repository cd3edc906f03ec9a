"""Groups, medians, censoring and pairing, on studies whose results are known."""

import json

import pytest
from report_logs import rising, rows, write_run

from dara_trl.cli import CommandError
from dara_trl.report import words
from dara_trl.report.results import Options, analyse, as_json
from dara_trl.report.sources import load_runs
from dara_trl.report.thresholds import Reached


def study(root, *runs, setting="s", **more):
    """Writes (method, seed, values) runs, and analyses them."""
    for method, seed, values in runs:
        write_run(root, method, seed, rows(values), setting=setting)
    return analyse(load_runs([str(root)])[0], Options(**more))


def table(setting, rule, threshold=0):
    tables = {table.rule: table for table in setting.thresholds[threshold].rules}
    return {row.label: row for row in tables[rule].rows}


def paired(root, starts, baseline_starts, length=40, **more):
    runs = [("dara", seed, rising(at, length)) for seed, at in enumerate(starts)]
    runs += [("gdpo", seed, rising(at, length)) for seed, at in enumerate(baseline_starts)]
    (setting,) = study(root, *runs, **more)
    return setting


def test_three_seeds_all_faster(tmp_path):
    setting = paired(tmp_path, [4, 5, 6], [10, 11, 15])
    assert (setting.baseline, list(setting.groups)) == ("gdpo", ["gdpo", "dara"])
    rows_ = table(setting, "median")
    assert rows_["dara"].result == Reached(5)
    assert rows_["gdpo"].result == Reached(11)
    assert rows_["gdpo"].comparison is None
    assert rows_["dara"].seeds == ((0, Reached(4)), (1, Reached(5)), (2, Reached(6)))
    assert rows_["dara"].interval == (Reached(4), Reached(6))
    comparison = rows_["dara"].comparison
    assert (comparison.pairs, comparison.median_difference, comparison.p, comparison.test) == (3, -6, 0.25, "exact")
    assert comparison.ratio == pytest.approx(5 / 11)
    assert comparison.bound == ""
    low, high = comparison.ratio_interval
    assert 4 / 15 <= low <= 5 / 11 <= high <= 6 / 10
    text = " ".join(words.findings(setting)[0].items)
    assert "No difference to gdpo shown" in text
    assert "3 pairs cannot give a p below 0.25" in text
    assert "fewer" not in text


def test_six_seeds_show_a_difference(tmp_path):
    setting = paired(tmp_path, [4, 5, 6, 4, 5, 6], [10, 11, 15, 12, 13, 14])
    finding = words.findings(setting)[0]
    assert finding.head == "format ≥ 0.8, median rule: dara first, at step 5; then gdpo 13."
    assert "dara: fewer steps than gdpo" in finding.items[0]
    assert table(setting, "median")["dara"].comparison.p == 2 / 64


def test_the_median_of_curves_is_not_the_median_of_first_steps(tmp_path):
    # Each seed is once early above the threshold, but never two at a time before step 8.
    curves = [[0.9 if step in (early, 8) else 0.1 for step in range(1, 11)] for early in (1, 3, 5)]
    (setting,) = study(tmp_path, *[("gdpo", seed, values) for seed, values in enumerate(curves)])
    row = table(setting, "median")["gdpo"]
    assert row.result == Reached(8)
    assert [step.step for _, step in row.seeds] == [1, 3, 5]
    assert setting.baseline is None  # a single method is compared to nothing


def test_censored_runs_stay_in(tmp_path):
    setting = paired(tmp_path, [4, 99, 99], [10, 11, 99], length=20)
    lasting = paired(tmp_path, [4, 99, 99], [10, 11, 99], length=20, window=3, stay=2)
    row = table(lasting, "lasting")["dara"]
    assert row.result == Reached(20, reached=False)
    assert [str(step) for _, step in row.seeds] == ["6", "> 20", "> 20"]
    row = table(setting, "median")["dara"]
    assert row.result == Reached(20, reached=False)
    # 4 - 10, 21 - 11, 21 - 21: a pair without difference stays in.
    assert row.comparison.median_difference == 0
    assert row.comparison.mean_difference == pytest.approx((-6 + 10 + 0) / 3)
    assert row.comparison.censored == 3
    assert (row.comparison.bound, row.comparison.ratio) == (">", 21 / 11)
    assert "Not reached: dara (> 20)" in words.findings(setting)[0].head


def test_a_ratio_to_a_run_that_is_not_there_is_a_bound_but_for_the_lasting_rule(tmp_path):
    never = table(paired(tmp_path / "never", [4], [99], length=40), "smoothed")["dara"].comparison
    assert (never.bound, never.ratio) == ("<", 6 / 41)
    lasting = table(paired(tmp_path / "lasting", [4], [99], length=40), "lasting")["dara"].comparison
    assert (lasting.bound, lasting.ratio, lasting.censored) == ("", 12 / 41, 1)


def test_even_number_with_one_censored_middle_value(tmp_path):
    (setting,) = study(tmp_path, ("gdpo", 0, rising(6, 20)), ("gdpo", 1, rising(99, 20)))
    assert table(setting, "smoothed")["gdpo"].result == Reached(8, reached=False)  # more than the lower middle one
    assert str(table(setting, "smoothed")["gdpo"].result) == "> 8"


def test_runs_of_different_length_are_cut_at_the_common_step(tmp_path):
    runs = [("gdpo", 0, rising(30, 40)), ("dara", 0, rising(99, 20)), ("gdpo", 1, rising(9, 40))]
    (setting,) = study(tmp_path, *runs, ("dara", 1, rising(5, 20)))
    comparison = table(setting, "smoothed")["dara"].comparison
    # Seed 0: neither is there at step 20. Seed 1: 7 against 11.
    assert comparison.median_difference == pytest.approx((0 + 7 - 11) / 2)
    assert comparison.censored == 2
    # The median over gdpo's seeds is there at step 30, after dara's log: no ratio.
    assert table(setting, "median")["gdpo"].result == Reached(30)
    assert table(setting, "median")["dara"].comparison.ratio is None
    assert any("end at different steps: gdpo 40, dara 20" in note for note in setting.notes)


def test_the_median_over_runs_of_different_length_is_known_to_the_shortest(tmp_path):
    runs = [
        ("gdpo", 0, rising(30, 40)),
        ("gdpo", 1, rising(30, 40)),
        ("dara", 0, rising(5, 20)),
        ("dara", 1, rising(99)),
    ]
    (setting,) = study(tmp_path, *runs)
    assert table(setting, "median")["dara"].result == Reached(20, reached=False)
    (setting,) = study(tmp_path, ("dara", 1, rising(7)))
    comparison = table(setting, "median")["dara"].comparison
    assert (comparison.bound, comparison.ratio) == ("<", 7 / 21)  # all four are cut at step 20


def test_lasting_step_is_found_again_in_the_cut_log(tmp_path):
    # gdpo's stay of 20 from step 10 ends at 29, after dara's log.
    (setting,) = study(tmp_path, ("gdpo", 0, [1.0] * 40), ("dara", 0, [1.0] * 25))
    assert table(setting, "lasting")["gdpo"].result == Reached(10)
    comparison = table(setting, "lasting")["dara"].comparison
    assert (comparison.median_difference, comparison.censored, comparison.ratio) == (0, 2, None)


def test_pairs_are_by_seed_and_the_rest_is_named(tmp_path):
    runs = [("gdpo", 1, rising(10)), ("gdpo", 2, rising(20)), ("gdpo", 7, rising(30))]
    (setting,) = study(tmp_path, *runs, ("dara", 2, rising(12)), ("dara", 1, rising(8)), ("dara", 5, rising(1)))
    comparison = table(setting, "median")["dara"].comparison
    assert comparison.pairs == 2
    assert comparison.median_difference == (-2 - 8) / 2  # 8 against 10, 12 against 20
    assert any(note.endswith("left out for want of a pair: dara 5, gdpo 7") for note in setting.notes)


def test_one_pair_has_no_p(tmp_path):
    setting = paired(tmp_path, [4], [10])
    comparison = table(setting, "median")["dara"].comparison
    assert (comparison.p, comparison.ratio_interval, comparison.ratio) == (None, None, 0.4)
    assert table(setting, "median")["dara"].interval is None
    assert "Not tested, fewer than two pairs with gdpo: dara, ratio 0.4." in words.findings(setting)[0].items


def test_settings_are_apart(tmp_path):
    study(tmp_path, ("gdpo", 0, rising(10)), setting="a")
    settings = study(tmp_path, ("gdpo", 0, rising(20)), ("dara", 0, rising(5)), setting="b")
    assert [setting.name for setting in settings] == ["a", "b"]
    assert [table(setting, "median")["gdpo"].result for setting in settings] == [Reached(10), Reached(20)]


def test_held_out_rule_only_where_there_are_evaluations(tmp_path):
    write_run(tmp_path, "gdpo", 0, rows(rising(3), evaluations={10: 0.5, 20: 0.8, 30: 0.1}))
    write_run(tmp_path, "gdpo", 1, rows(rising(3), evaluations={10: 0.5, 20: 0.7}))
    write_run(tmp_path, "dara", 0, rows(rising(3)))
    (setting,) = analyse(load_runs([str(tmp_path)])[0], Options())
    rows_ = table(setting, "held_out")
    assert list(rows_) == ["gdpo"]
    assert rows_["gdpo"].seeds == ((0, Reached(20)), (1, Reached(20, reached=False)))
    held_out = next(values for values in setting.values if values.which == "held-out")
    assert [value for _, value in held_out.rows[0].seeds] == [0.1, 0.7]
    (plain,) = study(tmp_path / "plain", ("gdpo", 0, rising(3)))
    assert "held_out" not in {rule.rule for rule in plain.thresholds[0].rules}


def test_final_values_and_density(tmp_path):
    write_run(tmp_path, "gdpo", 0, rows([9.0, 1.0, 2.0, 3.0, 4.0, 5.0], densities={1: 0.25, 6: 0.75}))
    write_run(tmp_path, "dara", 0, rows([9.0, 1.0, 2.0, None, 4.0, 5.0, 6.0]))
    (setting,) = analyse(load_runs([str(tmp_path)])[0], Options())
    values = setting.values[0]
    assert (values.reward, values.which) == ("format", "training")
    assert [row.median for row in values.rows] == [3.0, pytest.approx(18 / 5)]
    assert values.rows[1].comparison.median_difference == pytest.approx(0.6)
    assert (setting.densities[0].first, setting.densities[0].last) == (0.25, 0.75)


def test_options_replace_what_the_runs_say(tmp_path):
    runs = [("gdpo", 0, rising(10, low=0.3)), ("dara", 0, rising(5, low=0.3))]
    (setting,) = study(tmp_path, *runs, thresholds=(("format", 0.2), ("format", 0.85)), baseline="dara")
    assert [found.threshold for found in setting.thresholds] == [0.2, 0.85]
    assert table(setting, "median")["gdpo"].result == Reached(1)
    assert table(setting, "median", 1)["gdpo"].result == Reached(10)
    assert table(setting, "median", 1)["gdpo"].comparison.median_difference == 5
    with pytest.raises(CommandError, match=r"no run has this reward\. Rewards: format, other"):
        study(tmp_path, thresholds=(("gone", 1.0),))
    with pytest.raises(CommandError, match=r"no run has this label\. Labels: dara, gdpo"):
        study(tmp_path, baseline="gone")


def test_window_and_stay_change_the_lasting_rule(tmp_path):
    runs = [("gdpo", 0, rising(10, 40))]
    assert table(study(tmp_path, *runs)[0], "lasting")["gdpo"].result == Reached(18)
    assert table(study(tmp_path, *runs, window=1)[0], "lasting")["gdpo"].result == Reached(10)
    assert not table(study(tmp_path, *runs, stay=24)[0], "lasting")["gdpo"].result.reached


def test_baseline_is_the_runs_own_then_gdpo_then_the_first(tmp_path):
    def chosen(*methods, own=None):
        root = tmp_path / f"{own}-{'-'.join(methods)}"
        for method in methods:
            write_run(root, method, 0, rows(rising(3)), baseline=own)
        return analyse(load_runs([str(root)])[0], Options())[0].baseline

    assert chosen("dara", "gdpo", "grpo", own="grpo") == "grpo"
    assert chosen("dara", "gdpo", own="elsewhere") == "gdpo"
    assert chosen("dara", "gdpo") == "gdpo"
    assert chosen("dara", "grpo") == "dara"


def test_a_run_without_values_of_a_reward_is_named(tmp_path):
    setting = paired(tmp_path, [4], [10])
    write_run(tmp_path, "dara", 1, rows([None] * 40))
    (setting,) = analyse(load_runs([str(tmp_path)])[0], Options())
    assert table(setting, "median")["dara"].seeds == ((0, Reached(4)),)
    assert "dara: no training values of format with seed 1; left out there" in setting.notes


def test_json_has_no_nan_and_says_what_is_not_reached(tmp_path):
    setting = paired(tmp_path, [4, 99], [10, 11], length=20)
    results = json.loads(json.dumps(as_json([setting]), allow_nan=False))
    row = results[0]["thresholds"][0]["rules"][0]["rows"][1]
    assert row["label"] == "dara"
    assert row["seeds"] == [
        {"seed": 0, "value": {"reached": True, "step": 4}},
        {"seed": 1, "value": {"reached": False, "last_step": 20}},
    ]
    assert row["comparison"]["p"] == 1.0
    assert results[0]["groups"]["dara"][0]["revision"] == "0123456789abcdef"
