"""Everything that is known of one version, as plain data."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from jobs._lineage_find import Checked, check_weights
from jobs._lineage_ledger import Trained, by_source, trained_on
from jobs._lineage_query import Found, with_parent
from jobs._lineage_tree import parents
from pipeline.config import ROOT, RunConfig, UserError, plain_digest, portable, resolve_paths, results_root
from pipeline.tracking import Provenance, RunFacts
from pipeline.tracking.code_state import COMMIT, DIRTY, WHERE
from pipeline.weights import MANIFEST_NAME, read_manifest
from serve.policy import fingerprint


def trace(
    cfg: RunConfig, store: Provenance, found: Found, also: Sequence[Found], known: Sequence[Found]
) -> dict[str, Any]:
    """The lineage of `found`; `faults` holds a sentence for whatever contradicts what was recorded.

    `known` are all versions there are, `also` those of the same number in other runs.
    """
    checked = check_weights(cfg, found)
    if checked.manifest:
        found = with_parent(found, checked.manifest)
    run = store.run(found.run_id) if found.run_id else None
    config = _config(found, run)
    made_with = _as_run(config.pop("plain"), run)
    told = {
        "mark": found.mark,
        "version": found.version,
        "digest": found.digest,
        "step": found.step,
        "snapshot": {"uri": found.uri, "state": checked.state, "detail": checked.detail},
        "registry": _registry(store, found),
        "run": {"id": run.run_id, "name": run.name, "status": run.status, "started_ms": run.started} if run else None,
        "config": config,
        "code": _code(store, found, run),
        "problems": _problems(cfg, found, run, made_with),
        "parents": parents(found, [one for one in known if one.run_id == found.run_id and found.run_id]),
        "start": _start(made_with, run, known),
        "also": [one.mark for one in also],
    }
    return told | {"faults": _faults(told, found, checked)}


def _registry(store: Provenance, found: Found) -> dict[str, Any] | None:
    if found.number is None:
        return None
    aliases = sorted(name for name, number in store.aliases().items() if number == found.number)
    return {"model": store.model, "number": found.number, "aliases": aliases}


def _root(run: RunFacts | None) -> str:
    return run.tags.get(WHERE, str(ROOT)) if run else str(ROOT)


def _config(found: Found, run: RunFacts | None) -> dict[str, Any]:
    """The config of the run that has the version's digest, recomputed; a resumed run may have had several."""
    told: dict[str, Any] = {"digest": found.config_digest, "same": None, "file": None, "detail": "", "plain": None}
    if run is None:
        return told | {"detail": "the run is not in this MLflow store"}
    if not run.configs:
        return told | {"detail": "the run keeps no config.yaml"}
    recomputed = {}
    for name, text in run.configs.items():
        plain = yaml.safe_load(text)
        recomputed[name] = plain_digest(plain, _root(run))
        if recomputed[name] == found.config_digest:
            return told | {"same": True, "file": name, "plain": plain}
    texts = ", ".join(f"{name} gives {digest[:12]}" for name, digest in recomputed.items())
    plain = yaml.safe_load(run.configs.get("config.yaml", next(iter(run.configs.values()))))
    return told | {"same": False, "detail": texts, "plain": plain}


def _as_run(plain: dict[str, Any] | None, run: RunFacts | None) -> RunConfig | None:
    """The run's config as this release reads it, with paths as they are here; None where it cannot."""
    if plain is None:
        return None
    try:
        return resolve_paths(RunConfig.model_validate(portable(plain, _root(run))))
    except (ValidationError, UserError):
        return None


def _code(store: Provenance, found: Found, run: RunFacts | None) -> dict[str, Any] | None:
    """The version's own tag goes before the run's: a resumed run may have gone on with other code."""
    own = store.tags_of(found.number) if found.number is not None else {}
    for where, tags in (("version", own), ("run", run.tags if run else {})):
        if COMMIT in tags:
            return {"commit": tags[COMMIT], "dirty": tags.get(DIRTY, "unknown"), "from": where}
    return None


def _problems(cfg: RunConfig, found: Found, run: RunFacts | None, made_with: RunConfig | None) -> dict[str, Any]:
    if found.version == 0:
        return {"unknown": "version 0 is the start of a run: nothing was trained on in it"}
    if run is None:
        return {"unknown": "without its run, the ledger cannot be found"}
    folders = [results_root(one) / run.name for one in (made_with, cfg) if one]
    try:
        trained = trained_on(next(filter(Path.is_dir, folders), folders[0]), found.step)
    except UserError as error:
        return {"unknown": str(error)}
    if isinstance(trained, str):
        return {"unknown": trained}
    return _counted(trained, found, _sources(made_with))


def _counted(trained: Trained, found: Found, sources: dict[str, str]) -> dict[str, Any]:
    return {
        "count": len(trained.ids),
        "groups": trained.groups,
        "by_source": by_source(trained.ids, sources),
        "ids": list(trained.ids),
        "up_to": trained.up_to,
        "complete": trained.up_to >= found.step,
        "checkpoint": trained.checkpoint,
    }


def _sources(made_with: RunConfig | None) -> dict[str, str]:
    """Problem id -> source, read again from the run's data; empty where that is no longer there."""
    from pipeline.problems import load_problems

    if made_with is None:
        return {}
    try:
        return {one.id: one.source for one in load_problems(made_with.problems.train, made_with.run.seed)}
    except UserError:
        return {}


def _start(made_with: RunConfig | None, run: RunFacts | None, known: Sequence[Found]) -> dict[str, Any]:
    """The model the run began with, as it is here now and as the run recorded it."""
    told: dict[str, Any] = {"path": None, "mark": None, "digest": None, "recorded": None, "same": None, "detail": ""}
    if run is not None:
        told["recorded"] = run.tags.get("start_digest")
    if made_with is None:
        return told
    folder = Path(made_with.model.path)
    told["path"] = str(folder)
    if not (folder / MANIFEST_NAME).is_file():
        return told | {"detail": "its folder has no manifest, or is not on this machine"}
    manifest = read_manifest(folder)
    told |= {"mark": fingerprint(manifest.version, manifest.digest), "digest": manifest.digest}
    if told["recorded"] is None:
        return told | {"detail": "as it is now; the run did not record it"}
    made = [one for one in known if one.digest == manifest.digest and one.run_id and one.run_id != run.run_id]
    detail = f"made by another run: python -m jobs.lineage {made[0].mark}" if made else ""
    return told | {"same": told["recorded"] == manifest.digest, "detail": detail}


def _faults(told: dict[str, Any], found: Found, checked: Checked) -> list[str]:
    faults = []
    if checked.state == "damaged":
        faults.append(f"the weights of {found.mark} are not what was recorded: {checked.detail}")
    if checked.manifest and checked.manifest.config_digest != found.config_digest:
        faults.append(
            f"registry and manifest name different configs: {found.config_digest[:12]} and "
            f"{checked.manifest.config_digest[:12]}"
        )
    if told["config"]["same"] is False:
        faults.append(
            f"the config digest {found.config_digest[:12]} is not that of the run's config ({told['config']['detail']})"
        )
    if told["start"]["same"] is False:
        faults.append(
            f"the start model in {told['start']['path']} now has digest {told['start']['digest'][:12]}, the run began "
            f"with {told['start']['recorded'][:12]}"
        )
    return faults
