"""From a recipe to the memory that it needs on each GPU."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .findings import Finding
from .launch import Launch
from .memory import (
    GIB,
    OVERHEAD,
    PROMPT_TOKENS,
    Part,
    Shape,
    Training,
    generation_peak,
    model_states,
    total,
    training_peak,
)


if TYPE_CHECKING:
    from .machine import Gpu
    from .recipe import Recipe


def training_of(recipe: "Recipe", launch: Launch, shape: Shape | None) -> Training:
    """What of a recipe and its launch decides the memory that is needed."""
    import trl.trainer.utils

    from .recipe import adapter_parameters

    args, model = recipe.args, recipe.model
    assert args is not None
    # The field's default is float32 in TRL 1.16; "auto" is what the checkpoint has, mostly 16 bits.
    size = 4.0 if model.dtype in (None, "float32") else 2.0
    size = 0.5 if model.load_in_4bit else 1.0 if model.load_in_8bit else size
    return Training(
        processes=launch.processes,
        sharding=launch.sharding,
        dtype_size=size,
        half=recipe.truth("bf16") or recipe.truth("fp16"),
        lora=adapter_parameters(recipe, shape),
        reference=args.beta != 0 and not model.use_peft,
        offload_optimizer=launch.offload_optimizer,
        offload_parameters=launch.offload_parameters,
        sequences=args.per_device_train_batch_size,
        completion_tokens=args.max_completion_length or 0,
        checkpointing=args.gradient_checkpointing,
        fused_head=hasattr(trl.trainer.utils, "add_fused_lm_head"),
        generated=0 if args.use_vllm else args.per_device_train_batch_size * (args.steps_per_generation or 1),
    )


def check_memory(recipe: "Recipe", launch: Launch, gpus: Sequence["Gpu"]) -> list[Finding]:
    """The estimate with its formulas, and against the GPUs if there are any."""
    from .machine import check_gpu_memory
    from .recipe import model_shape

    args = recipe.args
    assert args is not None
    if launch.use_cpu or recipe.truth("use_cpu"):
        return []
    shape, parameters, source = model_shape(recipe)
    if parameters is None:
        found = f"unknown: the size of {recipe.name or 'no model'} is not in its name, nor is its config.json here"
        return [Finding("ok", "memory estimate", found)]
    training = training_of(recipe, launch, shape)
    states = model_states(parameters, training)
    train = [] if shape is None else training_peak(shape, training)
    generate = [] if shape is None else generation_peak(shape, training)
    needed = total(states, train, generate)
    head = f"{needed / GIB:.1f} GiB on each GPU ({parameters:,} parameters by {source}; {training.sharding}, "
    head += f"{training.processes} process{'' if training.processes == 1 else 'es'})"
    if shape is None:
        head += ", without activations, as its layers are unknown"
    colocated = args.use_vllm and args.vllm_mode == "colocate"
    if colocated:
        head += f", beside vLLM's {args.vllm_gpu_memory_utilization:.0%} of the GPU"
    findings = [Finding("ok", "memory estimate", head)]
    findings.append(Finding("ok", "memory: always", _formulas([*states, Part("overhead", OVERHEAD, "a guess")])))
    if train:
        text = f"prompts of {PROMPT_TOKENS:,} tokens assumed; {_formulas(train)}"
        findings.append(Finding("ok", "memory: training", text))
    if generate:
        findings.append(Finding("ok", "memory: generation", _formulas(generate)))
    awake = 0.0
    if colocated and not args.vllm_enable_sleep_mode:
        awake = args.vllm_gpu_memory_utilization
    weights = round(2 * parameters / max(1, args.vllm_tensor_parallel_size)) if colocated else 0
    return findings + check_gpu_memory(needed, gpus, awake, weights)


def _formulas(parts: Sequence[Part]) -> str:
    return "; ".join(f"{part.name} {part.size / GIB:.2f} GiB = {part.formula}" for part in parts)
