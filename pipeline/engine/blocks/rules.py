"""Which block sizes an attention backend takes, and what it gets where nothing is asked for.

vLLM refuses others when the engine starts (`supports_block_size` of each backend, 0.32); here they are refused before.
"""

from dataclasses import dataclass

from pipeline.config.errors import UserError
from pipeline.engine.options import CPU_BLOCK

SWEEP = (16, 32, 64, 128, 256)  # tokens; what is compared where nothing is named


@dataclass(frozen=True)
class Rule:
    """Sizes are multiples of `every` tokens; `only`: that size alone. `usual`: what null means. `file` is where vLLM
    says so, below `v1/attention/backends`."""

    name: str
    file: str
    every: int
    usual: int
    pages: tuple[int, ...] = ()  # what the kernels read; larger blocks are split into them
    only: bool = False

    def allows(self, size: int) -> bool:
        """Whether vLLM starts with it."""
        return size == self.every if self.only else size > 0 and size % self.every == 0

    def text(self) -> str:
        """The rule in words."""
        if self.only:
            return f"{self.name} takes {self.every} alone, whatever is asked"
        pages = f" (its kernels read pages of {_listed(self.pages)}; larger blocks are split)" if self.pages else ""
        return f"{self.name} takes multiples of {self.every}{pages}"


RULES = {
    "cpu": Rule("vLLM's CPU attention", "cpu_attn.py", 32, CPU_BLOCK),
    "cpu_mla": Rule("vLLM's CPU attention for MLA models", "mla/cpu_mla.py", 16, 16, only=True),
    "flash_attn": Rule("FlashAttention", "flash_attn.py", 16, 16),
    "triton": Rule("Triton attention", "triton_attn.py", 16, 16),
    "flex": Rule("FlexAttention", "flex_attention.py", 16, 16),
    "flashinfer": Rule("FlashInfer", "flashinfer.py", 16, 16, (16, 32, 64)),
    "flashmla": Rule("FlashMLA", "mla/flashmla.py", 64, 64),
    "flashinfer_mla": Rule("FlashInfer for MLA models", "mla/flashinfer_mla.py", 32, 32, (32, 64)),
    "cutlass_mla": Rule("CUTLASS MLA", "mla/cutlass_mla.py", 128, 128),
}


def sizes_for(backend: str, asked: tuple[int, ...] = ()) -> tuple[int, ...]:
    """The sizes to compare, ascending: those asked for, else the usual ones that the backend takes.

    UserError for the first that it does not take, with its rule.
    """
    rule = RULES[backend]
    for size in asked:
        if not rule.allows(size):
            small = "; no backend takes less than 16" if size < 16 else ""
            raise UserError(f"a block of {size} tokens is refused: {rule.text()}{small}; leave {size} out")
    return tuple(sorted(set(asked) or {size for size in SWEEP if rule.allows(size)}))


def _listed(sizes: tuple[int, ...]) -> str:
    *first, last = map(str, sizes)
    return f"{', '.join(first)} and {last}"
