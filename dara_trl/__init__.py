"""dara_trl: density-aware reward aggregation (DARA) for GRPO training with several rewards, on Hugging Face TRL.

Importing the package is light: torch and trl are imported when a name that needs them is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._version import __version__


if TYPE_CHECKING:
    from .aggregation import METHODS, AggregationResult, aggregate
    from .callbacks import CheckpointRule, DensityEarlyStopping, RewardSchedule
    from .config import DARAGRPOConfig
    from .rewards.gate import gate
    from .trainer import DARAGRPOTrainer

_HOME = {
    "METHODS": ".aggregation",
    "AggregationResult": ".aggregation",
    "aggregate": ".aggregation",
    "CheckpointRule": ".callbacks",
    "DARAGRPOConfig": ".config",
    "DARAGRPOTrainer": ".trainer",
    "DensityEarlyStopping": ".callbacks",
    "RewardSchedule": ".callbacks",
    "gate": ".rewards.gate",
}

__all__ = [
    "METHODS",
    "AggregationResult",
    "CheckpointRule",
    "DARAGRPOConfig",
    "DARAGRPOTrainer",
    "DensityEarlyStopping",
    "RewardSchedule",
    "__version__",
    "aggregate",
    "gate",
]


def __getattr__(name: str) -> Any:
    if name == "aggregation":
        return import_module(".aggregation", __name__)
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name], __name__), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
