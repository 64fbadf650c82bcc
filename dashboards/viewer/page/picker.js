// Time range and refresh.
import { element, replace } from "./dom.js";
import { named, RANGES, resolve, stamp, unstamp } from "./time.js";

export function picker(holder, state, refreshes, onchange) {
  const button = element("button", { type: "button", class: "chosen", id: "range" }, named(state.from, state.to));
  const local = (ms) => stamp(ms).replace(" ", "T");
  const { since, until } = resolve(state.from, state.to);
  const first = element("input", { type: "datetime-local", step: 1, value: local(since), "aria-label": "From" });
  const last = element("input", { type: "datetime-local", step: 1, value: local(until), "aria-label": "To" });
  const apply = element("button", { type: "button", class: "apply" }, "Show");
  const list = element(
    "ul",
    {},
    ...RANGES.map(([value, text]) =>
      element("li", { "aria-selected": String(value === state.from && state.to === "now"), onclick: () => set(value, "now") }, text),
    ),
  );
  const box = element("div", { class: "drop right", hidden: true }, list, element("div", { class: "absolute" }, first, last, apply));
  const refresh = element(
    "select",
    { "aria-label": "Refresh", title: "Refresh", onchange: () => onchange({ refresh: refresh.value }) },
    ...["off", ...refreshes].map((text) => element("option", { value: text, selected: text === (state.refresh || "off") }, text)),
  );

  function close() {
    box.hidden = true;
    document.removeEventListener("pointerdown", outside);
  }
  function outside(event) {
    if (!holder.contains(event.target)) close();
  }
  function set(from, to) {
    close();
    onchange({ from, to });
  }
  function move(by) {
    const range = resolve(state.from, state.to);
    const length = range.until - range.since;
    const middle = (range.since + range.until) / 2;
    const [from, to] = by === 0
      ? [middle - length, Math.min(middle + length, Date.now())]
      : [range.since + (by * length) / 2, range.until + (by * length) / 2];
    onchange({ from: String(Math.floor(from)), to: String(Math.floor(to)) });
  }

  button.addEventListener("click", () => {
    box.hidden = !box.hidden;
    if (!box.hidden) document.addEventListener("pointerdown", outside);
  });
  apply.addEventListener("click", () => {
    const [a, b] = [unstamp(first.value), unstamp(last.value)];
    if (a < b) set(String(a), String(b));
  });
  const step = (text, title, by) => element("button", { type: "button", class: "step", title, "aria-label": title, onclick: () => move(by) }, text);
  replace(holder, step("‹", "Earlier", -1), button, step("›", "Later", 1), step("⊖", "Zoom out", 0), refresh, box);
}
