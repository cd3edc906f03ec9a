"""Conversations in the form in which ToolRL trains: tools in the system message, the dialogue in one user message."""

import json
from collections.abc import Iterable, Sequence
from typing import Any


SYSTEM = """\
You are a helpful multi-turn dialogue assistant capable of leveraging tool calls to solve user tasks and provide \
structured chat responses.

**Available Tools**
In your response, you can use the following tools:
{tools}

**Steps for Each Turn**
1. **Think:** Recall relevant context and analyze the current user goal.
2. **Decide on Tool Usage:** If a tool is needed, specify the tool and its parameters.
3. **Respond Appropriately:** If a response is needed, generate one while maintaining consistency across user queries.

**Output Format**
```plaintext
<think> Your thoughts and reasoning </think>
<tool_call>
{{"name": "Tool name", "parameters": {{"Parameter name": "Parameter content", "... ...": "... ..."}}}}
{{"name": "... ...", "parameters": {{"... ...": "... ...", "... ...": "... ..."}}}}
...
</tool_call>
<response> AI's final response </response>
```

**Important Notes**
1. You must always include the `<think>` field to outline your reasoning. Provide at least one of `<tool_call>` or \
`<response>`. Decide whether to use `<tool_call>` (possibly multiple times), `<response>`, or both.
2. You can invoke multiple tool calls simultaneously in the `<tool_call>` fields. Each tool call should be a JSON \
object with a "name" field and an "parameters" field containing a dictionary of parameters. If no parameters are \
needed, leave the "parameters" field an empty dictionary.
3. Refer to the previous dialogue records in the history, including the user's queries, previous `<tool_call>`, \
`<response>`, and any tool feedback noted as `<obs>` (if exists)."""


def messages(functions: Sequence[dict[str, Any]], history: Iterable[str]) -> list[dict[str, str]]:
    """The conversation: the tools that are offered, and what was said, called and observed so far."""
    tools = "\n".join(_tool(number, function) for number, function in enumerate(functions, 1))
    dialogue = "**Dialogue Records History**\n" + "\n\n".join(history)
    return [{"role": "system", "content": SYSTEM.format(tools=tools)}, {"role": "user", "content": dialogue}]


def user(text: str) -> str:
    """A user's turn in the history."""
    return f"<user> {text} </user>"


def observed(output: str, names: Sequence[str], results: Sequence[str]) -> str:
    """A model's output in the history, with what its calls gave."""
    found = [{"name": name, "results": _value(result)} for name, result in zip(names, results, strict=True)]
    return f"{output.strip()}\n<obs> {json.dumps(found)} </obs>"


def _tool(number: int, function: dict[str, Any]) -> str:
    given = function["parameters"]
    required = given.get("required", [])
    parameters = {name: _parameter(one, name in required) for name, one in given.get("properties", {}).items()}
    description = " ".join(str(function.get("description", "")).split("\n"))
    return f"{number}. Name: {function['name']}\nDescription: {description}\nParameters: {json.dumps(parameters)}"


def _parameter(one: dict[str, Any], required: bool) -> dict[str, Any]:
    """Description, type and default as in the training data, where a type may say ", optional"; then the rest."""
    kind = str(one.get("type", "any")) + ("" if required else ", optional")
    rest = {key: value for key, value in one.items() if key not in ("description", "type", "default")}
    return {"description": one.get("description", ""), "type": kind, "default": one.get("default", ""), **rest}


def _value(result: str) -> Any:
    try:
        value = json.loads(result)
    except ValueError:
        return result
    return value if isinstance(value, dict | list) else result
