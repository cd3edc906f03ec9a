"""How large a model is, and what a GPU and a disk must hold to train it. Pure functions of plain numbers.

All are estimates, made to find a recipe that cannot fit; `docs/scaling.md` has the formulas with their derivation.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal


GIB = 2**30
PROMPT_TOKENS = 2048  # a recipe does not tell its prompts' length; ToolRL's are up to this long
OVERHEAD = 2 * GIB  # CUDA context, NCCL and DeepSpeed buffers, fragmentation: a guess
TILE_TOKENS, TILE_VOCABULARY = 4096, 32768  # TRL 1.16 projects to the vocabulary in tiles of this size

Sharding = Literal["none", "ddp", "zero1", "zero2", "zero3", "fsdp"]


@dataclass(frozen=True)
class Shape:
    """Sizes of a dense decoder with a gated MLP (Llama, Mistral, Qwen2, Qwen3)."""

    hidden: int
    layers: int
    heads: int
    key_value_heads: int
    intermediate: int
    vocabulary: int
    head_size: int
    tied: bool
    qkv_bias: bool = False  # Qwen2
    qk_norm: bool = False  # Qwen3
    context: int | None = None

    @property
    def linears(self) -> dict[str, tuple[int, int]]:
        """Inputs and outputs of each linear layer of one block."""
        query, key = self.heads * self.head_size, self.key_value_heads * self.head_size
        return {
            "q_proj": (self.hidden, query),
            "k_proj": (self.hidden, key),
            "v_proj": (self.hidden, key),
            "o_proj": (query, self.hidden),
            "gate_proj": (self.hidden, self.intermediate),
            "up_proj": (self.hidden, self.intermediate),
            "down_proj": (self.intermediate, self.hidden),
        }

    @property
    def block_parameters(self) -> int:
        """Parameters of one block: its linear layers, two norms, and Qwen's biases or norms of query and key."""
        weights = sum(inputs * outputs for inputs, outputs in self.linears.values())
        bias = sum(self.linears[name][1] for name in ("q_proj", "k_proj", "v_proj")) if self.qkv_bias else 0
        return weights + bias + 2 * self.hidden + (2 * self.head_size if self.qk_norm else 0)

    @property
    def parameters(self) -> int:
        """Parameters of the whole model; a tied head counts once."""
        embeddings = self.vocabulary * self.hidden * (1 if self.tied else 2)
        return embeddings + self.layers * self.block_parameters + self.hidden


def _qwen(hidden: int, layers: int, heads: int, kv: int, intermediate: int, vocabulary: int, tied: bool) -> Shape:
    return Shape(hidden, layers, heads, kv, intermediate, vocabulary, hidden // heads, tied, qkv_bias=True)


# The models of the recipes and of the paper, as their published configurations have them.
KNOWN = {
    "qwen2.5-0.5b": _qwen(896, 24, 14, 2, 4864, 151936, True),
    "qwen2.5-1.5b": _qwen(1536, 28, 12, 2, 8960, 151936, True),
    "qwen2.5-3b": _qwen(2048, 36, 16, 2, 11008, 151936, True),
    "qwen2.5-7b": _qwen(3584, 28, 28, 4, 18944, 152064, False),
    "qwen2.5-14b": _qwen(5120, 48, 40, 8, 13824, 152064, False),
    "qwen2.5-32b": _qwen(5120, 64, 40, 8, 27648, 152064, False),
    "qwen3-4b": Shape(2560, 36, 32, 8, 9728, 151936, 128, tied=True, qk_norm=True),
    "deepseek-r1-distill-qwen-1.5b": _qwen(1536, 28, 12, 2, 8960, 151936, False),
    "deepseek-r1-distill-qwen-7b": _qwen(3584, 28, 28, 4, 18944, 152064, False),
}
EMBEDDED = {"embedded:tiny": 146_000, "embedded:arithmetic": 146_000, "embedded:smollm2": 134_515_008}
IN_NAME = re.compile(r"(?<![a-z0-9.])(\d{1,4}(?:\.\d{1,3})?)([bm])(?![a-z0-9])")


def known_shape(name: str) -> Shape | None:
    """The shape of a known model, by its name on the hub (`-Instruct` and such may follow), or None."""
    base = name.rstrip("/").split("/")[-1].lower()
    return next((shape for key, shape in KNOWN.items() if re.match(rf"{re.escape(key)}(?![a-z0-9.])", base)), None)


def shape_of_config(config: Mapping[str, Any]) -> Shape | None:
    """The shape that a model's `config.json` describes, or None if it is of another kind or not usable."""
    if config.get("model_type") not in ("llama", "mistral", "qwen2", "qwen3"):
        return None
    sizes = {}
    for name in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"):
        value = config.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 10**8:
            return None
        sizes[name] = value
    heads = sizes["num_attention_heads"]
    context = config.get("max_position_embeddings")
    return Shape(
        hidden=sizes["hidden_size"],
        layers=sizes["num_hidden_layers"],
        heads=heads,
        key_value_heads=_integer(config.get("num_key_value_heads"), heads),
        intermediate=sizes["intermediate_size"],
        vocabulary=sizes["vocab_size"],
        head_size=_integer(config.get("head_dim"), max(1, sizes["hidden_size"] // heads)),
        tied=config.get("tie_word_embeddings") is True,
        qkv_bias=config["model_type"] == "qwen2",
        qk_norm=config["model_type"] == "qwen3",
        context=context if isinstance(context, int) and context > 0 else None,
    )


def _integer(value: Any, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**8 else default


def parameters_in_name(name: str) -> int | None:
    """What a name says about a model's size: 7,000,000,000 for `some/model-7B-chat`; None if nothing, or two sizes."""
    if name.startswith("embedded:"):
        return EMBEDDED.get(":".join(name.split(":")[:2]))
    sizes = {
        round(float(number) * {"b": 1e9, "m": 1e6}[unit])
        for number, unit in IN_NAME.findall(name.split("/")[-1].lower())
    }
    return sizes.pop() if len(sizes) == 1 else None


def lora_parameters(shape: Shape, rank: int, targets: Sequence[str] | str | None) -> int:
    """Parameters of LoRA adapters: rank × (inputs + outputs) for every linear layer that they are put on.

    `targets` None is PEFT's default for these models: the query's and the value's projection.
    """
    chosen = ["q_proj", "v_proj"] if targets is None else [targets] if isinstance(targets, str) else list(targets)
    names = shape.linears if "all-linear" in chosen else [name for name in shape.linears if name in chosen]
    return shape.layers * sum(rank * sum(shape.linears[name]) for name in names)


@dataclass(frozen=True)
class Part:
    """One share of a GPU's memory: what it is, its bytes, and the formula with the numbers in it."""

    name: str
    size: int
    formula: str


@dataclass(frozen=True)
class Training:
    """What decides how much memory training needs, apart from the model's shape."""

    processes: int
    sharding: Sharding
    dtype_size: float = 2  # bytes of a parameter as loaded: 2 for bfloat16, 4 for float32, 1 and 0.5 if quantised
    half: bool = True  # bf16 or fp16 training
    lora: int | None = None  # parameters of the adapters
    reference: bool = False  # beta > 0, without adapters
    offload_optimizer: bool = False
    offload_parameters: bool = False
    sequences: int = 8  # per_device_train_batch_size
    completion_tokens: int = 512
    prompt_tokens: int = PROMPT_TOKENS
    checkpointing: bool = True
    fused_head: bool = True  # TRL that projects to the vocabulary in tiles
    generated: int = 0  # sequences that transformers generates at once; 0 with vLLM


def model_states(parameters: int, training: Training) -> list[Part]:
    """Weights, gradients, AdamW's two moments and the reference model on one GPU, in bytes."""
    processes = training.processes
    sharding = training.sharding
    deepspeed = sharding.startswith("zero")
    trained = parameters if training.lora is None else training.lora
    shard_weights = processes if sharding in ("zero3", "fsdp") else 1
    shard_gradients = processes if sharding in ("zero2", "zero3", "fsdp") else 1
    shard_optimizer = processes if deepspeed or sharding == "fsdp" else 1

    # Bytes per trained parameter: weight, gradient, optimiser.
    if deepspeed and training.half:
        weight, gradient, optimizer = 2.0, 2.0, 12.0  # the optimiser's float32 copy and two moments
    elif training.lora is not None or deepspeed or (sharding == "fsdp" and training.half):
        weight, gradient, optimizer = 4.0, 4.0, 8.0  # PEFT, and accelerate's FSDP2, train in float32
    else:
        weight = gradient = float(training.dtype_size)
        optimizer = 2 * gradient

    parts = []

    def add(name: str, count: int, size: float, share: int, off_the_gpu: bool = False) -> None:
        formula = f"{count:,} x {size:g} B" + (f" / {share}" if share > 1 else "")
        parts.append(Part(name, 0 if off_the_gpu else round(count * size / share), formula + ", off" * off_the_gpu))

    if training.lora is not None:
        add("frozen weights", parameters, training.dtype_size, shard_weights, training.offload_parameters)
    add("trained weights", trained, weight, shard_weights, training.offload_parameters)
    add("gradients", trained, gradient, shard_gradients)
    if sharding == "ddp" and processes > 1:
        add("DDP's buckets", trained, gradient, 1)
    add("optimiser", trained, optimizer, shard_optimizer, training.offload_optimizer)
    if training.reference:
        add("reference model", parameters, 2 if deepspeed and training.half else training.dtype_size, shard_weights)
    return parts


def training_peak(shape: Shape, training: Training) -> list[Part]:
    """What forward and backward add: saved activations, one block recomputed, the head, gathered weights."""
    tokens = training.sequences * (training.prompt_tokens + training.completion_tokens)
    size = 2 if training.half else 4
    block = size * tokens * (8 * shape.hidden + 4 * shape.intermediate)
    block_formula = f"{size} B x {tokens:,} tokens x (8 x {shape.hidden} + 4 x {shape.intermediate})"
    if training.checkpointing:
        saved = size * tokens * shape.hidden * shape.layers
        formula = f"{size} B x {tokens:,} tokens x {shape.hidden} x {shape.layers} layers"
        parts = [Part("checkpoints", saved, formula), Part("one block recomputed", block, block_formula)]
    else:
        parts = [Part("activations", block * shape.layers, f"{block_formula} x {shape.layers} layers")]

    completion = training.sequences * training.completion_tokens
    if training.fused_head:
        tile = size * min(completion, TILE_TOKENS) * min(shape.vocabulary, TILE_VOCABULARY)
        gradient = 0 if training.lora is not None else 4 * shape.vocabulary * shape.hidden
        formula = f"a tile of {size} B x {min(completion, TILE_TOKENS):,} x {min(shape.vocabulary, TILE_VOCABULARY):,}"
        if gradient:
            formula += f", and 4 B x {shape.vocabulary:,} x {shape.hidden} for its gradient"
        parts.append(Part("logits", tile + gradient, formula))
    else:
        formula = f"2 x 4 B x {completion:,} completion tokens x {shape.vocabulary:,}"
        parts.append(Part("logits", 8 * completion * shape.vocabulary, formula))
    if training.sharding in ("zero3", "fsdp"):
        largest = max(shape.block_parameters, shape.vocabulary * shape.hidden)
        parts.append(Part("gathered weights", 2 * size * largest, f"2 x {size} B x {largest:,}"))
    return parts


def generation_peak(shape: Shape, training: Training) -> list[Part]:
    """What generation by transformers adds: the cache of all its sequences, and with ZeRO-3 the gathered model."""
    if not training.generated:
        return []
    size = 2 if training.half else 4
    tokens = training.generated * (training.prompt_tokens + training.completion_tokens)
    width = 2 * shape.layers * shape.key_value_heads * shape.head_size
    parts = [
        Part("key-value cache", size * tokens * width, f"{size} B x {tokens:,} tokens x {width:,} keys and values")
    ]
    if training.sharding in ("zero3", "fsdp"):
        parts.append(Part("gathered model", size * shape.parameters, f"{size} B x {shape.parameters:,}"))
    return parts


def total(states: Sequence[Part], train: Sequence[Part], generate: Sequence[Part]) -> int:
    """Bytes on one GPU, without vLLM: what always lies there, and the larger of the two peaks."""
    return (
        sum(part.size for part in states)
        + max(sum(part.size for part in train), sum(part.size for part in generate))
        + OVERHEAD
    )


def checkpoint_size(parameters: int, training: Training, weights_only: bool = False) -> int:
    """Bytes of one checkpoint on disk: weights, and unless `weights_only` the optimiser's state."""
    alone = Training(1, training.sharding, training.dtype_size, training.half, training.lora)
    states = {part.name: part.size for part in model_states(parameters, alone)}
    return states["trained weights"] + (0 if weights_only else states["optimiser"])
