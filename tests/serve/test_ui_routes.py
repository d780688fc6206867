"""The files of the endpoint's page, as HTTP gives them."""

import re

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from serve import ui


@pytest.fixture(scope="module")
def client():
    with TestClient(Starlette(routes=ui.routes()), follow_redirects=False) as client:
        yield client


ALL = ["/ui", "/ui/style.css", *(f"/ui/{name}" for name in ui.SCRIPTS)]


MARKUP = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\("


@pytest.mark.parametrize("path", ALL)
def test_each_file_has_its_kind_its_policy_and_is_asked_about_again(client, path):
    reply = client.get(path)
    kind = {"css": "text/css", "js": "text/javascript"}.get(path.rpartition(".")[2], "text/html")
    assert reply.status_code == 200 and reply.headers["content-type"] == f"{kind}; charset=utf-8"
    assert reply.headers["x-content-type-options"] == "nosniff" and reply.headers["cache-control"] == "no-cache"
    assert "unsafe" not in reply.headers["content-security-policy"]
    assert "default-src 'none'" in reply.headers["content-security-policy"]
    again = client.get(path, headers={"if-none-match": f'"other", W/{reply.headers["etag"]}'})
    assert again.status_code == 304 and again.content == b"" and again.headers["etag"] == reply.headers["etag"]
    assert client.get(path, headers={"if-none-match": '"other"'}).status_code == 200
    head = client.head(path)
    assert head.status_code == 200 and head.content == b"" and head.headers["content-length"] == str(len(reply.content))


@pytest.mark.parametrize(
    "path",
    [
        "/ui/index.html", "/ui/__init__.py", "/ui/missing.js", "/ui/app.js/", "/ui/app.js%00", "/ui//app.js", "/uix",
        "/ui/../ui/__init__.py", "/ui/%2e%2e/policy.py", "/ui/..%2fpolicy.py", "/ui/%2e%2e%2f%2e%2e%2fetc/passwd",
        "/ui/..%5cpolicy.py", "/ui/%252e%252e/policy.py",
    ],
)  # fmt: skip
def test_nothing_else_is_found(client, path):
    assert client.get(path).status_code in (404, 307)
    followed = client.get(path, follow_redirects=True)
    assert followed.status_code == 404 or followed.text == client.get("/ui/app.js").text


def test_other_methods_are_refused(client):
    assert client.post("/ui").status_code == 405 and client.delete("/ui/app.js").status_code == 405


def test_a_slash_at_the_end_leads_to_the_page_wherever_it_is_mounted(client):
    reply = client.get("/ui/")
    assert reply.status_code == 308 and reply.headers["location"] == "../ui"
    assert client.get("/ui/", follow_redirects=True).text == client.get("/ui").text


def test_every_file_that_the_page_and_its_scripts_name_is_served(client):
    page = client.get("/ui").text
    named = set(re.findall(r'(?:src|href)="ui/([^"]+)"', page))
    for name in ui.SCRIPTS:
        named |= set(re.findall(r'from "\./([^"]+)"', client.get(f"/ui/{name}").text))
    assert named == {ui.STYLE, *ui.SCRIPTS}


def test_the_page_names_nothing_elsewhere_and_writes_no_markup(client):
    for path in ALL:
        text = client.get(path).text.replace("http://www.w3.org/2000/svg", "")
        assert not re.search(rf"https?://|\bstyle=|\bon\w+=\"|@import|{MARKUP}", text), path
