"""Top floor: `dara-trl doctor`, which looks at a machine and a recipe before hours of GPU time are spent.

It trains nothing, downloads nothing, and asks a server only what changes nothing. `recipe`, `batches`, `launch`,
`machine` and `server` check; `memory` has the formulas of size; `findings` shows the result.
"""

import argparse
import contextlib
import os
import sys
from pathlib import Path

from ..cli import CommandError
from .findings import Finding, as_json, show


__all__ = ["add_arguments", "examine", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recipe", nargs="?", type=Path, help="the recipe, a YAML file; without it the machine alone")
    parser.add_argument("--accelerate-config", type=Path, metavar="FILE", help="what accelerate launch will be given")
    parser.add_argument("--num-processes", type=int, metavar="N", help="processes over all machines")
    parser.add_argument(
        "--recipe-only", action="store_true", help="check the files alone: no packages, GPUs, server, W&B or disk"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Prints the findings. Returns 1 if there is an error among them."""
    if args.num_processes is not None and not 1 <= args.num_processes <= 100_000:
        raise CommandError(f"--num-processes must be at least 1, not {args.num_processes}.")
    if args.recipe_only and args.recipe is None and args.accelerate_config is None:
        raise CommandError("--recipe-only needs a recipe or --accelerate-config.")
    with contextlib.redirect_stdout(sys.stderr):  # what the packages print when they are imported
        findings = examine(args.recipe, args.accelerate_config, args.num_processes, recipe_only=args.recipe_only)
    if args.json:
        print(as_json(findings))
    else:
        show(findings)
    return 1 if any(finding.level == "error" for finding in findings) else 0


def examine(
    recipe_file: Path | None = None,
    accelerate_config: Path | None = None,
    num_processes: int | None = None,
    *,
    recipe_only: bool = False,
) -> list[Finding]:
    """All checks, in the order in which they are shown.

    Args:
        recipe_file: the recipe; None checks the machine alone.
        accelerate_config: the file that `accelerate launch` gets.
        num_processes: over all machines; None: what the file says, else one for each GPU.
        recipe_only: leave out what depends on this machine.
    """
    from . import machine, memory
    from .estimate import check_memory, training_of
    from .launch import check_launch_with_recipe, read_launch
    from .recipe import Recipe, check_settings, model_shape, number_of_checkpoints, read_recipe
    from .server import check_server, is_local

    gpus = [] if recipe_only else machine.visible_gpus()
    launch, findings = read_launch(accelerate_config, num_processes, default=max(1, len(gpus)))
    recipe: Recipe | None = None
    if recipe_file is not None:
        recipe, recipe_findings = read_recipe(recipe_file, launch.processes)
        findings += recipe_findings
    args = None if recipe is None else recipe.args
    shape, parameters, _ = (None, None, "") if recipe is None else model_shape(recipe)
    if recipe is not None and args is not None:
        saves = args.save_strategy != "no"
        on_cpu = launch.use_cpu or recipe.truth("use_cpu")
        findings += check_launch_with_recipe(
            launch, args.gradient_accumulation_steps, saves, on_cpu, recipe.truth("bf16")
        )
        findings += check_settings(recipe, launch.processes, None if shape is None else shape.context)
        findings += check_memory(recipe, launch, gpus)
    if recipe_only:
        return findings

    needed = machine.needed_packages(recipe, launch)
    server = None if recipe is None else recipe.server_url
    machine_findings = machine.check_versions(needed)
    machine_findings += machine.check_gpus(
        gpus, recipe, launch, server is not None and is_local(server), os.environ.get("CUDA_VISIBLE_DEVICES")
    )
    if server is not None and recipe is not None and args is not None:
        scale_out = machine.vllm_has_scale_out(machine.installed_version("vllm"))
        findings += check_server(server, recipe.name, args.vllm_group_port, scale_out)
    if recipe is not None and "wandb" in recipe.report_to:
        findings.append(machine.check_wandb(os.environ, Path.home(), Path.cwd()))
    if recipe is not None and args is not None:
        one = None
        if parameters is not None:
            one = memory.checkpoint_size(parameters, training_of(recipe, launch, shape), args.save_only_model)
        folder = Path(args.output_dir or "trainer_output")
        findings.append(machine.check_disk(folder, one, number_of_checkpoints(args)))
    return machine_findings + findings
