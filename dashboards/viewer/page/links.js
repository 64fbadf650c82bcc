// Links of the dashboards' files: to a dashboard of the same name here, with time and what is chosen.
export function filled(url, row, range, chosen) {
  return url
    .replace(/\$\{__url_time_range\}/g, `from=${encodeURIComponent(range.from)}&to=${encodeURIComponent(range.to)}`)
    .replace(/\$\{__data\.fields\["([^"]+)"\](?::\w+)?\}/g, (_, name) => encodeURIComponent(row[name] ?? ""))
    .replace(/\$\{(\w+):queryparam\}&?/g, (_, name) => (chosen[name] || []).map((value) => `var-${name}=${encodeURIComponent(value)}&`).join(""));
}

export function withVariables(text, variables, texts = {}) {
  return (text || "").replace(/\$\{(\w+)(?::(\w+))?\}|\$(\w+)/g, (all, braced, kind, plain) => {
    const name = braced || plain;
    const values = (kind === "text" && texts[name]) || variables[name];
    return values ? values.join(", ") : all;
  });
}
