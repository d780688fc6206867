"""The sections of the jobs that teach a model from nothing: the tiny policy and the judge."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from pipeline.config.fields import NonNegative, Positive, Section, Share


def _check_heads(hidden: int, heads: int) -> None:
    if hidden % (32 * heads):
        raise ValueError(
            f"hidden={hidden} over heads={heads} gives heads of {hidden / heads:g}; attention on CPU needs a whole "
            "multiple of 32"
        )


class WarmStart(Section):
    """Teaching a small model from nothing: first to solve (plain lessons), then to overthink.

    Ranks, ZeRO stage, betas, decay and clipping are those of `learner`.
    """

    steps: Positive = 4200
    plain_steps: NonNegative = 3000  # of these: attempts are not repeated, so most tokens teach solving
    plain_tokens_per_step: Positive = 2048
    tokens_per_step: Positive = 4096
    lr: Annotated[float, Field(gt=0)] = 3e-3
    overthink_lr: Annotated[float, Field(gt=0)] = 1.5e-3  # where the second phase starts
    lr_floor: Share = 0.03  # of a phase's rate, at the end of its cosine
    warmup_steps: NonNegative = 50
    hidden: Positive = 128
    layers: Positive = 4
    heads: Positive = 4
    intermediate: Positive = 512
    slip: Share = 0.1  # chance that an attempt in a demonstration goes wrong
    min_checks: NonNegative = 1  # attempts after the first
    max_checks: NonNegative = 3
    log_every: Positive = 10
    checkpoint_every: Positive = 200

    @model_validator(mode="after")
    def _is_whole(self) -> "WarmStart":
        if self.min_checks > self.max_checks:
            raise ValueError(f"min_checks ({self.min_checks}) is above max_checks ({self.max_checks}); lower the first")
        _check_heads(self.hidden, self.heads)
        return self


class JudgeTraining(Section):
    """Teaching a judge: sample, cut and label traces of `model.path`, then learn yes or no for each segment.

    Ranks, ZeRO stage, betas, decay and clipping are those of `learner`; traces a problem, `evaluation.samples`; the
    labeller's failure limit, `judge.max_failure_rate`.
    """

    labeller: Literal["exact", "endpoint"] = "exact"
    endpoint_url: str | None = None  # of an OpenAI-compatible server; its key, if any, is in OPENAI_API_KEY
    endpoint_model: str | None = None
    base: str | None = None  # a judge to go on from; None: a new small model of the shape below
    validation: Share = 0.1  # of the training problems: their segments are not learned from
    min_no_share: Share = 0.3  # where segments hold fewer, some are put beside another problem's answer
    altered: NonNegative = 50000  # more questions: tiny-world segments with other numbers, signs, phrases and answers
    short: NonNegative = 100000  # of the same kind, cut down to the line with the answer
    steps: Positive = 3000
    short_steps: NonNegative = 600  # of these: short questions, in which most tokens are to the point
    tokens_per_step: Positive = 4096  # half as many in the short ones
    lr: Annotated[float, Field(gt=0)] = 3e-3
    lr_floor: Share = 0.03  # of the rate, at the end of its cosine
    warmup_steps: NonNegative = 50
    hidden: Positive = 64
    layers: Positive = 2
    heads: Positive = 2
    intermediate: Positive = 128
    log_every: Positive = 10
    checkpoint_every: Positive = 250

    @model_validator(mode="after")
    def _is_whole(self) -> "JudgeTraining":
        if self.labeller == "endpoint" and not (self.endpoint_url and self.endpoint_model):
            raise ValueError("the labeller 'endpoint' needs endpoint_url and endpoint_model")
        if self.short_steps and not self.short:
            raise ValueError("short_steps needs short questions; set short, or short_steps to 0")
        if self.labeller == "exact" and (self.endpoint_url or self.endpoint_model):
            raise ValueError("endpoint_url and endpoint_model do nothing unless labeller is 'endpoint'")
        _check_heads(self.hidden, self.heads)
        return self


class Qat(Section):
    """Training a model for the grid its weights will be rounded to, by `jobs.qat`: the model as it is teaches its
    rounded self on its own answers to problems.train. Off without bits.

    Ranks, ZeRO stage, betas, decay and clipping are those of `learner`.
    """

    bits: Literal[2, 3, 4] | None = None  # of a weight; 4 is what saves room, fewer round more in as much of it
    group: Annotated[int, Field(ge=2)] | None = 32  # inputs that share a scale; None: a scale an output
    samples: Positive = 2  # answers to each problem of problems.train
    steps: Positive = 200
    tokens_per_step: Positive = 4096
    lr: Annotated[float, Field(gt=0)] = 1e-4  # fewer bits want more: 1e-3 for 2
    lr_floor: Share = 0.03  # of the rate, at the end of its cosine
    warmup_steps: NonNegative = 10
    held_out: Share = 0.05  # of the answers: not learned from, the loss on them is told before and after
    log_every: Positive = 10
    checkpoint_every: Positive = 100

    @model_validator(mode="after")
    def _is_whole(self) -> "Qat":
        fields = type(self).model_fields
        idle = [name for name in fields if getattr(self, name) != fields[name].default]
        if self.bits is None and idle:
            raise ValueError(f"{idle[0]} does nothing without bits; set qat.bits, 4 for INT4 weights")
        return self
