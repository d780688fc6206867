"""What a replica's access layer follows. It travels as plain data in the deployment's `user_config`."""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from pipeline.config import UserError, nearest, resolve_path
from serve.access.keys import Key, as_data, keys_from, read_keys

if TYPE_CHECKING:
    from pipeline.config.schema_serving import Serve

WHERE = "user_config.access"
_ORIGIN = re.compile(r"https?://(?:[a-z0-9.-]+|\[[0-9a-f:]+\])(?::\d{1,5})?")


@dataclass(frozen=True)
class AccessSettings:
    """Without keys everybody who reaches the endpoint may do all, and only the endpoint's own limits hold.

    Rates are for one key over the whole endpoint; each replica counts for itself and allows its share, `1 / replicas`
    (of as many as there may be: fewer replicas allow less in all).
    `max_waiting`: requests inside or waiting in one replica before it answers 503. `tenant_salts`: with keys, each key
    has a prefix cache of its own.
    """

    keys: tuple[Key, ...] = ()
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    max_body_bytes: int = 1 << 20
    max_waiting: int = 512
    replicas: int = 1
    cors_origins: tuple[str, ...] = ()
    log_requests: bool = False
    tenant_salts: bool = True

    def to_config(self) -> dict[str, Any]:
        """Plain JSON data; `from_config` of it gives equal settings."""
        config = {field.name: getattr(self, field.name) for field in fields(self)}
        return config | {"keys": [as_data(key) for key in self.keys], "cors_origins": list(self.cors_origins)}

    @classmethod
    def from_config(cls, config: Mapping[str, object]) -> "AccessSettings":
        """Settings from plain data. UserError for an unknown name (with the nearest one) and for a wrong value."""
        known = [field.name for field in fields(cls)]
        if unknown := sorted(set(config) - set(known), key=str):
            raise UserError(f"{WHERE} has the unknown key '{unknown[0]}'{nearest(str(unknown[0]), known)}")
        values = dict(config)
        for name, check in _CHECKS.items():
            if name in values:
                check(name, values[name])
        if "keys" in values:
            values["keys"] = keys_from(values["keys"], f"{WHERE}.keys")
        if "cors_origins" in values:
            values["cors_origins"] = tuple(values["cors_origins"])
        return cls(**values)


def _limit(name: str, value: object) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e12):
        raise UserError(f"{WHERE}.{name} must be a number above 0, or null for no limit, not {value!r}")


def _count(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UserError(f"{WHERE}.{name} must be a whole number above 0, not {value!r}")


def _switch(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise UserError(f"{WHERE}.{name} must be true or false, not {value!r}")


def _origins(name: str, value: object) -> None:
    if not isinstance(value, list | tuple) or not all(isinstance(origin, str) for origin in value):
        raise UserError(f"{WHERE}.{name} must be a list of origins such as https://app.example.org")
    for origin in value:
        check_origin(origin, f"{WHERE}.{name}")


def check_origin(origin: str, where: str) -> None:
    """UserError unless `origin` is a scheme, a host and at most a port, as browsers send it."""
    if not _ORIGIN.fullmatch(origin):
        raise UserError(f"{where}: '{origin}' is no origin; write it as browsers do, such as https://app.example.org")


_CHECKS = {
    "requests_per_minute": _limit,
    "tokens_per_minute": _limit,
    "max_body_bytes": _count,
    "max_waiting": _count,
    "replicas": _count,
    "cors_origins": _origins,
    "log_requests": _switch,
    "tenant_salts": _switch,
}


def settings_from(serve_cfg: "Serve") -> AccessSettings:
    """The settings that the section `serve` of a run's config asks for, with the keys of its key file.

    UserError when the endpoint would be open to other machines without a key, and for a key file that is not in order.
    """
    access = serve_cfg.access
    keys = read_keys(resolve_path(access.keys_file)) if access.keys_file else ()
    if access.keys_file and not keys:
        raise UserError(
            f"{access.keys_file} holds no keys, and without any the endpoint is open to all: add one with "
            "`python -m jobs.keys add`, or leave serve.access.keys_file out"
        )
    check_open(keys, serve_cfg.host, "serve.host is")
    for origin in access.cors_origins:
        check_origin(origin, "serve.access.cors_origins")
    return AccessSettings(
        keys=keys,
        replicas=serve_cfg.most_replicas,
        cors_origins=tuple(access.cors_origins),
        **access.model_dump(exclude={"keys_file", "cors_origins"}),
    )


def check_open(keys: tuple[Key, ...], host: str, told: str) -> None:
    """UserError, which begins with `told` and the host, where the endpoint would be open to other machines."""
    if not keys and not is_loopback(host):
        raise UserError(
            f"{told} {host}, which other machines reach, but there are no keys: make one with "
            "`python -m jobs.keys add` and name its file in serve.access.keys_file, or serve on 127.0.0.1"
        )


def is_loopback(host: str) -> bool:
    """True when only programs on the same machine reach `host`."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
