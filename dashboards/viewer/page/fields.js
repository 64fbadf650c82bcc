// A panel's field configuration: defaults, overrides by name and type, thresholds, mappings and colours.
import { rezoned } from "./time.js";
import { format } from "./units.js";

const PALETTE = 10; // colours of series in page.css, --series-0 and on

export function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// Grafana's names of colours are those of the style sheet; anything else is a colour as it is.
export function colour(name) {
  return css(`--c-${name}`) || name;
}

export function seriesColour(index) {
  return css(`--series-${index % PALETTE}`);
}

function assign(into, id, value) {
  if (id.startsWith("custom.")) into.custom[id.slice(7)] = value;
  else into[id] = value;
}

const MATCHERS = {
  byName: (field, options) => options === field.name,
  byRegexp: (field, options) => asRegexp(options).test(field.name),
  byType: (field, options) => options === field.type,
};

// The field's label is filled in where its name is made of it.
export function configOf(panel, field, extra = {}) {
  const defaults = panel.fieldConfig.defaults;
  const found = { ...defaults, ...extra, custom: { ...(defaults.custom || {}) } };
  for (const { matcher, properties } of panel.fieldConfig.overrides || []) {
    if (!MATCHERS[matcher.id]?.(field, matcher.options)) continue;
    for (const { id, value } of properties) assign(found, id, value);
  }
  found.displayName = found.displayName?.replace(/\$\{__field\.labels\.(\w+)\}/g, (_, name) => field.labels?.[name] ?? "");
  return found;
}

function asRegexp(text) {
  const match = /^\/(.*)\/([a-z]*)$/.exec(text);
  return match ? new RegExp(match[1], match[2]) : new RegExp(`^${text}$`);
}

export function mapped(config, value) {
  for (const mapping of config.mappings || []) {
    if (mapping.type === "value" && mapping.options[String(value)]) return mapping.options[String(value)];
  }
  return null;
}

// A value in words: what it is mapped to, else with its unit.
export function worded(config, value) {
  const text = mapped(config, value)?.text || format(value, config.unit, config.decimals);
  return typeof value === "string" ? rezoned(text) : text;
}

function thresholdColour(config, value) {
  let found = null;
  for (const step of config.thresholds?.steps || []) {
    if (step.value === null || (typeof value === "number" && value >= step.value)) found = step.color;
  }
  return found;
}

export function valueColour(config, value, index = 0) {
  const mapping = mapped(config, value);
  if (mapping?.color) return colour(mapping.color);
  const mode = config.color?.mode;
  if (mode === "fixed") return colour(config.color.fixedColor);
  if (mode === "palette-classic") return seriesColour(index);
  return colour(thresholdColour(config, value) || "text");
}

// A frame for each set of values of some columns, which become the labels of the others.
function parted({ fields, columns }, by) {
  const keys = by.map((name) => fields.findIndex((field) => field.name === name));
  const kept = fields.map((_, at) => at).filter((at) => !keys.includes(at));
  const frames = new Map();
  (columns[0] || []).forEach((_, row) => {
    const values = keys.map((at) => columns[at][row]);
    const named = JSON.stringify(values);
    if (!frames.has(named)) {
      const labels = Object.fromEntries(by.map((name, index) => [name, values[index]]));
      frames.set(named, { fields: kept.map((at) => ({ ...fields[at], labels })), columns: kept.map(() => []) });
    }
    for (const [index, at] of kept.entries()) frames.get(named).columns[index].push(columns[at][row]);
  });
  return [...frames.values()];
}

// configFromData: unit, range or limits of the other queries, from the first row of one. partitionByValues: see parted.
export function transformed(panel, answers) {
  const shown = { ...answers };
  const extra = {};
  const by = [];
  for (const { id, options } of panel.transformations || []) {
    if (id === "partitionByValues") by.push(...options.fields);
    if (id !== "configFromData" || !shown[options.configRefId]) continue;
    const { fields, columns } = shown[options.configRefId];
    delete shown[options.configRefId];
    for (const { fieldName, handlerKey } of options.mappings) {
      const at = fields.findIndex((field) => field.name === fieldName);
      const value = at < 0 ? null : columns[at][0];
      if (value !== null && value !== undefined && value !== "") extra[handlerKey] = value;
    }
  }
  const frames = Object.values(shown);
  return { frames: by.length ? frames.flatMap((frame) => parted(frame, by)) : frames, extra };
}
