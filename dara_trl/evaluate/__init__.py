"""Top floor: `dara-trl eval`: what a trained model can do, by the official checkers, on the user's machine."""

import argparse
import importlib


TASKS = {
    "math": ("math", "pass@1, and how often a length limit is exceeded, on any mathematics problems with references"),
    "bfcl": (
        "function_calling",
        "BFCL-v4 by its own checkers: function calls in one turn and in many, in ToolRL's format",
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    tasks = parser.add_subparsers(dest="task", required=True, metavar="task")
    for name, (module, text) in TASKS.items():
        importlib.import_module(f".{module}", __name__).add_arguments(
            tasks.add_parser(name, help=text, description=text)
        )


def run(args: argparse.Namespace) -> int:
    status: int = importlib.import_module(f".{TASKS[args.task][0]}", __name__).run(args)
    return status
