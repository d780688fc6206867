"""API keys of the endpoint: `python -m jobs.keys add|revoke|list --file FILE`.

A key is shown once, when it is made; the file keeps its hash. With `--apply` a running endpoint follows at once; its
rates and limits stay as they are, unless a config file or options of serve.access say otherwise.
"""

import argparse
import fcntl
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from jobs._cli import run_command
from jobs._dashboard import dashboard_arguments, dashboard_of
from pipeline.config import RunConfig, UserError, nearest
from serve.access.keys import SCOPES, Key, as_data, made_key, read_keys, write_keys
from serve.access.settings import AccessSettings
from serve.arguments import running_config
from serve.preconditions import check_priorities

UNITS = {"m": 60, "h": 3600, "d": 86400}
ACCESS_OPTION = re.compile(r"serve(\.access)?=|serve\.access\.(?!keys_file=)")
OWN = ("requests_per_minute", "tokens_per_minute", "priority")


def main(cfg: RunConfig, args: argparse.Namespace) -> int:
    """Adds, revokes or lists keys; 1 when a running endpoint does not follow."""
    path = args.file or cfg.serve.access.keys_file
    if not path:
        raise UserError("name the key file with --file FILE, or in serve.access.keys_file")
    file = Path(path).expanduser()
    if args.action == "list":
        keys = read_keys(file)
        print(table(keys, time.time()))
        settings = settings_with(cfg, args, keys) if args.apply else None
    else:
        if not args.name:
            raise UserError(f"{args.action} needs --name NAME")
        with _alone(file.parent):
            keys, told, secret = added(file, args) if args.action == "add" else revoked(file, args.name)
            settings = settings_with(cfg, args, keys) if args.apply else None  # before anything is changed
            write_keys(file, keys)
        print(told, file=sys.stderr)
        if secret:
            print(secret, flush=True)
    return apply(settings, args) if settings else 0


def added(file: Path, args: argparse.Namespace) -> tuple[tuple[Key, ...], str, str]:
    """The file's keys and a new one, what to tell, and the new key's secret."""
    if args.scope is None:
        raise UserError(f"add needs --scope, one of {', '.join(SCOPES)}")
    keys = read_keys(file) if file.exists() else ()
    if args.name in {key.name for key in keys}:
        raise UserError(f"{file} has a key '{args.name}' already: choose another name, or revoke that one first")
    own = {name: getattr(args, name) for name in OWN}
    secret, key = made_key(args.name, args.scope, lifetime_s=seconds(args.expires), **own)
    told = f"key '{key.name}' with the scope {key.scope} is in {file}; it is shown this once:"
    return (*keys, key), told, secret


def revoked(file: Path, name: str) -> tuple[tuple[Key, ...], str, str]:
    """The file's keys without one, and what to tell."""
    keys = read_keys(file)
    names = [key.name for key in keys]
    if name not in names:
        raise UserError(f"{file} has no key '{name}'{nearest(name, names) if names else ''}")
    return tuple(key for key in keys if key.name != name), f"key '{name}' was revoked in {file}", ""


def seconds(text: str | None) -> float | None:
    """Seconds of `30d`, `12h` or `90m`; None for None."""
    if text is None:
        return None
    found = re.fullmatch(r"([1-9][0-9]{0,5})([mhd])", text)
    if not found:
        raise UserError(f"--expires {text}: write a number and m, h or d, such as 30d")
    return float(found[1]) * UNITS[found[2]]


def table(keys: Sequence[Key], now: float) -> str:
    """One line a key."""
    if not keys:
        return "no keys"
    return "\n".join(
        f"{key.name:24} {key.scope:6} made {_day(key.created)}  {_details(key, now)}".rstrip() for key in keys
    )


def _details(key: Key, now: float) -> str:
    texts = [f"{name}={getattr(key, name):g}" for name in OWN if getattr(key, name) is not None]
    if key.expires is not None:
        texts.insert(0, f"{'expires' if key.is_valid(now) else 'EXPIRED'} {_day(key.expires)}")
    return "  ".join(texts)


def _day(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(moment))


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Holds the folder's lock, so that of two commands at once neither loses the other's key."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise UserError(f"cannot use the folder {folder}: {error.strerror}") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def settings_with(cfg: RunConfig, args: argparse.Namespace, keys: Sequence[Key]) -> AccessSettings:
    """What the running endpoint shall follow: these keys, and all else as it runs, or as the section serve.access says
    where the command names a config file or options of that section. UserError where it would be open to all, would
    refuse a key's requests, or does not run."""
    from serve import client

    if not keys:
        raise UserError(
            "without this key the endpoint would be open to all: add another one first, or change the file alone by "
            "leaving out --apply"
        )
    now = client.details(dashboard_of(args))
    base = client.wanted_now(now).access
    if base is None or args.config or any(ACCESS_OPTION.match(text) for text in args.overrides):
        section = cfg.serve.access.model_dump(exclude={"keys_file"})
        base = {**section, "replicas": cfg.serve.most_replicas}
    settings = AccessSettings.from_config({**base, "keys": [as_data(key) for key in keys]})
    if any(key.priority for key in keys):
        running = now["applications"][client.APP]["deployed_app_config"].get("args") or {}
        check_priorities(settings, running_config(running).admission.policy)
    return settings


def apply(settings: AccessSettings, args: argparse.Namespace) -> int:
    """Makes the running endpoint follow them."""
    from serve.client import FAILURES, set_access

    try:
        set_access(dashboard_of(args), settings.to_config())
    except FAILURES as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"the endpoint follows {len(settings.keys)} key(s)", file=sys.stderr)
    return 0


def plan(cfg: RunConfig, args: argparse.Namespace) -> str:
    """What the command would do, in one line."""
    file = args.file or cfg.serve.access.keys_file or "(no file named)"
    return f"{args.action} {args.name or ''} in {file}{', then the running endpoint follows' if args.apply else ''}"


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=["add", "revoke", "list"])
    parser.add_argument("--file", metavar="FILE", help="the key file (default: serve.access.keys_file)")
    parser.add_argument("--name", help="the key's name, for logs and for revoking it")
    parser.add_argument("--scope", choices=SCOPES, help="admin may also read /metrics and /admin")
    parser.add_argument("--expires", metavar="TIME", help="such as 30d, 12h or 90m (default: never)")
    parser.add_argument("--requests-per-minute", type=float, metavar="N", help="this key's own limit")
    parser.add_argument("--tokens-per-minute", type=float, metavar="N", help="this key's own limit")
    parser.add_argument("--priority", type=int, metavar="N", help="of its requests; lower runs earlier (default 0)")
    parser.add_argument("--apply", action="store_true", help="also make the running endpoint follow")
    dashboard_arguments(parser)


def command(argv: Sequence[str] | None = None) -> int:
    """Runs the command line (None: the process's own) and returns the exit code."""
    return run_command("keys", __doc__.splitlines()[0], main, extra_args=_arguments, plan=plan, argv=argv)


if __name__ == "__main__":
    sys.exit(command())
