"""One sentence for each mistake pydantic finds: the dotted key, what was given, what is allowed."""

import json
import types
from collections.abc import Sequence
from enum import EnumType
from typing import Annotated, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MinLen
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from pipeline.config.errors import nearest
from pipeline.config.schema import RunConfig

_PLAIN = {int: "a whole number", float: "a number", str: "text", bool: "true or false", type(None): "null"}
_BOUNDS = {Gt: ("above", "gt"), Ge: ("at least", "ge"), Lt: ("below", "lt"), Le: ("at most", "le")}


def dotted(loc: Sequence[int | str]) -> str:
    """`problems.train.0.size` for ("problems", "train", 0, "size")."""
    return ".".join(str(part) for part in loc)


def _bounds(metadata: Sequence[object]) -> str:
    parts = []
    for item in metadata:
        if isinstance(item, FieldInfo):
            parts.append(_bounds(item.metadata))
        elif type(item) in _BOUNDS:
            word, attribute = _BOUNDS[type(item)]
            parts.append(f"{word} {getattr(item, attribute)}")
        elif isinstance(item, MinLen):
            parts.append(f"not shorter than {item.min_length}")
        elif getattr(item, "pattern", None):
            parts.append(f"matching {item.pattern}")
    return " and ".join(part for part in parts if part)


def _allowed(annotation: object, metadata: Sequence[object] = ()) -> str:
    """What an option takes, in words: `a number above 0 and at most 1`."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        text = _allowed(args[0], args[1:])
    elif origin is Literal:
        text = "one of " + ", ".join(str(value) for value in args)
    elif isinstance(annotation, EnumType):
        text = "one of " + ", ".join(str(member.value) for member in annotation)
    elif origin in (Union, types.UnionType):
        text = " or ".join(_allowed(part) for part in args)
    elif origin is list:
        text = "a list"
    elif origin is tuple:
        text = f"a list of {len(args)} items, each {_allowed(args[0])}"
    elif origin is dict or (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        text = "a mapping"
    else:
        text = _PLAIN.get(annotation, getattr(annotation, "__name__", str(annotation)))
    return f"{text} {_bounds(metadata)}".rstrip()


def _field_at(loc: Sequence[int | str]) -> tuple[object, Sequence[object]]:
    """Annotation and constraints of the option at `loc` (of the deepest part that the schema declares)."""
    annotation, metadata = RunConfig, ()
    for part in loc:
        if isinstance(annotation, type) and issubclass(annotation, BaseModel) and part in annotation.model_fields:
            field = annotation.model_fields[part]
            annotation, metadata = field.annotation, field.metadata
        elif get_origin(annotation) in (list, tuple, dict):
            annotation, metadata = get_args(annotation)[-1 if get_origin(annotation) is dict else 0], ()
        else:
            break
    return annotation, metadata


def _known_names(loc: Sequence[int | str]) -> list[str]:
    annotation, _ = _field_at(loc)
    return list(annotation.model_fields) if isinstance(annotation, type) and issubclass(annotation, BaseModel) else []


def _given(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _hint(annotation: object, metadata: Sequence[object], value: object) -> str:
    choice = get_origin(annotation) in (Union, types.UnionType)  # text within a list or mapping is not this value
    takes_text = annotation is str or (choice and str in get_args(annotation))
    if not takes_text or isinstance(value, str | dict | list):
        return ""
    if value is None:
        return "" if metadata else '; write "" for empty text'
    return "; put quotes around it to make it text"


def place(error: ErrorDetails) -> tuple[int | str, ...]:
    """The path of the option an error is about, without pydantic's marks for the choice of types it tried."""
    loc = tuple(error["loc"])
    if error["type"] == "no_switch":
        return (*loc, error["ctx"]["name"])
    for depth in range(len(loc)):
        origin = get_origin(_field_at(loc[:depth])[0])
        if origin is dict:
            return loc[: depth + 1]
        if origin is tuple and error["type"] == "missing":
            return loc[:depth]
    return loc


def sentence(error: ErrorDetails, source: str) -> str:
    """The one sentence for `error`; `source` says which file or override it came from."""
    loc = place(error)
    key = dotted(loc)
    if error["type"] == "extra_forbidden":
        from pipeline.config.option_catalogue import advice  # read only when a key is wrong

        known_elsewhere = advice(loc, error["input"])
        if known_elsewhere:
            return f"{source}: {known_elsewhere}"
        above = f"{dotted(loc[:-1])}." if loc[:-1] else ""
        return f"{source}: unknown key '{key}'{nearest(str(loc[-1]), _known_names(loc[:-1]), above)}"
    if error["type"] == "value_error":
        text = str(error["ctx"]["error"])
        return f"{source}: {key}: {text}" if key else f"{source}: {text}"
    if error["type"] == "missing" and isinstance(error["input"], dict):
        return f"{source}: {key} is missing"
    annotation, metadata = _field_at(loc)
    value = error["input"][loc[-1]] if error["type"] == "no_switch" else error["input"]
    finite = "finite and " if error["type"] == "finite_number" else ""
    allowed = _allowed(annotation, metadata) + _hint(annotation, metadata, value)
    return f"{source}: {key} is {_given(value)}; it must be {finite}{allowed}"


def distinct(errors: ValidationError) -> list[ErrorDetails]:
    """The errors, unknown keys first, one for each option (a choice of types reports each of them)."""
    found: dict[tuple[int | str, ...], ErrorDetails] = {}
    for error in sorted(errors.errors(include_url=False), key=lambda e: e["type"] != "extra_forbidden"):
        found.setdefault(place(error), error)
    return list(found.values())
