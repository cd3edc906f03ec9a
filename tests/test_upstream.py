"""The seams of TRL that the trainer leans on. When an upgrade moves one, the message says which."""

import inspect

import pytest
from trl import GRPOConfig, GRPOTrainer
from trl.trainer import utils


SOURCE = inspect.getsource(GRPOTrainer)

SIGNATURES = {
    "_calculate_rewards": ["self", "inputs", "prompts", "completions", "completion_ids_list"],
    "_generate_and_score_completions": ["self", "inputs"],
    "_log_completion_extra": ["self", "column", "values"],
    "_compute_loss": ["self", "model", "inputs"],
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_overridden_methods_keep_their_signature(name):
    method = getattr(GRPOTrainer, name, None)
    assert method is not None, f"TRL has no GRPOTrainer.{name} any more: DARAGRPOTrainer overrides it"
    found = list(inspect.signature(method).parameters)
    assert found == SIGNATURES[name], f"GRPOTrainer.{name} now takes {found}: see DARAGRPOTrainer.{name}"


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        ("rewards_per_func = self._calculate_rewards(", "rewards no longer come from _calculate_rewards"),
        ("rewards_per_func = gather(rewards_per_func)", "_calculate_rewards no longer gathers over all processes"),
        ('"advantages": advantages,', "advantages are no longer handed on as output['advantages']"),
        ("self.accelerator.process_index * len(prompts)", "a process's slice of the advantages is cut differently"),
        ('self._logs["advantages"].extend(', "the completions table is no longer filled from _logs['advantages']"),
        ('self._metrics[mode]["frac_reward_zero_std"].append(', "frac_reward_zero_std is no longer logged there"),
        ('mode = "train" if self.model.training else "eval"', "the mode is no longer told from model.training"),
        ("self.reward_func_names", "rewards are no longer named by reward_func_names"),
        ("self.num_generations_eval", "evaluation no longer has its own number of generations"),
        ("self.reward_weights", "priorities are no longer kept in reward_weights"),
        ('output["tool_mask"] = tool_mask', "tool tokens are no longer masked by output['tool_mask']"),
        ("completion_mask * tool_mask", "the loss no longer masks tool tokens by tool_mask"),
    ],
)
def test_lines_that_the_trainer_leans_on(lines, what):
    assert lines in SOURCE, f"TRL moved a seam of DARAGRPOTrainer: {what}"


def test_advantages_table_is_bounded_by_the_generation_batch():
    assert '"advantages": deque(maxlen=args.generation_batch_size)' in SOURCE, (
        "_logs['advantages'] is no deque bounded by the generation batch: see DARAGRPOTrainer._replace_advantages"
    )


def test_arguments_that_are_passed_by_position():
    found = list(inspect.signature(GRPOTrainer.__init__).parameters)[:4]
    assert found == ["self", "model", "reward_funcs", "args"], f"GRPOTrainer now begins with {found}"


@pytest.mark.parametrize(
    ("name", "default"),
    [("multi_objective_aggregation", "sum_then_normalize"), ("scale_rewards", "group"), ("reward_weights", None)],
)
def test_config_fields_that_are_checked(name, default):
    field = GRPOConfig.__dataclass_fields__.get(name)
    assert field is not None, f"GRPOConfig has no {name} any more: DARAGRPOConfig checks it"
    assert field.default == default, f"GRPOConfig.{name} now defaults to {field.default!r}"


def test_helpers_that_are_imported():
    assert callable(getattr(utils, "get_config_model_id", None)), "trl.trainer.utils.get_config_model_id is gone"


def test_identity_attributes():
    for name in ("_tag_names", "_name", "_paper"):
        assert hasattr(GRPOTrainer, name), f"TRL's model card no longer reads {name}"
