// What is looked at: dashboard, time and variables. It lives in the address, as Grafana writes it.
export function read() {
  const [, , uid] = location.pathname.split("/");
  const given = new URLSearchParams(location.search);
  const variables = {};
  for (const [name, value] of given) {
    if (name.startsWith("var-")) (variables[name.slice(4)] ||= []).push(value);
  }
  return { uid: uid || null, from: given.get("from"), to: given.get("to"), refresh: given.get("refresh"), variables };
}

export function address(uid, { from, to, refresh, variables }) {
  const parameters = new URLSearchParams();
  if (from) parameters.set("from", from);
  if (to) parameters.set("to", to);
  if (refresh) parameters.set("refresh", refresh);
  for (const [name, values] of Object.entries(variables)) {
    for (const value of values) parameters.append(`var-${name}`, value);
  }
  return `/d/${encodeURIComponent(uid)}?${parameters}`;
}
