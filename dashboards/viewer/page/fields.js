// A panel's field configuration: defaults, overrides by name, thresholds, mappings and colours.
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

export function configOf(panel, name, extra = {}) {
  const defaults = panel.fieldConfig.defaults;
  const found = { ...defaults, ...extra, custom: { ...(defaults.custom || {}) } };
  for (const { matcher, properties } of panel.fieldConfig.overrides || []) {
    const matches =
      matcher.id === "byName" ? matcher.options === name : matcher.id === "byRegexp" && asRegexp(matcher.options).test(name);
    if (matches) properties.forEach(({ id, value }) => assign(found, id, value));
  }
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

export function thresholdColour(config, value) {
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

// configFromData: unit, range or limits of the other queries, from the first row of one.
export function transformed(panel, answers) {
  const shown = { ...answers };
  const extra = {};
  for (const { id, options } of panel.transformations || []) {
    if (id !== "configFromData" || !shown[options.configRefId]) continue;
    const { fields, columns } = shown[options.configRefId];
    delete shown[options.configRefId];
    for (const { fieldName, handlerKey } of options.mappings) {
      const at = fields.findIndex((field) => field.name === fieldName);
      const value = at < 0 ? null : columns[at][0];
      if (value !== null && value !== undefined && value !== "") extra[handlerKey] = value;
    }
  }
  return { frames: Object.values(shown), extra };
}
