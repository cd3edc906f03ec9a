"""The recipe: what is in it, whether TRL and DARA take it, and settings that are allowed but seldom meant."""

import contextlib
import difflib
import math
import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NoReturn

from trl import ModelConfig, TrlParser

from ..config import DARAGRPOConfig
from .batches import Batches, check_batches
from .files import FileError, read_yaml
from .findings import Finding, short
from .memory import Shape, known_shape, lora_parameters, parameters_in_name, shape_of_config


SMALLEST_LORA_RATE = 5e-6
MANY_COMPLETIONS = 64

# The machine is checked elsewhere; here the fields are, on any machine.
NEUTRAL = {
    **{"use_cpu": True, "bf16": False, "fp16": False, "tf32": None, "bf16_full_eval": False, "fp16_full_eval": False},
    **{"deepspeed": None, "fsdp": None, "fsdp_config": None, "report_to": "none", "push_to_hub": False},
}
# A process that a launcher started would wait for its companions.
LAUNCHERS = ("ACCELERATE_", "RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_", "OMPI_", "PMI_", "MV2_", "MPI_", "CCL_")


@dataclass(frozen=True)
class Recipe:
    """A recipe's fields as given, and as TRL and DARA read them (None if they refuse them)."""

    given: Mapping[str, Any]
    args: DARAGRPOConfig | None = None
    model: ModelConfig = field(default_factory=ModelConfig)

    def truth(self, name: str) -> bool:
        """A switch as given; `bf16` is on unless something else is said, as in TRL."""
        value = self.given.get(name)
        if value is None and name == "bf16":
            return not self.truth("fp16")
        return value if isinstance(value, bool) else str(value).lower() in ("true", "yes", "1", "y", "t")

    @property
    def report_to(self) -> list[str]:
        """Names of the trackers."""
        value = self.given.get("report_to") or []
        return [str(name) for name in value] if isinstance(value, list) else [str(value)]

    @property
    def name(self) -> str:
        """The model's name or path."""
        return str(self.given.get("model_name_or_path") or "")

    @property
    def server_url(self) -> str | None:
        """Where the recipe's vLLM server is, or None if it has none."""
        if not self.truth("use_vllm") or self.given.get("vllm_mode") != "server":
            return None
        if self.given.get("vllm_server_base_url"):
            return str(self.given["vllm_server_base_url"])
        return f"http://{self.given.get('vllm_server_host', '0.0.0.0')}:{self.given.get('vllm_server_port', 8000)}"


class _Parser(TrlParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def read_recipe(path: Path, processes: int) -> tuple[Recipe | None, list[Finding]]:
    """Reads a recipe and checks its fields for a process count. The recipe is None if the file cannot be read."""
    try:
        given = read_yaml(path)
    except FileError as error:
        return None, [Finding("error", "recipe", str(error), "give a recipe as in examples/configs/")]
    given.pop("env", None)
    findings = _check_names(given)
    known = {name: value for name, value in given.items() if name in _known_fields()}
    sizes = _batches(known, processes)
    changes: dict[str, Any] = {}
    if sizes is not None:
        batch_findings = check_batches(sizes)
        findings += batch_findings
        if any(finding.level == "error" for finding in batch_findings):
            # Sizes that divide, so that what else is wrong is found in the same run.
            changes = {"per_device_train_batch_size": 2, "num_generations": 2, "per_device_eval_batch_size": 2}
            changes |= {"num_generations_eval": 1, "generation_batch_size": None, "steps_per_generation": 8}
            changes |= {"gradient_accumulation_steps": 8, "num_iterations": 1}
    try:
        args, model = _parse({**known, **NEUTRAL, **changes}, processes)
    except Exception as error:  # a hostile value can fail anywhere in TRL, transformers or here
        found = short(str(error).strip() or type(error).__name__, 500).strip("'\"")
        findings.append(Finding("error", "recipe", found, "correct the field that is named"))
        return Recipe(given), findings
    findings.insert(0, Finding("ok", "recipe", f"{path}: read for {processes} process{'es' if processes > 1 else ''}"))
    return Recipe(given, args, model), findings


def _known_fields() -> set[str]:
    return {one.name for kind in (DARAGRPOConfig, ModelConfig) for one in fields(kind)}


def _check_names(given: Mapping[str, Any]) -> list[Finding]:
    known = _known_fields()
    findings, yours = [], []
    for name in given:
        if name in known:
            continue
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
        if close:
            advice = f"if you mean {close[0]}, write it so; if it is a field of your script, never mind"
            findings.append(Finding("warning", "recipe", f"{short(name)} is no field of TRL's or DARA's", advice))
        else:
            yours.append(short(name).strip("'"))
    if yours:
        findings.append(Finding("ok", "recipe", f"for your script: {', '.join(yours)[:500]}"))
    return findings


def _batches(known: Mapping[str, Any], processes: int) -> Batches | None:
    """The sizes, or None if one is no whole number, which the parser explains better."""
    optional = ("steps_per_generation", "generation_batch_size", "num_generations_eval")
    defaults = {
        **{"per_device_train_batch_size": 8, "gradient_accumulation_steps": 1, "num_generations": 8},
        **{"num_iterations": 1, "per_device_eval_batch_size": 8, **dict.fromkeys(optional)},
    }
    sizes: dict[str, Any] = {}
    for name, default in defaults.items():
        value = known.get(name, default)
        try:
            sizes[name] = None if value is None and name in optional else int(value)
        except (TypeError, ValueError, OverflowError):
            return None
        if (isinstance(value, float) and value != sizes[name]) or abs(sizes[name] or 0) > 10**7:
            return None
    return Batches(
        processes=processes,
        per_device=sizes["per_device_train_batch_size"],
        accumulation=sizes["gradient_accumulation_steps"],
        num_generations=sizes["num_generations"],
        steps_per_generation=sizes["steps_per_generation"],
        generation_batch_size=sizes["generation_batch_size"],
        num_iterations=sizes["num_iterations"],
        evaluates=str(known.get("eval_strategy", "no")) not in ("no", "False"),
        per_device_eval=sizes["per_device_eval_batch_size"],
        num_generations_eval=sizes["num_generations_eval"],
    )


def _parse(known: dict[str, Any], processes: int) -> tuple[DARAGRPOConfig, ModelConfig]:
    class Config(DARAGRPOConfig):
        world_size = processes  # of which TRL's rules are to speak

    parser = _Parser((Config, ModelConfig))  # type: ignore[arg-type]
    parser.set_defaults_with_config(**known)
    with _no_launcher(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about defaults that TRL itself sets
        args, model = parser.parse_args_into_dataclasses(args=[])
    for one in fields(Config):
        value = getattr(args, one.name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if type(one.default) in (int, float) and value is not None and not is_number and one.name in known:
            raise ValueError(f"{one.name} must be a number, not {short(value)}")  # the parser converts strings alone
    return args, model


@contextlib.contextmanager
def _no_launcher() -> Iterator[None]:
    hidden = {name: value for name, value in os.environ.items() if name.startswith(LAUNCHERS)}
    for name in hidden:
        del os.environ[name]
    try:
        yield
    finally:
        for name in [name for name in os.environ if name.startswith(LAUNCHERS)]:
            del os.environ[name]
        os.environ.update(hidden)


def check_settings(recipe: Recipe, processes: int, context: int | None = None) -> list[Finding]:
    """Settings that are allowed each for itself, but together are seldom meant.

    Args:
        recipe: one whose `args` could be read.
        processes: how many train.
        context: the longest sequence of the model, if known.
    """
    args = recipe.args
    assert args is not None
    findings = [*_check_rewards(recipe, args), *_check_saving(args)]
    updates = (args.steps_per_generation or 1) * args.num_iterations / args.gradient_accumulation_steps
    resumes = _saves(args) and args.save_strategy == "steps" and args.save_steps >= 1
    if resumes and updates > 1 and args.save_steps % updates:
        found = f"save_steps {args.save_steps:g} falls inside a generation batch of {updates:g} updates"
        advice = (
            f"save_steps: {math.ceil(args.save_steps / updates) * updates:g}; TRL does not store what is generated"
        )
        findings.append(Finding("warning", "checkpoints", found, advice + ", so a resumed run would differ"))

    if not args.log_completions:
        found = "not logged; log_completions: true keeps them for `dara-trl inspect`"
        findings.append(Finding("ok", "completions", found))
    elif args.num_completions_to_print is None and (args.generation_batch_size or 0) > MANY_COMPLETIONS:
        found = f"all {args.generation_batch_size:,} completions are printed at each log"
        findings.append(Finding("warning", "completions", found, "num_completions_to_print: 4"))
    else:
        findings.append(Finding("ok", "completions", "logged"))

    length = args.max_completion_length
    if context is not None and length is not None:
        if length >= context:
            found = f"max_completion_length {length:,} leaves no room for a prompt in the model's {context:,} tokens"
            advice = f"max_completion_length below {context:,} less your longest prompt"
            findings.append(Finding("error", "lengths", found, advice))
        else:
            found = f"max_completion_length {length:,} leaves {context - length:,} tokens for the prompt"
            findings.append(Finding("ok", "lengths", found))
    if args.use_vllm and args.vllm_mode == "colocate":
        findings += _check_colocate(args, processes)
    if recipe.model.use_peft:
        rate = args.learning_rate
        if rate < SMALLEST_LORA_RATE:
            advice = "adapters usually need ten times the rate of full training or more: learning_rate: 1.0e-5"
            findings.append(Finding("warning", "LoRA", f"learning_rate {rate:g} is small", advice))
        else:
            findings.append(Finding("ok", "LoRA", f"rank {recipe.model.lora_r}, learning_rate {rate:g}"))
    return findings


def _check_rewards(recipe: Recipe, args: DARAGRPOConfig) -> list[Finding]:
    rewards = recipe.given.get("rewards")
    if not isinstance(rewards, list):
        return []
    findings = []
    for name in ("reward_weights", "aggregation_static_weights"):
        weights = getattr(args, name)
        if weights is not None and len(weights) != len(rewards):
            found = f"{name} has {len(weights)} entries, rewards has {len(rewards)}"
            findings.append(Finding("error", "rewards", found, f"give {name} one number for each reward"))
    return findings or [Finding("ok", "rewards", f"{len(rewards)}")]


def _saves(args: DARAGRPOConfig) -> bool:
    return str(getattr(args.save_strategy, "value", args.save_strategy)) != "no"


def number_of_checkpoints(args: DARAGRPOConfig) -> int | None:
    """How many checkpoints lie on the disk in the end; None if it depends on the data."""
    if not _saves(args):
        return 0
    strategy = str(getattr(args.save_strategy, "value", args.save_strategy))
    if strategy == "steps" and 0 < args.save_steps < 1:
        count: int | None = math.ceil(1 / args.save_steps)
    elif strategy == "steps" and args.max_steps > 0 and args.save_steps > 0:
        count = math.ceil(args.max_steps / args.save_steps)
    else:
        count = None
    if args.save_total_limit is not None:
        return args.save_total_limit if count is None else min(count, args.save_total_limit)
    return count


def _check_saving(args: DARAGRPOConfig) -> list[Finding]:
    strategy = str(getattr(args.save_strategy, "value", args.save_strategy))
    if strategy == "no":
        found = "save_strategy is no: a run that dies is lost"
        return [Finding("warning", "checkpoints", found, "fine for short runs; else save_strategy: steps, save_steps")]
    if strategy == "steps" and args.max_steps > 0 and args.save_steps >= args.max_steps:
        found = f"save_steps {args.save_steps:g} of max_steps {args.max_steps}: none before the end"
        return [Finding("warning", "checkpoints", found, f"save_steps: {max(1, args.max_steps // 4)}")]
    count = number_of_checkpoints(args)
    kept = "as many as the data take" if count is None else f"{count}"
    return [Finding("ok", "checkpoints", f"{kept} kept")]


def _check_colocate(args: DARAGRPOConfig, processes: int) -> list[Finding]:
    findings = []
    parallel = args.vllm_tensor_parallel_size
    if parallel < 1 or processes % parallel:
        found = f"vllm_tensor_parallel_size {parallel} does not divide {processes} processes"
        divisors = [number for number in range(1, processes + 1) if processes % number == 0]
        findings.append(Finding("error", "vLLM", found, f"one of {', '.join(map(str, divisors))}"))
    window, length = args.vllm_max_model_length, args.max_completion_length
    if window is not None and length is not None and window <= length:
        found = f"vllm_max_model_length {window:,} holds no prompt beside max_completion_length {length:,}"
        findings.append(Finding("error", "vLLM", found, "at least the longest prompt plus max_completion_length"))
    if not 0 < args.vllm_gpu_memory_utilization < 1:
        found = f"vllm_gpu_memory_utilization is {args.vllm_gpu_memory_utilization}"
        findings.append(Finding("error", "vLLM", found, "a share of the GPU's memory, such as 0.3"))
    return findings or [Finding("ok", "vLLM", f"colocated, {args.vllm_gpu_memory_utilization:.0%} of each GPU")]


def model_shape(recipe: Recipe) -> tuple[Shape | None, int | None, str]:
    """Shape and number of parameters of the recipe's model, as far as known without a network, and from where."""
    config = _local_config(recipe)
    shape = shape_of_config(config) if config is not None else None
    if shape is not None:
        return shape, shape.parameters, "its config.json"
    shape = known_shape(recipe.name)
    if shape is not None:
        return shape, shape.parameters, "its name"
    return None, parameters_in_name(recipe.name), "its name"


def adapter_parameters(recipe: Recipe, shape: Shape | None) -> int | None:
    """Parameters of the recipe's LoRA adapters; None without LoRA. Without a shape: 1 % of the model, a guess."""
    if not recipe.model.use_peft:
        return None
    if shape is None:
        return (parameters_in_name(recipe.name) or 0) // 100
    return lora_parameters(shape, recipe.model.lora_r, recipe.model.lora_target_modules)


def _local_config(recipe: Recipe) -> dict[str, Any] | None:
    """The model's config.json, from its folder or from the hub's cache on this machine."""
    from huggingface_hub import try_to_load_from_cache

    name = recipe.name
    try:
        path: Any = Path(name) / "config.json"
        if not path.is_file():
            path = try_to_load_from_cache(name, "config.json", revision=recipe.model.model_revision)
        return read_yaml(Path(path)) if isinstance(path, str | Path) and Path(path).is_file() else None  # JSON is YAML
    except (FileError, OSError, ValueError):  # ValueError: a name that can be no repository's
        return None
