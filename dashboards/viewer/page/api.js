// What the server answers. SQL stays there: a question names a dashboard, a panel, a time and values of variables.
async function read(answer) {
  if (answer.status === 401) {
    location.href = "/login";
  }
  const body = await answer.json().catch(() => ({ error: `${answer.status} ${answer.statusText}` }));
  if (!answer.ok) throw new Error(body.error || `${answer.status} ${answer.statusText}`);
  return body;
}

async function get(path) {
  return read(await fetch(path));
}

async function post(path, body, signal) {
  const headers = { "Content-Type": "application/json" };
  return read(await fetch(path, { method: "POST", headers, body: JSON.stringify(body), signal }));
}

export const user = () => get("/api/user");
export const logout = () => post("/logout", {});
export const command = (given) => post("/api/alarms", given);
export const dashboards = () => get("/api/dashboards");
export const dashboard = (uid) => get(`/api/dashboards/${encodeURIComponent(uid)}`);
export const query = (question, signal) => post("/api/query", question, signal);
export const variable = (question, signal) => post("/api/variable", question, signal);
export const annotations = (question, signal) => post("/api/annotations", question, signal);
