// What the pointer is on.
import { element, replace } from "./dom.js";

const box = document.getElementById("tip");
let y = 0;
document.addEventListener("pointermove", (event) => {
  y = event.clientY;
});

export const tip = {
  show(x, title, lines, notes) {
    replace(
      box,
      element("div", { class: "when" }, title),
      ...lines.slice(0, 24).map(({ shade, text, value }) =>
        element("div", { class: "line" }, element("i", { style: { background: shade } }), element("span", {}, text), element("b", {}, value)),
      ),
      ...notes.slice(0, 6).map((note) => element("div", { class: "note" }, note)),
    );
    box.hidden = false;
    const { width, height } = box.getBoundingClientRect();
    box.style.left = `${Math.max(4, x + 14 + width > innerWidth ? x - width - 14 : x + 14)}px`;
    box.style.top = `${Math.max(4, Math.min(y + 14, innerHeight - height - 8))}px`;
  },
  hide() {
    box.hidden = true;
  },
};
