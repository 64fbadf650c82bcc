// The page: which dashboard, its variables, its time, and its panels.
import * as api from "./api.js";
import { element, replace } from "./dom.js";
import { colour } from "./fields.js";
import { heading, laidOut } from "./grid.js";
import { Panel } from "./panel.js";
import { picker } from "./picker.js";
import { address, read } from "./state.js";
import { duration, problemOf, resolve, rezoned, zone } from "./time.js";
import { tip } from "./tip.js";
import { Variables } from "./variables.js";

const at = (id) => document.getElementById(id);

class Page {
  constructor(definition, given) {
    this.definition = definition;
    const [from, to] = [given.from || definition.time.from, given.to || definition.time.to];
    this.problem = problemOf(from, to);
    this.state = {
      ...(this.problem ? definition.time : { from, to }),
      refresh: given.refresh || definition.refresh || "off",
      marks: given.marks, // of the row that led here: FROM-TO, in ms
    };
    this.panels = [];
    this.marks = [];
    this.variables = new Variables(definition.templating.list, given.variables, at("variables"), (name, changed) => this.variableChanged(name, changed));
    this.sight = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) this.byNode.get(target)?.seen(isIntersecting);
    }, { rootMargin: "300px" });
    this.byNode = new Map();
    this.timer = null;
  }

  get range() {
    return (this.resolved ||= resolve(this.state.from, this.state.to));
  }

  question() {
    return { dashboard: this.definition.uid, since: this.range.since, until: this.range.until };
  }

  context() {
    return {
      uid: this.definition.uid,
      range: () => this.range,
      bounds: () => ({ from: this.state.from, to: this.state.to }),
      variables: () => this.variables.values,
      chosen: () => this.variables.shown(),
      texts: (values) => this.variables.texts(values),
      regions: () => [...this.marks, ...this.state.marks.map(marked)],
      zoom: (from, to) => this.changed({ from: String(from), to: String(to) }),
      send: me.operates ? (command) => this.send(command) : null,
    };
  }

  async open() {
    at("title").textContent = this.definition.title.replace(/^\d+ /, "");
    document.title = `${this.definition.title.replace(/^\d+ /, "")} – plantlog`;
    await this.variables.load(this.question());
    this.complain();
    this.drawPicker();
    this.layOut();
    this.remember(true);
    await this.annotate();
    this.tick();
  }

  complain() {
    say([this.problem, ...this.variables.problems].filter(Boolean).join(" "));
  }

  layOut() {
    for (const panel of this.panels) panel.remove();
    this.sight.disconnect();
    this.byNode.clear();
    this.panels = [];
    const nodes = [];
    for (const [definition, own] of laidOut(this.definition.panels, this.variables.values)) {
      if (definition.type === "row") {
        nodes.push(heading(definition));
        continue;
      }
      const panel = new Panel(definition, this.context(), own);
      this.panels.push(panel);
      this.byNode.set(panel.node, panel);
      nodes.push(panel.node);
    }
    replace(at("grid"), ...nodes);
    for (const panel of this.panels) this.sight.observe(panel.node);
  }

  drawPicker() {
    picker(at("time"), this.state, this.definition.timepicker.refresh_intervals, (change) => this.changed(change));
  }

  async annotate() {
    const wanted = this.definition.annotations.list.filter((one) => one.enable && one.target);
    if (!wanted.length) return;
    try {
      const answers = await api.annotations({ ...this.question(), variables: this.variables.values });
      this.marks = wanted.flatMap((one) => regions(answers[one.name], one.iconColor));
      for (const panel of this.panels) if (panel.definition.type === "timeseries") panel.redraw();
    } catch (error) {
      say(error.message);
    }
  }

  remember(silently = false) {
    const refresh = this.state.refresh === (this.definition.refresh || "off") ? null : this.state.refresh;
    const there = address(this.definition.uid, { ...this.state, refresh, variables: this.variables.shown() });
    history[silently ? "replaceState" : "pushState"](null, "", there);
    for (const link of at("levels").children) {
      link.href = address(link.dataset.uid, { from: this.state.from, to: this.state.to, variables: this.variables.shown() });
    }
  }

  changed(change) {
    Object.assign(this.state, change);
    this.resolved = null;
    tip.hide();
    this.drawPicker();
    this.remember();
    if ("from" in change) {
      this.problem = "";
      this.complain();
      this.refresh();
    }
    this.tick();
  }

  // changed: it and those that depend on it.
  variableChanged(name, changed) {
    this.problem = "";
    this.variables.problems = [];
    this.complain();
    this.state.marks = []; // of another channel
    this.remember();
    this.resolved = null;
    const repeats = this.definition.panels.some((panel) => panel.repeat);
    if (repeats) this.layOut();
    else for (const panel of this.panels) if (panel.needs(changed)) panel.refresh();
    this.annotate();
    document.documentElement.dataset.changed = name;
  }

  refresh() {
    this.resolved = null;
    for (const panel of this.panels) panel.refresh();
    this.annotate();
  }

  async send(command) {
    try {
      await api.command(command);
      say("");
      setTimeout(() => this.refresh(), 1500); // the database has it then
    } catch (error) {
      say(error.message);
    }
  }

  tick() {
    clearTimeout(this.timer);
    const every = duration(this.state.refresh);
    if (!every) return;
    this.timer = setTimeout(() => {
      // A page in the background asks nothing, and a time that is over does not change.
      if (!document.hidden && this.state.to.startsWith("now") && at("tip").hidden) this.refresh();
      this.tick();
    }, every);
  }

  close() {
    clearTimeout(this.timer);
    this.sight.disconnect();
    for (const panel of this.panels) panel.remove();
  }
}

function regions(answer, iconColor) {
  if (!answer) return [];
  const { fields, columns } = answer;
  const column = (name) => columns[fields.findIndex((field) => field.name.toLowerCase() === name)] || [];
  const [from, to, text, series] = [column("time"), column("timeend"), column("text"), column("series")];
  return from.map((time, row) => ({
    from: time,
    to: to[row] ?? time,
    text: rezoned(text[row] || ""),
    series: series[row]?.split("\n"), // the curves that it is of; undefined: all
    shade: colour(iconColor),
  }));
}

// The time of a row of an answer, which a link names.
function marked(mark) {
  const [from, to] = mark.split("-").map(Number);
  return { from, to, text: "The time of the row that was opened", shade: colour("green"), opacity: from === to ? 80 : 20 };
}

function say(message) {
  at("problem").textContent = message;
  at("problem").hidden = !message;
}

let page = null;
let me = {}; // the user; nobody while there are no users

function greet() {
  const leave = element("button", { type: "button", onclick: () => api.logout().then(() => location.assign("/login")) }, "Log out");
  replace(at("user"), me.name, " ", leave);
  at("user").hidden = !me.name;
}

async function open() {
  const given = read();
  say("");
  try {
    const known = api.dashboards();
    const asked = api.user();
    const first = given.uid ? api.dashboard(given.uid) : null;
    me = await asked;
    greet();
    const levels = await known;
    const definition = await (first || api.dashboard(levels[Math.min(1, levels.length - 1)].uid));
    page?.close();
    page = new Page(definition, given);
    const legal = new Set(levels.flatMap(({ variables }) => variables));
    for (const name of Object.keys(given.variables)) {
      if (!legal.has(name)) page.variables.problems.push(`No dashboard has a variable “${name}”.`);
    }
    replace(
      at("levels"),
      ...levels.map(({ uid, title }) =>
        element("a", { href: `/d/${uid}`, "data-uid": uid, "aria-current": uid === definition.uid ? "page" : "false" }, title.replace(/^\d+ /, "")),
      ),
    );
    at("levels").querySelector('[aria-current="page"]')?.scrollIntoView({ block: "nearest", inline: "center" });
    await page.open();
    document.documentElement.dataset.opened = definition.uid;
  } catch (error) {
    say(error.message);
  }
}

// Links to a dashboard stay in this page, unless another tab is asked for.
document.addEventListener("click", (event) => {
  const link = event.target.closest?.('a[href^="/d/"]');
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  history.pushState(null, "", link.getAttribute("href"));
  delete document.documentElement.dataset.opened;
  scrollTo(0, 0);
  open();
});
addEventListener("popstate", open);
at("theme").addEventListener("click", () => {
  const dark = getComputedStyle(document.documentElement).colorScheme === "dark";
  localStorage.setItem("theme", dark ? "light" : "dark");
  themed();
  for (const panel of page?.panels || []) panel.redraw();
});

function zoned() {
  at("zone").textContent = zone.name;
}

at("zone").addEventListener("click", () => {
  zone.toggle();
  zoned();
  page?.drawPicker();
  page?.refresh();
});

function themed() {
  const chosen = localStorage.getItem("theme") || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  document.documentElement.dataset.theme = chosen;
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  themed();
  for (const panel of page?.panels || []) panel.redraw();
});
themed();
zoned();
open();
