"""Addresses of servers and their keys, checked before anything is sent."""

from urllib.parse import urlsplit

from pipeline.config.errors import UserError

SCHEMES = ("http", "https")


def host_of(uri: str) -> str | None:
    """The host in `uri`; None where it has none that can be asked, or a port that is none."""
    try:
        parts = urlsplit(uri)
        host = parts.hostname if parts.port is None or parts.port else None
        return host if host and host.encode("idna") and not any(sign.isspace() for sign in uri) else None
    except ValueError:  # brackets, a port or a name that are none
        return None


def check_address(url: object, where: str) -> None:
    """UserError, which names `where`, unless `url` is http(s)://HOST with or without a port."""
    if not isinstance(url, str) or url.partition("://")[0] not in SCHEMES or not host_of(url):
        raise UserError(f"{where} {str(url)[:80]!r} is no address of a server; give http(s)://HOST:PORT")


def check_key(key: object, where: str) -> None:
    """UserError, which names `where` but not the key, unless `key` can be sent in a header. None is no key."""
    if key is not None and not (isinstance(key, str) and key.isascii() and key.isprintable()):
        raise UserError(f"{where} has signs that no key has; give it in printable ASCII, as it was issued")


def server_root(url: str) -> str:
    """The address of a server that is given with or without /v1."""
    return url.rstrip("/").removesuffix("/v1")


def bearer(key: str | None) -> dict[str, str]:
    """`key` as HTTP headers; none without one."""
    return {"authorization": f"Bearer {key}"} if key else {}
