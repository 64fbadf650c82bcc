// Panels of single values: stat, bar gauge, bar chart.
import { element } from "../dom.js";
import { configOf, mapped, transformed, valueColour, worded } from "../fields.js";

function shownValue(config, value) {
  return mapped(config, value)?.text || (value === null || value === undefined ? config.noValue : null) || worded(config, value);
}

// The last value of each column that is no time: what Grafana calls lastNotNull.
function reduced(panel, answers) {
  const { frames, extra } = transformed(panel, answers);
  const found = [];
  for (const { fields, columns } of frames) {
    // Numbers, or the fields whose names match: "/.*/" are all.
    const pattern = /^\/(.*)\/$/.exec(panel.options.reduceOptions.fields || "");
    const shown = ({ field }) => (pattern ? field.type !== "time" && new RegExp(pattern[1]).test(field.name) : field.type === "number");
    const wanted = fields.map((field, at) => ({ field, at })).filter(shown);
    for (const { field, at } of wanted) {
      const value = columns[at].findLast((one) => one !== null) ?? null;
      found.push({ name: field.name, value, config: configOf(panel, field, extra) });
    }
  }
  return found;
}

// A number in two lines would be read as two: it is made as small as its width requires. Words may be in several lines.
function fitting(text) {
  return / /.test(text) ? {} : { fontSize: `min(clamp(17px, 1.75vw, 26px), max(12px, ${135 / text.length}cqi))` };
}

export function stat(panel, answers) {
  const values = reduced(panel, answers);
  const many = values.length > 1;
  return element(
    "div",
    { class: "stats" },
    ...values.map(({ name, value, config }) => {
      const text = shownValue(config, value);
      return element(
        "div",
        { class: "stat" },
        many ? element("div", { class: "name" }, config.displayName || name) : null,
        element("div", { class: text.length > 16 ? "value long" : "value", style: { color: valueColour(config, value), ...fitting(text) } }, text),
      );
    }),
  );
}

function share(config, value) {
  const [low, high] = [config.min ?? 0, config.max ?? 100];
  return Math.max(0, Math.min(1, (value - low) / (high - low || 1)));
}

// One bar a row: text columns name it, the first number is its length.
export function barGauge(panel, answers) {
  const { frames, extra } = transformed(panel, answers);
  const bars = [];
  for (const { fields, columns } of frames) {
    const texts = fields.map((_, at) => at).filter((at) => fields[at].type === "string");
    const at = fields.findIndex((field) => field.type === "number");
    if (at < 0) continue;
    columns[at].forEach((value, row) => {
      const name = texts.map((text) => columns[text][row]).join(" ");
      bars.push({ name, value, config: configOf(panel, fields[at], extra) });
    });
  }
  const most = Math.max(...bars.map((bar) => bar.value ?? 0), 0);
  return element(
    "div",
    { class: "bars" },
    ...bars.map(({ name, value, config }) => {
      const scale = { ...config, max: config.max ?? most };
      const width = `${100 * share(scale, value ?? 0)}%`;
      const fill = element("div", { class: "fill", style: { width, background: valueColour(config, value) } });
      return element("div", { class: "barrow", title: name }, element("span", { class: "name" }, name), element("div", { class: "track" }, fill), element("span", { class: "value" }, shownValue(config, value)));
    }),
  );
}

export function barChart(panel, answers) {
  const { frames, extra } = transformed(panel, answers);
  const { fields, columns } = frames[0] || { fields: [], columns: [] };
  const category = fields.findIndex((field) => field.name === panel.options.xField);
  const numbers = fields.map((_, at) => at).filter((at) => fields[at].type === "number" && at !== category);
  if (category < 0 || !numbers.length || !columns[category].length) return null;
  const most = Math.max(...numbers.flatMap((at) => columns[at].map((value) => value ?? 0)), 1e-12);
  const labels = columns[category].map(String);
  const every = Math.ceil(labels.length / (labels.some((label) => label.length > 5) ? 4 : 8)); // so that none covers the next
  const groups = columns[category].map((name, row) =>
    element(
      "div",
      { class: "group" },
      element(
        "div",
        { class: "heap" },
        ...numbers.map((at, index) => {
          const config = configOf(panel, fields[at], extra);
          const value = columns[at][row];
          const text = `${name}: ${fields[at].name} ${shownValue(config, value)}`;
          return element("div", { class: "column", title: text, style: { height: `${(100 * (value ?? 0)) / most}%`, background: valueColour(config, value, index) } });
        }),
      ),
      element("div", { class: "tick" }, row % every === 0 ? labels[row] : ""),
    ),
  );
  return element("div", { class: "columns" }, ...groups);
}
