// Charts by uPlot 1.6.32, in the colours of the page. Its module is without what no chart here uses (sed -E
// '/^\tuPlot\.(join|fmtDate|tzDate) |^uPlot\.(sync|orient) |paths\.(stepped|spline) /d' uPlot.esm.js), minified by terser
// (--module -c passes=3,ecma=2020,keep_fargs=false,unsafe_arrows -m); what is needed of its style is in console.css;
// uPlot.LICENSE.txt is its licence.
import uPlot from "./uPlot.min.js";
import { written } from "./tables.js";

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
export const colours = () => [1, 2, 3, 4, 5, 6, 7, 8].map((k) => css(`--curve-${k}`));
const drawn = new WeakMap(); // the chart in an element, with what ends it

export const brief = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

// 1, 2 and 5 of each decade of an axis, or only its 1 where there are many.
function decades(_chart, _axis, low, high) {
  const first = Math.floor(Math.log10(low));
  const steps = Math.log10(high / low) > 3 ? [1] : [1, 2, 5];
  const values = Array.from({ length: Math.ceil(Math.log10(high)) - first + 1 }, (_, k) => steps.map((step) => step * 10 ** (first + k)));
  return values.flat().filter((value) => value >= low && value <= high);
}

function axes({ xTitle, yTitle, logarithmic, labels }) {
  const look = { stroke: css("--faint"), grid: { stroke: css("--line"), width: 1 }, ticks: { stroke: css("--line") }, font: "12px system-ui", labelFont: "13px system-ui" };
  const named = (_chart, values) => values.map((value) => labels[value] ?? "");
  return [
    { ...look, label: xTitle, labelSize: 22, ...(logarithmic && { splits: decades, values: (_chart, values) => values.map((value) => brief.format(value)), filter: (_chart, values) => values }), ...(labels && { values: named }) },
    { ...look, label: yTitle, size: 64, labelSize: 22, values: (_chart, values) => values.map((value) => brief.format(value)) },
  ];
}

// A piece of a line, dashed as the line is.
function swatch({ colour, dash }) {
  let at = 0;
  const parts = dash.map((length, k) => `${k % 2 ? "transparent" : colour} ${at}px ${at += length}px`);
  return parts.length ? `repeating-linear-gradient(90deg, ${parts.join(", ")})` : colour;
}

export function clear(element) {
  drawn.get(element)?.();
  drawn.delete(element);
  delete element.dataset.milliseconds;
}

// Draws series over xs, ascending, in an element; whatever was there is replaced. A range of x that is
// dragged is told to onZoom; a double click shows all again.
export function chart(element, { xs, series, range = [null, null], onZoom, bars, labels, ...rest }) {
  clear(element);
  const started = performance.now();
  const limits = [range[0] ?? xs[0], range[1] ?? xs.at(-1)];
  if (limits[0] >= limits[1]) limits.splice(0, 2, limits[0] / 1.1, limits[1] * 1.1);
  const size = () => ({ width: element.clientWidth, height: Math.min(420, Math.max(260, element.clientWidth * 0.5)) });
  const options = {
    ...size(),
    scales: { x: { time: false, distr: rest.logarithmic ? 3 : 1, range: bars ? [-1, xs.length] : (_chart, low, high) => [low, high] }, ...(bars && { y: { range: (_chart, _low, high) => [0, high * 1.05] } }) },
    axes: axes({ ...rest, labels }),
    cursor: { drag: { x: !bars, y: false }, focus: { prox: 24 } },
    legend: { live: true, ...(!bars && { markers: { width: 0, fill: (_chart, k) => swatch(series[k - 1]) } }) },
    series: [
      { label: rest.xTitle, value: (_chart, value) => value === null ? "–" : labels?.[value] ?? written(value) },
      ...series.map(({ name, colour, dash, values, isPoint = () => true }) => {
        const places = [...xs.keys()].filter((k) => values[k] !== null && isPoint(xs[k]));
        return {
          label: name, stroke: colour, dash, width: 2, spanGaps: false,
          points: { show: places.length <= 60 && !bars, filter: (_chart, _k, isShown) => (isShown ? places : null) },
          value: (_chart, value, _series, k) => (value == null || isPoint(xs[k]) ? written(value) : `≈ ${written(value)}`),
          ...(bars && { paths: uPlot.paths.bars({ size: [0.7, 40] }), fill: colour }),
        };
      }),
    ],
    hooks: {
      draw: [() => { element.dataset.milliseconds = (performance.now() - started).toFixed(1); }],
      setSelect: [(self) => {
        if (!self.select.width) return;
        onZoom?.(self.posToVal(self.select.left, "x"), self.posToVal(self.select.left + self.select.width, "x"));
      }],
    },
  };
  element.replaceChildren();
  element.classList.toggle("lines", !bars);
  const made = new uPlot(options, [xs, ...series.map((each) => each.values)], element);
  if (!bars) made.setScale("x", { min: limits[0], max: limits[1] });
  made.over.addEventListener("dblclick", () => {
    made.setScale("x", { min: xs[0], max: xs.at(-1) });
    onZoom?.("", "");
  });
  const watch = new ResizeObserver(() => { if (element.clientWidth !== made.width) made.setSize(size()); });
  watch.observe(element);
  element.chart = Object.assign(made, { look: series });
  drawn.set(element, () => { watch.disconnect(); made.destroy(); });
}

// A chart as it is seen, on the ground of the page, with lines of text above and its legend below.
export function picture(element, ...words) {
  const { ctx: { canvas }, look } = element.chart, sharp = devicePixelRatio, line = 18 * sharp;
  const seen = look.filter((_series, k) => element.chart.series[k + 1].show);
  const all = document.createElement("canvas"), context = all.getContext("2d");
  Object.assign(all, { width: canvas.width, height: canvas.height + line * (words.length + seen.length + 1) });
  context.fillStyle = css("--paper");
  context.fillRect(0, 0, all.width, all.height);
  context.drawImage(canvas, 0, line * words.length);
  context.font = `${13 * sharp}px system-ui`;
  const write = (text, row, left, top = 0) => { context.fillStyle = css("--ink"); context.fillText(text, left * sharp, top + line * (row + 0.7), all.width - left * sharp); };
  words.forEach((text, row) => write(text, row, 4));
  seen.forEach(({ name, colour, dash }, row) => {
    const top = canvas.height + line * words.length;
    write(name, row, 60, top);
    Object.assign(context, { strokeStyle: colour, lineWidth: 2 * sharp });
    context.setLineDash(dash.map((length) => length * sharp));
    context.beginPath();
    for (const x of [10, 50]) context.lineTo(x * sharp, top + line * (row + 0.5));
    context.stroke();
  });
  return all;
}
