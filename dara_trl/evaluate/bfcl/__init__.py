"""BFCL-v4 (Berkeley Function-Calling Leaderboard): its cases and checkers, asked and answered in ToolRL's format.

The cases, the checkers and the simulated APIs are those of the registry package `bfcl-eval`, unchanged.
"""

from .cases import CATEGORIES, GROUPS, Case, load_cases
from .episode import Episode
from .scores import scores
from .verdict import Verdict, judge


__all__ = ["CATEGORIES", "GROUPS", "Case", "Episode", "Verdict", "judge", "load_cases", "scores"]
