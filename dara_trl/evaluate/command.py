"""What the evaluations have in common: which models, with which backend, into which folder."""

import argparse
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..cli import CommandError
from .generation import Backend, Sampling, ServerBackend, TransformersBackend, VllmBackend


LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class Model:
    """A model to evaluate: what it is called in tables and folders, and where it is."""

    label: str
    path: str | None


def add_model_arguments(parser: argparse.ArgumentParser, *, max_new_tokens: int, output: str) -> None:
    parser.add_argument(
        "--model",
        action="append",
        default=[],
        metavar="[LABEL=]PATH",
        help="checkpoint folder, hub id or embedded name; repeatable, to compare. With --server the name that it "
        "serves, if it serves several",
    )
    parser.add_argument(
        "--backend",
        choices=["auto", "transformers", "vllm", "server"],
        default="auto",
        help="auto: the server if --server is given, else vLLM where it is installed with a GPU, else transformers",
    )
    parser.add_argument("--server", metavar="URL", help="http://host:port of a running `vllm serve`")
    parser.add_argument("--temperature", type=_at_least_zero, default=0.6, help="default: 0.6")
    parser.add_argument("--top-p", type=_share, default=0.95, help="default: 0.95")
    parser.add_argument(
        "--max-new-tokens", type=positive, default=max_new_tokens, help=f"default: {max_new_tokens:,}".replace(",", "")
    )
    parser.add_argument("--seed", type=int, default=0, help="of the sampling (default: 0)")
    parser.add_argument("--limit", type=positive, help="only the first so many cases of each set")
    parser.add_argument(
        "--batch-size", type=positive, default=16, help="transformers: conversations in a batch (default: 16)"
    )
    parser.add_argument(
        "--at-once", type=positive, default=128, help="server, vLLM: conversations at the same time (default: 128)"
    )
    parser.add_argument(
        "--answer-seconds", type=positive, default=3600, help="server: wait so long for one answer (default: 3600)"
    )
    parser.add_argument("--dtype", default="auto", help="of the weights: auto, bfloat16, float32 (default: auto)")
    parser.add_argument("--device", help="transformers: cuda, cpu, ... (default: a GPU if there is one)")
    parser.add_argument("--tensor-parallel-size", type=positive, default=1, help="vLLM in this process (default: 1)")
    parser.add_argument(
        "--output", type=Path, default=Path(output), help=f"folder for all results (default: {output})"
    )
    parser.add_argument("--rescore", action="store_true", help="score what is saved in --output again; needs no model")
    parser.add_argument("--json", action="store_true", help="print the results as JSON instead of the table")


def models(args: argparse.Namespace) -> list[Model]:
    """What `--model` asks for.

    Raises:
        CommandError: none is given, a label is no name for a folder, or two are the same.
    """
    given = args.model or ([None] if args.server else [])
    if not given:
        raise CommandError("--model PATH is needed (or --server URL, or --rescore).")
    if args.server and len(given) > 1:
        raise CommandError("--server serves one model; evaluate the next with another call and the same --output.")
    found: list[Model] = []
    for text in given:
        label, path = None, text
        match = re.match(rf"({LABEL.pattern})=(.+)", text or "")
        if match:
            label, path = match[1], match[2]
        label = label or re.sub(r"[^A-Za-z0-9._-]+", "-", Path(text or "server").name).strip("-.") or "model"
        if label in [one.label for one in found]:
            raise CommandError(f"--model: two models are called {label}. Give labels: --model LABEL=PATH.")
        found.append(Model(label, path))
    return found


def sampling(args: argparse.Namespace) -> Sampling:
    return Sampling(args.temperature, args.top_p, args.max_new_tokens, args.seed)


def backend_name(args: argparse.Namespace) -> str:
    """The backend that `auto` means here.

    Raises:
        CommandError: `--server` and `--backend` contradict each other.
    """
    if (args.server is not None) != (args.backend == "server") and (args.server or args.backend == "server"):
        if args.backend == "auto":
            return "server"
        raise CommandError(f"--backend {args.backend} and --server {args.server or '(none)'} do not go together.")
    if args.backend != "auto":
        return str(args.backend)
    if find_spec("vllm") is not None:
        import torch

        if torch.cuda.is_available():
            return "vllm"
    return "transformers"


def settings(args: argparse.Namespace, model: Model) -> dict[str, Any]:
    """What a model's answers depend on, whatever the evaluation."""
    return {"model": model.path, "backend": backend_name(args), "dtype": args.dtype, **asdict(sampling(args))}


def open_backend(args: argparse.Namespace, model: Model) -> Backend:
    """Loads the model, or finds it at the server.

    Raises:
        CommandError: it cannot be had; says why.
    """
    name = backend_name(args)
    if name == "server":
        return ServerBackend(args.server, model.path, at_once=args.at_once, answer_seconds=args.answer_seconds)
    assert model.path is not None
    if name == "vllm":
        parallel = {"tensor_parallel_size": args.tensor_parallel_size}
        return VllmBackend(model.path, at_once=args.at_once, dtype=args.dtype, settings=parallel)
    return TransformersBackend(model.path, batch_size=args.batch_size, dtype=args.dtype, device=args.device)


def evaluated(folder: Path) -> Iterator[tuple[str, Path]]:
    """The labels and folders of all models that have been evaluated into a folder, the earliest first.

    Raises:
        CommandError: there are none.
    """
    found = [path.parent for path in folder.glob("*/settings.json")] if folder.is_dir() else []
    if not found:
        raise CommandError(f"--output {folder} has no evaluated models: its subfolders have no settings.json.")
    for path in sorted(found, key=lambda path: ((path / "settings.json").stat().st_mtime_ns, path.name)):
        yield path.name, path


def cut_by_context(settings: Mapping[str, Any], answers: Iterable[tuple[int, bool]]) -> int:
    """How many answers, each given as its tokens and whether it ended by itself, the model's context cut off."""
    return sum(not finished and tokens < settings["max_new_tokens"] for tokens, finished in answers)


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return value


def _at_least_zero(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number of at least 0")
    return value


def _share(text: str) -> float:
    value = float(text)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0 and at most 1")
    return value
