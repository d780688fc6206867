"""What the installed vLLM knows, read from its source text: importing it takes seconds and brings torch along."""

import ast
import importlib.util
from functools import cache
from pathlib import Path

from pipeline.config.errors import UserError

# Where the classes live that take options.
_CLASSES = {
    "EngineArgs": "engine/arg_utils.py",
    "AsyncEngineArgs": "engine/arg_utils.py",
    "SamplingParams": "sampling_params.py",
    "SpeculativeConfig": "config/speculative.py",
    "SchedulerConfig": "config/scheduler.py",
    "CacheConfig": "config/cache.py",
    "ReasoningConfig": "config/reasoning.py",
}


@cache
def folder() -> Path:
    """The installed package's folder. UserError when vLLM is not installed."""
    found = importlib.util.find_spec("vllm")
    if found is None or not found.submodule_search_locations:
        raise UserError("vLLM is not installed; install the pinned requirements first")
    return Path(found.submodule_search_locations[0])


@cache
def class_fields(name: str) -> frozenset[str]:
    """The annotated fields of one of the classes above."""
    for node in _tree(_CLASSES[name]).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return _annotated(node)
    raise UserError(f"the installed vLLM has no class {name} in {_CLASSES[name]}; install the pinned release")


@cache
def config_fields() -> frozenset[str]:
    """The fields of every class under vLLM's config folder, and of its engine arguments."""
    found = class_fields("EngineArgs") | class_fields("AsyncEngineArgs")
    for file in sorted((folder() / "config").glob("*.py")):
        for node in _tree(f"config/{file.name}").body:
            if isinstance(node, ast.ClassDef):
                found |= _annotated(node)
    return frozenset(found)


@cache
def literal(file: str, name: str) -> frozenset[str]:
    """The texts in a module's `name = Literal[...]`, or the keys of its `name = {...}`."""
    for node in _tree(file).body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            inside = node.value.slice if isinstance(node.value, ast.Subscript) else node.value
            items = inside.keys if isinstance(inside, ast.Dict) else inside.elts
            return frozenset(item.value for item in items if isinstance(item, ast.Constant))
    raise UserError(f"the installed vLLM has no {name} in {file}; install the pinned release")


def reasoning_parsers() -> frozenset[str]:
    """The names `reasoning.parser` may take."""
    return literal("reasoning/__init__.py", "_REASONING_PARSERS_TO_REGISTER")


def tool_parsers() -> frozenset[str]:
    """The names `serve.tool_parser` may take."""
    return literal("tool_parsers/__init__.py", "_TOOL_PARSERS_TO_REGISTER")


@cache
def kv_connectors() -> frozenset[str]:
    """The names under which vLLM registers its KV connectors."""
    calls = (node for node in ast.walk(_tree("distributed/kv_transfer/kv_connector/factory.py")) if _registers(node))
    return frozenset(call.args[0].value for call in calls)


def _registers(node: ast.AST) -> bool:
    named = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    return named and node.func.attr == "register_connector" and isinstance(node.args[0], ast.Constant)


def _annotated(node: ast.ClassDef) -> frozenset[str]:
    return frozenset(
        item.target.id for item in node.body if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    )


@cache
def _tree(file: str) -> ast.Module:
    return ast.parse((folder() / file).read_text(encoding="utf-8"))
