// Times as Grafana writes them: now, now-6h, now-1d/d, milliseconds since 1970, or ISO 8601.
const UNITS = { s: 1e3, m: 6e4, h: 36e5, d: 864e5, w: 6048e5 };
const WORDS = { s: "seconds", m: "minutes", h: "hours", d: "days", w: "weeks" };
const STEPS = [
  1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1200, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 604800, 2592000,
];

export const RANGES = [
  ["now-5m", "Last 5 minutes"],
  ["now-15m", "Last 15 minutes"],
  ["now-1h", "Last hour"],
  ["now-6h", "Last 6 hours"],
  ["now-24h", "Last 24 hours"],
  ["now-7d", "Last 7 days"],
  ["now-30d", "Last 30 days"],
  ["now-90d", "Last 90 days"],
];

const LEGAL = "now, now-6h, now-1d/d, 2026-03-09T10:00:00Z and the like, or milliseconds since 1970";
const LAST = Date.UTC(9999, 11, 31, 23, 59, 59); // moment that the server knows

// NaN: the text is no time.
function moment(text, now, roundUp = false) {
  if (/^\d+$/.test(text)) return Number(text);
  const relative = /^now(?:([+-])(\d+)([smhdw]))?(\/d)?$/.exec(text);
  if (!relative) return /^\d{4}-\d\d/.test(text) ? Date.parse(text) : Number.NaN; // it guesses others
  let at = now;
  if (relative[1]) at += (relative[1] === "-" ? -1 : 1) * Number(relative[2]) * UNITS[relative[3]];
  if (relative[4]) {
    at = midnight(at);
    if (roundUp) at = midnight(at + 36 * 36e5); // a day has 23 to 25 hours
  }
  return at;
}

function midnight(ms) {
  return unstamp(`${stamp(ms).slice(0, 10)}T00:00:00`);
}

// What is wrong with a time range; empty: nothing.
export function problemOf(from, to) {
  const now = Date.now();
  const bounds = { from: moment(from, now), to: moment(to, now, true) };
  for (const [name, text] of Object.entries({ from, to })) {
    if (!(bounds[name] >= 0 && bounds[name] <= LAST)) return `Found ${name}=${text}; legal: ${LEGAL}.`;
  }
  return bounds.from < bounds.to ? "" : `Found from=${from} and to=${to}; legal: from is before to.`;
}

export function resolve(from, to) {
  const now = Date.now();
  const since = moment(from, now);
  const until = Math.max(moment(to, now, true), since + 1000);
  return { since: Math.floor(since), until: Math.floor(until) };
}

// The length of a point: a round one, of at least what a pixel stands for.
export function interval(range, pixels) {
  const least = (range.until - range.since) / 1000 / Math.max(pixels, 50);
  return 1000 * (STEPS.find((step) => step >= least) || STEPS[STEPS.length - 1]);
}

export function duration(text) {
  const match = /^(\d+)([smhdw])$/.exec(text || "");
  return match ? Number(match[1]) * UNITS[match[2]] : 0;
}

// The zone of all times on the page: the browser's, or UTC.
export const zone = {
  get utc() {
    return localStorage.getItem("zone") === "UTC";
  },
  toggle() {
    localStorage.setItem("zone", this.utc ? "local" : "UTC");
  },
  get name() {
    return this.utc ? "UTC" : Intl.DateTimeFormat().resolvedOptions().timeZone;
  },
};

// A date whose fields in UTC are what a clock of the zone shows.
function wall(ms) {
  return new Date(zone.utc ? ms : ms - new Date(ms).getTimezoneOffset() * 6e4);
}

// A date whose fields in the browser's zone are what a clock of the zone shows, for uPlot, which reads these. By itself, no
// date has those of an hour that the browser's zone leaves out.
export function fielded(ms) {
  const utc = new Date(ms);
  if (!zone.utc) return utc;
  const date = new Date(utc.toISOString().slice(0, 23));
  for (const field of ["FullYear", "Month", "Date", "Hours", "Minutes", "Seconds", "Milliseconds"]) {
    date[`get${field}`] = () => utc[`getUTC${field}`]();
  }
  return date;
}

export function stamp(ms) {
  return wall(ms).toISOString().slice(0, 19).replace("T", " ");
}

// The moment at which a clock of the zone shows this text.
export function unstamp(text) {
  return Date.parse(zone.utc ? `${text}Z` : text);
}

// Times that the database wrote into a text, in the zone of the page.
export function rezoned(text) {
  return text.replace(/(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d) UTC/g, (_, day, time) => stamp(Date.parse(`${day}T${time}Z`)));
}

export function named(from, to) {
  const known = RANGES.find(([value]) => value === from);
  if (known && to === "now") return known[1];
  const relative = /^now-(\d+)([smhdw])$/.exec(from);
  if (relative && to === "now") return `Last ${relative[1]} ${WORDS[relative[2]]}`;
  const { since, until } = resolve(from, to);
  return `${stamp(since)} – ${stamp(until).slice(stamp(since).slice(0, 10) === stamp(until).slice(0, 10) ? 11 : 0)}`;
}
