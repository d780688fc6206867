"""Tools and structured outputs: what a client sends here is compiled in the engine's process."""

import json
from typing import Any

from serve.access.errors import bad_field, shown
from serve.access.regexes import nested_repeats

MAX_SPEC_BYTES = 1 << 14  # of a schema, regex or choices: compiling it, in the engine, takes the square
MAX_NESTED = 500  # copies of a sign that repeats within repeats make: `(a{1,20}){1,20}` 400; see regexes.py
TOOLS = ("function", "custom", "namespace")
_REGEXES = ("pattern", "regex", "whitespace_pattern")
_TEXT_SCHEMAS = ("json", "structural_tag")


def check_tools(value: Any) -> None:
    """Tools are named functions with schemas: other kinds name servers to call."""
    for tool in value if isinstance(value, list) else []:
        kind = tool.get("type", "function") if isinstance(tool, dict) else None
        if kind not in TOOLS:
            raise bad_field("tools", f"tools of type {shown(kind)} are not accepted; known: {', '.join(TOOLS)}")
        function = tool.get("function", tool)  # chat nests name and schema, responses does not
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise bad_field("tools", "a tool has no name")
        _check_spec(function.get("parameters"), "tools")


def check_named_tool(body: dict[str, Any]) -> None:
    """vLLM looks for the function that a chat's `tool_choice` names in all tools, also in those that have none."""
    choice, tools = body.get("tool_choice"), body.get("tools")
    if isinstance(choice, dict) and "function" in choice and isinstance(tools, list):
        if any("function" not in tool for tool in tools):
            raise bad_field("tools", "where tool_choice names a function, each tool must have a function")


def check_structured(value: Any) -> None:
    """vLLM asks an object for its entries before it knows that it is one."""
    if not isinstance(value, dict):
        raise bad_field("structured_outputs", "structured_outputs must be an object")
    _check_spec(value, "structured_outputs")


def check_chat_format(value: Any) -> None:
    """The `response_format` of chat and completions."""
    _check_spec(value, "response_format")


def check_text_format(value: Any) -> None:
    """The `text.format` of responses."""
    _check_spec(value.get("format") if isinstance(value, dict) else None, "text")


def _check_spec(spec: Any, param: str) -> None:
    """What is compiled is neither large nor a grammar, and its regexes do not repeat what repeats."""
    if len(json.dumps(spec)) > MAX_SPEC_BYTES:
        raise bad_field(param, f"{param} is larger than {MAX_SPEC_BYTES} bytes, which would hold the engine up")
    waiting = [spec]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            for name, value in node.items():
                _check_entry(name, value, param)
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)


def _check_entry(name: str, value: Any, param: str) -> None:
    if name == "grammar" and isinstance(value, str):
        raise bad_field(param, f"{param}: grammars are not accepted, their cost has no bound; use a schema or a regex")
    regexes = [value] if name in _REGEXES else value if name == "patternProperties" else ()
    if isinstance(regexes, list | dict) and any(_is_costly(regex) for regex in regexes):
        raise bad_field(
            param, f"{param}: {name} repeats what repeats (more than {MAX_NESTED} times in all); make it flat"
        )
    if name in _TEXT_SCHEMAS and isinstance(value, str):
        try:
            inner = json.loads(value)
        except (ValueError, RecursionError):
            return  # vLLM says what is wrong
        if isinstance(inner, dict):
            _check_spec(inner, param)


def _is_costly(regex: Any) -> bool:
    return isinstance(regex, str) and nested_repeats(regex) > MAX_NESTED
