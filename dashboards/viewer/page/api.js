// What the server answers. SQL stays there: a question names a dashboard, a panel, a time and values of variables.
async function read(answer) {
  if (answer.status === 401) {
    location.href = "/login";
  }
  const body = await answer.json().catch(() => ({ error: `${answer.status} ${answer.statusText}` }));
  if (!answer.ok) throw new Error(body.error || `${answer.status} ${answer.statusText}`);
  return body;
}

const FIRST_WAIT = 250; // ms until a request is repeated; each further wait is twice as long
const LAST_WAIT = 2000;

// Browsers drop what is on its way when the machine's network changes: another Wi-Fi, a VPN, a dock. What only reads is
// repeated, so that it takes no notice of that.
async function repeated(path, options) {
  for (let wait = FIRST_WAIT; ; wait *= 2) {
    try {
      return await fetch(path, options);
    } catch (error) {
      if (options?.signal?.aborted) throw error;
      if (wait > LAST_WAIT) throw new Error("The viewer does not answer: is it running, and is there a network?");
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }
}

async function get(path) {
  return read(await repeated(path));
}

function message(body, signal) {
  return { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal };
}

async function act(path, body) {
  return read(await fetch(path, message(body)));
}

async function ask(path, question, signal) {
  return read(await repeated(path, message(question, signal)));
}

export const user = () => get("/api/user");
export const logout = () => act("/logout", {});
export const command = (given) => act("/api/alarms", given);
export const dashboards = () => get("/api/dashboards");
export const dashboard = (uid) => get(`/api/dashboards/${encodeURIComponent(uid)}`);
export const query = (question, signal) => ask("/api/query", question, signal);
export const variable = (question, signal) => ask("/api/variable", question, signal);
export const annotations = (question, signal) => ask("/api/annotations", question, signal);
