"""Lines as Chromium draws them: ink from value to value, and none over a gap, however narrow."""

from __future__ import annotations

from typing import Any

import pytest

from dashboards.viewer.page import FOLDER, UPLOT
from tests.integration.dashboards.viewer.browser_page import running_browser

# Columns of pixels (0 to 999, one per unit of time) that have ink.
_DRAW = """
([stepped, times, values]) => {
  const holder = document.createElement("div");
  document.body.append(holder);
  const series = { stroke: "red", width: 1, points: { show: false }, paths: line(stepped) };
  const scales = { x: { time: false, range: [0, 1000] }, y: { range: [0, 10] } };
  const none = [{ show: false }, { show: false }];
  const hidden = { legend: { show: false }, cursor: { show: false }, axes: none, padding: [0, 0, 0, 0] };
  const u = new uPlot({ width: 1000, height: 100, scales, series: [{}, series], ...hidden }, [times, values], holder);
  return new Promise((resolve) => setTimeout(() => {
    const { left, top, width, height } = u.bbox;
    const { data } = u.ctx.getImageData(left, top, width, height);
    const column = (x) => [...Array(height).keys()].some((y) => data[4 * (y * width + x) + 3] > 40);
    resolve([...Array(width).keys()].filter(column));
  }));
}
"""
_STRAIGHT: dict[str, tuple[list[float], list[float | None], list[tuple[int, int]]]] = {
    "a gap": ([100, 200, 300, 400], [1, 2, None, 3], [(100, 200), (400, 400)]),
    "a gap within a pixel, then quiet": ([100, 300, 300.2, 300.4, 700, 800], [1, 2, None, 2, 3, 2], [(100, 800)]),
    "a null at the last value's pixel": ([100, 300, 300.2, 700, 800], [1, 2, None, 3, 2], [(100, 300), (700, 800)]),
    "nulls at both ends": ([0, 50, 100, 900, 1000], [None, 1, 2, 3, None], [(50, 900)]),
    "values beside the shown time": ([-300, 1300], [2, 3], [(0, 999)]),
    "a gap over the left edge": ([-100, -50, 50, 300], [1, None, 2, 3], [(50, 300)]),
}
_STEPPED = _STRAIGHT | {  # a value holds until the null
    "a gap": ([100, 200, 300, 400], [1, 2, None, 3], [(100, 300), (400, 400)]),
    "nulls at both ends": ([0, 50, 100, 900, 1000], [None, 1, 2, 3, None], [(50, 999)]),
}


@pytest.mark.slow
@pytest.mark.parametrize("cases", [_STRAIGHT, _STEPPED], ids=["straight", "stepped"])
async def test_ink_is_where_values_are(cases: dict[str, tuple[list[float], list[Any], list[tuple[int, int]]]]) -> None:
    async with running_browser() as browser:
        page = await browser.new_page()
        await page.set_content("<!doctype html><body></body>")
        await page.add_script_tag(path=str(UPLOT / "uPlot.iife.js"))
        await page.add_script_tag(content=(FOLDER / "panels" / "line.js").read_text().replace("export ", ""))
        for name, (times, values, expected) in cases.items():
            ink: list[int] = await page.evaluate(_DRAW, [cases is _STEPPED, times, values])
            assert _without_edges(ink) == _without_edges(_columns(expected)), name


def _columns(runs: list[tuple[int, int]]) -> list[int]:
    return [x for first, last in runs for x in range(first, last + 1)]


def _without_edges(ink: list[Any]) -> set[int]:
    """Columns whose neighbours have ink, too: a line may begin or end a pixel earlier or later."""
    found = set(ink)
    return {x for x in found if {x - 2, x - 1, x + 1, x + 2} <= found | {-2, -1, 1000, 1001}}
