// The variables of a dashboard: asked for in order, as one may need those before it.
import { variable as ask } from "./api.js";
import { ALL, choice } from "./choice.js";
import { element, replace } from "./dom.js";

function asOptions({ fields, columns }) {
  const at = (name, other) => Math.max(0, fields.findIndex((field) => field.name === name) >= 0
    ? fields.findIndex((field) => field.name === name) : fields.findIndex((field) => field.name === other));
  const texts = columns[at("__text", "text")] || [];
  const values = columns[at("__value", "value")] || texts;
  return values.map((value, index) => ({ value: String(value), text: String(texts[index]) }));
}

// How many there are: not all of many are sent.
function countOf({ fields, columns }) {
  const at = fields.findIndex((field) => field.name === "total");
  return at < 0 || !columns[at]?.length ? 0 : columns[at][0];
}

// What a link chooses: a channel's name has that of its unit (plant.unit_of). What people don't see, no link changes.
function fromLink(definitions, variables) {
  const shown = definitions.filter((one) => one.hide !== 2).map((one) => one.name);
  const wanted = Object.fromEntries(shown.filter((name) => name in variables).map((name) => [name, variables[name]]));
  if (variables.channel && (shown.includes("channel") || !wanted.unit)) {
    wanted.unit = variables.channel.map((name) => name.replace(/\/[^/]*$/, ""));
  }
  return wanted;
}

export class Variables {
  constructor(definitions, variables, holder, onchange) {
    this.definitions = definitions;
    this.wanted = fromLink(definitions, variables);
    this.problems = []; // with what the link chooses
    this.values = {};
    this.options = {};
    this.totals = {};
    this.holder = holder;
    this.onchange = onchange;
  }

  // All, or what needs one that was changed. Returns the names of these.
  async load(question, changed = null) {
    const stale = new Set(changed ? [changed] : []);
    for (const one of this.definitions) {
      const needs = one.needs || [];
      if (changed && !needs.some((name) => stale.has(name))) continue;
      await this.#fill(one, question);
      stale.add(one.name);
    }
    this.#draw(question);
    return stale;
  }

  async #fill(one, question) {
    const before = this.#whole(one) ? [] : this.values[one.name] || []; // All stays All, of whatever there is now
    const linked = (this.wanted[one.name] || []).filter((value) => value !== ALL && value !== "");
    const chosen = linked.length ? linked : before;
    if (one.type === "query") {
      const [options, total] = await this.#asked(one, question, "", chosen);
      this.options[one.name] = options;
      this.totals[one.name] = total;
    } else if (one.type === "custom") {
      this.options[one.name] = one.options.map(({ text, value }) => ({ text, value }));
    } else {
      this.values[one.name] = this.wanted[one.name] || [one.query || ""];
      return;
    }
    const legal = this.options[one.name].map((option) => option.value);
    const unknown = linked.filter((value) => !legal.includes(value));
    for (const value of unknown) this.problems.push(`The list ${one.label || one.name} has no “${value}”.`);
    const known = chosen.filter((value) => legal.includes(value));
    // Rather than others, nothing is shown for names that there are not.
    const wanted = known.length || one.type === "custom" ? known : unknown;
    delete this.wanted[one.name];
    const every = one.includeAll && one.multi;
    const all = this.totals[one.name] > legal.length ? [ALL] : legal;
    const usual = legal.includes(one.current.value) ? [one.current.value] : legal.slice(0, 1);
    this.values[one.name] = wanted.length ? (one.multi ? wanted : wanted.slice(0, 1)) : every ? all : usual;
  }

  async #asked(one, question, search, chosen) {
    const answer = (await ask({ ...question, variable: one.name, search, variables: { ...this.values, [one.name]: chosen } }))[one.name];
    return [asOptions(answer), countOf(answer)];
  }

  // Of more values than were sent, those with these words.
  async #searched(one, question, search) {
    const [options, total] = await this.#asked(one, question, search, []);
    const known = new Set(this.options[one.name].map((option) => option.value));
    this.options[one.name].push(...options.filter((option) => !known.has(option.value)));
    return [options, total];
  }

  // Whether all values are chosen.
  #whole(one) {
    const values = this.values[one.name];
    const isChosen = (option) => values?.includes(option.value);
    return one.includeAll && one.multi && (values?.[0] === ALL || this.options[one.name]?.every(isChosen));
  }

  #draw(question) {
    // Of one value or all of it, there is no choice.
    const shown = this.definitions.filter((one) => one.hide !== 2 && !(this.#whole(one) && this.options[one.name].length === 1));
    replace(this.holder, ...shown.map((one) => this.#drawn(one, question)));
  }

  #drawn(one, question) {
    const changed = async (values) => {
      this.values[one.name] = values;
      this.onchange(one.name, await this.load(question, one.name));
    };
    if (one.type === "textbox") {
      const field = element("input", { type: "text", value: this.values[one.name][0], "aria-label": one.label });
      field.addEventListener("change", () => changed([field.value]));
      return element("div", { class: "variable" }, element("span", { class: "label" }, one.label || one.name), field);
    }
    return choice({
      label: one.label || one.name,
      options: this.options[one.name],
      total: this.totals[one.name] || 0,
      find: (search) => this.#searched(one, question, search),
      chosen: this.values[one.name],
      multi: one.multi,
      every: one.includeAll && one.multi,
      onchange: changed,
    });
  }

  // Values, those that are chosen or a panel's own, as people read them.
  texts(values) {
    const named = (name, value) => (this.options[name] || []).find((option) => option.value === value)?.text ?? value;
    return Object.fromEntries(Object.entries(values).map(([name, some]) => [name, some.map((value) => named(name, value))]));
  }

  // What belongs into the address: not what is hidden, not All, and not what stands for nothing.
  shown() {
    const kept = this.definitions.filter((one) => one.hide !== 2 && !this.#whole(one));
    return Object.fromEntries(kept.map((one) => [one.name, (this.values[one.name] || []).filter((value) => value !== "")]));
  }
}
