"""The tiny policy's word-level tokenizer: one token a word of the world, tag or piece of JSON; else one a character.

White space belongs to the tokens, so decoding gives back any printable ASCII text exactly and rewards see what the
policy wrote. A name or value is the same token in request, thought and JSON: the words before it carry the space.
"""

import re
from collections.abc import Iterator

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from . import world


PAD, START, END, UNKNOWN = "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|unk|>"
SPECIAL = (PAD, START, END, UNKNOWN)
ROLES = ("system\n", "user\n", "assistant\n")
TAGS = ("<think> ", " </think>", "\n<tool_call>\n", "\n</tool_call>")
JSON = ('{"name": "', '", "parameters": {', '", ', ", ", '"}}', "}}")
CHARACTERS = ("\n", *map(chr, range(32, 127)))

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def vocabulary() -> list[str]:
    """All tokens, in the order of their ids."""
    return list(dict.fromkeys([*SPECIAL, *ROLES, *TAGS, *JSON, *_keys(), *CHARACTERS, *_names(), *_words()]))


def build_tokenizer() -> PreTrainedTokenizerFast:
    """The tokenizer with its chat template (ChatML). Completions end with `<|im_end|>`; `<|endoftext|>` pads."""
    tokens = vocabulary()
    tokenizer = Tokenizer(models.WordLevel({token: i for i, token in enumerate(tokens)}, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(_pattern(tokens)), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        unk_token=UNKNOWN,
        chat_template=CHAT_TEMPLATE,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )


def _keys() -> list[str]:
    """A parameter's name in JSON, one token with the quotes, so that the value follows from the token before it."""
    return [f'"{key}": ' + '"' * isinstance(values[0], str) for key, values in world.VALUES.items()]


def _names() -> list[str]:
    """What fills the slots of the world's texts."""
    values = [str(value) for values in world.VALUES.values() for value in values]
    return [*world.TOOLS, *world.VALUES, *values, world.UNTOLD.format("")]


def _words() -> Iterator[str]:
    """The words around the slots, with the white space on their left and, before a slot, on their right."""
    phrasings = [phrasing for _, asked in world.TOOLS.values() for phrasing in asked]
    for text in [world.SYSTEM, *phrasings, *world.THOUGHTS, *world.BETWEEN, *world.AFTER]:
        for part in re.split(r"\{\d\}", text):
            yield from re.findall(r" ?[A-Za-z]+(?: $)?", part)


def _pattern(tokens: list[str]) -> str:
    before_slot = {word for word in _words() if word.endswith(" ")}
    followed = f"(?={'|'.join(map(_escape, _names()))})"
    longest_first = sorted(set(tokens) - set(SPECIAL), key=lambda token: (-len(token), token))
    return "|".join(
        [*(_escape(token) + (followed if token in before_slot else "") for token in longest_first), r"[\s\S]"]
    )


def _escape(token: str) -> str:
    # re.escape also escapes blanks and quotes, which Oniguruma, that reads the pattern, does not need.
    return re.sub(r"([\\^$.|?*+(){}\[\]])", r"\\\1", token)
