// A drop-down with a search field, for lists of any length: only what fits is made, and what was not sent is asked for.
import { element, replace } from "./dom.js";

const SHOWN = 200;
const PAUSE = 200; // ms without a key before the server is asked
export const ALL = "$__all"; // the value that stands for all where not all were sent

export function choice({ label, options, total, find, chosen, multi, every, onchange }) {
  const sent = [...options];
  const partly = total > sent.length;
  const all = () => (partly ? [ALL] : options.map((option) => option.value));
  const isAll = () => (partly ? chosen[0] === ALL : options.every((option) => chosen.includes(option.value)));
  const text = () => {
    if (every && isAll() && options.length !== 1) return "All";
    const found = chosen.map((value) => options.find((option) => option.value === value)?.text ?? value);
    return found.length > 2 ? `${found.length} chosen` : found.join(", ") || "none";
  };
  const button = element("button", { type: "button", class: "chosen", "aria-haspopup": "listbox" }, text());
  const search = element("input", { type: "search", placeholder: "Search", "aria-label": `Search ${label}` });
  const list = element("ul", { role: "listbox" });
  const box = element("div", { class: "drop", hidden: true }, search, list);
  const holder = element("div", { class: "variable" }, element("span", { class: "label" }, label), button, box);
  let at = 0;
  let matching = sent;
  let count = 0;
  let timer = null;

  function look() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    matching = sent.filter((option) => words.every((word) => option.text.toLowerCase().includes(word)));
    count = partly && !words.length ? total : matching.length;
    at = 0;
    draw();
    clearTimeout(timer);
    if (partly && words.length) timer = setTimeout(ask, PAUSE, search.value);
  }

  async function ask(words) {
    const [options, all] = await find(words);
    if (search.value !== words) return;
    matching = options;
    count = all;
    draw();
  }

  function pick(values) {
    chosen = values;
    button.textContent = text();
    onchange(values);
  }

  function draw() {
    at = Math.max(0, Math.min(at, matching.length - 1));
    const rows = matching.slice(0, SHOWN).map((option, index) =>
      element(
        "li",
        {
          role: "option",
          class: index === at ? "at" : "",
          "aria-selected": String(chosen.includes(option.value)),
          onclick: () => select(option),
        },
        option.text || "(empty)",
      ),
    );
    if (every && multi && !search.value) {
      rows.unshift(element("li", { role: "option", onclick: () => (pick(all()), close()) }, "All"));
    }
    const more = Math.max(count, matching.length) - Math.min(matching.length, SHOWN);
    if (more > 0) rows.push(element("li", { class: "more" }, `${more} more: search`));
    replace(list, ...rows);
  }

  function select(option) {
    if (!multi) {
      pick([option.value]);
      close();
      return;
    }
    const whole = isAll();
    const has = chosen.includes(option.value);
    const next = whole ? [option.value] : has ? chosen.filter((v) => v !== option.value) : [...chosen, option.value];
    pick(next.length ? next : all());
    draw();
  }

  function close() {
    box.hidden = true;
    document.removeEventListener("pointerdown", outside);
  }

  function outside(event) {
    if (!holder.contains(event.target)) close();
  }

  button.addEventListener("click", () => {
    if (!box.hidden) return close();
    box.hidden = false;
    search.value = "";
    look();
    at = Math.max(0, matching.findIndex((option) => chosen.includes(option.value)));
    if (at >= SHOWN) at = 0;
    draw();
    search.focus();
    list.querySelector(".at")?.scrollIntoView({ block: "nearest" });
    document.addEventListener("pointerdown", outside);
  });
  search.addEventListener("input", look);
  search.addEventListener("keydown", (event) => {
    if (event.key === "Escape") close();
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      at += event.key === "ArrowDown" ? 1 : -1;
      draw();
      list.querySelector(".at")?.scrollIntoView({ block: "nearest" });
      event.preventDefault();
    } else if (event.key === "Enter" && matching[at]) select(matching[at]);
  });
  return holder;
}
