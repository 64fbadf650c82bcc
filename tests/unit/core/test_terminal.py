"""No text of a device controls a terminal, whatever prints it; what goes to a file is as it was."""

from __future__ import annotations

import logging
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

from core.log import UtcFormatter, printable
from core.paths import CHECKOUT

HOSTILE = "a\x1b]0;title\x07b\x1b[2Jc\x9b31md\x9d8;;x\x9ce\rf\x08\ng\th"
ESCAPED = r"a\x1b]0;title\x07b\x1b[2Jc\x9b31md\x9d8;;x\x9ce\x0df\x08"
SCRIPT = """
import sys, typer
from rich.markup import escape
from rich.table import Table
from core.terminal import Console, protect
protect()
text = sys.argv[1]
typer.echo(text)
print(text)
sys.stdout.write(text + "\\n")
print(text, file=sys.stderr)
table = Table("name", style="red")
table.add_row(escape(text))
Console().print(table)
Console().print(text, markup=False, style="bold")
"""


def shown(*command: str, **variables: str) -> str:
    """Output of a command on a terminal."""
    terminal, end = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "200", **variables}
    process = subprocess.Popen(
        command, stdin=end, stdout=end, stderr=end, env=environment, cwd=CHECKOUT, start_new_session=True
    )
    os.close(end)
    parts = []
    try:
        while part := os.read(terminal, 65536):
            parts.append(part)
    except OSError:  # the other end is closed
        pass
    os.close(terminal)
    assert process.wait() == 0, b"".join(parts)
    return b"".join(parts).decode().replace("\r\n", "\n")


def test_terminal_shows_texts_as_they_are_written() -> None:
    output = shown(sys.executable, "-c", SCRIPT, HOSTILE)
    assert output.count(ESCAPED) == 4
    assert "\x1b[31m" in output  # the table's own style
    without_styles = re.sub(r"\x1b\[[\d;]*m", "", output)
    assert printable(without_styles) == without_styles
    assert without_styles.count(r"a\x1b]0;title") == 6


def test_logs_and_answers_are_safe(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    line = HOSTILE.replace("\r", "")
    (tmp_path / "log" / "writer.log").write_text(f"{line}\n")
    command = (sys.executable, "-m", "ops", "logs", "writer")
    assert shown(*command, PLANTLOG_STATE=str(tmp_path)) == f"{printable(line)}\n"
    record = logging.makeLogRecord({"msg": "source %s", "args": (HOSTILE,), "levelname": "INFO"})
    assert ESCAPED in UtcFormatter("%(message)s").format(record)
