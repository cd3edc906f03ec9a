"""Offline, few threads, and a random-weight model so small that a training step takes a tenth of a second."""

import os


os.environ.update(
    HF_HUB_OFFLINE="1",
    HF_HUB_DISABLE_TELEMETRY="1",
    WANDB_MODE="offline",
    WANDB_SILENT="true",
    TOKENIZERS_PARALLELISM="false",
)
os.environ.setdefault("OMP_NUM_THREADS", "1")

from pathlib import Path

import pytest


SHARED = Path(__file__).resolve().parents[2] / "shared"

CHAT_TEMPLATE = (
    "{% for tool in tools or [] %}<s>{{ tool['function']['name'] }}{% endfor %}"
    "{% for message in messages %}"
    "<{{ 't' if message['role'] == 'tool' else message['role'][0] }}>{{ message['content'] or '' }}"
    "{% for call in message.get('tool_calls') or [] %}<t>{{ call['function']['name'] }}"
    "{{ call['function']['arguments'] | tojson }}{% endfor %}.{% endfor %}"
    "{% if add_generation_prompt %}<a>{% endif %}"
)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real ToolRL and math data, which lie beside the project and are no part of it."""
    if not (SHARED / "data").is_dir():
        pytest.skip(f"needs the real data beside the project ({SHARED.name}/data), which is absent")
    return SHARED / "data"


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Folder of a random 1-layer Qwen2 over the letters a to p, with a chat template."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    words = ["<pad>", "<eos>", "<unk>", "<u>", "<a>", "<s>", "<t>", *"abcdefghijklmnop", "."]
    raw = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    raw.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
        additional_special_tokens=["<u>", "<a>", "<s>", "<t>"],
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(words),
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=256,
            bos_token_id=None,
            eos_token_id=1,
            pad_token_id=0,
        )
    )
    folder = tmp_path_factory.mktemp("tiny_model")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)
