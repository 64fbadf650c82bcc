// What an answer is about: a chart of each channel that its rows name, with their times and its gaps.
import { element } from "../dom.js";
import { address } from "../state.js";
import { stamp } from "../time.js";
import { timeseries } from "./timeseries.js";
import { colour } from "../fields.js";

const FEW = 60; // moments, whose lines are not faint

// A panel of a curve, and of that of an earlier run. A value holds until the next one; between the lowest and the highest
// is a band.
function panel(unit, y) {
  const invisible = { id: "custom.lineWidth", value: 0 };
  const band = (lowest) => [{ id: "custom.fillBelowTo", value: lowest }, { id: "custom.fillOpacity", value: 22 }];
  const of = (name, ...properties) => ({ matcher: { id: "byName", options: name }, properties });
  const earlier = { matcher: { id: "byRegexp", options: "/^earlier/" }, properties: [{ id: "color", value: { mode: "fixed", fixedColor: "purple" } }] };
  const custom = { lineInterpolation: "stepAfter", lineWidth: 1.25 };
  return {
    fieldConfig: {
      defaults: { unit: unit ? `suffix:${unit}` : "none", color: { mode: "fixed", fixedColor: "blue" }, custom, ...y },
      overrides: [
        earlier,
        ...["", "earlier "].flatMap((run) => [of(`${run}lowest`, invisible), of(`${run}highest`, invisible, ...band(`${run}lowest`))]),
      ],
    },
    options: { legend: { showLegend: false } },
  };
}

function regions({ gaps, marks }, reference, since) {
  const faint = marks.filter(([from, to]) => from === to).length > FEW;
  const span = (from, to) => (from === to ? stamp(from) : `${stamp(from)} – ${stamp(to)}`);
  return [
    ...reference.map(([from, to]) => ({ from, to, text: "What it is compared with", shade: colour("gray"), opacity: 8 })),
    ...gaps.map(([from, to, reason]) => ({ from, to, text: `No samples: ${reason}`, shade: colour("gray"), hatched: true })),
    ...marks.map(([from, to]) => ({
      from,
      to,
      text: `The answer: ${span(from, to)}`,
      shade: colour(from < since ? "purple" : "green"),
      opacity: from === to ? (faint ? 25 : 80) : 20,
    })),
  ];
}

// Limits of the values that all axes of a channel share.
function shared(curves) {
  const numbers = curves.flatMap(({ fields, columns }) => columns.filter((_, at) => fields[at].type === "number"));
  const values = numbers.flat().filter((value) => value !== null);
  if (!values.length) return {};
  const [min, max] = uPlot.rangeNum(values.reduce((a, b) => Math.min(a, b)), values.reduce((a, b) => Math.max(a, b)), 0.1, true);
  return { min, max };
}

function figure(chart, { axes, reference, since }, context) {
  const shown = regions(chart, reference, since);
  const unit = chart.units.length === 1 ? chart.units[0] : ""; // of several, an axis cannot say one
  const definition = panel(unit, axes.length > 1 ? shared(chart.curves) : {});
  const length = (axis) => axis[1] - axis[0];
  const plots = axes.map((axis) => {
    const range = { since: axis[0], until: axis[1] };
    const plot = timeseries(definition, { ...chart.curves }, { range, regions: shown, zoom: context.zoom });
    plot.node.style.flexGrow = Math.max(0.5, Math.min(1, length(axis) / length(axes.at(-1))));
    return plot;
  });
  const marks = chart.marks.slice(0, FEW).map((mark) => mark.join("-"));
  const { from, to } = context.range;
  const href = address("plantlog-channel", { from, to, marks, variables: { ...context.chosen, channel: [chart.channel] } });
  const caption = element(
    "figcaption",
    { title: chart.channel },
    element("a", { href }, chart.channel),
    [chart.units.length && ` [${chart.units.join(", ")}]`, chart.scores && ` ${chart.scores}`].filter(Boolean).join(" "),
  );
  return { node: element("figure", {}, caption, element("div", { class: "axes" }, ...plots.map(({ node }) => node))), plots };
}

export function drawing(drawn, context) {
  const figures = drawn.charts.map((chart) => figure(chart, drawn, context));
  const isOfRuns = drawn.charts.some(({ curves }) => curves.length > 1);
  const notes = [isOfRuns && `violet: the run from ${stamp(drawn.reference[0][0])} on`, drawn.note].filter(Boolean);
  const below = notes.map((note) => element("p", { class: "quiet" }, note));
  return {
    node: element("div", { class: "charts" }, element("div", { class: "figures" }, ...figures.map(({ node }) => node)), ...below),
    placed() {
      const removals = figures.flatMap(({ plots }) => plots.map((plot) => plot.placed()));
      return () => {
        for (const remove of removals) remove();
      };
    },
  };
}
