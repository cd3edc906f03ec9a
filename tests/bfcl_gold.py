"""BFCL's references as a perfect model would write them, in ToolRL's format."""

import ast
import json

from dara_trl.evaluate.bfcl import Case


# The references that no output in this format can meet, and why.
NOT_TO_BE_HAD = {
    "simple_java_36": "the checker makes texts of the elements of an ArrayList<any>",
    "simple_java_65": "the checker makes texts of the elements of an ArrayList<any>",
    "live_simple_106-63-0": "a required parameter has no allowed value",
    "live_simple_112-68-0": "a required parameter has no allowed value",
    "live_multiple_862-181-3": "the reference names a parameter that the function lacks",
    "live_multiple_964-207-0": "the reference names a parameter that the function lacks",
    "multi_turn_miss_func_49": "the reference calls a function two turns before it is offered",
}
RESPONSE = "<think> It is done. </think>\n<response> Done. </response>"


def gold_outputs(case: Case) -> list[list[str]]:
    """The outputs by turn."""
    if not case.multi_turn:
        calls = [_call(one, case) for one in case.answer]
        return [[_written(calls)]]
    turns = []
    for texts in case.answer:
        calls = [_parsed(text, case) for text in texts]
        turns.append([_written(calls), RESPONSE] if calls else [RESPONSE])
    return turns


def _written(calls):
    lines = "\n".join(json.dumps({"name": name, "parameters": values}) for name, values in calls)
    return f"<think> I call what is needed. </think>\n<tool_call>\n{lines}\n</tool_call>"


def _call(answer, case):
    ((name, parameters),) = answer.items()
    document = next(one for one in case.row["function"] if one["name"] == name)
    found = {}
    for key, allowed in parameters.items():
        values = [value for value in allowed if value != ""]
        lacking = key not in document["parameters"]["properties"] and "" in allowed
        if lacking or not (values or (allowed and key in document["parameters"]["required"])):
            continue
        value = _first(values[0]) if values else ""
        document_of = document["parameters"]["properties"].get(key, {})
        if case.category == "simple_java":
            value = _java(value, document_of["type"], document_of.get("items", {}).get("type"))
        elif case.category == "simple_javascript":
            value = _javascript(value, document_of["type"])
        found[key] = value
    return name, found


def _first(value):
    """The first allowed value of each entry of a dictionary, in lists too."""
    if isinstance(value, list):
        return [_first(one) for one in value]
    if not isinstance(value, dict):
        return value
    chosen = {key: next((one for one in allowed if one != ""), "") for key, allowed in value.items()}
    return {key: one for key, one in chosen.items() if one != "" or "" not in value[key] or len(value[key]) == 1}


def _java(value, kind, nested):
    if isinstance(value, str):
        return value
    if kind in ("Array", "ArrayList"):
        quoted = kind == "ArrayList" and nested in ("String", "char")
        elements = ", ".join(f'"{one}"' if quoted else _java(one, nested, None) for one in value)
        if kind == "Array":
            return f"new {nested}[]{{{elements}}}"
        return f"new ArrayList<>(Arrays.asList({elements}))" if value else "new ArrayList<>()"
    if kind == "HashMap":
        entries = " ".join(f'put("{key}", {json.dumps(one)});' for key, one in value.items())
        return f"new HashMap<String, Object>() {{{{ {entries} }}}}"
    return json.dumps(value) + {"long": "L", "float": "f"}.get(kind, "")


def _javascript(value, kind):
    if isinstance(value, str):
        return value
    return json.dumps(value) + ("n" if kind == "Bigint" else "")


def _parsed(text, case):
    call = ast.parse(text, mode="eval").body
    name = call.func.id
    late = [one for each in case.row.get("missed_function", {}).values() for one in each]
    document = next(one for one in [*case.row["function"], *late] if one["name"] == name)
    order = list(document["parameters"]["properties"])
    values = {order[i]: ast.literal_eval(one) for i, one in enumerate(call.args)}
    return name, values | {one.arg: ast.literal_eval(one.value) for one in call.keywords}
