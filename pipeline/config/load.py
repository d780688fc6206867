"""From a YAML file and `key=value` overrides to a `RunConfig`, and back to text."""

import difflib
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

import yaml
from pydantic import ValidationError

from pipeline.config import yaml_text
from pipeline.config.errors import UserError
from pipeline.config.explain import distinct, dotted, place, sentence
from pipeline.config.paths import ROOT, portable, resolve_path
from pipeline.config.schema import RunConfig

PRESETS = ROOT / "infra" / "presets"


def load_config(path: str | None, overrides: Iterable[str] = ()) -> RunConfig:
    """The run that `path` (a YAML file; None: all defaults) and `overrides` (`curriculum.kappa_rate=0.1`) describe.

    Override values are YAML; list items go by index (`problems.train.0.size=10`); mappings merge, lists and single
    values replace. Later overrides win. Raises UserError, with the dotted key and the file or override it came from.
    """
    tree: dict[str, object] = RunConfig().model_dump(mode="json")
    given = _read(path) if path is not None else {}
    _merge(tree, given)
    changes = [_split(text) for text in overrides]
    for keys, value, text in changes:
        _set(tree, keys, value, text)
    try:
        return RunConfig.model_validate(tree)
    except ValidationError as errors:
        raise UserError(_explain(errors, path, changes)) from None


def config_digest(cfg: RunConfig) -> str:
    """SHA-256 (hex) of the canonical JSON. Paths inside the repository count relative to it, so the same run has the
    same digest wherever the repository lies."""
    return plain_digest(cfg.model_dump(mode="json"))


def plain_digest(plain: dict[str, object], root: str | Path = ROOT) -> str:
    """`config_digest` of a config kept as plain data, perhaps by another release (which had other options) or from a
    repository that lay at `root`."""
    plain = portable(plain, root)
    return hashlib.sha256(json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def to_yaml(cfg: RunConfig) -> str:
    """All options of `cfg` as YAML; `load_config` of that text gives an equal config."""
    return yaml_text.dump(cfg.model_dump(mode="json"))


def _read(path: str) -> dict[str, object]:
    if not path.strip():
        raise UserError("the config file's name is empty; give a file such as infra/presets/tiny.yaml, or none at all")
    file = resolve_path(path)
    try:
        tree = yaml_text.parse(file.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise UserError(f"no config file at {path}{_nearest_preset(path)}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    except IsADirectoryError:
        raise UserError(f"{path} is a folder; give a config file such as infra/presets/tiny.yaml") from None
    except OSError as error:
        raise UserError(f"cannot read the config file {path}: {error.strerror}") from None
    except yaml.YAMLError as error:
        raise UserError(f"{path} is not valid YAML: {yaml_text.one_line(error)}") from None
    if not isinstance(tree, dict):
        raise UserError(f"{path} holds {_kind(tree)}; a config file is a mapping of sections such as 'run:'")
    return tree


def _nearest_preset(path: str) -> str:
    presets = {file.stem: file for file in sorted(PRESETS.glob("*.yaml"))}
    close = difflib.get_close_matches(Path(path).stem, presets, n=1, cutoff=0.5)
    shown = [presets[close[0]]] if close else list(presets.values())
    return "; presets: " + ", ".join(str(file.relative_to(ROOT)) for file in shown) if shown else ""


def _kind(value: object) -> str:
    return "nothing" if value is None else "a list" if isinstance(value, list) else "a single value"


def _merge(base: dict[str, object], over: dict[str, object]) -> None:
    """Lay `over` onto `base`: mappings merge, all else replaces. An empty section (`curriculum:`) changes nothing."""
    for key, value in over.items():
        below = base.get(key)
        if isinstance(below, dict) and isinstance(value, dict):
            _merge(below, value)
        elif not (isinstance(below, dict) and value is None):
            base[key] = value


def _split(text: str) -> tuple[list[str], object, str]:
    key, equals, value = text.partition("=")
    keys = key.strip().split(".")
    if not equals or not all(keys):
        raise UserError(f"override '{text}' is not of the form section.option=value, such as learner.lr=3e-4")
    try:
        return keys, yaml_text.parse(value), text
    except yaml.YAMLError as error:
        raise UserError(f"override '{text}': the value is not valid YAML: {yaml_text.one_line(error)}") from None


def _set(tree: dict[str, object], keys: list[str], value: object, text: str) -> None:
    node: object = tree
    for depth, key in enumerate(keys[:-1]):
        node = _child(node, key, keys[:depth], text)
    last = keys[-1]
    if isinstance(node, dict):
        if value is None and isinstance(node.get(last), dict):
            raise UserError(f"override '{text}': '{'.'.join(keys)}' is a section; name one of its options")
        _merge(node, {last: value})
    else:
        _child(node, last, keys[:-1], text)  # raises for a bad index
        node[int(last)] = value


def _child(node: object, key: str, above: list[str], text: str) -> object:
    """The part of `node` under `key`; made when a mapping lacks it (validation names it if it is unknown)."""
    where = ".".join(above)
    if isinstance(node, dict):
        if node.get(key) is None:
            node[key] = {}
        return node[key]
    if not isinstance(node, list):
        raise UserError(f"override '{text}': '{where}' is a single value and has no '{key}'")
    if not key.isascii() or not key.isdigit() or int(key) >= len(node):
        raise UserError(f"override '{text}': '{where}' is a list of {len(node)}; use an index from 0, not '{key}'")
    return node[int(key)]


def _explain(errors: ValidationError, path: str | None, changes: list[tuple[list[str], object, str]]) -> str:
    first, *others = distinct(errors)
    loc = dotted(place(first)).split(".")
    base = path or "defaults"
    source = base
    for keys, _, text in changes:
        shared = min(len(keys), len(loc))
        if place(first) and keys[:shared] == loc[:shared]:
            source = f"override '{text}'"
    if not place(first) and changes:
        source = f"{base} with overrides"
    more = f" (and {len(others)} more)" if others else ""
    return sentence(first, source) + more
