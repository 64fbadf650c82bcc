// Which state each series had when: coloured stretches on one axis of time.
import { element } from "../dom.js";
import { configOf, css, transformed, valueColour, worded } from "../fields.js";
import { stamp } from "../time.js";
import { tip } from "../tip.js";

// Equal states in a row are one interval; null, and the time before the first sample, are none.
function stretches(times, values, until) {
  const found = [];
  values.forEach((value, row) => {
    const last = found[found.length - 1];
    if (last && last.value === value) return;
    if (last && last.to === null) last.to = times[row];
    found.push({ value, from: times[row], to: null });
  });
  const last = found[found.length - 1];
  if (last) last.to = until;
  return found.filter(({ value }) => value !== null);
}

export function stateTimeline(panel, answers, context) {
  const { frames, extra } = transformed(panel, answers);
  const rows = [];
  for (const { fields, columns } of frames) {
    const at = fields.findIndex((field) => field.type === "time");
    if (at < 0) continue;
    fields.forEach((field, index) => {
      if (index === at) return;
      const config = configOf(panel, field, extra);
      const until = Math.min(context.range.until, Date.now());
      rows.push({ name: config.displayName || field.name, config, stretches: stretches(columns[at], columns[index], until) });
    });
  }
  if (!rows.length) return null;
  const canvas = element("canvas");
  const holder = element("div", { class: "states" }, canvas);
  const { since, until } = context.range;
  const line = 22;
  let left = 80;

  function place(ms, width) {
    return left + ((ms - since) / (until - since)) * (width - left - 8);
  }

  function draw() {
    const width = Math.max(holder.clientWidth, 100);
    const height = rows.length * line + 22;
    const ratio = devicePixelRatio;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    const ctx = canvas.getContext("2d");
    ctx.scale(ratio, ratio);
    ctx.font = `11px ${css("--font")}`;
    ctx.textBaseline = "middle";
    left = Math.min(width * 0.35, Math.max(...rows.map(({ name }) => ctx.measureText(name).width)) + 16);
    rows.forEach(({ name, config, stretches: found }, row) => {
      const y = row * line + 2;
      ctx.fillStyle = css("--text");
      ctx.textAlign = "right";
      ctx.save();
      ctx.beginPath();
      ctx.rect(0, y, left - 6, line);
      ctx.clip();
      ctx.fillText(name, left - 8, y + line / 2 - 1);
      ctx.restore();
      ctx.textAlign = "left";
      for (const { value, from, to } of found) {
        const a = place(Math.max(from, since), width);
        const b = place(Math.min(to, until), width);
        if (b < left || a > width) continue;
        ctx.globalAlpha = (config.custom.fillOpacity ?? 70) / 100;
        ctx.fillStyle = valueColour(config, value);
        ctx.fillRect(a, y, Math.max(b - a, 1), line - 4);
        ctx.globalAlpha = 1;
        const text = worded(config, value);
        if (b - a > ctx.measureText(text).width + 10) {
          ctx.fillStyle = css("--on-state");
          ctx.fillText(text, a + 5, y + line / 2 - 1);
        }
      }
    });
    ctx.fillStyle = css("--quiet");
    const ticks = Math.max(2, Math.floor((width - left) / 110));
    for (let i = 0; i <= ticks; i += 1) {
      const ms = since + ((until - since) * i) / ticks;
      ctx.textAlign = i === 0 ? "left" : i === ticks ? "right" : "center";
      ctx.fillText(stamp(ms).slice(until - since > 2 * 864e5 ? 5 : 11, until - since > 36e5 ? 16 : 19), place(ms, width), height - 8);
    }
  }

  canvas.addEventListener("mousemove", (event) => {
    const row = rows[Math.floor(event.offsetY / line)];
    const ms = since + ((event.offsetX - left) / (canvas.clientWidth - left - 8)) * (until - since);
    const found = row?.stretches.find(({ from, to }) => from <= ms && ms < to);
    if (!found) return tip.hide();
    const text = worded(row.config, found.value);
    tip.show(event.clientX, stamp(found.from), [{ shade: valueColour(row.config, found.value), text: row.name, value: text }], [`until ${stamp(found.to)}`]);
  });
  canvas.addEventListener("mouseleave", () => tip.hide());
  return {
    node: holder,
    placed() {
      draw();
      const watch = new ResizeObserver(draw);
      watch.observe(holder);
      return () => watch.disconnect();
    },
  };
}
