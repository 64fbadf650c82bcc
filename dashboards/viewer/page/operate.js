// What an operator does in a list of alarms: acknowledge, shelve, unshelve.
import { element } from "./dom.js";

const UNACKNOWLEDGED = ["unacknowledged_active", "latched_unacknowledged", "return_to_normal_unacknowledged"];
const INHIBITED = ["shelved", "suppressed_by_design", "out_of_service"];
const MINUTES = [["15 minutes", 15], ["1 hour", 60], ["4 hours", 240], ["8 hours", 480], ["24 hours", 1440]];

export const listsAlarms = (fields) => ["Channel", "Limit", "State"].every((name) => fields.some((field) => field.name === name));

// The buttons of a row; `send` is given the command.
export function actions(row, send) {
  const alarm = { channel: row.Channel, limit: row.Limit };
  const button = (text, run) => element("button", { type: "button", onclick: run, "aria-label": `${text} ${row.Channel} ${row.Limit}` }, text);
  const found = [];
  if (UNACKNOWLEDGED.includes(row.State)) found.push(button("Acknowledge", () => send({ action: "ack", ...alarm })));
  if (row.State === "shelved") found.push(button("Unshelve", () => send({ action: "unshelve", ...alarm })));
  if (!INHIBITED.includes(row.State)) found.push(button("Shelve", () => shelve(alarm, send)));
  return found;
}

// Asks for how long and why.
function shelve(alarm, send) {
  const minutes = element("select", { name: "minutes" }, ...MINUTES.map(([text, value]) => element("option", { value }, text)));
  const why = element("input", { name: "why", required: true, maxLength: 300, placeholder: "Reason" });
  const form = element(
    "form",
    { method: "dialog" },
    element("h2", {}, `Shelve ${alarm.channel} ${alarm.limit}`),
    element("label", {}, "For ", minutes),
    element("label", {}, "Why ", why),
    element(
      "p",
      {},
      element("button", { type: "button", onclick: () => dialog.close() }, "Cancel"),
      element("button", { class: "apply", value: "shelve" }, "Shelve"),
    ),
  );
  const dialog = element("dialog", {
    onclose: () => {
      dialog.remove();
      if (dialog.returnValue === "shelve") send({ action: "shelve", ...alarm, why: why.value, seconds: Number(minutes.value) * 60 });
    },
  }, form);
  document.body.append(dialog);
  dialog.showModal();
}
