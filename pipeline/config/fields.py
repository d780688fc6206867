"""What the sections of the schema are made of: their base, and the kinds of numbers in them."""

from typing import Annotated, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

Positive = Annotated[int, Field(gt=0)]
NonNegative = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Beta = Annotated[float, Field(ge=0, lt=1)]
Points = Annotated[float, Field(ge=-1e6, le=1e6)]  # of a reward: squares of much larger ones leave single precision


class Section(BaseModel):
    """Base of all parts: frozen, no unknown keys, no NaN or infinity."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=(), allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _no_switch_as_number(cls, values: object) -> object:
        """`true` is a whole number to pydantic; a switch where a number belongs is a slip of the writer."""
        if isinstance(values, dict):
            for name, field in cls.model_fields.items():
                if isinstance(values.get(name), bool) and not _takes_bool(field.annotation):
                    raise PydanticCustomError("no_switch", "{name} takes no true or false", {"name": name})
        return values


def _takes_bool(annotation: object) -> bool:
    return annotation is bool or any(_takes_bool(part) for part in get_args(annotation))
