"""Round a model's linear layers: `python -m jobs.quantize --model FOLDER --bits 4 --group 32 --out FOLDER`.

Rounds to nearest, nothing is trained (`jobs.qat` does). The new folder is a snapshot in the compressed-tensors format,
which vLLM loads by itself; how much smaller it is and how far its predictions are from the model's is printed and kept
in its quantization.json.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs._cli import run_command, whole_number
from pipeline.config import RunConfig, UserError, check_model_folder, config_digest

if TYPE_CHECKING:
    from pipeline.quantization.grid import Grid

COMPARED_LIMIT = 4_000_000_000  # bytes of weights; predictions of a larger model are not compared on this machine
PROMPTS, NEW_TOKENS = 16, 128


def main(cfg: RunConfig, args: argparse.Namespace) -> int:
    """Writes the folder and prints what became of size and predictions."""
    source, out, grid = _asked(cfg, args)
    from pipeline.quantization.folder import Identity, fitting_layers, folder_tensors, write_rounded
    from pipeline.weights import MANIFEST_NAME, read_manifest

    layers = fitting_layers(source, grid)
    _check_prompts(cfg, source)
    whole = read_manifest(source) if (source / MANIFEST_NAME).is_file() else None
    identity = Identity(config_digest=config_digest(cfg))
    if whole is not None:
        identity = Identity(whole.version, whole.step, whole.parent, whole.config_digest)
    small = _weight_bytes(source) <= COMPARED_LIMIT
    reference, compared = _compared(cfg, source, grid) if small else (None, None)
    report = {
        "grid": grid.name,
        "rounded_layers": len(layers),
        "source_digest": whole.digest if whole else None,
        "compared": compared,
    }
    snapshot = write_rounded(
        out,
        folder_tensors(source),
        grid,
        model_dir=source,
        layers=layers,
        identity=identity,
        reference=reference,
        report=report,
    )
    print(_text(source, out, report, snapshot.manifest.digest))
    return 0


def _asked(cfg: RunConfig, args: argparse.Namespace) -> tuple[Path, Path, "Grid"]:
    source, out = check_model_folder(args.model or cfg.model.path), Path(args.out).expanduser().resolve()
    if out.exists():
        raise UserError(f"--out {out} exists; give a new folder")
    above = next(folder for folder in out.parents if folder.exists())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        raise UserError(f"--out {out} cannot be made: {above} is no folder to write in; give another place")
    if args.bits == 8 and args.group is not None:
        raise UserError("--group does nothing with --bits 8, where each output has one scale; leave it out")
    if args.group == 1:
        raise UserError("--group 1 shares a scale with nobody; give 2 or more inputs, or 0 for a scale an output")
    from pipeline.quantization.grid import Grid

    group = None if args.bits == 8 or args.group == 0 else args.group or 32
    return source, out, Grid(args.bits, group)


def _compared(cfg: RunConfig, source: Path, grid: "Grid") -> tuple[Any, dict[str, Any]]:
    """The log-probs that the new folder brings along, and how its predictions differ from the model's: on its own
    answers to held-out problems of the config, on a fixed sequence where there are none."""
    import torch
    from transformers import AutoModelForCausalLM

    from pipeline.quantization.modules import difference, on_grid, own_sequences
    from pipeline.weights import model_reference

    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32, use_safetensors=True).eval()
    with on_grid(model, grid):
        reference = model_reference(model)
    prompts = _prompts(cfg, source)
    sequences = own_sequences(model, prompts, NEW_TOKENS) if prompts else [reference.token_ids]
    on = f"own answers to {len(prompts)} held-out problems" if prompts else "a fixed sequence of token ids"
    return reference, {"on": on, **asdict(difference(model, grid, sequences))}


def _check_prompts(cfg: RunConfig, source: Path) -> None:
    """UserError where the model's predictions are to be compared on problems that it cannot be asked."""
    if not cfg.problems.held_out or _weight_bytes(source) > COMPARED_LIMIT:
        return
    from jinja2 import TemplateError

    from pipeline.loop.assemble import load_tokenizer

    try:
        tokenizer = load_tokenizer(str(source))
        tokenizer.apply_chat_template([{"role": "user", "content": "1 + 1"}], add_generation_prompt=True)
    except (TemplateError, ValueError, TypeError, KeyError, AttributeError, OSError) as error:
        why = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise UserError(
            f"{source} cannot be asked the held-out problems: its tokenizer or chat template fails ({why}); mend it, "
            "or set problems.held_out=[] to compare on a fixed sequence"
        ) from None


def _prompts(cfg: RunConfig, source: Path) -> list[list[int]]:
    if not cfg.problems.held_out:
        return []
    from pipeline.evaluation.suites import spread
    from pipeline.loop.assemble import load_split, load_tokenizer
    from pipeline.loop.evaluate import prompts_of

    prompts = prompts_of(cfg, load_tokenizer(str(source)))
    return [prompts.ids(problem) for problem in spread(load_split(cfg, "held_out"), PROMPTS)]


def _weight_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("*.safetensors"))


def _text(source: Path, out: Path, report: dict[str, Any], digest: str) -> str:
    before, after = _weight_bytes(source), _weight_bytes(out)
    compared = report["compared"]
    told = "predictions not compared: the model is large"
    if compared:
        told = (
            f"predictions over {compared['tokens']} tokens of {compared['on']}: KL {compared['kl']:.5f} nats a token, "
            f"largest difference of logits {compared['logit_max']:.3f}, same likeliest token {compared['same_top']:.4f}"
        )
    return (
        f"{report['grid']}: {report['rounded_layers']} linear layers rounded\n"
        f"weights {before:,} -> {after:,} bytes ({after / before:.3f} of before)\n"
        f"{told}\n"
        f"quantised model: {out} ({digest[:12]})"
    )


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", metavar="FOLDER", help="the model to round (default: model.path)")
    parser.add_argument("--bits", type=int, choices=[2, 3, 4, 8], default=4, help="of a weight (default: 4)")
    parser.add_argument(
        "--group",
        type=whole_number("--group", least=0),
        help="inputs that share a scale (default: 32; 0: a scale an output)",
    )
    parser.add_argument("--out", metavar="FOLDER", required=True, help="the new folder")


def _plan(cfg: RunConfig, args: argparse.Namespace) -> str:
    source, out, grid = _asked(cfg, args)
    from pipeline.quantization.folder import fitting_layers

    fitting_layers(source, grid)
    _check_prompts(cfg, source)
    return f"the linear layers of {source}, rounded to {grid.name}, in {out}"


def command(argv: Sequence[str] | None = None) -> int:
    """Runs the command line (None: the process's own) and returns the exit code."""
    return run_command("quantize", __doc__, main, _arguments, _plan, argv)


if __name__ == "__main__":
    sys.exit(command())
