"""Ground floor: the mathematics of reward aggregation. Needs torch only.

Reading order: `groups` (per-reward group advantages, density, energy), `settings`, one file per method in `methods/`,
`batch_norm` (normalisation over the generation batch), `core` (`aggregate`, which puts them together).

Shape suffixes: N = rollouts in the generation batch (B·G), B = prompt groups, G = rollouts per group, K = rewards.
"""

from .core import AggregationResult, aggregate
from .groups import GroupSignals
from .methods import METHODS, Contributions, Method, MethodSettings
from .settings import SETTINGS, Setting


__all__ = [
    "METHODS",
    "SETTINGS",
    "AggregationResult",
    "Contributions",
    "GroupSignals",
    "Method",
    "MethodSettings",
    "Setting",
    "aggregate",
]
