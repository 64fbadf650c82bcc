// A drop-down with a search field, for lists of any length: only what fits is made.
import { element, replace } from "./dom.js";

const SHOWN = 200;

export function choice({ label, options, chosen, multi, every, onchange }) {
  const text = () => {
    if (every && chosen.length === options.length && options.length !== 1) return "All";
    const found = chosen.map((value) => options.find((option) => option.value === value)?.text ?? value);
    return found.length > 2 ? `${found.length} chosen` : found.join(", ") || "none";
  };
  const button = element("button", { type: "button", class: "chosen", "aria-haspopup": "listbox" }, text());
  const search = element("input", { type: "search", placeholder: "Search", "aria-label": `Search ${label}` });
  const list = element("ul", { role: "listbox" });
  const box = element("div", { class: "drop", hidden: true }, search, list);
  const holder = element("div", { class: "variable" }, element("span", { class: "label" }, label), button, box);
  let at = 0;

  function found() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    return options.filter((option) => words.every((word) => option.text.toLowerCase().includes(word)));
  }

  function pick(values) {
    chosen = values;
    button.textContent = text();
    onchange(values);
  }

  function draw() {
    const matching = found();
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
      rows.unshift(element("li", { role: "option", onclick: () => (pick(options.map((o) => o.value)), close()) }, "All"));
    }
    if (matching.length > SHOWN) rows.push(element("li", { class: "more" }, `${matching.length - SHOWN} more: search`));
    replace(list, ...rows);
  }

  function select(option) {
    if (!multi) {
      pick([option.value]);
      close();
      return;
    }
    const whole = chosen.length === options.length;
    const has = chosen.includes(option.value);
    const next = whole ? [option.value] : has ? chosen.filter((v) => v !== option.value) : [...chosen, option.value];
    pick(next.length ? next : options.map((o) => o.value));
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
    at = Math.max(0, options.findIndex((option) => chosen.includes(option.value)));
    if (at >= SHOWN) at = 0;
    draw();
    search.focus();
    list.querySelector(".at")?.scrollIntoView({ block: "nearest" });
    document.addEventListener("pointerdown", outside);
  });
  search.addEventListener("input", () => ((at = 0), draw()));
  search.addEventListener("keydown", (event) => {
    if (event.key === "Escape") close();
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      at += event.key === "ArrowDown" ? 1 : -1;
      draw();
      list.querySelector(".at")?.scrollIntoView({ block: "nearest" });
      event.preventDefault();
    } else if (event.key === "Enter" && found()[at]) select(found()[at]);
  });
  return holder;
}
