"""The access log: one line a request, where the replica says."""

import asyncio
import json
import logging
import re
import time
from collections.abc import Callable
from datetime import datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path

from serve.access.errors import Message, Send
from serve.policy import MARK_HEADER

Log = Callable[[str], object]
LOGGED: Log = logging.getLogger("serve.access").info

FILE_BYTES = 64 << 20
OLD_FILES = 4
FLUSH_S = 1.0
_HEADER = MARK_HEADER.encode()
_KEY = re.compile(r"sk-[\w-]+")


class LogFile:
    """Writes what came within `FLUSH_S` at once: a write for each line would cost a busy replica more than all checks
    of a request do. Lives on one event loop."""

    def __init__(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self._handler = RotatingFileHandler(file, maxBytes=FILE_BYTES, backupCount=OLD_FILES, encoding="utf-8")
        self._lines: list[tuple[float, str]] = []

    def add(self, line: str) -> None:
        """Keeps the line for the next `flush`."""
        if not self._lines:
            asyncio.get_running_loop().call_later(FLUSH_S, self.flush)
        self._lines.append((time.time(), line))

    def flush(self) -> None:
        """Writes what is kept, before that in a new file where this one is full."""
        lines, self._lines = self._lines, []
        text = "\n".join(f"{datetime.fromtimestamp(at).isoformat(' ', 'milliseconds')} {line}" for at, line in lines)
        self._handler.handle(logging.makeLogRecord({"msg": text}))  # says on stderr what it could not write


class AccessLine:
    """The log's line of one request: method, path, status, time, the key's name, the mark of the weights. It holds
    neither the query nor any header, so no key; prompts and replies only where the settings say so."""

    def __init__(self, scope: Message, send: Send, log: Log) -> None:
        self._scope, self._send, self._log = scope, send, log
        self._began = time.monotonic()
        self._body: bytes | None = None
        self._reply = bytearray()
        self.caller, self.status, self.mark = "-", 0, "-"

    def note(self, body: bytes) -> None:
        """Keeps the body, and the reply as it goes by, for the log."""
        self._body = body

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            marks = [value for name, value in message.get("headers", ()) if name.lower() == _HEADER]
            self.mark = marks[0].decode("latin-1") if marks else "-"
        elif self._body is not None:
            self._reply += message.get("body", b"")
        await self._send(message)

    def write(self) -> None:
        """Logs the line."""
        ms = (time.monotonic() - self._began) * 1000
        method, path = _printable(self._scope["method"], 16), _printable(self._scope["path"], 200)
        self._log(f"{method} {path} {self.status} {ms:.1f} ms key={self.caller} mark={self.mark}")
        if self._body is not None:
            request, reply = self._body.decode("utf-8"), self._reply.decode("utf-8", "replace")
            self._log(f"request {json.dumps(request)} reply {json.dumps(reply)}")


def _printable(text: str, limit: int) -> str:
    """One line of plain signs, so that no path can write a line of its own into the log, without what looks like a
    key."""
    return _KEY.sub("sk-***", text[:limit].encode("unicode_escape").decode("ascii"))
