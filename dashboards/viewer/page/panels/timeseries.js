// Lines, bands, bars and points over time, drawn by uPlot (a global of its script). A null is a gap: no line is drawn over it.
import { element } from "../dom.js";
import { colour, configOf, css, seriesColour, transformed, worded } from "../fields.js";
import { fielded, stamp } from "../time.js";
import { tip } from "../tip.js";
import { line } from "./line.js";
import { tickLabels } from "../units.js";

const POWERS_OF_TWO = Array.from({ length: 50 }, (_, power) => 2 ** power); // distances of ticks in bytes

function joined(frames) {
  const tables = [];
  const names = [];
  for (const { fields, columns } of frames) {
    const at = fields.findIndex((field) => field.type === "time");
    if (at < 0 || !columns[at].length) continue;
    const numbers = fields.map((_, index) => index).filter((index) => fields[index].type === "number");
    tables.push([columns[at], ...numbers.map((index) => columns[index])]);
    names.push(...numbers.map((index) => fields[index]));
  }
  if (!tables.length) return null;
  return { fields: names, data: tables.length === 1 ? tables[0] : uPlot.join(tables) };
}

function paint(config, index) {
  const mode = config.color?.mode;
  if (mode === "fixed") return colour(config.color.fixedColor);
  return seriesColour(index);
}

function translucent(shade, opacity) {
  const made = document.createElement("canvas").getContext("2d");
  made.fillStyle = shade;
  const hex = made.fillStyle;
  return `${hex}${Math.round(opacity * 2.55).toString(16).padStart(2, "0")}`;
}

function stackedUp(data) {
  const sums = new Array(data[0].length).fill(0);
  const stacked = data.slice(1).map((column) => column.map((value, row) => (sums[row] += value ?? 0)));
  return [data[0], ...stacked];
}

function hatch(ctx, left, top, right, bottom, shade) {
  const [apart, height] = [7 * devicePixelRatio, bottom - top];
  ctx.save();
  ctx.beginPath();
  ctx.rect(left, top, right - left, height);
  ctx.clip();
  ctx.beginPath();
  for (let x = Math.floor((left - height) / apart) * apart; x < right; x += apart) {
    ctx.moveTo(x, bottom);
    ctx.lineTo(x + height, top);
  }
  ctx.strokeStyle = translucent(shade, 70);
  ctx.lineWidth = devicePixelRatio;
  ctx.stroke();
  ctx.restore();
}

// Bands behind the lines, and what they say when the pointer is on them.
function marks(regions) {
  return {
    hooks: {
      drawClear: [
        (u) => {
          const { left, top, width, height } = u.bbox;
          u.ctx.save();
          u.ctx.beginPath();
          u.ctx.rect(left, top, width, height);
          u.ctx.clip();
          for (const { from, to, shade, opacity, hatched } of regions) {
            const a = u.valToPos(from, "x", true);
            const b = Math.max(u.valToPos(to, "x", true), a + 2);
            if (Math.min(b, left + width) < Math.max(a, left)) continue;
            u.ctx.fillStyle = translucent(shade, opacity ?? 16);
            u.ctx.fillRect(a, top, b - a, height);
            if (hatched) hatch(u.ctx, Math.max(a, left), top, Math.min(b, left + width), top + height, shade);
            u.ctx.fillStyle = translucent(shade, 70);
            u.ctx.fillRect(a, top, b - a, 2 * devicePixelRatio);
          }
          u.ctx.restore();
        },
      ],
    },
  };
}

function limits(config) {
  const steps = (config.thresholds?.steps || []).filter((step) => step.value !== null);
  return {
    hooks: {
      draw: [
        (u) => {
          u.ctx.save();
          u.ctx.lineWidth = devicePixelRatio;
          u.ctx.setLineDash([6 * devicePixelRatio, 4 * devicePixelRatio]);
          for (const step of steps) {
            const y = u.valToPos(step.value, "y", true);
            if (y < u.bbox.top || y > u.bbox.top + u.bbox.height) continue;
            u.ctx.strokeStyle = colour(step.color);
            u.ctx.beginPath();
            u.ctx.moveTo(u.bbox.left, y);
            u.ctx.lineTo(u.bbox.left + u.bbox.width, y);
            u.ctx.stroke();
          }
          u.ctx.restore();
        },
      ],
    },
  };
}

function pointed(configs, names, raw, regions) {
  return (u) => {
    const row = u.cursor.idx;
    if (row === null || row === undefined || u.cursor.left < 0) return tip.hide();
    const at = u.posToVal(u.cursor.left, "x");
    const lines = names
      .map((name, index) => ({ name, index, value: raw[index + 1][row], config: configs[index] }))
      .filter(({ value, config }) => value !== undefined && value !== null && !config.custom.hideFrom?.tooltip)
      .map(({ name, index, value, config }) => ({
        shade: paint(config, index),
        text: name,
        value: worded(config, value),
      }));
    const notes = regions.filter(({ from, to }) => from <= at && at <= to).map(({ text }) => text);
    if (u.root.matches(":hover")) tip.show(u.root.getBoundingClientRect().left + u.over.offsetLeft + u.cursor.left, stamp(u.data[0][row]), lines, notes);
  };
}

function style(config, index, names) {
  const shade = paint(config, index);
  const custom = config.custom;
  const bars = custom.drawStyle === "bars";
  const points = custom.drawStyle === "points";
  const paths = bars
    ? uPlot.paths.bars({ size: [0.9, 60], align: 1 })
    : points
      ? () => null
      : line(custom.lineInterpolation === "stepAfter");
  const banded = custom.fillBelowTo && names.includes(custom.fillBelowTo);
  return {
    label: names[index],
    stroke: custom.lineWidth === 0 ? "transparent" : shade,
    width: custom.lineWidth ?? 1,
    dash: custom.lineStyle?.fill === "dash" ? custom.lineStyle.dash || [6, 4] : undefined,
    fill: bars ? shade : custom.fillOpacity && !banded ? translucent(shade, custom.fillOpacity) : undefined,
    paths,
    points: { show: points || undefined, size: custom.pointSize || 4, fill: shade, width: 0 },
  };
}

function axes(config) {
  const shade = css("--quiet");
  const grid = { stroke: css("--line"), width: 1 };
  const font = `11px ${css("--font")}`;
  const unit = config.unit === "none" ? "short" : config.unit;
  const values = (u, ticks, _axis, _space, step) => tickLabels(ticks, unit, step);
  const size = (u, ticks) => {
    if (!ticks) return 40;
    u.ctx.font = `${11 * devicePixelRatio}px ${css("--font")}`;
    return Math.ceil(Math.max(...ticks.map((tick) => u.ctx.measureText(tick).width)) / devicePixelRatio) + 14;
  };
  const time = [
    [864e5 * 28, "{YYYY}-{MM}", null, null, null, null, null, null, 1],
    [864e5, "{MM}-{DD}", "\n{YYYY}", null, null, null, null, null, 1],
    [6e4, "{HH}:{mm}", "\n{MM}-{DD}", null, "\n{MM}-{DD}", null, null, null, 1],
    [1e3, ":{ss}", "\n{HH}:{mm}", null, "\n{HH}:{mm}", null, "\n{HH}:{mm}", null, 1],
    [1, ":{ss}.{fff}", "\n{HH}:{mm}", null, "\n{HH}:{mm}", null, "\n{HH}:{mm}", null, 1],
  ];
  const ticks = { show: false };
  const incrs = unit === "bytes" ? POWERS_OF_TWO : undefined;
  return [
    { stroke: shade, grid, ticks, font, values: time, space: 64, size: 34 },
    { stroke: shade, grid, ticks, font, values, size, incrs, space: 28 },
  ];
}

function legend(panel, configs, names, raw) {
  const shown = names
    .map((name, index) => ({ name, index, config: configs[index] }))
    .filter(({ config }) => !config.custom.hideFrom?.legend);
  if (!panel.options.legend.showLegend) return null;
  return element(
    "div",
    { class: "legend" },
    ...shown.map(({ name, index, config }) => {
      const value = raw[index + 1].findLast((one) => one !== null && one !== undefined);
      return element(
        "span",
        {},
        element("i", { style: { background: paint(config, index) } }),
        name,
        panel.options.legend.calcs?.includes("lastNotNull") ? element("b", {}, worded(config, value)) : null,
      );
    }),
  );
}

export function timeseries(panel, answers, context) {
  const { frames, extra } = transformed(panel, answers);
  const found = joined(frames);
  if (!found) return null;
  const { fields, data: raw } = found;
  const configs = fields.map((field) => configOf(panel, field, extra));
  const names = fields.map((field, index) => configs[index].displayName || field.name);
  const stacked = configs.some((config) => config.custom.stacking?.mode === "normal");
  const regions = context.regions.filter(({ series }) => !series || names.some((name) => series.includes(name)));
  const first = configs[0] || configOf(panel, { name: "" }, extra);
  const holder = element("div", { class: "chart" });
  const below = legend(panel, configs, names, raw);
  let data = raw;
  let order = names.map((_, index) => index);
  if (stacked) {
    data = stackedUp(raw);
    order = order.reverse(); // the lowest is drawn last, over the others
  }
  const bands = [];
  order.forEach((index, place) => {
    const other = names.indexOf(configs[index].custom.fillBelowTo);
    if (other >= 0) {
      bands.push({ series: [place + 1, order.indexOf(other) + 1], fill: translucent(paint(configs[index], index), configs[index].custom.fillOpacity || 20) });
    }
  });
  const soft = (u, low, high) => {
    if (low === null || high === null) {
      const values = u.data.slice(1).flat().filter((one) => one !== null && one !== undefined); // beside the shown time
      if (!values.length) return [0, 1];
      [low, high] = [Math.min(...values), Math.max(...values)];
    }
    const bars = first.custom.drawStyle === "bars" || stacked;
    const range = uPlot.rangeNum(bars ? Math.min(0, low) : low, high, 0.1, true);
    return [first.min ?? (low >= 0 && range[0] < 0 ? 0 : range[0]), first.max !== undefined && first.max > (first.min ?? -Infinity) ? first.max : range[1]];
  };
  const options = {
    ms: 1,
    tzDate: fielded,
    width: 300,
    height: 100,
    scales: { x: { time: true, range: () => [context.range.since, context.range.until] }, y: { range: soft } },
    axes: axes(first),
    series: [{}, ...order.map((index) => style(configs[index], index, names))],
    bands,
    legend: { show: false },
    padding: [8, 16, 0, 0],
    cursor: { sync: { key: "time" }, drag: { x: true, y: false, setScale: false }, points: { size: 6 } },
    plugins: [marks(regions), ...(first.custom.thresholdsStyle?.mode === "dashed" ? [limits(first)] : [])],
    hooks: {
      setCursor: [pointed(configs, names, raw, regions)],
      setSelect: [
        (u) => {
          if (u.select.width < 8) return;
          const [a, b] = [u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x")];
          u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          context.zoom(Math.floor(a), Math.ceil(b));
        },
      ],
    },
  };
  const outer = element("div", { class: "plot" }, holder, ...(below ? [below] : []));
  const made = {
    node: outer,
    placed() {
      const size = () => ({ width: Math.max(holder.clientWidth, 50), height: Math.max(holder.clientHeight, 60) });
      const plot = new uPlot({ ...options, ...size() }, [data[0], ...order.map((index) => data[index + 1])], holder);
      plot.over.addEventListener("mouseleave", () => tip.hide());
      const watch = new ResizeObserver(() => {
        const now = size();
        if (now.width !== plot.width || now.height !== plot.height) plot.setSize(now);
      });
      watch.observe(holder);
      return () => {
        watch.disconnect();
        plot.destroy();
      };
    },
  };
  return made;
}
