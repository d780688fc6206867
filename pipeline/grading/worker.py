"""One grading worker: reads a pair of answers a line (JSON), writes a verdict a line. Started by pool.py.

It keeps its own alarm a little behind the pool's deadline, so that it also ends if the pool's process is gone, and a
memory limit, so that 9^9^9^9 cannot take the machine with it.
"""

import json
import os
import resource
import signal
import sys
from typing import TextIO

MEMORY_LIMIT = 3 << 30  # bytes of address space
GRACE_S = 2.0


def main() -> None:
    """Serve until standard input closes. The first line out says that the libraries are loaded."""
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # a stray print must not look like a reply
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the pool's process, which ends this one
    from pipeline.grading import symbolic

    symbolic.equal(r"\frac{\sqrt{8}}{2}", r"\sqrt{2}")  # first use builds the parser's tables
    _say(replies, {"ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_REAL, request["deadline_s"] + GRACE_S)  # default action: end the process
        _say(replies, answer(request))
        signal.setitimer(signal.ITIMER_REAL, 0)


def answer(request: dict[str, str]) -> dict[str, str]:
    """The reply to one request: `verdict`, and `reason` and `detail` where it is unknown."""
    from pipeline.grading import symbolic

    try:
        return {"verdict": "right" if symbolic.equal(request["answer"], request["gold"]) else "wrong"}
    except symbolic.UnreadableGold as error:
        return {"verdict": "unknown", "reason": "gold", "detail": str(error)[:200]}
    except BaseException as error:  # noqa: BLE001  (MemoryError, RecursionError and library faults: the pool counts them)
        return {"verdict": "unknown", "reason": "exception", "detail": f"{type(error).__name__}: {error}"[:200]}


def _say(replies: TextIO, message: dict[str, object]) -> None:
    replies.write(json.dumps(message) + "\n")
    replies.flush()


if __name__ == "__main__":
    main()
