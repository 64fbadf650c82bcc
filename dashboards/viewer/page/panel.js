// One panel: asks its question, draws the answer, says what went wrong.
import { query } from "./api.js";
import { element, replace } from "./dom.js";
import { withVariables } from "./links.js";
import { drawing } from "./panels/drawing.js";
import { stateTimeline } from "./panels/statetimeline.js";
import { table } from "./panels/table.js";
import { text } from "./panels/text.js";
import { timeseries } from "./panels/timeseries.js";
import { barChart, barGauge, stat } from "./panels/values.js";
import { interval } from "./time.js";

const KINDS = {
  timeseries,
  stat,
  bargauge: barGauge,
  barchart: barChart,
  table,
  "state-timeline": stateTimeline,
};

const empty = (answers) => Object.values(answers).every(({ columns }) => !columns.length || !columns[0].length);

export class Panel {
  constructor(definition, context, variables = {}) {
    this.definition = definition;
    this.context = context;
    this.own = variables; // what a repeated panel stands for
    this.heading = element("h2", {});
    this.about = element("button", { type: "button", class: "about", title: definition.description || "", "aria-label": "About this panel" }, "i");
    this.body = element("div", { class: "body" });
    const { x, y, w, h } = definition.gridPos;
    this.node = element(
      "section",
      { class: `panel ${definition.type}`, "data-panel": String(definition.id), "data-state": "waiting" },
      element("header", {}, this.heading, definition.description ? this.about : null),
      this.body,
    );
    this.node.style.setProperty("--x", x + 1);
    this.node.style.setProperty("--y", y + 1);
    this.node.style.setProperty("--w", w);
    this.node.style.setProperty("--h", h);
    this.about.addEventListener("click", () => {
      const shown = this.node.querySelector(".description");
      if (shown) shown.remove();
      else this.body.before(element("p", { class: "description" }, definition.description));
    });
    this.entitle();
    this.near = false;
    this.stale = true;
    this.removed = null;
  }

  entitle() {
    const values = this.variables();
    this.heading.textContent = withVariables(this.definition.title, values, this.context.texts(values));
  }

  // Whether its question has one of these variables.
  needs(names) {
    return (this.definition.targets || []).some(({ needs = [] }) => needs.some((name) => names.has(name)));
  }

  variables() {
    return { ...this.context.variables(), ...this.own };
  }

  // Asked when it is in sight, and again when something changed since.
  refresh() {
    this.stale = true;
    if (this.near) this.show();
  }

  seen(near) {
    this.near = near;
    if (near && this.stale) this.show();
  }

  async show() {
    this.stale = false;
    this.entitle();
    if (this.definition.type === "text") {
      replace(this.body, text(this.definition));
      this.node.dataset.state = "shown";
      return;
    }
    this.asking?.abort();
    const asking = (this.asking = new AbortController());
    const range = this.context.range();
    this.node.classList.add("asking");
    try {
      const answers = await query({
        dashboard: this.context.uid,
        panel: this.definition.id,
        since: range.since,
        until: range.until,
        interval: Math.max(interval(range, this.body.clientWidth), 1000),
        variables: this.variables(),
      }, asking.signal);
      if (!asking.signal.aborted) this.draw(answers, range);
    } catch (error) {
      if (asking.signal.aborted) return;
      this.answers = null; // to be drawn anew, as when marks arrive: what failed is no longer known
      this.#warn();
      this.#say(error.message, "failed");
    } finally {
      if (this.asking === asking) this.node.classList.remove("asking");
    }
  }

  redraw() {
    if (this.answers) this.draw(this.answers, this.drawnRange);
  }

  draw(answers, range) {
    this.answers = answers;
    this.drawnRange = range;
    this.#warn(Object.values(answers).map(({ notice }) => notice).find(Boolean));
    if (empty(answers)) return this.#sayWhyEmpty(range);
    const context = {
      range: { ...range, ...this.context.bounds() },
      variables: this.variables(),
      chosen: this.context.chosen(),
      regions: this.definition.type === "timeseries" ? this.context.regions() : [],
      zoom: this.context.zoom,
      send: this.context.send,
    };
    const made = KINDS[this.definition.type](this.definition, answers, context);
    if (!made) return this.#sayWhyEmpty(range);
    const drawn = Object.values(answers).map((answer) => answer.drawing).find(Boolean);
    const parts = [...(drawn ? [drawing(drawn, context)] : []), made.placed ? made : { node: made }];
    this.removed?.();
    const scrolled = this.body.lastElementChild?.scrollTop;
    this.node.classList.toggle("drawn", Boolean(drawn));
    replace(this.body, ...parts.map(({ node }) => node));
    const removals = parts.map(({ placed }) => placed?.()).filter(Boolean);
    this.removed = () => {
      for (const remove of removals) remove();
    };
    parts.at(-1).node.scrollTop = scrolled;
    this.node.dataset.state = "shown";
  }

  // Above what is drawn: it may be coarser than was asked for.
  #warn(notice) {
    this.node.querySelector(".notice")?.remove();
    if (notice) this.body.before(element("p", { class: "notice", tabIndex: 0 }, notice));
  }

  // With the gaps that are as long as the time that is shown.
  #sayWhyEmpty({ since, until }) {
    const regions = this.definition.type === "timeseries" ? this.context.regions() : [];
    const reasons = regions.filter(({ from, to }) => from <= since && to >= until).map(({ text }) => text);
    const { noValue } = this.definition.fieldConfig.defaults;
    const isUnknown = Object.values(this.answers).some(({ unknown }) => unknown);
    this.#say([isUnknown ? "Nothing could be judged" : noValue, ...reasons.slice(0, 3)].join(". "), "empty");
  }

  #say(message, state) {
    this.removed?.();
    this.removed = null;
    this.node.classList.remove("drawn");
    replace(this.body, element("p", { class: state === "failed" ? "failed" : "quiet" }, message));
    this.node.dataset.state = state;
  }

  remove() {
    this.asking?.abort();
    this.removed?.();
    this.node.remove();
  }
}
