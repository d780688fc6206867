"""An endpoint of the shipped model is really brought into each situation; the first lever follows from measurements.

With `KEEP_PROFILES` the measured profiles are kept in that folder, for the quick tests.
"""

import itertools
import os
import shlex
from pathlib import Path

import pytest

import jobs.advise
import jobs.evaluate
from serve import client
from tests.jobs.situations import SITUATIONS, options, write_rows
from tests.serve.live_endpoint import SHIPPED, dashboard_of, deploy, ray_head

pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(900)]

KEPT = os.environ.get("KEEP_PROFILES")
PRESET = "infra/presets/tiny.yaml"
DEPLOYMENTS = [list(group) for _, group in itertools.groupby(SITUATIONS, options)]


@pytest.fixture(scope="module")
def head(tmp_path_factory):
    with ray_head(tmp_path_factory.mktemp("services")) as head:
        yield head


@pytest.mark.parametrize("situations", DEPLOYMENTS, ids=lambda situations: situations[0].name)
def test_each_situation_has_its_own_first_lever(head, tmp_path, capsys, situations):
    deploy(head, SHIPPED, tmp_path / "results", **situations[0].deployed)
    url = client.status(dashboard_of(head)).url
    found = {}
    for situation in situations:
        extra = ["--evaluation", evaluated(url, tmp_path)] if "overthinking" in situation.name else []
        found[situation.name] = first_lever(situation, url, tmp_path, extra, capsys)
    assert found == {situation.name: situation.lever for situation in situations}


def evaluated(url, tmp_path):
    """The folder of an evaluation of the endpoint, made once."""
    folder = tmp_path / "results/thinking"
    if not folder.exists():
        options = [f"storage.uri={tmp_path / 'results'}", "run.name=thinking", "evaluation.max_new_tokens=384"]
        args = ["--config", PRESET, "--model", url, "--model-id", "policy", "--limit", "24", *options]
        assert jobs.evaluate.command(args) == 0
    return str(folder)


def first_lever(situation, url, tmp_path, extra, capsys):
    prompts, profile = tmp_path / f"{situation.name}.jsonl", tmp_path / f"{situation.name}.yaml"
    write_rows(situation, prompts)
    capsys.readouterr()
    asked = ["--endpoint", url, "--prompts", str(prompts), *situation.arguments, *extra, *options(situation)]
    assert jobs.advise.command([*asked, "--save-profile", str(profile)]) == 0
    out = capsys.readouterr().out
    with capsys.disabled():
        print(f"\n--- {situation.name}\n{out}")
    if KEPT:
        keep(situation, profile)
    return out.split("\n1. ")[-1].split("  [")[0]


def keep(situation, profile):
    """The profile below the commands that measured it, without the addresses of one machine."""
    extra = ["--evaluation runs/thinking"] if "overthinking" in situation.name else []
    command = " ".join(["--endpoint URL --prompts PROMPTS", *situation.arguments, *extra, "OPTIONS"])
    figures = profile.read_text().split("\n", 1)[1]
    head = [
        f"# measured by: python -m jobs.advise {command}",
        f"# of: python -m jobs.serve {shlex.join(options(situation))}",
        f"# OPTIONS: those of the endpoint; PROMPTS: those of '{situation.name}' in tests/jobs/situations.py",
    ]
    Path(KEPT).mkdir(exist_ok=True)
    (Path(KEPT) / profile.name).write_text("\n".join([*head, figures]))
