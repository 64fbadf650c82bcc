// What is looked at: dashboard, time and variables. It lives in the address, as Grafana writes it.
export function read() {
  const [, , uid] = location.pathname.split("/");
  const given = new URLSearchParams(location.search);
  const variables = {};
  for (const [name, value] of given) {
    if (name.startsWith("var-")) (variables[name.slice(4)] ||= []).push(value);
  }
  const marks = given.getAll("mark").filter((mark) => /^\d+-\d+$/.test(mark));
  return { uid: uid || null, from: given.get("from"), to: given.get("to"), refresh: given.get("refresh"), marks, variables };
}

export function address(uid, { from, to, refresh, marks = [], variables }) {
  const parameters = new URLSearchParams();
  if (from) parameters.set("from", from);
  if (to) parameters.set("to", to);
  if (refresh) parameters.set("refresh", refresh);
  for (const mark of marks) parameters.append("mark", mark);
  for (const [name, values] of Object.entries(variables)) {
    for (const value of values) parameters.append(`var-${name}`, value);
  }
  return `/d/${encodeURIComponent(uid)}?${parameters}`;
}
