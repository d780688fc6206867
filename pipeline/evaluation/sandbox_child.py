"""What runs inside the sandbox: limits first, then a program nobody has read. Started by path, imports nothing of ours.

`python -I -S sandbox_child.py SETTINGS`, in the folder that holds `solution.py`. The file `started` appears once the
limits are in force: what happens before it is the sandbox's fault, what happens after it the program's. With a function
named, it is called with the arguments read as JSON from standard input, and its value is written to `result.json`.
"""

import json
import resource
import sys
from pathlib import Path

# Names that programming contest sites put in scope, so that starter code with `List[int]` runs as it is.
PRELUDE = """
import bisect, collections, functools, heapq, itertools, math, operator, random, re, string, sys, typing
from bisect import *
from collections import *
from functools import *
from heapq import *
from itertools import *
from math import ceil, comb, factorial, floor, gcd, inf, isqrt, lcm, log, log2, pi, sqrt
from typing import *
"""
RECURSION = 50_000
FORBIDDEN = ("socket.connect", "socket.bind", "socket.getaddrinfo", "socket.sendto", "socket.gethostbyname")


def confine(memory_bytes: int, cpu_seconds: int, file_bytes: int) -> None:
    """Limits this process for good, and takes the network from Python code."""
    for limit, value in (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_FSIZE, file_bytes),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(limit, (value, value))

    def refuse(event: str, arguments: tuple) -> None:
        if event in FORBIDDEN:
            raise PermissionError("there is no network here")

    sys.addaudithook(refuse)


def main() -> None:
    """Confines itself, then runs the program."""
    settings = json.loads(sys.argv[1])
    function = settings["function"]
    arguments = json.load(sys.stdin) if function else []
    confine(settings["memory_bytes"], settings["cpu_seconds"], settings["file_bytes"])
    sys.setrecursionlimit(RECURSION)
    source = Path("solution.py").read_text(encoding="utf-8")
    names: dict = {"__name__": "__main__"}
    exec(PRELUDE, names)
    sys.argv = ["solution.py"]
    Path("started").touch()
    exec(compile(source, "solution.py", "exec"), names)
    if function:
        owner = names["Solution"]() if "Solution" in names else None
        called = getattr(owner, function) if owner is not None else names[function]
        Path("result.json").write_text(json.dumps(called(*arguments)), encoding="utf-8")


if __name__ == "__main__":
    main()
