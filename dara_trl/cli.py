"""Top floor: the command `dara-trl`. Each subcommand is a module with `add_arguments(parser)` and `run(args)`."""

import argparse
import importlib
import sys
from collections.abc import Sequence


# Name of the subcommand: its module, and its line in `dara-trl --help`. Only the module that runs is imported.
COMMANDS = {
    "compare": ("dara_trl.compare", "train a grid of methods, settings and seeds; resumable"),
    "doctor": ("dara_trl.doctor", "check a machine and a recipe before GPU time is spent; trains nothing"),
    "report": ("dara_trl.report", "figures, thresholds and tests over the logs of any runs, as one HTML page"),
    "inspect": ("dara_trl.inspect", "what each reward supplies in the completions that a GRPO run logged"),
    "eval": ("dara_trl.evaluate", "judge trained models by official checkers"),
}


class CommandError(Exception):
    """What the user gave cannot be worked with; the message says what would be right."""


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point. Returns the exit status: 2 for bad input, a full disk and such, explained without a traceback."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(prog="dara-trl", description="Density-aware reward aggregation: its tools.")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="command")
    chosen = arguments[0] if arguments else None
    modules = {}
    for name, (module, text) in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=text, description=text)
        if name == chosen:
            modules[name] = importlib.import_module(module)
            modules[name].add_arguments(subparser)
    args = parser.parse_args(arguments)
    try:
        status: int = modules[args.command].run(args)
    except BrokenPipeError:  # `dara-trl … | head`
        sys.stdout = None  # what is left has no reader
        return 1
    except (CommandError, OSError) as error:  # of the latter the message names the file
        print(f"dara-trl {args.command}: {error}", file=sys.stderr)
        return 2
    return status
