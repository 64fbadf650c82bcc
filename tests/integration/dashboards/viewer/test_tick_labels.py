"""Labels of evenly spaced ticks, as the page's own code writes them."""

from __future__ import annotations

import pytest

from dashboards.viewer.page import FOLDER
from tests.integration.dashboards.viewer.browser_page import running_browser

_LABELS = "([ticks, unit, step]) => tickLabels(ticks, unit, step)"
_CASES: list[tuple[list[float | None], str, float, list[str]]] = [
    ([1250, 1500, 1750, 2000, 2250], "short", 250, ["1.25 K", "1.50 K", "1.75 K", "2.00 K", "2.25 K"]),
    ([500, 750, 1000, 1250], "short", 250, ["500", "750", "1.00 K", "1.25 K"]),
    ([0, 500, 1000, 1500], "short", 500, ["0", "500", "1.0 K", "1.5 K"]),
    ([100, 100.25, 100.5], "suffix:kPa", 0.25, ["100.00 kPa", "100.25 kPa", "100.50 kPa"]),
    ([-0.5, 0, 0.5], "suffix:K", 0.5, ["-0.5 K", "0 K", "0.5 K"]),
    ([0, 90, 180], "s", 90, ["0 s", "1.5 min", "3.0 min"]),
    ([0, 5e8, 1e9], "bytes", 5e8, ["0 B", "477 MiB", "954 MiB"]),
    ([1, None, 2], "short", 1, ["1", "–", "2"]),
]


@pytest.mark.slow
async def test_ticks_have_the_digits_of_their_step() -> None:
    async with running_browser() as browser:
        page = await browser.new_page()
        await page.set_content("<!doctype html><body></body>")
        await page.add_script_tag(content=(FOLDER / "units.js").read_text().replace("export ", ""))
        for ticks, unit, step, expected in _CASES:
            labels = await page.evaluate(_LABELS, [ticks, unit, step])
            assert labels == [label.replace(" ", "\N{NO-BREAK SPACE}") for label in expected]
