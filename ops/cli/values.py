"""Values of options without pydantic: typer imports it to convert them, which takes as long as DuckDB."""

from __future__ import annotations

from typing import Any

from typer import BadParameter
from typer.core import TyperArgument, TyperOption

from core.errors import OperationError

_typers = TyperOption.get_runtime_param


def quicken() -> None:
    """Take texts and whole numbers as they are. Other kinds are converted by typer, which finds errors."""
    for kind in (TyperArgument, TyperOption):
        kind.get_runtime_param = lambda _: _VALUES  # type: ignore[method-assign, assignment, return-value]


class _Values:
    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Value of a parameter, as typer would return it. Raises OperationError for numbers, else what typer raises."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        kind, info = param.type_descriptor.annotation, param.type_descriptor.parameter_info
        if info.parser is None and not info.clamp:
            if kind is str and type(value) is str:
                return value
            if kind == list[str] and isinstance(value, list | tuple) and all(type(item) is str for item in value):
                return list(value)
            if kind is int and (number := _number(value)) is not None and _within(number, info.min, info.max):
                return number
        try:
            return _typers(param).coerce(value, param=param, ctx=ctx)
        except BadParameter:
            if kind not in _NUMBERS:
                raise
            raise OperationError(f"{param.opts[0]}: found {value!r}; legal: {_legal(kind, info)}") from None


_VALUES = _Values()
_NUMBERS = {int: "a whole number", float: "a number"}


def _legal(kind: type, info: Any) -> str:
    low = "" if info.min is None else f" from {info.min:,.12g}"
    high = " on" if low and info.max is None else "" if info.max is None else f" to {info.max:,.12g}"
    return f"{_NUMBERS[kind]}{low}{high}"


def _number(value: Any) -> int | None:
    if type(value) is int:
        return value
    return int(value) if type(value) is str and value.isascii() and value.isdecimal() else None


def _within(number: int, low: float | None, high: float | None) -> bool:
    return (low is None or low <= number) and (high is None or number <= high)
