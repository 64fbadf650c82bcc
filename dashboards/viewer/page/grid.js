// Where panels stand: 24 columns as in the files; repeated panels push what is below them down.
import { element } from "./dom.js";

// The panels to be shown: [definition, own variables], with a repeated one once for each value.
export function laidOut(definitions, variables) {
  const shown = [];
  let pushed = 0;
  for (const definition of definitions) {
    const place = { ...definition.gridPos, y: definition.gridPos.y + pushed };
    const values = definition.repeat ? variables[definition.repeat] || [] : [null];
    if (!definition.repeat) {
      shown.push([{ ...definition, gridPos: place }, {}]);
      continue;
    }
    const beside = Math.max(1, Math.min(definition.maxPerRow || 4, values.length));
    const w = Math.floor(24 / beside);
    values.forEach((value, index) => {
      const gridPos = { x: (index % beside) * w, y: place.y + Math.floor(index / beside) * place.h, w, h: place.h };
      shown.push([{ ...definition, gridPos }, { [definition.repeat]: [value] }]);
    });
    pushed += (Math.ceil(values.length / beside) - 1) * place.h;
  }
  return shown;
}

export function heading(definition) {
  const node = element("div", { class: "section" }, element("h2", {}, definition.title));
  node.style.setProperty("--y", definition.gridPos.y + 1);
  return node;
}
