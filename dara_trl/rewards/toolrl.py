"""The tool-calling rewards of ToolRL, as GDPO and DARA train on them: format, correctness, length of the thoughts.

They follow ToolRL's published scorer (`verl/utils/reward_score/rlla.py`) to the value, equality as Python has it
included: 1.0 and true equal 1, "1" does not. Model output is untrusted, so they are stricter than it where it leans on
chance: the calls end at the first `</tool_call>` after the first `<tool_call>`, every call needs a text `name` and an
object `parameters`; duplicate keys, `NaN`, `Infinity`, lone surrogates and JSON nested deeper than 100 are unparsable.

Completions may be plain texts or conversations. Of a conversation, the assistant messages' texts count, joined by a
newline; tool results and other roles do not.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, Literal


__all__ = ["correctness_reward", "format_reward", "think_length_reward"]

Call = tuple[str, dict[str, Any]]

# What must stand at the start, in between (in this order) and at the end of a completion, keyed by whether the ground
# truth has a tool call and a response.
_LAYOUTS = {
    (True, False): ("<think>", "</think>\n<tool_call>\n", "\n</tool_call>"),
    (False, True): ("<think>", "</think>\n<response>", "</response>"),
    (True, True): ("<think>", "</think>\n<tool_call>\n", "\n</tool_call>\n<response>", "</response>"),
    (False, False): ("<think>", "</think>"),
}
# Deeper JSON is refused here: what Python's parser refuses depends on how deep the caller's own stack is.
_MAX_DEPTH = 100


def format_reward(completions: Sequence[Any], answer: Sequence[str], **kwargs: Any) -> list[float]:
    r"""
    1 if the completion has the structure of its ground truth, else 0. The JSON is not looked at.

    The ground truth says which blocks are due: `<think>…</think>`, then, each after one newline,
    `<tool_call>\n…\n</tool_call>` and `<response>…</response>` as far as it has them. Nothing may stand before or
    after (white space aside), and each tag due must occur exactly once, the think tags aside.

    Args:
        completions (`list[str]` or `list[list[dict]]`):
            Plain or conversational completions.
        answer (`list[str]`):
            Ground truths in ToolRL's format, one per completion.
        **kwargs:
            What else TRL passes to a reward function; ignored.

    Returns:
        `list[float]`: 0.0 or 1.0 per completion.

    Raises:
        `TypeError`, `ValueError`: If `completions` or `answer` is not as described. What a completion says never
        raises.

    Sources: ToolRL (https://huggingface.co/papers/2504.13958), GDPO (https://huggingface.co/papers/2601.05242).
    """
    return [_format(text, ground_truth_blocks(truth)) for text, truth in _pairs(completions, answer)]


def correctness_reward(
    completions: Sequence[Any],
    answer: Sequence[str],
    *,
    inapplicable: Literal["zero", "none"] = "zero",
    **kwargs: Any,
) -> list[float | None]:
    """
    How well the tool calls match those of the ground truth, from -3 to 3.

    3 if the calls equal the reference calls. Else 6·score/S_max - 3, where score is the multiset Jaccard index of the
    tool names plus, for each reference call in turn, the best that an unused call of the same name reaches in (Jaccard
    index of the parameter names + number of equal parameters), and S_max = 1 + Σ (1 + number of parameters) over the
    reference calls. -3 if a tag is missing, a line between the tags is not JSON (a blank line is not), or a call lacks
    its name or parameters.

    A completion's calls are read from its first `<tool_call>` on, so that a mention of the tag in its thoughts costs
    it everything. A ground truth is trusted: what its thoughts mention is passed over (ToolRL's scorer fails on such
    rows).

    Args:
        completions (`list[str]` or `list[list[dict]]`):
            Plain or conversational completions.
        answer (`list[str]`):
            Ground truths in ToolRL's format, one per completion.
        inapplicable (`str`, *optional*, defaults to `"zero"`):
            What a completion gets whose ground truth has no tool call: `"zero"` is ToolRL's 0.0, `"none"` is `None`,
            which leaves the reward out of that prompt. Set it with `functools.partial`.
        **kwargs:
            What else TRL passes to a reward function; ignored.

    Returns:
        `list[float | None]`: A number in [-3, 3] per completion, or what `inapplicable` says.

    Raises:
        `TypeError`, `ValueError`: If `completions`, `answer` or `inapplicable` is not as described. What a completion
        says never raises.

    Sources: ToolRL (https://huggingface.co/papers/2504.13958), GDPO (https://huggingface.co/papers/2601.05242).
    """
    if inapplicable not in ("zero", "none"):
        raise ValueError(f'`inapplicable` must be "zero" or "none", got {inapplicable!r}.')
    otherwise = 0.0 if inapplicable == "zero" else None
    pairs = [(text, ground_truth_blocks(truth)) for text, truth in _pairs(completions, answer)]
    return [_correctness(text, truth) if "<tool_call>" in truth else otherwise for text, truth in pairs]


def think_length_reward(
    completions: Sequence[Any],
    *,
    form: Literal["limit", "toolrl"] = "limit",
    max_words: int = 16,
    **kwargs: Any,
) -> list[float]:
    """
    The length of the thoughts, in words separated by white space: short ones wanted, or, as in ToolRL, long ones.

    The thoughts are what follows the last `<think>`, up to the next `</think>`; as in ToolRL's scorer, up to the end
    of the completion if the only `</think>` comes before. 0 if either tag is missing.

    Args:
        completions (`list[str]` or `list[list[dict]]`):
            Plain or conversational completions.
        form (`str`, *optional*, defaults to `"limit"`):
            `"limit"` gives 1 for at most `max_words` words, else 0. `"toolrl"` gives min(1, round(words / 512, 2)).
        max_words (`int`, *optional*, defaults to `16`):
            The limit of `form="limit"`; `"toolrl"` does not read it.
        **kwargs:
            What else TRL passes to a reward function; ignored.

    Returns:
        `list[float]`: A number in [0, 1] per completion.

    Raises:
        `TypeError`, `ValueError`: If `completions`, `form` or `max_words` is not as described. What a completion says
        never raises.

    Sources: ToolRL (https://huggingface.co/papers/2504.13958), GDPO (https://huggingface.co/papers/2601.05242).
    """
    if form not in ("limit", "toolrl"):
        raise ValueError(f'`form` must be "limit" or "toolrl", got {form!r}.')
    if not isinstance(max_words, int) or isinstance(max_words, bool):
        raise TypeError(f"`max_words` must be a positive int, got {max_words!r}.")
    if max_words < 1:
        raise ValueError(f"`max_words` must be a positive int, got {max_words}.")
    rewards = []
    for text in _texts(completions):
        if "<think>" not in text or "</think>" not in text:
            rewards.append(0.0)
            continue
        words = len(text.rpartition("<think>")[2].partition("</think>")[0].split())
        rewards.append(float(words <= max_words) if form == "limit" else min(1.0, round(words / 512, 2)))
    return rewards


def ground_truth_blocks(truth: str) -> str:
    """What follows the thoughts of a ground truth; all of it if it has none."""
    return truth.rpartition("</think>")[2]


def _format(text: str, truth: str) -> float:
    blocks = [tag for tag in ("tool_call", "response") if f"<{tag}>" in truth]
    if any(text.count(f"<{tag}>") != 1 or text.count(f"</{tag}>") != 1 for tag in blocks):
        return 0.0
    start, *between, end = _LAYOUTS["tool_call" in blocks, "response" in blocks]
    if not text.startswith(start) or not text.endswith(end):
        return 0.0
    # The first place where each piece fits leaves the most room for the rest: linear, where a regex may backtrack.
    position, last = len(start), len(text) - len(end)
    for piece in between:
        found = text.find(piece, position, last)
        if found < 0:
            return 0.0
        position = found + len(piece)
    return 1.0


def _correctness(text: str, truth: str) -> float:
    calls, reference = parse_calls(text), parse_calls(truth)
    if calls is None or reference is None:
        return -3.0
    if calls == reference:
        return 3.0
    names, reference_names = (Counter(name for name, _ in each) for each in (calls, reference))
    score = _jaccard((names & reference_names).total(), len(calls), len(reference))
    unused = defaultdict(list)
    for name, parameters in calls:
        unused[name].append(parameters)
    for name, wanted in reference:
        totals = [_parameter_score(given, wanted) for given in unused[name]]
        best = max(totals, default=0.0)
        if best > 0:
            unused[name].pop(totals.index(best))
            score += best
    return 6 * score / (1 + sum(1 + len(wanted) for _, wanted in reference)) - 3


def _parameter_score(given: dict[str, Any], wanted: dict[str, Any]) -> float:
    common = [key for key in wanted if key in given]
    return _jaccard(len(common), len(given), len(wanted)) + sum(given[key] == wanted[key] for key in common)


def _jaccard(common: int, left: int, right: int) -> float:
    union = left + right - common
    return common / union if union else 1.0


def parse_calls(text: str) -> list[Call] | None:
    """The calls between the first `<tool_call>` and the next `</tool_call>`, or None if they cannot be parsed."""
    _, opening, rest = text.partition("<tool_call>")
    block, closing, _ = rest.partition("</tool_call>")
    if not opening or not closing:
        return None
    try:
        return [_parse_call(line) for line in block.strip().split("\n")]
    except (ValueError, RecursionError):
        return None


def _parse_call(line: str) -> Call:
    call = _DECODER.decode(line)
    if not isinstance(call, dict):
        raise ValueError("a call is a JSON object")
    if line.count("[") + line.count("{") > _MAX_DEPTH:
        _check_depth(call)
    line.encode()  # a lone surrogate has no UTF-8 form,
    if "\\u" in line:  # nor has one that was written as an escape
        json.dumps(call, ensure_ascii=False).encode()
    name, parameters = call.get("name"), call.get("parameters")
    if not isinstance(name, str) or not isinstance(parameters, dict):
        raise ValueError("a call has a name and parameters")
    return name, parameters


def _check_depth(call: dict[str, Any]) -> None:
    level: list[Any] = [call]
    for _ in range(_MAX_DEPTH):
        children = (node.values() if isinstance(node, dict) else node for node in level)
        level = [child for each in children for child in each if isinstance(child, (dict, list))]
    if level:
        raise ValueError(f"JSON nested deeper than {_MAX_DEPTH}")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("duplicate key")
    return found


def _reject(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_reject)


def _pairs(completions: Sequence[Any], answer: Sequence[str]) -> list[tuple[str, str]]:
    texts = _texts(completions)
    if isinstance(answer, str) or not isinstance(answer, Sequence):
        raise TypeError(f"`answer` must be a list of ground truths, one per completion, got {type(answer).__name__}.")
    if len(answer) != len(texts):
        raise ValueError(f"`answer` must have one ground truth per completion: got {len(answer)} for {len(texts)}.")
    for index, truth in enumerate(answer):
        if not isinstance(truth, str):
            raise TypeError(f"`answer[{index}]` must be a str in ToolRL's format, got {type(truth).__name__}.")
    return list(zip(texts, answer, strict=True))


def _texts(completions: Sequence[Any]) -> list[str]:
    if isinstance(completions, str) or not isinstance(completions, Sequence):
        raise TypeError(
            f"`completions` must be a list of texts or of lists of messages, got {type(completions).__name__}."
        )
    return [_text(completion, index).strip() for index, completion in enumerate(completions)]


def _text(completion: Any, index: int) -> str:
    if isinstance(completion, str):
        return completion
    if not isinstance(completion, list) or not all(isinstance(message, dict) for message in completion):
        raise TypeError(
            f"`completions[{index}]` must be a str or a list of message dicts, got {type(completion).__name__}."
        )
    contents = [_content(message, index) for message in completion if message.get("role") == "assistant"]
    return "\n".join(content for content in contents if content)


def _content(message: dict[str, Any], index: int) -> str:
    content = message.get("content")
    if content is None:
        return ""
    if isinstance(content, list) and all(isinstance(block, dict) for block in content):
        content = "".join(block.get("text") or "" for block in content if block.get("type") == "text")
    if not isinstance(content, str):
        raise TypeError(
            f"`completions[{index}]` has a message whose content is a {type(content).__name__}; it must be a str, "
            'a list of {"type": "text", "text": ...} blocks, or None.'
        )
    return content
