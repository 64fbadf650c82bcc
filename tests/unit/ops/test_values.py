"""Values of options: as typer converts them, whether it does it or not."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pytest
import typer

from core.errors import OperationError
from ops.cli import values
from ops.cli.values import quicken

quicken()  # as the command line does
app = typer.Typer()


@app.command()
def command(
    text: str = "",
    texts: Annotated[list[str] | None, typer.Option()] = None,
    number: int = 0,
    limited: Annotated[int, typer.Option(min=1, max=9)] = 1,
    clamped: Annotated[int, typer.Option(min=1, max=9, clamp=True)] = 1,
    path: Path | None = None,
    ratio: float = 0.0,
    parsed: Annotated[str, typer.Option(parser=str.upper)] = "",
) -> None:
    pass


LEGAL = {
    "number": "a whole number",
    "limited": "a whole number from 1 to 9",
    "clamped": "a whole number from 1 to 9",
    "ratio": "a number",
}
PARAMETERS = {parameter.name: parameter for parameter in typer.main.get_command(app).params}


@pytest.mark.parametrize("name", PARAMETERS)
@pytest.mark.parametrize(
    "value", [None, "", "x", " 3", "3", "03", "12", "-1", "1_0", "3.0", "٣", 3, 12, 3.5, ["a", "b"], ("a",), [], [1]]
)
def test_values_are_those_of_typer(name: str, value: Any) -> None:
    parameter: Any = PARAMETERS[name]

    def outcome(values_of: Any) -> Any:
        try:
            found = values_of.coerce(value, param=parameter, ctx=typer.Context(typer.main.get_command(app)))
            return type(found), found
        except OperationError as error:
            assert str(error) == f"--{name}: found {value!r}; legal: {LEGAL[name]}"
            return "illegal number"
        except typer.BadParameter as error:
            return "illegal number" if name in LEGAL else str(error)
        except Exception as error:
            return type(error), str(error)

    assert outcome(parameter.get_runtime_param()) == outcome(values._typers(parameter))
