"""Two-layer random models, snapshots of them, and the same log-probs computed by transformers."""

import asyncio
import os
from pathlib import Path

import pytest

VOCAB = 96
EOS = 1
# Set before torch or vLLM is imported by any engine test: the engine's process would get them from its launcher.
for name, value in {"OMP_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}.items():
    os.environ.setdefault(name, value)


class Models:
    """Builds base folders and snapshots under `root`; `net(tied, seed)` is the model behind each."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.nets = {}

    def net(self, tied, seed):
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM

        if (tied, seed) not in self.nets:
            torch.manual_seed(seed)
            config = LlamaConfig(
                vocab_size=VOCAB,
                hidden_size=64,
                intermediate_size=128,
                num_hidden_layers=2,
                num_attention_heads=2,
                num_key_value_heads=2,
                head_dim=32,
                max_position_embeddings=512,
                tie_word_embeddings=tied,
                bos_token_id=0,
                eos_token_id=EOS,
                pad_token_id=2,
                initializer_range=0.15,
            )
            self.nets[tied, seed] = LlamaForCausalLM(config).float().eval()
        return self.nets[tied, seed]

    def base(self, tied):
        """Folder of version 0 (seed 0), not a snapshot: as a user would download it."""
        folder = self.root / f"base-{tied}"
        if not folder.exists():
            self.net(tied, 0).save_pretrained(folder)
            _tokenizer().save(str(folder / "tokenizer.json"))
        return folder

    def snapshot(self, tied, version):
        """Snapshot `version` (weights of that seed): (folder, digest)."""
        from pipeline.weights import write_snapshot

        folder = self.root / f"snapshot-{tied}-{version}"
        state = {k: v for k, v in self.net(tied, version).state_dict().items() if not (tied and k == "lm_head.weight")}
        written = write_snapshot(
            folder,
            state,
            version=version,
            step=version,
            parent=version - 1,
            config_digest="c",
            serving_dtype="float32",
            model_dir=self.base(tied),
        )
        return folder, written.manifest.digest

    def logprobs(self, tied, seed, prompt_ids, token_ids, temperature=1.0):
        """log_softmax(logits / temperature) of `token_ids` [T] after `prompt_ids`, by transformers in fp32."""
        import torch

        whole = [*prompt_ids, *token_ids]
        with torch.no_grad():
            logits = self.net(tied, seed)(torch.tensor([whole])).logits[0].float()
        picked = (logits / temperature).log_softmax(-1)[len(prompt_ids) - 1 : -1]
        return picked[torch.arange(len(token_ids)), torch.tensor(token_ids)].tolist()


def _tokenizer():
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({f"t{i}": i for i in range(VOCAB)}, unk_token="t2"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.Fuse()
    return tokenizer


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    return Models(tmp_path_factory.mktemp("engine-models"))


@pytest.fixture(scope="module")
def run():
    """Runs a coroutine on this module's one event loop."""
    with asyncio.Runner() as runner:
        yield runner.run
