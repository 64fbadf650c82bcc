// Values with their units, by Grafana's names of units; suffix:x is the unit x itself.
const EMPTY = "–";

function digits(value, decimals) {
  if (decimals !== undefined && decimals !== null) return value.toFixed(decimals);
  if (value === 0 || Number.isInteger(value)) return String(value);
  const size = Math.abs(value);
  if (size >= 1e15 || size < 1e-6) return value.toExponential(2);
  const places = size >= 1000 ? 0 : size >= 100 ? 1 : size >= 1 ? 2 : Math.min(6, 2 - Math.floor(Math.log10(size)));
  return String(Number(value.toFixed(places)));
}

function scaled(value, base, names, decimals) {
  let size = Math.abs(value);
  let at = 0;
  while (size >= base && at < names.length - 1) {
    size /= base;
    at += 1;
  }
  return `${digits(value / base ** at, decimals ?? (at ? (size < 100 ? 1 : 0) : undefined))}${names[at]}`;
}

function seconds(value, decimals) {
  const size = Math.abs(value);
  const steps = [[31536000, "year"], [604800, "week"], [86400, "day"], [3600, "hour"], [60, "min"]];
  // Up to eight weeks are days, up to two years are weeks.
  const least = { year: 2 * 31536000, week: 8 * 604800 };
  const found = steps.find(([length, name]) => size >= (least[name] ?? length));
  if (found) {
    const n = value / found[0];
    const text = digits(n, decimals ?? (Math.abs(n) < 10 ? 1 : 0));
    return `${text} ${found[1]}${found[1] === "min" || Math.abs(Number(text)) === 1 ? "" : "s"}`;
  }
  if (size >= 1 || size === 0) return `${digits(value, decimals)} s`;
  if (size >= 1e-3) return `${digits(value * 1e3, decimals ?? 0)} ms`;
  return `${digits(value * 1e6, decimals ?? 0)} µs`;
}

// A figure and its unit stay in one line, whatever the width: the space between them does not break.
export function format(value, unit = "none", decimals = undefined) {
  if (value === null || value === undefined || value === "") return EMPTY;
  return typeof value === "number" ? figure(value, unit, decimals).replaceAll(" ", "\u00a0") : String(value);
}

function figure(value, unit, decimals) {
  switch (unit) {
    case "":
    case "none":
      return digits(value, decimals);
    case "short":
      return scaled(value, 1000, ["", " K", " Mil", " Bil", " Tri"], decimals);
    case "percent":
      return `${digits(value, decimals ?? (Math.abs(value) < 10 ? 1 : 0))} %`;
    case "percentunit":
      return figure(value * 100, "percent", decimals);
    case "bytes":
      return scaled(value, 1024, [" B", " KiB", " MiB", " GiB", " TiB"], decimals);
    case "s":
      return seconds(value, decimals);
    case "d":
      return seconds(value * 86400, decimals);
    default:
      return `${digits(value, decimals)} ${unit.startsWith("suffix:") ? unit.slice(7) : unit}`;
  }
}

// Labels of ticks that are a step apart, with as many decimals as the step needs.
export function tickLabels(ticks, unit, step) {
  const exact = (tick) => format(tick, unit, 9);
  const suffix = (tick) => exact(tick).split("\u00a0")[1];
  const fits = (tick, decimals) => {
    const value = Number.parseFloat(exact(tick));
    const shown = Number.parseFloat(format(tick, unit, decimals));
    return !tick || Math.abs(shown - value) <= Math.abs((0.01 * step * value) / tick);
  };
  const decimals = {};
  for (const tick of ticks) {
    const alike = ticks.filter((other) => suffix(other) === suffix(tick));
    decimals[suffix(tick)] = [undefined, 1, 2, 3, 4].find((places) => alike.every((other) => fits(other, places)));
  }
  return ticks.map((tick) => format(tick, unit, decimals[suffix(tick)]));
}
