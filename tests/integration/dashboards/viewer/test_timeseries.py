"""Charts over time as Chromium draws them, by the page's own files, without a server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from playwright.async_api import Page, Route

from dashboards.viewer.frames import Frame, Kind, wide
from dashboards.viewer.library import Library
from dashboards.viewer.page import FOLDER, UPLOT
from tests.integration.dashboards.viewer.browser_page import running_browser

# Draws a panel. The labels of its axis of time; and of each series the share of columns of pixels in which it has ink.
_DRAW = """
async ([panel, answer, since, until]) => {
  const { timeseries } = await import("/panels/timeseries.js");
  const Original = uPlot;
  let plot;
  window.uPlot = Object.assign(function (...options) { return (plot = new Original(...options)); }, Original);
  const chart = timeseries(panel, { A: answer }, { range: { since, until }, regions: [], zoom() {} });
  chart.node.style = "width: 1040px; height: 200px; display: grid";
  document.body.append(chart.node);
  chart.placed();
  await new Promise((resolve) => setTimeout(resolve));
  const { left, top, width, height } = plot.bbox;
  const { data } = plot.ctx.getImageData(left, top, width, height);
  const columns = [...Array(width).keys()];
  const rows = [...Array(height).keys()];
  const share = (shade) => {
    const colour = [1, 3, 5].map((at) => Number.parseInt(shade.slice(at, at + 2), 16));
    const is = (at) => data[at + 3] > 40 && colour.every((part, index) => Math.abs(part - data[at + index]) < 8);
    return columns.filter((x) => rows.some((y) => is(4 * (y * width + x)))).length / width;
  };
  const shares = Object.fromEntries(plot.series.slice(1).map(({ label, stroke }) => [label, share(stroke())]));
  return { labels: plot.axes[0]._values, shares };
}
"""


@asynccontextmanager
async def blank_page(zone: str = "UTC") -> AsyncIterator[Page]:
    """A page without content that can import the viewer's files."""

    async def answer(route: Route) -> None:
        name = route.request.url.partition("//")[2].partition("/")[2]
        await (route.fulfill(path=FOLDER / name) if name else route.fulfill(content_type="text/html", body=""))

    async with running_browser() as browser:
        page = await browser.new_page(timezone_id=zone)
        await page.route("http://viewer.test/**", answer)
        await page.goto("http://viewer.test/")
        await page.add_style_tag(path=str(FOLDER / "page.css"))
        await page.add_script_tag(path=str(UPLOT / "uPlot.iife.js"))
        yield page


def answered(uid: str, title: str, names: list[str], rows: Sequence[tuple[Any, ...]]) -> tuple[dict[str, Any], Any]:
    """A panel, and its answer as the server gives it: with a time in ms, texts and numbers."""
    dashboard = Library().dashboard(uid)
    [panel] = [one for one in dashboard.panels() if one["title"] == title]
    [query] = dashboard.panel(panel["id"])
    kinds: list[Kind] = ["time", *("string" if isinstance(value, str) else "number" for value in rows[0][1:])]
    answer = Frame(names, kinds, [list(column) for column in zip(*sorted(rows), strict=True)])
    return panel, (wide(answer) if query.time_series else answer).json()


@pytest.mark.slow
async def test_curve_is_not_cut_where_only_another_one_has_a_row() -> None:
    """One with a step a minute, one with two in three: each is whole, but for a null of its own."""
    rows: list[tuple[float, str, float | None]] = [(60_000.0 * i, "slow", 1.0 if i % 60 else 2.0) for i in range(361)]
    rows += [(40_000.0 * i, "fast", None if 270 <= i < 405 else 5.0) for i in range(541)]
    asked = answered("plantlog-unit", "${measure:text}", ["time", "metric", "value"], rows)
    async with blank_page() as page:
        drawn = await page.evaluate(_DRAW, [*asked, 0, 21_600_000])
    assert drawn["shares"] == {"fast": pytest.approx(0.75, abs=0.01), "slow": pytest.approx(1, abs=0.01)}


@pytest.mark.slow
@pytest.mark.parametrize(("utc", "hours"), [(True, range(9)), (False, (1, *range(3, 11)))], ids=["UTC", "local"])
async def test_labels_of_time_are_those_of_the_zone(utc: bool, hours: Sequence[int]) -> None:
    """Also where the browser's zone has no 02:00: on the day on which summer time begins."""
    since, until = (datetime(2026, 3, 29, hour, tzinfo=UTC).timestamp() * 1000 for hour in (0, 8))
    rows = [(since, 1.0, 2.0), (until, 1.0, 2.0)]
    asked = answered("plantlog-health", "Wait in the spool", ["time", "median", "maximum"], rows)
    async with blank_page("Europe/Berlin") as page:
        await page.evaluate("(utc) => localStorage.setItem('zone', utc ? 'UTC' : 'local')", utc)
        drawn = await page.evaluate(_DRAW, [*asked, since, until])
    assert [label.partition("\n")[0] for label in drawn["labels"]] == [f"{hour:02}:00" for hour in hours]
