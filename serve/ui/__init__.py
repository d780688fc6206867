"""The endpoint's page at /ui: chat, a comparison of two served versions, and gauges of the replicas.

Plain files without a build step. They are read once, at import: no path of a request ever reaches the file system. The
page loads nothing from elsewhere and runs no inline script or style, which its content security policy enforces.
"""

import hashlib
from collections.abc import Awaitable, Callable
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

PAGE = "index.html"
SCRIPTS = ("app.js", "api.js", "chat.js", "chart.js", "compare.js", "counts.js", "dom.js", "gauges.js", "reply.js")
STYLE = "style.css"
KINDS = {"html": "text/html", "js": "text/javascript", "css": "text/css"}
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
)
HEADERS = {
    "cache-control": "no-cache",  # kept, but asked about each time: page and scripts always belong together
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}

Endpoint = Callable[[Request], Awaitable[Response]]


def routes() -> list[Route]:
    """Routes for GET and HEAD: the page at `/ui`, its files at `/ui/<name>`, and `/ui/`, which leads to `/ui`."""
    named = [Route(f"/ui/{name}", _serves(body, name)) for name, body in _CONTENT.items() if name != PAGE]
    return [Route("/ui", _serves(_CONTENT[PAGE], PAGE)), Route("/ui/", _to_page), *named]


def _serves(body: bytes, name: str) -> Endpoint:
    """An endpoint that answers with `body`, or with 304 where the browser has it already."""
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = HEADERS | {"etag": tag, "content-type": f"{KINDS[name.rpartition('.')[2]]}; charset=utf-8"}

    async def answer(request: Request) -> Response:
        known = {each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")}
        if tag in known:
            return Response(status_code=304, headers=headers)
        return Response(body, headers=headers)

    return answer


async def _to_page(request: Request) -> Response:
    return RedirectResponse("../ui", status_code=308, headers={"cache-control": "no-cache"})


_CONTENT = {name: files(__name__).joinpath(name).read_bytes() for name in (PAGE, STYLE, *SCRIPTS)}
