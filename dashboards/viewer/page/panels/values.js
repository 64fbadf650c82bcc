// Panels of single values: stat, gauge, bar gauge, bar chart.
import { element } from "../dom.js";
import { colour, configOf, css, mapped, thresholdColour, transformed, valueColour } from "../fields.js";
import { format } from "../units.js";

function shownValue(config, value) {
  return mapped(config, value)?.text || (value === null || value === undefined ? config.noValue : null) || format(value, config.unit, config.decimals);
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
      found.push({ name: field.name, value, config: configOf(panel, field.name, extra), history: fields[0]?.type === "time" ? columns[at] : null });
    }
  }
  return found;
}

function spark(values, paint) {
  const [w, h] = [120, 30];
  const known = values.filter((value) => value !== null);
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", `0 0 ${w} ${h}`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.classList.add("spark");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  const at = (value, index) => `${(index / Math.max(1, values.length - 1)) * w},${h - 2 - ((value - low) / (high - low || 1)) * (h - 4)}`;
  let pen = "M";
  let d = "";
  values.forEach((value, index) => {
    if (value === null) pen = "M";
    else {
      d += `${pen}${at(value, index)}`;
      pen = "L";
    }
  });
  path.setAttribute("d", d);
  path.setAttribute("fill", "none");
  path.setAttribute("stroke", paint);
  path.setAttribute("vector-effect", "non-scaling-stroke");
  svg.append(path);
  return svg;
}

export function stat(panel, answers) {
  const values = reduced(panel, answers);
  const many = values.length > 1;
  return element(
    "div",
    { class: "stats" },
    ...values.map(({ name, value, config, history }) =>
      element(
        "div",
        { class: "stat" },
        many ? element("div", { class: "name" }, config.displayName || name) : null,
        element("div", { class: "value", style: { color: valueColour(config, value) } }, shownValue(config, value)),
        panel.options.graphMode === "area" && history?.length > 1 ? spark(history, valueColour(config, value)) : null,
      ),
    ),
  );
}

function share(config, value) {
  const [low, high] = [config.min ?? 0, config.max ?? 100];
  return Math.max(0, Math.min(1, (value - low) / (high - low || 1)));
}

function arc(from, to, radius, width, paint) {
  const at = (part, r) => {
    const angle = Math.PI * (0.85 + 1.3 * part);
    return `${(100 + r * Math.cos(angle)).toFixed(2)} ${(92 + r * Math.sin(angle)).toFixed(2)}`;
  };
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  const large = (to - from) * 1.3 > 1 ? 1 : 0;
  path.setAttribute("d", `M${at(from, radius)}A${radius} ${radius} 0 ${large} 1 ${at(to, radius)}`);
  path.setAttribute("fill", "none");
  path.setAttribute("stroke", paint);
  path.setAttribute("stroke-width", width);
  return path;
}

export function gauge(panel, answers) {
  const [first] = reduced(panel, answers);
  const { value = null, config = configOf(panel, "") } = first || {};
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 200 140");
  svg.append(arc(0, 1, 72, 16, css("--line")));
  if (value !== null) svg.append(arc(0, Math.max(share(config, value), 0.005), 72, 16, valueColour(config, value)));
  const limits = (config.thresholds?.steps || []).filter((step) => step.value !== null);
  limits.forEach((step, index) => {
    const until = limits[index + 1] ? share(config, limits[index + 1].value) : 1;
    svg.append(arc(share(config, step.value), until, 84, 3, colour(step.color)));
  });
  const text = element("div", { class: "value", style: { color: valueColour(config, value) } }, shownValue(config, value));
  const ends = element("div", { class: "ends" }, element("span", {}, format(config.min ?? 0, config.unit)), element("span", {}, format(config.max ?? 100, config.unit)));
  return element("div", { class: "gauge" }, svg, text, ends);
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
      bars.push({ name, value, config: configOf(panel, fields[at].name, extra) });
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
  const every = Math.ceil(columns[category].length / 8);
  const groups = columns[category].map((name, row) =>
    element(
      "div",
      { class: "group" },
      element(
        "div",
        { class: "heap" },
        ...numbers.map((at, index) => {
          const config = configOf(panel, fields[at].name, extra);
          const value = columns[at][row];
          const text = `${name}: ${fields[at].name} ${shownValue(config, value)}`;
          return element("div", { class: "column", title: text, style: { height: `${(100 * (value ?? 0)) / most}%`, background: valueColour(config, value, index) } });
        }),
      ),
      element("div", { class: "tick" }, row % every === 0 ? String(name) : ""),
    ),
  );
  return element("div", { class: "columns" }, ...groups);
}

export { thresholdColour };
