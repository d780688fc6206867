"""What a job is sent: the code and nothing else, checked with Ray's own packing."""

import os
import shutil
import zipfile

import pytest
from ray._private.runtime_env.packaging import _dir_travel, _get_excludes, _zip_files

from jobs import _submit
from jobs._submit import EXCLUDES, ROOT, Job, check_package, follow, package, submit
from pipeline.config import UserError

CODE = [
    "jobs/train.py",
    "jobs/_cli.py",
    "pipeline/loop/run.py",
    "pipeline/page.css",
    "infra/presets/tiny.yaml",
    "serve/app.py",
]
UNSENT = [
    ".env",
    "secret.key",
    "notes.txt",
    "docs/page.md",
    "tests/loop/test.py",
    "pipeline/.env",
    "pipeline/loop/.cache/blob",
    "jobs/tls.key",
    "serve/cert.pem",
    "pipeline/__pycache__/run.pyc",
    "pipeline/loop/__pycache__/run.pyc",
    ".git/objects/ab/cd",
    ".venv/lib/python3/site.py",
]


def write(path, size=10):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A checkout with what piles up around the code: a large run, a folder of many hidden files, keys, caches."""
    root = tmp_path_factory.mktemp("checkout")
    for name in (*CODE, *UNSENT):
        write(root / name)
    (root / "runs" / "mine").mkdir(parents=True)
    with (root / "runs" / "mine" / "checkpoint").open("wb") as file:
        file.truncate(600 << 20)
    (root / ".many").mkdir()
    for number in range(20_000):
        os.close(os.open(root / ".many" / str(number), os.O_CREAT, 0o600))
    yield root
    shutil.rmtree(root)


@pytest.mark.parametrize("ignore_files", [(), (".gitignore", ".rayignore")], ids=["alone", "with ignore files"])
def test_what_ray_packs_is_the_code_and_nothing_else(tree, tmp_path, ignore_files):
    for name in ignore_files:
        shutil.copy(ROOT / name, tree / name)
    _zip_files(str(tree), EXCLUDES, str(tmp_path / "package.zip"), include_gitignore=True)
    for name in ignore_files:
        (tree / name).unlink()
    with zipfile.ZipFile(tmp_path / "package.zip") as packed:
        assert sorted(packed.namelist()) == sorted(CODE)
    assert sorted(name for name, _ in package(tree)) == sorted(CODE)
    check_package(package(tree))


def test_this_checkout_is_packed_whole():
    seen = set()
    excluded = [_get_excludes(ROOT, EXCLUDES)]
    _dir_travel(ROOT, excluded, lambda path: seen.add(str(path.relative_to(ROOT))), include_gitignore=True)
    assert {name for name, _ in package()} <= seen
    assert {"jobs/train.py", "pipeline/loop/run.py", "serve/app.py", "infra/presets/tiny.yaml"} <= seen
    assert not [name for name in seen if name.startswith(("tests", ".venv", "runs", ".")) and name != "."]
    check_package(package())


def test_sizes_come_biggest_first(tmp_path):
    for name, size in {"pipeline/a.py": 5, "jobs/b.py": 50, "infra/c.yaml": 7}.items():
        write(tmp_path / name, size)
    assert package(tmp_path) == [("jobs/b.py", 50), ("infra/c.yaml", 7), ("pipeline/a.py", 5)]


def test_a_package_over_the_limit_names_the_biggest():
    files = [("infra/models/big.safetensors", 90 << 20), ("infra/a", 20 << 20), ("jobs/b", 4 << 20), ("jobs/c", 1)]
    with pytest.raises(UserError) as caught:
        check_package(files)
    text = str(caught.value)
    assert "114 MiB, the limit is 100 MiB" in text and "infra/models/big.safetensors (90 MiB), infra/a (20 MiB)" in text
    assert "jobs/c" not in text and "\n" not in text
    check_package(files, limit=200 << 20)
    check_package([])


class Client:
    def __init__(self, chunks=(), status="SUCCEEDED", interrupt=False):
        self.chunks, self.status, self.interrupt, self.stopped, self.jobs = chunks, status, interrupt, [], []

    def submit_job(self, **job):
        self.jobs.append(job)
        return job["submission_id"]

    async def tail_job_logs(self, job_id):
        for chunk in self.chunks:
            yield chunk
        if self.interrupt:
            raise KeyboardInterrupt

    def stop_job(self, job_id):
        self.stopped.append(job_id)

    def get_job_status(self, job_id):
        return self.status


def test_submit(monkeypatch):
    import ray.job_submission

    client = Client()
    monkeypatch.setattr(ray.job_submission, "JobSubmissionClient", lambda url: client)
    job = submit("http://127.0.0.1:8265", ["python", "-m", "jobs.train", "run.name=a b"], "job-1", {"A": "1"})
    assert job == Job(client, "job-1")
    (sent,) = client.jobs
    assert sent["entrypoint"] == "python -m jobs.train 'run.name=a b'"
    assert sent["runtime_env"]["excludes"] == EXCLUDES and sent["runtime_env"]["working_dir"] == str(ROOT)
    env = sent["runtime_env"]["env_vars"]
    assert env.pop("PIPELINE_CODE_STATE")
    assert env == {"PYTHONUNBUFFERED": "1", "A": "1"}


def test_a_package_too_large_is_not_submitted(monkeypatch):
    monkeypatch.setattr(_submit, "package", lambda: [("infra/big", 1 << 40)])
    with pytest.raises(UserError, match="infra/big"):
        submit("http://127.0.0.1:9", ["true"], "job-1")


def test_follow_shows_whole_lines():
    shown = []
    client = Client(["step 1\nst", "ep 2\n10%\r50%\r100%\n", "", "last"])
    assert follow(Job(client, "job-1"), shown.append) is True
    assert shown == ["step 1", "step 2", "100%", "last"]
    assert follow(Job(Client(status="FAILED"), "job-1"), shown.append) is False


def test_interrupt_stops_the_job():
    client = Client(["step 1\n"], interrupt=True)
    with pytest.raises(KeyboardInterrupt):
        follow(Job(client, "job-1"), lambda line: None)
    assert client.stopped == ["job-1"]
