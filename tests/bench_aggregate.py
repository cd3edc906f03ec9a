"""`aggregate` against TRL's own GDPO lines on the same tensor, alternating in one run: `make bench`.

Absolute times depend on the machine; the ratio is what counts.
"""

import time
from statistics import median

import torch
from trl.trainer.utils import nanstd

from dara_trl import METHODS, aggregate


def trl_gdpo(rewards_NK: torch.Tensor, num_generations: int, weights_K: torch.Tensor) -> torch.Tensor:
    """The arithmetic of TRL 1.16's `normalize_then_sum` branch, to be timed beside ours."""
    unscorable = torch.isnan(rewards_NK).all(dim=1)
    grouped = rewards_NK.view(-1, num_generations, rewards_NK.shape[1])
    z = (grouped - torch.nanmean(grouped, dim=1, keepdim=True)) / (nanstd(grouped, dim=1, keepdim=True) + 1e-4)
    total = (z.view(-1, rewards_NK.shape[1]) * weights_K.unsqueeze(0)).nansum(dim=1)
    total[unscorable] = torch.nan
    std = nanstd(total).expand_as(total)
    advantages = (total - torch.nanmean(total)) / (std + 1e-4)
    torch.isclose(std, torch.zeros_like(std))
    return torch.nan_to_num(advantages, nan=0.0)


def compare(
    num_rollouts: int, num_rewards: int, num_generations: int, method: str, repeats: int
) -> tuple[float, float]:
    """Median seconds of TRL's lines and of `aggregate`."""
    generator = torch.Generator().manual_seed(0)
    rewards_NK = (torch.rand(num_rollouts, num_rewards, generator=generator) < 0.3).float()
    weights_K = torch.ones(num_rewards)
    theirs, ours = [], []
    for _ in range(repeats):
        start = time.perf_counter()
        trl_gdpo(rewards_NK, num_generations, weights_K)
        middle = time.perf_counter()
        aggregate(rewards_NK, num_generations=num_generations, method=method)
        theirs.append(middle - start)
        ours.append(time.perf_counter() - middle)
    return median(theirs), median(ours)


def main() -> None:
    print(f"{torch.get_num_threads()} threads, G = 4; times in ms, medians")
    print(f"{'N':>8} {'K':>2} {'method':>10} {'TRL GDPO':>9} {'aggregate':>9} {'ratio':>6}")
    for num_rollouts in (8_192, 131_072, 1_048_576):
        for num_rewards in (2, 8):
            for method in (name for name, candidate in METHODS.items() if not candidate.needs):
                theirs, ours = compare(num_rollouts, num_rewards, 4, method, 60 if num_rollouts < 10_000 else 7)
                print(
                    f"{num_rollouts:>8} {num_rewards:>2} {method:>10} "
                    f"{theirs * 1e3:>9.2f} {ours * 1e3:>9.2f} {ours / theirs:>6.2f}"
                )


if __name__ == "__main__":
    main()
