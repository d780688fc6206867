"""What is measured: a model folder, a version of the registry, or an endpoint; and its identity."""

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from pipeline.config import RunConfig, UserError, check_model_folder, nearest, resolve_path, server_root
from pipeline.evaluation.endpoint import KEY_VARIABLE, key_headers
from pipeline.weights import MANIFEST_NAME, Manifest, read_manifest

if TYPE_CHECKING:
    from pipeline.tracking import RegisteredVersion

ALIAS = re.compile(r"^(?:models:/)?([A-Za-z0-9][\w.-]*)@([\w.-]+)$")
REGISTRY = "models:/"
CONTENT = ("*.safetensors", "*.bin", "*.json", "*.jinja", "*.model", "merges.txt")


@dataclass(frozen=True)
class LocalModel:
    """A folder to start an engine on. `digest`: of its manifest, which the engine verifies (`verified`), or of its
    files where it has none."""

    name: str
    folder: str
    digest: str
    version: int = 0
    verified: bool = False
    run_id: str | None = None  # the MLflow run that trained it, where the registry knows it


@dataclass(frozen=True)
class Endpoint:
    """An OpenAI-compatible server at `url` (without /v1) and the model to ask there."""

    url: str
    model_id: str


def open_model(text: str, cfg: RunConfig, home: Path, model_id: str | None = None) -> LocalModel | Endpoint:
    """What `text` names: `models:/NAME@ALIAS` or `NAME@ALIAS`, an http(s) address, or a folder.

    A registered snapshot is fetched to `home` and its digest compared with the registry's. `model_id` is for endpoints.
    UserError for what is not there or not whole.
    """
    if is_endpoint(text, model_id):
        return Endpoint(server_root(text), model_id or cfg.serve.model_id)
    found = ALIAS.match(text)
    if found and not resolve_path(text).exists():
        return _registered(found[1], found[2], cfg, home)
    folder = check_model_folder(str(resolve_path(text)))
    if (folder / MANIFEST_NAME).is_file():
        manifest = read_manifest(folder)
        return LocalModel(text, str(folder), manifest.digest, manifest.version, verified=True)
    return LocalModel(text, str(folder), folder_digest(folder))


def is_endpoint(text: str, model_id: str | None = None) -> bool:
    """Whether `text` is an http(s) address. UserError where it can be no folder or registered version either, or
    `model_id` is given for one of these."""
    if text.startswith(("http://", "https://")):
        return True
    if model_id:
        raise UserError("--model-id names a model of an endpoint; leave it out for a folder or a registered version")
    if (text.startswith(REGISTRY) or "://" in text) and not ALIAS.match(text):
        raise UserError(f"--model {text} is neither models:/NAME@ALIAS nor http(s)://HOST:PORT nor a folder")
    return False


def folder_digest(folder: Path) -> str:
    """sha256 (hex) over the files that make a model what it is: weights, configuration, tokenizer, template."""
    total = hashlib.sha256()
    for path in sorted({path for pattern in CONTENT for path in folder.glob(pattern)}):
        with path.open("rb") as file:
            total.update(json.dumps([path.name, hashlib.file_digest(file, "sha256").hexdigest()]).encode())
    return total.hexdigest()


def _registered(name: str, alias: str, cfg: RunConfig, home: Path) -> LocalModel:
    from pipeline.tracking import Registry, TrackingError, tracking_uri

    try:
        registered = Registry.open(tracking_uri(cfg), name).resolve(alias)
        if registered is None:
            raise UserError(f"'{name}' has no version with alias '{alias}' in {tracking_uri(cfg)}; publish one first")
    except TrackingError as error:
        raise UserError(f"--model {name}@{alias} cannot be looked up: {error}") from None
    folder = home / f"v{registered.version}-{registered.digest[:12]}"
    manifest = local_copy(registered, cfg, folder)
    check_model_folder(str(folder))
    return LocalModel(f"{name}@{alias}", str(folder), manifest.digest, manifest.version, True, registered.run_id)


def local_copy(registered: "RegisteredVersion", cfg: RunConfig, folder: Path) -> Manifest:
    """The manifest of the version's copy in `folder`. Storage is asked only where there is none, so that what was
    fetched once does not depend on it. UserError where the registry names other weights."""
    if not (folder / MANIFEST_NAME).is_file():
        fetch(registered.uri, cfg, folder)
    manifest = read_manifest(folder)
    if (manifest.version, manifest.digest) != (registered.version, registered.digest):
        raise UserError(
            f"{registered.uri} holds version {manifest.version} with weights {manifest.digest[:12]}, the registry "
            f"names version {registered.version} with {registered.digest[:12]}; publish the version again"
        )
    return manifest


def fetch(uri: str, cfg: RunConfig, folder: Path) -> None:
    """Copies the stored folder at `uri`, wherever the present config keeps its own; each file's sha256 is checked."""
    from pipeline.storage import open_storage

    above, _, key = uri.removeprefix("file://").rstrip("/").rpartition("/")
    place = {"uri": above} if "://" in above else {"uri": above, "endpoint_url": None}
    open_storage(cfg.storage.model_copy(update=place)).fetch_folder(key, folder)


def probe(endpoint: Endpoint, timeout_s: float) -> None:
    """Returns when the endpoint answers and serves the model; UserError within `timeout_s` seconds otherwise."""
    where = f"{endpoint.url}/v1/models"
    try:
        reply = httpx.get(where, timeout=timeout_s, headers=key_headers())
        reply.raise_for_status()
        served = [str(entry["id"]) for entry in reply.json()["data"]]
    except httpx.HTTPStatusError as error:
        status = error.response.status_code
        instead = f"set {KEY_VARIABLE} to a key of it" if status in (401, 403) else "give an endpoint's address"
        raise UserError(f"{where} answers with status {status}; {instead}") from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise UserError(
            f"no endpoint answers at {where} within {timeout_s:g} s ({type(error).__name__}); "
            "start it, or correct --model"
        ) from None
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{where} does not list models as OpenAI's API does; give an endpoint's address") from None
    if endpoint.model_id not in served:
        raise UserError(f"{endpoint.url} serves no model '{endpoint.model_id}'{nearest(endpoint.model_id, served)}")
