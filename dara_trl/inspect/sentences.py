"""The result of an inspection in three sentences, for a reader who does not know the words."""

from .figures import Inspection, RewardFigures


FEW_GROUPS = 30
NEARLY_EQUAL = 0.1  # relative difference of densities
STARVED = 0.5  # of the strongest reward's energy
WORTH_TRYING = 1.5  # a weight above it changes something


def three_sentences(inspection: Inspection) -> tuple[str, str, str]:
    """Who supplies the signal, what GRPO's sum hides, and what DARA would do."""
    return _supply(inspection), _hidden(inspection), _advice(inspection)


def _supply(inspection: Inspection) -> str:
    strongest, *others = sorted(inspection.rewards, key=lambda figures: -figures.energy)
    groups = f"{inspection.groups} groups"
    if strongest.density == 0:
        which = "The only reward tells" if not others else "No reward tells"
        verb = "no two" if not others else "any two"
        return f"{which} {verb} rollouts of a prompt apart in any of the {groups}: nothing can be learnt from them."
    apart = f"tells rollouts of a prompt apart in {percent(strongest.density)} of the groups"
    if not others:
        return f"{shown(strongest.name)} is the only reward: it {apart}."
    rest = "; ".join(_other(figures, strongest) for figures in others)
    return f"{shown(strongest.name)} supplies the most signal: it {apart}; {rest}."


def _other(figures: RewardFigures, strongest: RewardFigures) -> str:
    name = shown(figures.name)
    if figures.density == 0:
        return f"{name} never does and supplies none"
    ratio = figures.energy / strongest.energy
    starved = ": starved" if round(ratio, 2) < STARVED else ""
    return f"{name} in {percent(figures.density)}, with {ratio:.2g} times its energy{starved}"


def _hidden(inspection: Inspection) -> str:
    if all(figures.density == 0 for figures in inspection.rewards):
        return "Where no rollouts are told apart, GRPO's sum hides nothing and no rewards conflict."
    if len(inspection.rewards) == 1:
        return "With one reward GRPO's sum has nothing to hide, and nothing can conflict."
    collapse = inspection.collapse
    if collapse.share is None:
        hidden = "No rollout was scored by every reward, so what GRPO's sum hides cannot be told"
    elif collapse.sums == collapse.combinations:
        hidden = "GRPO's sum hides nothing here: different rewards within a group have different sums"
    else:
        hidden = (
            f"GRPO's sum hides {percent(collapse.share)} of the differences: {collapse.combinations} distinct "
            f"combinations of rewards within groups have only {collapse.sums} distinct sums"
        )
    judged = [pair for pair in inspection.pairs if pair.opposite_share_of_both is not None]
    if not judged:
        return f"{hidden}; no rollout is praised or blamed by two rewards at once, so none conflict."
    worst = max(judged, key=lambda pair: pair.opposite_share_of_both or 0.0)
    if not worst.opposite:
        return f"{hidden}; no two rewards pull a rollout in opposite directions."
    names = f"{shown(worst.first)} and {shown(worst.second)}"
    most = " most often" if len(inspection.pairs) > 1 else ""
    return (
        f"{hidden}; {names} conflict{most}: they pull in opposite directions in "
        f"{percent(worst.opposite_share_of_both or 0.0)} of the rollouts that both tell apart."
    )


def _advice(inspection: Inspection) -> str:
    from ..aggregation import METHODS

    counted = [f for f, priority in zip(inspection.rewards, inspection.reward_weights, strict=True) if priority > 0]
    active = [figures for figures in counted if figures.density > 0]
    if not active:
        return (
            "DARA would change nothing: there is no difference to weigh (look for truncated completions, a low "
            "temperature, or rewards that are constant)."
        )
    if "max_weight" not in METHODS[inspection.method].reads:
        ones = ": all have weight 1" if all(figures.weight == 1 for figures in inspection.rewards) else ""
        return f"{inspection.method} does not weigh rewards by density{ones}; --method dara_asym would."
    highest = max(active, key=lambda figures: figures.weight)
    weights = ", ".join(f"{shown(figures.name)} {figures.weight:.2g}" for figures in active)
    if inspection.groups < FEW_GROUPS:
        return (
            f"With {inspection.groups} groups (fewer than {FEW_GROUPS}) it is too early to tell whether DARA is worth "
            f"trying; on these it would give the weights {weights}."
        )
    if len(active) == 1:
        silent = f" (those that are never active keep weight 1: {_names(counted)})" if len(counted) > 1 else ""
        return f"DARA would change nothing: there is one active reward to weigh{silent}; expect the same as GDPO."
    densities = [figures.density for figures in active]
    if max(densities) - min(densities) <= NEARLY_EQUAL * max(densities):
        return "DARA would weigh them nearly equally; expect the same as GDPO."
    cap = (
        f" (at the cap of {inspection.max_weight:g} in {percent(highest.at_cap)} of the batches)"
        if highest.at_cap
        else ""
    )
    silent = f"; it cannot help what is never active ({_names(counted)})" if len(active) < len(counted) else ""
    if highest.weight <= 1 + 1e-6:
        return f"With a cap of {inspection.max_weight:g} DARA gives every reward weight 1; expect the same as GDPO."
    verdict = "worth trying here" if highest.weight >= WORTH_TRYING else "a small difference from GDPO"
    return f"DARA would give the weights {weights}{cap}{silent}: {verdict}."


def _names(counted: list[RewardFigures]) -> str:
    return ", ".join(shown(figures.name) for figures in counted if figures.density == 0)


def percent(share: float) -> str:
    """A share in words that never call a little nothing, nor nearly all all."""
    if 0 < share < 0.01:
        return "under 1 %"
    return "over 99 %" if 0.99 < share < 1 else f"{share:.0%}".replace("%", " %")


def shown(name: str) -> str:
    """The name, with what a terminal would obey written out."""
    return name if name.isprintable() else repr(name)[1:-1]
