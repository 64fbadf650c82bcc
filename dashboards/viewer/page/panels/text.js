// A panel of words: the little Markdown that our dashboards use.
import { element } from "../dom.js";

function inline(text) {
  return text.split(/(`[^`]+`|\*\*[^*]+\*\*)/).map((part) => {
    if (part.startsWith("`")) return element("code", {}, part.slice(1, -1));
    if (part.startsWith("**")) return element("strong", {}, part.slice(2, -2));
    return part;
  });
}

export function text(panel) {
  const blocks = panel.options.content.split(/\n\n+/).map((block) => {
    if (block.startsWith("- ")) {
      return element("ul", {}, ...block.split("\n").map((line) => element("li", {}, ...inline(line.slice(2)))));
    }
    return element("p", {}, ...inline(block.replace(/^#+ /, "")));
  });
  return element("div", { class: "words" }, ...blocks);
}
