"""Base of all classes of the configuration's model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo

Name = Annotated[str, Field(pattern=r"^[a-z0-9_]+(-[a-z0-9_]+)*$", max_length=63)]

# PostgreSQL stores no NUL.
Text = Annotated[str, Field(pattern=r"^[^\x00]*$")]


class Frozen(BaseModel):
    """An object that does not change, and has no options but those that are declared."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def fields_of(table: type[Any]) -> Mapping[str, FieldInfo]:
    """The options of a table, or the columns of a tag list, by name."""
    fields: Mapping[str, FieldInfo] = table.__pydantic_fields__
    return fields
