"""Traffic that brings an endpoint of the shipped model into each situation that `jobs.advise` knows."""

import json
import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Situation:
    """What is deployed (`deployed`, options of a config), which rows are sent, and how `jobs.advise` is asked."""

    name: str
    lever: str
    deployed: dict
    rows: list
    arguments: list


def problem(rng, terms):
    signs = [rng.choice(" + | - ".split("|")) for _ in range(terms - 1)]
    numbers = [str(rng.randrange(1, 10)) for _ in range(terms)]
    return f"What is {numbers[0]}{''.join(sign + number for sign, number in zip(signs, numbers[1:], strict=True))}?"


def short(count, tokens, seed=0):
    """Prompts of about 10 tokens that share nothing but their first words."""
    rng = random.Random(seed)
    return [{"prompt": problem(rng, rng.randrange(3, 6)), "max_tokens": tokens} for _ in range(count)]


def some_long(count, every=8, seed=1):
    """Every so many prompts one of about 300 tokens."""
    rng = random.Random(seed)
    rows = short(count, 96, seed)
    for row in rows[::every]:
        row |= {"prompt": problem(rng, 150), "max_tokens": 4}
    return rows


def same_beginnings(prefixes=6, rounds=20, seed=2):
    """So many beginnings of about 250 tokens in turns, each with another question below it."""
    rng = random.Random(seed)
    beginnings = [problem(rng, 125) for _ in range(prefixes)]
    return [{"prompt": f"{start} {problem(rng, 4)}", "max_tokens": 8} for _ in range(rounds) for start in beginnings]


def bursts(seed=3):
    """Forty requests at once, and one every eight seconds before and after."""
    alone = [{**row, "at": 8.0 * i} for i, row in enumerate(short(6, 64, seed))]
    return [*alone, *({**row, "at": 12.0} for row in short(40, 96, seed + 1))]


ROOMY = {"engine__max_num_seqs": 32, "engine__max_model_len": 512}
DRAFTING = {
    "engine__max_num_seqs": 4,
    "engine__max_model_len": 512,
    "speculation": "{method: ngram, k_max: 4, prompt_lookup_min: 2, prompt_lookup_max: 4}",
}
CRAMPED = {"engine__max_num_seqs": 32, "engine__max_model_len": 512, "engine__kv_cache_bytes": 3 << 20}  # 768 tokens
SITUATIONS = [
    Situation("few_requests", "speculation", ROOMY, short(40, 128), ["--seconds=15", "--itl-target-ms=2"]),
    Situation(
        "long_prompts", "long prompts to replicas of their own", ROOMY, some_long(64),
        ["--seconds=15", "--clients=6", "--itl-target-ms=2"],
    ),
    Situation(
        "overthinking_own_weights", "DECS training", ROOMY, short(40, 256),
        ["--seconds=10", "--clients=14", "--figure=own_weights=true"],
    ),
    Situation(
        "overthinking_fixed_weights", "a budget of thinking", ROOMY, short(40, 256), ["--seconds=10", "--clients=14"]
    ),
    Situation(
        "long_context", "plan the memory", ROOMY, short(8, 32), ["--requests=4", "--figure=context_tokens=262144"]
    ),
    Situation("full_batches", "no drafting", DRAFTING, short(40, 128), ["--seconds=15", "--clients=12"]),
    Situation("bursts", "limits at the door", DRAFTING, bursts(), ["--seconds=44", "--ttft-target-ms=200"]),
    Situation("full_cache", "FP8 KV cache", CRAMPED, short(40, 200), ["--seconds=15", "--clients=8"]),
    Situation(
        "forgotten_prefixes", "a larger cache behind the KV cache (DRAM, then SSD)", CRAMPED, same_beginnings(),
        ["--seconds=15"],
    ),
]  # fmt: skip


def write_rows(situation, file):
    file.write_text("".join(json.dumps(row) + "\n" for row in situation.rows))


def options(situation):
    """The deployment's options as on a command line."""
    return [f"{name.replace('__', '.')}={value}" for name, value in situation.deployed.items()]
