"""Relative paths: against the current directory, else against the repository root."""

from pathlib import Path

from pipeline.config.errors import UserError
from pipeline.config.schema import RunConfig, Source
from pipeline.config.schema_serving import KvCache, Speculation

ROOT = Path(__file__).resolve().parents[2]  # the folder above pipeline/


def resolve_path(path: str) -> Path:
    """The absolute path of an existing file or folder; where neither place has it, the one under the current
    directory (for the reader's error message)."""
    try:
        if "\0" in path:
            raise ValueError("it holds a NUL")
        given = Path(path).expanduser()
        here = Path.cwd() / given
        return ROOT / given if not here.exists() and (ROOT / given).exists() else here
    except (OSError, ValueError, RuntimeError) as error:  # too long, a NUL in it, the home of nobody
        raise UserError(f"{path[:80]!r} cannot be a path ({error}); give another") from None


def _absolute_if_there(path: str) -> str:
    found = resolve_path(path)
    return str(found) if found.exists() else path


def _absolute_source(source: Source) -> Source:
    return source.model_copy(update={"path": _absolute_if_there(source.path)}) if source.path else source


def resolve_paths(cfg: RunConfig) -> RunConfig:
    """`cfg` with absolute model, judge, problem, storage and speculation paths: worker processes have another current
    directory.

    What does not exist stays as it was written, for the reader's error. Results go under the current directory,
    never under the repository root.
    """
    uri = cfg.storage.uri
    if "://" not in uri:
        uri = str(_results_folder(uri))
    problems = cfg.problems.model_copy(
        update={
            "train": [_absolute_source(s) for s in cfg.problems.train],
            "held_out": [_absolute_source(s) for s in cfg.problems.held_out],
        }
    )
    model = cfg.model.model_copy(update={"path": _absolute_if_there(cfg.model.path)})
    storage = cfg.storage.model_copy(update={"uri": uri})
    judge = cfg.judge.model_copy(update={"path": _absolute_if_there(cfg.judge.path)})
    parts = {"model": model, "problems": problems, "storage": storage, "judge": judge}
    parts |= {"speculation": _absolute_speculation(cfg.speculation), "kv": _absolute_kv(cfg.kv)}
    return cfg.model_copy(update=parts)


def _absolute_kv(kv: KvCache) -> KvCache:
    """The disk tier under the current directory; a URL as it is, for the check that refuses it."""
    if not kv.tiers.disk.path or "://" in kv.tiers.disk.path:
        return kv
    path = str(_results_folder(kv.tiers.disk.path, "kv.tiers.disk.path"))
    disk = kv.tiers.disk.model_copy(update={"path": path})
    return kv.model_copy(update={"tiers": kv.tiers.model_copy(update={"disk": disk})})


def _absolute_speculation(spec: Speculation) -> Speculation:
    """The draft model where it is there, the policy's files under the current directory."""
    options = spec.policy_options
    if options.table:
        options = options.model_copy(update={"table": _absolute_if_there(options.table)})
    changed: dict[str, object] = {"policy_options": options}
    if spec.model and spec.method != "custom_class":  # whose model is a Python class
        changed["model"] = _absolute_if_there(spec.model)
    for name in ("log", "memory"):
        if written := getattr(spec, name):
            changed[name] = str(_results_folder(written, f"speculation.{name}"))
    return spec.model_copy(update=changed)


def _results_folder(path: str, option: str = "storage.uri") -> Path:
    try:
        if "\0" in path:
            raise ValueError("it holds a NUL")
        return Path.cwd() / Path(path).expanduser()
    except (RuntimeError, ValueError) as error:
        raise UserError(f"{option}: '{path}' cannot be a path ({error}); give another") from None


def results_root(cfg: RunConfig) -> Path:
    """The storage folder, or `runs` here when storage is remote."""
    return Path("runs" if "://" in cfg.storage.uri else cfg.storage.uri).resolve()


def portable(value: object, root: str | Path = ROOT) -> object:
    """Nested plain data with every path under the repository root made relative to it."""
    if isinstance(value, dict):
        return {key: portable(item, root) for key, item in value.items()}
    if isinstance(value, list):
        return [portable(item, root) for item in value]
    if isinstance(value, str) and value.startswith(f"{root}/"):
        return value[len(str(root)) + 1 :]
    return value
