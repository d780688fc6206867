"""YAML as its 1.2 core schema reads it: `3e-4` is a number, `off` and `no` are text, a key stands once."""

import re
from collections.abc import Hashable

import yaml

MAX_DEPTH = 50
_TOO_DEEP = f"it nests deeper than {MAX_DEPTH} levels, or holds itself"
_MERGE = "tag:yaml.org,2002:merge"
_RESOLVERS = (
    ("tag:yaml.org,2002:bool", r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    ("tag:yaml.org,2002:null", r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    ("tag:yaml.org,2002:int", r"^[-+]?[0-9]+$", "-+0123456789"),
    (
        "tag:yaml.org,2002:float",
        r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$",
        "-+.0123456789",
    ),
    (_MERGE, r"^<<$", "<"),
)


class _Loader(yaml.SafeLoader):
    """Plain data only, with the resolvers above."""

    yaml_implicit_resolvers: dict = {}

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, object]:
        """A mapping whose keys are text, each written once."""
        seen: set[str] = set()
        for key, _ in getattr(node, "value", []):
            if key.tag == _MERGE:
                continue
            where = f"line {key.start_mark.line + 1}"
            if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
                raise yaml.YAMLError(f"{where}: a key must be text; put quotes around it")
            if key.value in seen:
                raise yaml.YAMLError(f"{where}: the key '{key.value}' stands twice in one mapping; keep one of them")
            seen.add(key.value)
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    """Writes what `_Loader` reads back unchanged."""

    yaml_implicit_resolvers: dict = {}

    def ignore_aliases(self, data: object) -> bool:
        """Write equal parts twice rather than as anchors."""
        return True


def _write_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    # Line breaks other than \n would be folded into blanks outside double quotes.
    style = '"' if not text.isprintable() else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _write_text)
for _tag, _pattern, _first in _RESOLVERS:
    _Loader.add_implicit_resolver(_tag, re.compile(_pattern), list(_first))
    _Dumper.add_implicit_resolver(_tag, re.compile(_pattern), list(_first))
# PyYAML would read 010 as 8; here a leading zero changes nothing.
_Loader.add_constructor("tag:yaml.org,2002:int", lambda loader, node: int(loader.construct_scalar(node)))


def parse(text: str) -> object:
    """Plain data of one YAML document. Raises yaml.YAMLError; also for a key that stands twice or is not text, for a
    value that is not what its tag says, and for data that nests too deep or holds itself."""
    try:
        data = yaml.load(text, Loader=_Loader)
    except (ValueError, KeyError, AttributeError) as error:
        raise yaml.YAMLError(f"a value is not of the kind it is marked as ({error})") from None
    except RecursionError:
        raise yaml.YAMLError(_TOO_DEEP) from None
    _check_depth(data, MAX_DEPTH)
    return data


def _check_depth(data: object, levels: int) -> None:
    if not levels:
        raise yaml.YAMLError(_TOO_DEEP)
    for part in data.values() if isinstance(data, dict) else data if isinstance(data, list) else ():
        _check_depth(part, levels - 1)


def dump(data: object) -> str:
    """YAML of plain data, keys in their order."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


def one_line(error: yaml.YAMLError) -> str:
    """The error without its excerpt: `line 3, column 5: what was expected`."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None)
    if mark is None or not problem:
        return " ".join(str(error).split())
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}"
