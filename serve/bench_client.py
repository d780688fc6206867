"""vLLM's own load generator (`vllm bench serve`, 0.32), kept running: `python -m serve.bench_client`.

Each line of its input is a JSON list, the arguments of one measurement; `done` answers it. Started afresh, it would
import vLLM for ten seconds each time. An error ends it, with the traceback on stderr.
"""

import json
import os
import sys

READY, DONE = "ready", "done"


def main() -> None:
    """Until its input ends. What vLLM prints goes to stderr, so that only answers are on stdout."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    from vllm.benchmarks.serve import add_cli_args
    from vllm.benchmarks.serve import main as measure
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = FlexibleArgumentParser()
    add_cli_args(parser)
    answers.write(f"{READY}\n")
    for line in sys.stdin:
        measure(parser.parse_args(json.loads(line)))
        answers.write(f"{DONE}\n")


if __name__ == "__main__":
    main()
