"""How far an engine's log-probs are from those of the model in a snapshot's folder."""

from pathlib import Path

from pipeline.weights.reference import Reference, make_reference, read_reference


def reference_of(folder: str | Path) -> Reference:
    """The log-probs that the snapshot brings along; computed here, in float32, where it brings none."""
    return read_reference(folder) or _computed(folder)


def _computed(folder: str | Path) -> Reference:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, use_safetensors=True).eval()

    def logprobs_of(token_ids: list[int]) -> list[float]:
        ids = torch.tensor(token_ids)
        with torch.inference_mode():
            rows = model(ids[None]).logits[0, :-1].float().log_softmax(-1)
        return rows.gather(1, ids[1:, None])[:, 0].tolist()

    return make_reference(model.config.vocab_size, logprobs_of)
