"""Times of a row of an answer, as its link has them."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from dashboards.viewer.page import FOLDER

_CASES: dict[str, tuple[list[str], list[float | None], list[list[float]]]] = {
    "a time": (["Time"], [5000], [[5000, 5000]]),
    "an interval": (["From", "To"], [5000, 9000], [[5000, 9000]]),
    "an interval that lasts": (["From", "To"], [5000, None], [[5000, 100_000]]),
    "two intervals": (["Copy from", "Copy to", "Original from", "Original to"], [5, 9, 1, 4], [[5, 9], [1, 4]]),
    "an interval of a question": (["from_time", "to_time", "at"], [5, 9, 7], [[5, 9], [7, 7]]),
    "parts of a millisecond": (["From", "To"], [5.5, 9.5], [[5, 10]]),
    "no time": (["Time"], [None], []),
}


@pytest.mark.parametrize("case", _CASES)
def test_times_of_a_row_are_marked(case: str) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node is missing")
    names, values, marks = _CASES[case]
    fields = [{"name": "Channel", "type": "string"}, *({"name": name, "type": "time"} for name in names)]
    script = f"""
    import {{ filled, marksOf }} from "{(FOLDER / "links.js").as_uri()}";
    const marks = marksOf({json.dumps(fields)}, {json.dumps(["a", *values])}, 100000);
    const link = filled("/d/x?${{__row_time_range}}", {{}}, {{ from: "now-1h", to: "now" }}, {{}}, marks);
    console.log(JSON.stringify([marks, link]));
    """
    run = subprocess.run([node, "--input-type=module", "-e", script], capture_output=True, text=True, check=True)
    actual, link = json.loads(run.stdout)
    assert actual == marks
    named = "".join(f"&mark={begin:g}-{end:g}" for begin, end in marks)
    assert link.endswith(named or "from=now-1h&to=now")
