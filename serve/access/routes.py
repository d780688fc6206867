"""Which routes there are and who may use them. What is not in this table does not exist."""

import re
from dataclasses import dataclass
from typing import Literal

Scope = Literal["open", "infer", "admin"]

_SEGMENT = r"(?!\.{1,2}(?:/|$))[A-Za-z0-9._-]+"  # no `.` and no `..`
_READ = ("GET", "HEAD")


@dataclass(frozen=True)
class Route:
    """`work`: a POST with a JSON body that keeps the engine or tokenizer busy; limits and admission count these."""

    pattern: re.Pattern[str]
    methods: tuple[str, ...]
    scope: Scope
    work: bool = False


def _route(pattern: str, methods: tuple[str, ...], scope: Scope, *, work: bool = False) -> Route:
    return Route(re.compile(pattern), methods, scope, work)


ROUTES = (
    *(_route(path, _READ, "open") for path in ("/livez", "/readyz", "/health", "/ui", "/ui/")),
    _route(rf"/ui/{_SEGMENT}", _READ, "open"),
    _route("/v1/models", _READ, "infer"),
    _route(rf"/v1/models/{_SEGMENT}(?:/{_SEGMENT})?", _READ, "infer"),  # a model id may be `org/name`
    *(
        _route(path, ("POST",), "infer", work=True)
        for path in ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/tokenize", "/detokenize")
    ),
    _route("/metrics", _READ, "admin"),
    *(_route(path, _READ, "admin") for path in ("/admin/version", "/admin/effective-config")),
)
GENERATING = ("/v1/chat/completions", "/v1/completions", "/v1/responses")
WITH_CHOICES = GENERATING[:2]  # their streams tell the usage on request only


def find_route(method: str, path: str, raw_path: bytes | None = None) -> Route | None:
    """The route that `method` and `path` name exactly, else None.

    Nothing is normalised: a doubled or trailing slash, another case, `..` and every percent-encoded sign (`raw_path` is
    the path as it was sent) make another path, which is in no table. So no spelling can mean one route here and another
    to the app behind.
    """
    if raw_path is not None and raw_path != path.encode("utf-8", "surrogatepass"):
        return None
    for route in ROUTES:
        if method in route.methods and route.pattern.fullmatch(path):
            return route
    return None


def is_known_path(path: str, raw_path: bytes | None = None) -> bool:
    """True when some method of `path` is in the table."""
    return any(find_route(method, path, raw_path) for method in ("GET", "POST"))
