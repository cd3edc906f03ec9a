"""The aggregation methods, one short file each, and the one list that everything else reads.

A method is a function of the batch's `GroupSignals` and the user's `MethodSettings`; it returns `Contributions`. To
add one, write its file and add a line to `METHODS`. A user's own function of this form can be passed wherever a
method's name can. All see one generation batch and keep no state between steps.
"""

from .base import Contributions, Method, MethodFunction, MethodSettings
from .corr_grpo import CORR_GRPO
from .dara import DARA_ASYM, DARA_SYM
from .dvao import DVAO
from .gd2po import GD2PO_HARD, GD2PO_SNR
from .gdpo import GDPO
from .grpo import GRPO
from .mo_grpo import MO_GRPO
from .rvpo import RVPO
from .sa_mrpo import SA_MRPO
from .saw import SAW
from .static import STATIC_ASYM, STATIC_SYM


METHODS: dict[str, Method] = {
    "grpo": GRPO,
    "gdpo": GDPO,
    "dara_sym": DARA_SYM,
    "dara_asym": DARA_ASYM,
    "static_sym": STATIC_SYM,
    "static_asym": STATIC_ASYM,
    "mo_grpo": MO_GRPO,
    "corr_grpo": CORR_GRPO,
    "dvao": DVAO,
    "saw": SAW,
    "sa_mrpo": SA_MRPO,
    "gd2po_hard": GD2PO_HARD,
    "gd2po_snr": GD2PO_SNR,
    "rvpo": RVPO,
}

__all__ = ["METHODS", "Contributions", "Method", "MethodFunction", "MethodSettings"]
