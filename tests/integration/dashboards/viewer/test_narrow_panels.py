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
