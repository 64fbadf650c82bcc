// Links of the dashboards' files: to a dashboard of the same name here, with time and what is chosen.
export function filled(url, row, range, chosen, marks) {
  const shown = `from=${encodeURIComponent(range.from)}&to=${encodeURIComponent(range.to)}`;
  return url
    .replace(/\$\{__row_time_range\}/g, marks.length ? around(marks) : shown)
    .replace(/\$\{__url_time_range\}/g, shown)
    .replace(/\$\{__data\.fields\["([^"]+)"\](?::\w+)?\}/g, (_, name) => encodeURIComponent(row[name] ?? ""))
    .replace(/\$\{(\w+):queryparam\}&?/g, (_, name) => (chosen[name] || []).map((value) => `var-${name}=${encodeURIComponent(value)}&`).join(""));
}

const END = /(^|[ _])to(_time)?$|^(ends|until_when|returned_at)$/i; // with those that drawing.py knows

// Where a row says something, as [from, to]: a time and the one behind it whose name says that it is the end, or a time
// alone. Without an end, it lasts until the end of what is shown.
export function marksOf(fields, values, until) {
  const marks = [];
  fields.forEach(({ name, type }, at) => {
    if (type !== "time" || values[at] === null) return;
    const isEnd = ({ name, type } = {}) => type === "time" && END.test(name);
    if (isEnd(fields[at]) && fields[at - 1]?.type === "time") return;
    const end = isEnd(fields[at + 1]) ? values[at + 1] ?? until : values[at];
    marks.push([Math.floor(values[at]), Math.ceil(end)]);
  });
  return marks;
}

// The marks, and a time range around them: as long before and behind them, at least 10 minutes.
function around(marks) {
  const [from, to] = [Math.min(...marks.flat()), Math.max(...marks.flat())];
  const beside = Math.max(to - from, 600_000);
  return [`from=${from - beside}`, `to=${to + beside}`, ...marks.map((mark) => `mark=${mark.join("-")}`)].join("&");
}

export function withVariables(text, variables, texts = {}) {
  return (text || "").replace(/\$\{(\w+)(?::(\w+))?\}|\$(\w+)/g, (all, braced, kind, plain) => {
    const name = braced || plain;
    const values = (kind === "text" && texts[name]) || variables[name];
    return values ? values.join(", ") : all;
  });
}
