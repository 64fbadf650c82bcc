// Rows and columns; a click on a heading sorts.
import { element, replace } from "../dom.js";
import { configOf, mapped, transformed, valueColour, worded } from "../fields.js";
import { filled, marksOf, withVariables } from "../links.js";
import { actions, listsAlarms } from "../operate.js";
import { stamp } from "../time.js";

const SHOWN = 500;

function shownCell(field, config, value) {
  if (mapped(config, value)) return worded(config, value);
  if (value === null || value === undefined || value === "") return config.noValue ?? "";
  if (field.type === "time") return stamp(value);
  if (field.type === "boolean") return value ? "yes" : "no";
  return worded(config, value);
}

function cell(field, config, value, row, marks, context) {
  const kind = config.custom.cellOptions?.type || "auto";
  const paint = kind === "auto" ? null : valueColour(config, value);
  const shown = shownCell(field, config, value);
  const links = config.links || [];
  const content = links.length && shown !== ""
    ? element("a", { href: filled(links[0].url, row, context.range, context.chosen, marks), title: links[0].title }, shown)
    : shown;
  const made = element("td", { class: field.type === "number" ? "number" : "", "data-name": field.name });
  if (kind === "color-background" && paint && shown !== "") made.append(element("span", { class: "mark", style: { background: paint } }, content));
  else made.append(content);
  if (kind === "color-text" && paint) made.style.color = paint;
  return made;
}

export function table(panel, answers, context) {
  const { frames, extra } = transformed(panel, answers);
  const { fields, columns } = frames[0] || { fields: [], columns: [] };
  const rows = columns.length ? columns[0].map((_, row) => row) : [];
  const configs = fields.map((field) => configOf(panel, field, extra));
  const shown = fields.map((_, at) => at).filter((at) => !configs[at].custom.hidden);
  const alarms = listsAlarms(fields);
  const operated = context.send && alarms;
  const body = element("tbody");
  let sorted = { at: -1, down: false };

  function draw() {
    const ordered = [...rows];
    if (sorted.at >= 0) {
      const column = columns[sorted.at];
      ordered.sort((a, b) => {
        const [x, y] = [column[a], column[b]];
        if (x === y) return 0;
        if (x === null) return 1;
        if (y === null) return -1;
        return (x < y ? -1 : 1) * (sorted.down ? -1 : 1);
      });
    }
    replace(body, ...ordered.slice(0, SHOWN).map((row) => {
      const named = Object.fromEntries(fields.map((field, at) => [field.name, columns[at][row]]));
      const marks = marksOf(fields, columns.map((column) => column[row]), context.range.until);
      const cells = shown.map((at) => cell(fields[at], configs[at], columns[at][row], named, marks, context));
      if (operated) cells.push(element("td", { class: "actions" }, ...actions(named, context.send)));
      return element("tr", {}, ...cells);
    }));
  }

  const heads = shown.map((at) =>
    element(
      "th",
      {
        class: fields[at].type === "number" ? "number" : "",
        onclick: () => {
          sorted = { at, down: sorted.at === at ? !sorted.down : fields[at].type === "number" };
          draw();
        },
      },
      withVariables(configs[at].displayName || fields[at].name, context.variables),
    ),
  );
  if (operated) heads.push(element("th", {}, ""));
  draw();
  const more = rows.length > SHOWN ? element("p", { class: "quiet" }, `${rows.length - SHOWN} more rows`) : null;
  return element("div", { class: "rows" }, element("table", { class: alarms ? "alarms" : "" }, element("thead", {}, element("tr", {}, ...heads)), body), more);
}
