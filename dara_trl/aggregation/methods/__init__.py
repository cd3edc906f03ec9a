"""The aggregation methods, one short file each, and the one list that everything else reads.

A method is a function of the batch's `GroupSignals` and the user's `MethodSettings`; it returns `Contributions`. To
add one, write its file and add a line to `METHODS`. A user's own function of this form can be passed wherever a
method's name can.
"""

from .base import Contributions, Method, MethodFunction, MethodSettings
from .dara import dara_asym, dara_sym
from .gdpo import gdpo
from .grpo import grpo
from .static import static_asym, static_sym


_DARA, _GDPO, _GRPO = "arXiv 2610.00574", "arXiv 2601.05242", "arXiv 2402.03300"

METHODS: dict[str, Method] = {
    "grpo": Method(grpo, paper=_GRPO, reads=("scale_rewards",)),
    "gdpo": Method(gdpo, paper=_GDPO, reads=("batch_norm",)),
    "dara_sym": Method(dara_sym, paper=_DARA, reads=("batch_norm", "max_weight")),
    "dara_asym": Method(dara_asym, paper=_DARA, reads=("batch_norm", "max_weight")),
    "static_sym": Method(static_sym, paper=_DARA, reads=("batch_norm", "static_weights")),
    "static_asym": Method(static_asym, paper=_DARA, reads=("batch_norm", "static_weights")),
}

__all__ = ["METHODS", "Contributions", "Method", "MethodFunction", "MethodSettings"]
