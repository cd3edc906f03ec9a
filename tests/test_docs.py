"""The code and figures in docs/ that a reader would copy or believe."""

import random
import re
import runpy
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_rewards import random_rewards, tensor

from dara_trl import METHODS, aggregate


DOCS = Path(__file__).parent.parent / "docs"
NAMES: dict = {}
exec(re.search(r"```python\n(.*?)```", (DOCS / "dara_em.md").read_text(encoding="utf-8"), re.DOTALL)[1], NAMES)
dara_em = NAMES["dara_em"]


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([2, 3, 8]), st.sampled_from([1.0, 1.5, 5.0, 1e3]), st.booleans())
def test_dara_em_matches_the_strongest_energy_until_the_cap(seed, size, cap, some_none):
    rewards = tensor(random_rewards(random.Random(seed), 16, size, 4, 0.3 * some_none)).float()
    result = aggregate(rewards, num_generations=size, method=dara_em, eps=0.0, max_weight=cap)
    channels_KGB = result.signals.advantages_KGB
    weights_K11 = result.weights_K.view(-1, 1, 1)
    amplified_K = (torch.where(channels_KGB > 0, weights_K11, 1.0) * channels_KGB).square().sum(dim=(1, 2))
    strongest = result.energy_K.max()
    for k in range(4):
        if result.energy_K[k] == 0:
            assert result.weights_K[k] == 1
        elif result.at_cap_K[k]:
            assert result.weights_K[k] == cap
            assert amplified_K[k] <= strongest * (1 + 1e-5)
        else:
            torch.testing.assert_close(amplified_K[k], strongest, rtol=1e-5, atol=1e-5)
    assert (result.calibrated_energy_K <= amplified_K * (1 + 1e-5)).all()  # what the group means take off
    assert (result.calibrated_energy_K >= result.energy_K * (1 - 1e-5)).all()


@pytest.mark.parametrize("none_rate", [0.0, 0.3])
def test_groups_of_dara_em_have_no_mean_of_their_own(none_rate):
    rewards = tensor(random_rewards(random.Random(3), 16, 8, 3, none_rate)).float()
    rewards[:96, 0] = 0  # sparse, so that it is amplified
    result = aggregate(rewards, num_generations=8, method=dara_em, batch_norm="none")
    assert result.weights_K[0] > 1.5
    if none_rate == 0:
        group_sums_B = result.advantages_N.view(16, 8).sum(dim=1)
        torch.testing.assert_close(group_sums_B, torch.zeros(16), atol=1e-5, rtol=0)
    unscored_NK = rewards.isnan()
    alone = aggregate(rewards[:, :1], num_generations=8, method=dara_em, batch_norm="none")
    assert (alone.advantages_N[unscored_NK[:, 0]] == 0).all()


def test_methods_are_as_written_from_the_lists():
    script = runpy.run_path(str(DOCS.parent / "examples" / "study" / "methods_table.py"))
    assert (DOCS / "methods.md").read_text(encoding="utf-8") == script["render"](), (
        "run examples/study/methods_table.py"
    )


@pytest.mark.slow
def test_asynchronous_experiment_gives_the_published_figures():
    script = runpy.run_path(str(DOCS.parent / "examples" / "study" / "asynchronous.py"))
    assert (DOCS / "asynchronous.md").read_text(encoding="utf-8") == script["render"](), (
        "run examples/study/asynchronous.py"
    )


def test_studys_figures_are_found():
    script = runpy.run_path(str(DOCS.parent / "examples" / "study" / "methods_table.py"))
    found = script["studied"]((DOCS / "study.md").read_text(encoding="utf-8"))
    assert {"gdpo", "grpo", "dara_sym", "dara_asym", "static_5"} <= set(found)
    assert set(found["dara_sym"]) == set(script["REGIMES"])
    assert all(
        re.fullmatch(r">?\d\.?\d* ?(\([+-]\d\.\d\d\))?", cell) for row in found.values() for cell in row.values()
    )


def test_every_method_is_in_the_readme_and_says_what_it_is():
    text = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    for name, method in METHODS.items():
        assert f"`{name}`" in text, name
        assert re.fullmatch(r"arXiv \d{4}\.\d{5}", method.paper), name
        assert all((method.equation, method.helps, method.hurts)), name
