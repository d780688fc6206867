"""Rounded weights in a real engine: it computes what the grid says, swaps, and says no in time."""

import pytest
import torch

from pipeline.config import UserError
from pipeline.config.schema import Engine
from pipeline.engine import EngineOptions, RolloutEngine, SwapRefused
from pipeline.quantization.folder import Identity, linear_layers, write_rounded
from pipeline.quantization.grid import Grid
from pipeline.quantization.modules import on_grid

pytestmark = pytest.mark.slow
IDS = [5, 9, 33, 70, 12, 44, 8, 61, 19, 3, 27, 90]
NOISE = 0.02  # nats, mean: what float16 activations alone may change


def options(dtype="float16"):
    return EngineOptions.from_config(Engine(dtype=dtype, max_model_len=64, max_num_seqs=8, kv_cache_bytes=32 << 20))


def rounded(models, seed, grid):
    """(folder, digest) of the weights of `seed`, rounded, as version `seed`."""
    folder = models.root / f"rounded-{seed}-{grid.bits}"
    state = {name: value for name, value in models.net(True, seed).state_dict().items() if name != "lm_head.weight"}
    base = models.base(True)
    layers, identity = linear_layers(base), Identity(seed, seed)
    written = write_rounded(folder, state.items(), grid, model_dir=base, layers=layers, identity=identity)
    return folder, written.manifest.digest


def expected(models, seed, grid=None):
    net = models.net(True, seed)
    ids = torch.tensor([IDS])
    with torch.inference_mode():
        if grid is None:
            logits = net(input_ids=ids).logits
        else:
            with on_grid(net, grid):
                logits = net(input_ids=ids).logits
    return logits[0, :-1].log_softmax(-1).gather(-1, ids[0, 1:, None])[:, 0].tolist()


def gap(found, wanted):
    return sum(abs(a - b) for a, b in zip(found, wanted, strict=True)) / len(wanted)


@pytest.fixture(scope="module")
def live(models, run):
    engine = RolloutEngine("rounded")
    folder, digest = rounded(models, 1, Grid(2, 32))
    run(engine.start(folder, options(), 1, digest))
    yield engine
    run(engine.shutdown())


def test_the_engine_computes_with_the_stored_grid(live, models, run):
    found = run(live.fingerprint(IDS))
    assert gap(found, expected(models, 1, Grid(2, 32))) < NOISE < gap(found, expected(models, 1)) / 3


def test_whole_weights_are_refused_before_anything_is_touched(live, models, run):
    folder, digest = models.snapshot(True, 3)
    with pytest.raises(SwapRefused, match="weight"):
        run(live.swap(folder, 3, digest))
    assert live.version == 1 and gap(run(live.fingerprint(IDS)), expected(models, 1, Grid(2, 32))) < NOISE


def test_other_rounded_weights_are_swapped_in(live, models, run):
    folder, digest = rounded(models, 2, Grid(4, 32))
    run(live.swap(folder, 2, digest))
    found = run(live.fingerprint(IDS))
    assert gap(found, expected(models, 2, Grid(4, 32))) < NOISE


def test_a_type_that_the_kernel_lacks_is_refused_before_the_engine_starts(models, run, tmp_path):
    folder, _ = rounded(models, 4, Grid(4, 32))
    with pytest.raises(UserError, match="need engine.dtype bfloat16 or float16, not float32"):
        run(RolloutEngine("wrong").start(folder, options("float32")))
