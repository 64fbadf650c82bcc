"""Numbers and ticks in panels that are narrow, as the page's own code and style draw them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from playwright.async_api import Route

from dashboards.viewer.page import FOLDER
from tests.integration.dashboards.viewer.browser_page import running_browser

_PAGE = "http://viewer.invalid"
_STAT = """
async ([width, values, unit]) => {
  const { stat } = await import("/panels/values.js");
  const panel = { options: { reduceOptions: {} }, fieldConfig: { defaults: { decimals: 0, unit }, overrides: [] } };
  const fields = values.map((_, n) => ({ name: `v${n}`, type: "number" }));
  const frames = [{ ref: "A", fields, columns: values.map((value) => [value]) }];
  const box = document.createElement("div");
  box.className = "panel stat";
  box.style.width = `${width}px`;
  box.append(stat(panel, frames));
  document.body.replaceChildren(box);
  return [...box.querySelectorAll(".value")].map(lines);
  function lines(one) {
    const range = document.createRange();
    range.selectNodeContents(one);
    return new Set([...range.getClientRects()].map((line) => line.top)).size;
  }
}
"""
_TICKS = """
async (names) => {
  const { barChart } = await import("/panels/values.js");
  const panel = { options: { xField: "bin" }, fieldConfig: { defaults: {}, overrides: [] } };
  const fields = [{ name: "bin", type: "string" }, { name: "n", type: "number" }];
  const box = document.createElement("div");
  box.style.width = "340px";
  box.append(barChart(panel, [{ ref: "A", fields, columns: [names, names.map(() => 1)] }]));
  document.body.replaceChildren(box);
  return [...box.querySelectorAll(".tick")].filter((one) => one.textContent).map((one) => {
    const range = document.createRange();
    range.selectNodeContents(one);
    const { left, right } = range.getBoundingClientRect();
    return [left, right];
  });
}
"""


_ON_A_PHONE = """
async () => {
  const { barGauge } = await import("/panels/values.js");
  const { table } = await import("/panels/table.js");
  const panel = { options: {}, fieldConfig: { defaults: {}, overrides: [] } };
  const names = ["Unit", "State", "Active", "Unacknowledged", "Channels", "No data", "Outages", "Reason", "Since"];
  const fields = names.map((name, at) => ({ name, type: at > 1 && at < 7 ? "number" : "string" }));
  const row = ["tankfarm-plc/tank2", "partly", 1, 1, 17, 4, 3, "disconnected", "2026-01-01 10:00:00"];
  const bar = [{ name: "Channel", type: "string" }, { name: "% of range", type: "number" }];
  const name = "boilerhouse/boiler1/feedwater_pressure  40.07 bar";
  const context = { range: {}, chosen: {}, variables: {} };
  const bodies = [
    table(panel, [{ ref: "A", fields, columns: row.map((value) => [value]) }], context),
    barGauge(panel, [{ ref: "A", fields: bar, columns: [[name], [40]] }]),
  ].map((shown) => {
    const body = document.createElement("div");
    body.className = "body";
    body.append(shown);
    const box = document.createElement("section");
    box.className = "panel table";
    box.append(body);
    return box;
  });
  const heading = document.createElement("h2");
  heading.textContent = "Shelved, suppressed and out-of-service alarms of this plant";
  bodies[0].prepend(heading);
  const main = document.createElement("main");
  main.append(...bodies);
  document.body.replaceChildren(main);
  const texts = [...main.querySelectorAll("h2, .body, td, .name")];
  return texts.filter((text) => text.scrollWidth > text.clientWidth).map((text) => text.textContent);
}
"""


async def _serve(route: Route) -> None:
    path = FOLDER / route.request.url.removeprefix(f"{_PAGE}/")
    if path.is_file():
        await route.fulfill(path=path)
    else:
        await route.fulfill(body='<!doctype html><link rel="stylesheet" href="/page.css"><body></body>')


@pytest.mark.slow
async def test_numbers_and_ticks_fit_their_width() -> None:
    async with running_browser() as browser:
        page = await browser.new_page(viewport={"width": 1400, "height": 900})
        await page.route(f"{_PAGE}/**", _serve)
        await page.goto(f"{_PAGE}/page")
        assert await page.evaluate(_STAT, [370, [11534035, 11549293, 11568145]]) == [1, 1, 1]
        assert await page.evaluate(_STAT, [160, [-1234567.5]]) == [1]
        assert await page.evaluate(_STAT, [80, [1234, 56], "suffix:kg/h"]) == [1, 1]
        ticks = await page.evaluate(_TICKS, [str(11534462 + 4263 * n) for n in range(32)])
        assert len(ticks) >= 4
        assert all(right < left for (_, right), (left, _) in pairwise(ticks))


@pytest.mark.slow
async def test_nothing_is_cut_on_a_phone() -> None:
    async with running_browser() as browser:
        page = await browser.new_page(viewport={"width": 390, "height": 900})
        await page.route(f"{_PAGE}/**", _serve)
        await page.goto(f"{_PAGE}/page")
        assert await page.evaluate(_ON_A_PHONE) == []
