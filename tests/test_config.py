"""The configuration: what it accepts, and that nothing contradictory or mistyped passes silently."""

import json
import math

import pytest
from rollouts import config, needed
from trl import TrlParser

from dara_trl import METHODS, DARAGRPOConfig, aggregate
from dara_trl.aggregation import SETTINGS, MethodSettings


def own(signals, given):
    return METHODS["dara_sym"].function(signals, given)


def test_defaults_are_those_of_aggregate(tmp_path):
    import inspect

    defaults = {name: p.default for name, p in inspect.signature(aggregate).parameters.items()}
    args = config(tmp_path)
    assert args.aggregation == defaults["method"]
    for name, setting in SETTINGS.items():
        assert getattr(args, setting.field) == defaults[name] == setting.default, name


def test_every_setting_is_read_and_has_its_four_places():
    fields = DARAGRPOConfig.__dataclass_fields__
    for name, setting in SETTINGS.items():
        readers = [method for method, candidate in METHODS.items() if name in candidate.reads]
        assert readers
        if name != "scale_rewards":
            assert fields[setting.field].metadata["help"].endswith(f"Read by {', '.join(readers)}.")
            assert f"{setting.field} (`" in DARAGRPOConfig.__doc__
        given = {"static_weights": "static_weights_K", "reward_ranges": "reward_ranges_K2"}.get(name, name)
        assert given in MethodSettings.__dataclass_fields__ or name == "batch_norm"
        assert f"{name} (" in aggregate.__doc__
    assert {name for method in METHODS.values() for name in method.reads} == set(SETTINGS)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"aggregation": "dara"}, "aggregation must be one of grpo, gdpo, dara_sym.*'dara'"),
        ({"aggregation": 3}, "aggregation must be one of.*3"),
        ({"aggregation_max_weight": 0.9}, "aggregation_max_weight.*at least 1.*0.9"),
        ({"aggregation_max_weight": "1e-1"}, "aggregation_max_weight.*at least 1.*'1e-1'"),
        ({"aggregation_max_weight": "five"}, "aggregation_max_weight.*'five'"),
        ({"aggregation_max_weight": True}, "aggregation_max_weight.*True"),
        ({"aggregation_max_weight": math.nan}, "aggregation_max_weight.*nan"),
        ({"aggregation_eps": -1.0}, "aggregation_eps.*at least 0.*-1.0"),
        ({"aggregation_eps": None}, "aggregation_eps.*None"),
        ({"aggregation_batch_norm": "batch"}, "aggregation_batch_norm.*sequence, token, none.*'batch'"),
        ({"aggregation_batch_norm": None}, "aggregation_batch_norm.*None"),
        ({"reward_weights": [1.0, "x"]}, r"reward_weights\[1\].*'x'"),
        ({"reward_weights": [-1.0]}, r"reward_weights\[0\].*-1.0"),
        ({"reward_weights": 2.0}, "reward_weights must be a list.*2.0"),
        ({"scale_rewards": "std", "aggregation": "grpo"}, "scale_rewards must be one of group, batch, none.*'std'"),
        ({"aggregation": "static_asym"}, "aggregation='static_asym' needs aggregation_static_weights"),
        ({"aggregation_static_weights": [1, 5]}, "aggregation_static_weights.*no effect.*'dara_asym'.*static_sym"),
        (
            {"aggregation": "gdpo", "aggregation_max_weight": 3.0},
            "aggregation_max_weight=3.0.*no effect.*'gdpo'.*dara",
        ),
        ({"aggregation": "grpo", "aggregation_batch_norm": "token"}, "aggregation_batch_norm.*no effect.*'grpo'"),
        ({"aggregation": "grpo", "aggregation_eps": 1e-6}, "aggregation_eps.*no effect.*'grpo'"),
        ({"scale_rewards": "batch"}, "scale_rewards='batch' has no effect.*drop it, or use grpo"),
        ({"aggregation": "grpo", "aggregation_max_weight": 2}, "or use one of dara_sym, dara_asym"),
        ({"reward_weights": [1, -2]}, r"reward_weights\[1\].*at least 0, not -2; to punish, negate the reward"),
        ({"scale_rewards": False}, "scale_rewards='none' has no effect"),
        ({"multi_objective_aggregation": "normalize_then_sum"}, "contradicts.*drop multi_objective_aggregation"),
        ({"aggregation": "grpo", "multi_objective_aggregation": "normalize_then_sum"}, "contradicts.*'grpo'.*drop"),
        ({"multi_objective_aggregation": "nonsense"}, "multi_objective_aggregation must be.*'nonsense'.*drop it"),
        ({"aggregation": "gdpo", "multi_objective_aggregation": "nonsense"}, "multi_objective_aggregation must be"),
        ({"aggregation": own, "multi_objective_aggregation": "normalize_then_sum"}, "contradicts a function.*drop"),
        ({"aggregation": lambda signals, given: None}, "stored with each checkpoint.*top level of a module"),
        ({"aggregation": METHODS["grpo"].function, "aggregation_eps": 1e-6}, "aggregation_eps.*no effect.*'grpo'"),
        ({"aggregation": METHODS["static_asym"].function}, "'static_asym' needs aggregation_static_weights"),
        ({"aggregation": "static_asym", "aggregation_static_weights": []}, "needs aggregation_static_weights"),
        ({"scale_rewards": ["group"], "aggregation": "grpo"}, "scale_rewards must be one of"),
        ({"aggregation": "dvao", "aggregation_eps": 1e-6}, "aggregation_eps=1e-06 has no effect.*'dvao'"),
        ({"aggregation": "mo_grpo", "aggregation_batch_norm": "none"}, "aggregation_batch_norm.*no effect.*'mo_grpo'"),
        ({"aggregation": "saw"}, "aggregation='saw' needs aggregation_reward_ranges, the lowest and the highest"),
        ({"aggregation": "sa_mrpo", "aggregation_reward_ranges": []}, "needs aggregation_reward_ranges"),
        ({"aggregation_reward_ranges": [[0, 1]]}, "aggregation_reward_ranges.*no effect.*one of saw, sa_mrpo"),
        ({"aggregation": "saw", "aggregation_reward_ranges": [0, 1, 2]}, "reward_ranges must be two numbers for each"),
        ({"aggregation": "saw", "aggregation_reward_ranges": [[0, 1], 2, 3]}, "reward_ranges must be two numbers for"),
        ({"aggregation": "saw", "aggregation_reward_ranges": [[0, 1, 2], [3]]}, "reward_ranges must be two numbers"),
        (
            {"aggregation": "saw", "aggregation_reward_ranges": [0, 1, 3, 3]},
            r"ranges\[1\].*lowest below.*\[3.0, 3.0\]",
        ),
        ({"aggregation": "saw", "aggregation_reward_ranges": [0, "x"]}, r"aggregation_reward_ranges\[0\].*'x'"),
        ({"aggregation": "saw", "aggregation_reward_ranges": 3}, "aggregation_reward_ranges must be a list.*3"),
        ({"aggregation_saturation_exponent": 1.0}, "saturation_exponent=1.0 has no effect.*drop it, or use sa_mrpo"),
        ({"aggregation": "rvpo", "aggregation_risk_aversion": -1}, "aggregation_risk_aversion.*at least 0.*-1"),
        ({"aggregation_risk_aversion": 2}, "aggregation_risk_aversion=2.0 has no effect.*or use rvpo"),
        ({"aggregation": "gdpo", "aggregation_conflict_filter": "hard"}, "no effect.*one of dara_sym, dara_asym"),
        (
            {"aggregation_conflict_filter": "soft"},
            "aggregation_conflict_filter must be one of none, hard, snr.*'soft'",
        ),
        ({"aggregation": "gd2po_snr", "aggregation_snr_threshold": 1.5}, "snr_threshold.*from 0 to 1, not 1.5"),
        ({"aggregation": "gd2po_hard", "aggregation_snr_threshold": 0.5}, "snr_threshold=0.5 has no.*gd2po_snr"),
        ({"aggregation_snr_threshold": 0.5}, "no effect without aggregation_conflict_filter='snr'"),
        ({"aggregation_calibration": "covariance"}, "aggregation_calibration='covariance' has no.*or use dara_sym"),
    ],
)
def test_contradictions_and_wrong_types_are_named(tmp_path, fields, words):
    with pytest.raises(ValueError, match=words):
        config(tmp_path, **fields)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_accepted(tmp_path, method):
    assert config(tmp_path, aggregation=method, **needed(method, 2)).aggregation == method


def test_numbers_that_yaml_reads_as_strings(tmp_path):
    """YAML 1.1 takes 1e-1, without a point, for a string."""
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        f"output_dir: {tmp_path}\nuse_cpu: true\nbf16: false\nreward_weights: [1e-1, 1]\n"
        "aggregation_max_weight: 2e0\naggregation_eps: 1e-6\n"
    )
    (args,) = TrlParser(DARAGRPOConfig).parse_args_and_config(["--config", str(recipe)])
    assert args.reward_weights == [0.1, 1.0]
    assert args.aggregation_max_weight == 2.0
    assert args.aggregation_eps == 1e-6


def test_command_line(tmp_path):
    (args,) = TrlParser(DARAGRPOConfig).parse_args_and_config(
        ["--output_dir", str(tmp_path), "--use_cpu", "--bf16", "false", "--aggregation", "static_sym"]
        + ["--aggregation_static_weights", "1", "5", "--aggregation_batch_norm", "token"]
    )
    assert args.aggregation_static_weights == [1.0, 5.0]
    assert args.aggregation_batch_norm == "token"
    (args,) = TrlParser(DARAGRPOConfig).parse_args_and_config(
        ["--output_dir", str(tmp_path), "--use_cpu", "--bf16", "false", "--aggregation", "sa_mrpo"]
        + ["--aggregation_reward_ranges", "0", "1", "-3", "3e0", "--aggregation_saturation_exponent", "1e-1"]
    )
    assert args.aggregation_reward_ranges == [[0, 1], [-3, 3]]
    assert args.aggregation_saturation_exponent == 0.1


@pytest.mark.parametrize("written", ["[[0, 1], [-3, 3e0]]", "[0, 1, -3, 3]"])
def test_ranges_in_yaml_and_in_a_stored_configuration(tmp_path, written):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        f"output_dir: {tmp_path}\nuse_cpu: true\nbf16: false\naggregation: dara_asym\n"
        "aggregation_conflict_filter: snr\naggregation_snr_threshold: 3e-1\n"
    )
    (args,) = TrlParser(DARAGRPOConfig).parse_args_and_config(["--config", str(recipe)])
    assert args.aggregation_snr_threshold == 0.3
    recipe.write_text(
        f"output_dir: {tmp_path}\nuse_cpu: true\nbf16: false\naggregation: saw\naggregation_reward_ranges: {written}\n"
    )
    (args,) = TrlParser(DARAGRPOConfig).parse_args_and_config(["--config", str(recipe)])
    assert args.aggregation_reward_ranges == [[0, 1], [-3, 3]]
    stored = json.loads(args.to_json_string())["aggregation_reward_ranges"]
    assert config(tmp_path, aggregation="saw", aggregation_reward_ranges=stored).aggregation_reward_ranges == stored


def test_fields_survive_a_round_trip(tmp_path):
    args = config(tmp_path, aggregation="dara_sym", aggregation_max_weight=3.0)
    stored = json.loads(args.to_json_string())
    assert stored["aggregation"] == "dara_sym"
    assert stored["aggregation_max_weight"] == 3.0


def test_function_as_method_is_logged_by_name(tmp_path):
    args = config(tmp_path, aggregation=own)
    assert callable(args.aggregation)
    assert json.loads(args.to_json_string())["aggregation"] == "own"
    assert config(tmp_path, aggregation=METHODS["dara_sym"].function).aggregation == "dara_sym"
