"""`jobs.advise --endpoint` at what is no endpoint, and with arguments that cannot be: one sentence, exit code 2."""

from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

import pytest

from jobs.advise import command
from tests.http_servers import running

NAMED = {"/admin/effective-config": b'{"effective": {"device": "cpu"}}', "/admin/version": b'{"replicas": []}'}
NAMED["/v1/models"] = b'{"data": [{"id": "policy"}]}'


class Foreign(BaseHTTPRequestHandler):
    """Answers `server.body`, but the first `server.known` routes of an endpoint as one does."""

    def log_message(self, *args): ...

    def do_GET(self):
        known = list(NAMED)[: self.server.known]
        body = NAMED[self.path] if self.path in known else self.server.body
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def answering(body, known):
    with running(Foreign, body=body, known=known) as (_, url):
        yield url


def refused(capsys, *arguments):
    assert command(list(arguments)) == 2
    text = capsys.readouterr().err
    assert text.startswith("error: ") and text.count("\n") == 1
    return text


@pytest.mark.parametrize("known", [0, 1, 2, 3])
@pytest.mark.parametrize("body", [b"<html><body>hello</body></html>", b"", b"[1,2]", b"null", b"{}"])
def test_a_server_that_is_no_endpoint(capsys, body, known):
    with answering(body, known) as url:
        text = refused(capsys, "--endpoint", url, "--seconds", "1")
    assert ("it is no endpoint of this project" in text) == (known != 2) and url in text


ADDRESSES = ["http://127.0.0.1:99999", "http://[::1", "nonsense", "", "ftp://a", "http://", "http://a b"]


@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
@pytest.mark.parametrize("address", ADDRESSES)
def test_what_is_no_address(capsys, address, dry):
    assert "is no address of a server" in refused(capsys, "--endpoint", address, *dry)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--key", "é"], "--key has signs that no key has"),
        (["--ttft-target-ms", "nan"], "--ttft-target-ms takes milliseconds above 0, got 'nan'"),
        (["--ttft-target-ms=-5"], "got '-5'"),
        (["--ttft-target-ms", "0"], "got '0'"),
        (["--itl-target-ms", "inf"], "--itl-target-ms takes milliseconds"),
        (["--figure", "own_weihgts=true"], "did you mean 'own_weights'"),
        (["--figure", "kv_usage=7"], "--figure: kv_usage"),
        (["--prompts", "nowhere.jsonl"], "cannot be read"),
    ],
)
def test_a_dry_run_refuses_as_the_measurement(capsys, arguments, part):
    for dry in ([], ["--dry-run"]):
        assert part in refused(capsys, "--endpoint", "http://127.0.0.1:1", *arguments, *dry)
