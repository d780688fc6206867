"""What was measured of an endpoint and its traffic; what stays None was not measured, and no rule reads it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, ValidationError

from pipeline.config import UserError, nearest, yaml_text
from pipeline.config.fields import NonNegative, Positive, Section, Share

Amount = Annotated[float, Field(ge=0)]


class Profile(Section):
    """Figures of one stretch of traffic. Tokens, milliseconds, shares from 0 to 1."""

    device: Literal["cpu", "cuda"]
    gpus: NonNegative = 0
    fp8: bool = False  # compute capability 8.9 or above
    own_weights: bool = False  # the served weights may be trained further
    prediction_heads: bool = False  # the model has its own (mtp)
    overthinking_share: Share | None = None  # tokens after the first right answer, of all tokens of thinking
    context_tokens: Positive | None = None  # longest request that must be served
    prompt_tokens_p95: Positive | None = None
    prompt_tokens_p50: Positive | None = None
    shared_prefix_share: Share | None = None  # prompt tokens that an earlier prompt began with
    reuse_distance_tokens: Positive | None = None  # tokens cached between two uses of a prefix, median
    kv_capacity_tokens: Positive | None = None
    kv_usage: Share | None = None  # 95th percentile
    preemptions: NonNegative | None = None
    batch_occupancy: Share | None = None  # running sequences of max_num_seqs, mean
    acceptance: Share | None = None  # drafted tokens accepted; None: nothing is drafted
    itl_p95_ms: Amount | None = None
    itl_target_ms: Amount | None = None
    peak_to_mean_rate: Amount | None = None  # requests a second: busiest ten seconds over the mean
    late_share: Share | None = None  # requests whose first token came after its target

    @property
    def tokens_late(self) -> bool:
        """Whether tokens were measured to come later after one another than they should."""
        return None not in (self.itl_p95_ms, self.itl_target_ms) and self.itl_p95_ms > self.itl_target_ms


def read_profile(path: Path) -> Profile:
    """The profile in a YAML file. UserError with the key that is wrong."""
    try:
        tree = yaml_text.parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(
            f"cannot read the profile {path} ({error.strerror}); give a YAML file of measured figures"
        ) from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    except yaml.YAMLError as error:
        raise UserError(f"{path} is not valid YAML: {yaml_text.one_line(error)}") from None
    if not isinstance(tree, dict):
        raise UserError(f"{path} holds no mapping; a profile is a mapping such as 'device: cuda'")
    return check_profile(tree, str(path))


def check_profile(figures: Mapping[str, Any], where: str) -> Profile:
    """The profile of these figures. UserError, after `where`, with the key that is wrong."""
    try:
        return Profile.model_validate(figures)
    except ValidationError as errors:
        first = errors.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            raise UserError(f"{where}: unknown figure '{key}'{nearest(key, Profile.model_fields)}") from None
        raise UserError(f"{where}: {key}: {first['msg']}") from None
