"""API keys of the endpoint: `python -m jobs.keys add|revoke|list --file FILE`.

A key is shown once, when it is made; the file keeps its hash. With `--apply` a running endpoint follows at once.
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
from jobs.services import FOLDER
from pipeline.config import RunConfig, UserError, nearest
from serve.access.keys import SCOPES, Key, made_key, read_keys, write_keys
from serve.access.settings import settings_from

UNITS = {"m": 60, "h": 3600, "d": 86400}
OWN = ("requests_per_minute", "tokens_per_minute", "priority")


def main(cfg: RunConfig, args: argparse.Namespace) -> int:
    """Adds, revokes or lists keys; 1 when a running endpoint does not follow."""
    path = args.file or cfg.serve.access.keys_file
    if not path:
        raise UserError("name the key file with --file FILE, or in serve.access.keys_file")
    file = Path(path).expanduser()
    if args.action == "list":
        print(table(read_keys(file), time.time()))
    else:
        if not args.name:
            raise UserError(f"{args.action} needs --name NAME")
        with _alone(file.parent):
            add(file, args) if args.action == "add" else revoke(file, args.name)
    return apply(cfg, file, args) if args.apply else 0


def add(file: Path, args: argparse.Namespace) -> None:
    """Adds a key to the file, which is made where there is none, and prints it."""
    if args.scope is None:
        raise UserError(f"add needs --scope, one of {', '.join(SCOPES)}")
    keys = read_keys(file) if file.exists() else ()
    if args.name in {key.name for key in keys}:
        raise UserError(f"{file} has a key '{args.name}' already: choose another name, or revoke that one first")
    own = {name: getattr(args, name) for name in OWN}
    secret, key = made_key(args.name, args.scope, lifetime_s=seconds(args.expires), **own)
    write_keys(file, (*keys, key))
    print(f"key '{key.name}' with the scope {key.scope} is in {file}; it is shown this once:", file=sys.stderr)
    print(secret, flush=True)


def revoke(file: Path, name: str) -> None:
    """Takes a key out of the file."""
    keys = read_keys(file)
    names = [key.name for key in keys]
    if name not in names:
        raise UserError(f"{file} has no key '{name}'{nearest(name, names) if names else ''}")
    write_keys(file, [key for key in keys if key.name != name])
    print(f"key '{name}' was revoked in {file}", file=sys.stderr)


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


def apply(cfg: RunConfig, file: Path, args: argparse.Namespace) -> int:
    """Makes the running endpoint follow the file and the section serve.access."""
    from jobs.serve import local_dashboard
    from serve.client import FAILURES, set_access

    access = cfg.serve.access.model_copy(update={"keys_file": str(file.resolve())})
    settings = settings_from(cfg.serve.model_copy(update={"access": access}))
    dashboard = args.dashboard or local_dashboard(args.services)
    try:
        set_access(dashboard, settings.to_config())
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
    parser.add_argument("--dashboard", metavar="URL", help="the cluster's dashboard (default: the local services)")
    parser.add_argument("--services", metavar="FOLDER", default=FOLDER, help="folder of `jobs.services`")


def command(argv: Sequence[str] | None = None) -> int:
    """Runs the command line (None: the process's own) and returns the exit code."""
    return run_command("keys", __doc__.splitlines()[0], main, extra_args=_arguments, plan=plan, argv=argv)


if __name__ == "__main__":
    sys.exit(command())
