"""The weights an endpoint starts with: a snapshot, or a plain model folder made into one."""

import shutil
import tempfile
from pathlib import Path

from pipeline.config import RunConfig, UserError, config_digest
from pipeline.weights import MANIFEST_NAME, Reference, Snapshot, make_reference, read_manifest

REFERENCE_LIMIT = 500_000_000  # bytes of weights; the log-probs of a larger model are not computed on this machine


def as_snapshot(folder: Path, home: Path, cfg: RunConfig) -> Snapshot:
    """`folder` itself when it is a snapshot; else version 0 written under `home`, so that these weights too have an
    identity that replicas can confirm and return to. Named by its digest: the same model is written once."""
    if (folder / MANIFEST_NAME).is_file():
        manifest = read_manifest(folder)
        return Snapshot(manifest.version, str(folder), manifest)
    home.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".base-", dir=home))
    try:
        written = _write_base(folder, scratch / "base", cfg)
        target = home / f"base-{written.manifest.digest[:12]}"
        if not target.exists():
            (scratch / "base").rename(target)
        return Snapshot(0, str(target), read_manifest(target))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _write_base(folder: Path, target: Path, cfg: RunConfig) -> Snapshot:
    from pipeline.weights import read_tensors, write_snapshot  # torch is needed from here on only

    files = sorted(folder.glob("*.safetensors"))
    tensors = {name: tensor for file in files for name, tensor in read_tensors(file)}
    if not tensors:
        raise UserError(f"model.path: {folder} has no *.safetensors; save the model in that format first")
    small = sum(file.stat().st_size for file in files) <= REFERENCE_LIMIT
    return write_snapshot(
        target,
        tensors,
        version=0,
        step=0,
        parent=None,
        config_digest=config_digest(cfg),
        serving_dtype=cfg.engine.dtype,
        model_dir=folder,
        reference=_reference(folder) if small else None,
    )


def _reference(folder: Path) -> Reference:
    """The log-probs as transformers computes them, in float32."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    def logprobs_of(token_ids: list[int]) -> list[float]:
        ids = torch.tensor([token_ids])
        with torch.no_grad():
            logprobs = model(input_ids=ids).logits[0, :-1].log_softmax(-1)
        return logprobs.gather(-1, ids[0, 1:, None])[:, 0].tolist()

    return make_reference(model.config.vocab_size, logprobs_of)
