"""What a person sees while a run goes on: one line a step, and who is waited for when nothing moves."""

from collections.abc import Mapping, Sequence


def step_line(step: int, steps: int, version: int, numbers: Mapping[str, float]) -> str:
    """One step in one line; figures without a value this step show as `-`."""

    def shown(name: str, form: str) -> str:
        return format(numbers[name], form) if name in numbers else "-"

    seconds = " ".join(
        f"{part} {shown(f'seconds_{part}', '.1f')}" for part in ("rollout", "grade", "judge", "train", "publish")
    )
    return (
        f"step {step + 1}/{steps}  accuracy {shown('accuracy', '.3f')}  tokens {shown('tokens_mean', '.0f')}  "
        f"NRP {shown('nrp_share_tokens', '.2f')}  kappa {shown('kappa', '.2f')} "
        f"(easy {shown('easy_share_realised', '.2f')})  v{version}  "
        f"{shown('seconds_step', '.1f')} s: {seconds}"
    )


def stall_line(waits: Sequence[tuple[str, float]], after_s: float) -> str | None:
    """Whom a stalled run waits for, once the longest wait exceeds `after_s` seconds."""
    late = [f"{what} ({seconds:.0f} s)" for what, seconds in waits if seconds >= after_s]
    return f"waiting for {', '.join(late)}" if late else None
