"""A small synthetic tool-calling world in ToolRL's format: requests, answers, and badly made demonstrations.

Each prompt offers three tools and makes one request with two parameter values. In some requests one value is not told
("the usual city"), so no policy can be always right and the correctness reward stays noisy, as it does on real data.
Everything follows from the seed.
"""

import hashlib
import json
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal


if TYPE_CHECKING:
    from datasets import Dataset

Split = Literal["train", "test"]

# The values of each parameter, by the parameter's name.
VALUES: dict[str, tuple[str | int, ...]] = {
    "city": ("Paris", "Rome", "Oslo", "Cairo", "Lima", "Delhi", "Tokyo", "Boston"),
    "day": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
    "hour": (1, 2, 3, 4, 5, 6, 7, 8),
    "count": (2, 3, 4, 5, 6, 7, 8, 9),
    "person": ("Anna", "Ben", "Carla", "David", "Emma", "Felix", "Grace", "Hugo"),
    "dish": ("pizza", "soup", "salad", "pasta", "curry", "rice", "noodles", "tacos"),
    "room": ("kitchen", "bedroom", "office", "garage", "hallway", "attic", "cellar", "lounge"),
    "color": ("red", "blue", "green", "white", "yellow", "orange", "purple", "pink"),
    "genre": ("jazz", "rock", "folk", "soul", "disco", "opera", "swing", "techno"),
    "topic": ("art", "law", "sport", "science", "history", "travel", "health", "money"),
    "language": ("French", "German", "Spanish", "Polish", "Greek", "Hindi", "Arabic", "Danish"),
}

# Each tool's two parameters, and the ways to ask for it.
TOOLS: dict[str, tuple[tuple[str, str], tuple[str, ...]]] = {
    "get_weather": (("city", "day"), ("What is the weather in {0} on {1}?", "Weather for {0} on {1} please.")),
    "find_flight": (("city", "day"), ("Find me a flight to {0} on {1}.", "I want to fly to {0} on {1}.")),
    "book_hotel": (("city", "count"), ("Book a hotel in {0} for {1} guests.", "We need beds in {0} for {1} guests.")),
    "order_food": (("dish", "count"), ("Order {0} for {1} people.", "We want to eat {0} with {1} people.")),
    "set_alarm": (("day", "hour"), ("Set an alarm on {0} at {1}.", "Wake me up on {0} at {1}.")),
    "plan_meeting": (("person", "day"), ("Plan a meeting with {0} on {1}.", "Let me meet {0} on {1}.")),
    "send_message": (("person", "topic"), ("Send {0} a message about {1}.", "Write to {0} about {1}.")),
    "play_music": (("genre", "room"), ("Play {0} in the {1}.", "I want to hear {0} in the {1}.")),
    "set_light": (("room", "color"), ("Turn the {0} light {1}.", "Make the light of the {0} {1}.")),
    "get_news": (("topic", "language"), ("Show me news about {0} in {1}.", "What is new about {0} in {1}?")),
    "find_course": (("language", "hour"), ("Find a {0} course at {1}.", "I want to learn {0} at {1}.")),
    "find_recipe": (("dish", "language"), ("How do I cook {0} in {1}?", "Find a recipe for {0} in {1}.")),
}

SYSTEM = "Call one of these tools:"
UNTOLD = "the usual {0}"
THOUGHTS = ("I should call {0}", "The user wants {0}", "This is a request for {0}", "Of these tools {0} is right")
# What the badly made demonstrations say between the two blocks, and after the tool call.
BETWEEN = ("Here is the call:", "I will call it now.", "Now I use the tool.")
AFTER = ("This is the call.", "The call is made.", "I hope it is right.")

# Between two thoughts, and how many a rambling demonstration has at most.
NEXT_THOUGHT = ". "
MOST_THOUGHTS = 4

OFFERED = 3
AMBIGUOUS = 0.3
HELD_OUT = 0.2


@dataclass(frozen=True)
class Example:
    """A request and its answer.

    Attributes:
        offered: names of the tools that the prompt offers, in their order.
        tool: the one to call.
        values: its two parameters' values, in their order.
        untold: index of the value that the request does not tell, or None.
        phrasing: index of the way of asking.
        thought: index of the answer's thought.
    """

    offered: tuple[str, ...]
    tool: str
    values: tuple[str | int, str | int]
    untold: int | None
    phrasing: int
    thought: int

    @property
    def prompt(self) -> list[dict[str, str]]:
        """The conversation so far: a system message that lists the tools, and the user's request."""
        tools = "".join(f"\n{name}({', '.join(TOOLS[name][0])})" for name in self.offered)
        return [
            {"role": "system", "content": SYSTEM + tools},
            {"role": "user", "content": TOOLS[self.tool][1][self.phrasing].format(*self.told)},
        ]

    @property
    def told(self) -> list[str]:
        """The two values as the request has them."""
        keys = TOOLS[self.tool][0]
        return [UNTOLD.format(keys[i]) if i == self.untold else str(self.values[i]) for i in range(2)]

    @property
    def answer(self) -> str:
        """The reference answer, in ToolRL's format."""
        return f"{_think([self.thought], self.tool)} </think>{_call(self.tool, self.values)}"


def examples(split: Split, size: int, seed: int = 0, ambiguous: float = AMBIGUOUS) -> list[Example]:
    """`size` random examples. The splits share no tool and values as told together, so no request.

    Raises:
        ValueError: `split` is neither "train" nor "test", `size` is less than 1, or `ambiguous` no share.
    """
    if split not in ("train", "test"):
        raise ValueError(f'split must be "train" or "test", not {split!r}.')
    if size < 1:
        raise ValueError(f"size must be at least 1, not {size}.")
    if not 0 <= ambiguous <= 1:
        raise ValueError(f"ambiguous must be from 0 to 1, not {ambiguous}.")
    rng = random.Random(f"{split} {seed}")
    found: list[Example] = []
    while len(found) < size:
        example = _draw(rng, ambiguous)
        if _held_out(example) == (split == "test"):
            found.append(example)
    return found


def tool_calling_dataset(split: Split, size: int, seed: int = 0, ambiguous: float = AMBIGUOUS) -> "Dataset":
    """The world as a dataset for GRPO: conversational `prompt`, and `answer`, a text in ToolRL's format.

    Args:
        split (`str`): `"train"` or `"test"`. They share no request.
        size (`int`): number of rows.
        seed (`int`, *optional*, defaults to 0): the same seed gives the same rows.
        ambiguous (`float`, *optional*, defaults to 0.3): share of requests that do not tell one of the two values.

    Raises:
        ValueError: `split` is unknown, `size` is less than 1, or `ambiguous` no share.
    """
    from datasets import Dataset

    rows = examples(split, size, seed, ambiguous)
    return Dataset.from_list([{"prompt": one.prompt, "answer": one.answer} for one in rows])


def demonstration(
    example: Example,
    rng: random.Random,
    good: float,
    err: float,
    *,
    careless: float | None = None,
    rambling: float = 0.0,
) -> str:
    """A badly made answer: what the policy's warm start imitates.

    Args:
        example ([`Example`]): the request.
        rng (`random.Random`): source of the mistakes.
        good (`float`): chance of each of three format habits to be right: the thoughts are closed; nothing stands
            between thoughts and tool call; nothing stands after the tool call. So `good`³ is the format rate.
        err (`float`): chance of each content slot (the tool, either value) to be wrong.
        careless (`float`, *optional*): `err` where the first two format habits are right, so that format and
            correctness pull against each other. Default: the same.
        rambling (`float`, *optional*, defaults to 0): chance of one more thought after each, four at most.
    """
    close, between, after = (rng.random() < good for _ in range(3))
    if careless is not None and close and between:
        err = careless
    tool = example.tool
    if rng.random() < err:
        tool = rng.choice([name for name in example.offered if name != tool])
    values = []
    for key, wanted in zip(TOOLS[tool][0], example.values, strict=True):
        others = [value for value in VALUES[key] if value != wanted]
        right = wanted in VALUES[key] and rng.random() >= err
        values.append(wanted if right else rng.choice(others))
    thoughts = [rng.randrange(len(THOUGHTS))]
    while rambling and len(thoughts) < MOST_THOUGHTS and rng.random() < rambling:
        thoughts.append(rng.randrange(len(THOUGHTS)))
    return (
        _think(thoughts, tool)
        + (" </think>" if close else "")
        + ("" if between else "\n" + rng.choice(BETWEEN))
        + _call(tool, values)
        + ("" if after else "\n" + rng.choice(AFTER))
    )


def _think(thoughts: list[int], tool: str) -> str:
    return "<think> " + NEXT_THOUGHT.join(THOUGHTS[thought].format(tool) for thought in thoughts)


def _call(tool: str, values: Any) -> str:
    parameters = dict(zip(TOOLS[tool][0], values, strict=True))
    return f"\n<tool_call>\n{json.dumps({'name': tool, 'parameters': parameters})}\n</tool_call>"


def _draw(rng: random.Random, ambiguous: float) -> Example:
    offered = tuple(rng.sample(list(TOOLS), OFFERED))
    tool = rng.choice(offered)
    keys, phrasings = TOOLS[tool]
    return Example(
        offered=offered,
        tool=tool,
        values=(rng.choice(VALUES[keys[0]]), rng.choice(VALUES[keys[1]])),
        untold=rng.randrange(2) if rng.random() < ambiguous else None,
        phrasing=rng.randrange(len(phrasings)),
        thought=rng.randrange(len(THOUGHTS)),
    )


def _held_out(example: Example) -> bool:
    digest = hashlib.sha256(json.dumps([example.tool, *example.told]).encode()).digest()
    return digest[0] < 256 * HELD_OUT
