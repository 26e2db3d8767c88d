// Arrays as pictures: colour maps, what is dark and what bright, numbers beside them.
import { make, mark } from "./api.js";
import { csv, npy, save, savePicture, saver } from "./save.js";

// Seventeen evenly spaced colours, as /v1/datasets/{id}/image.png has them.
const ANCHORS = {
  gray: "000000ffffff",
  viridis: "44015448186a472d7b4240863b528b33638d2c728e26828e21918c1fa08828ae803fbc735ec96284d44baddc30d8e219fde725",
  inferno: "0000040b0724210c4a3d096557106e71196e8a226aa32c61bc3754d24644e45a31f1731df98e09fcac11f9cb35f2ea69fcffa4",
  cividis: "00224e002e6a1a386f32436d434e6c535a6d61656f6f70737d7c788c78889b9476aba072bcae6ccdbb63dec958f0d846fee838",
  coolwarm: "3b4cc04e68d86282ea779af78db0fea3c2feb9d0f9ccd9eddddcdcecd3c5f5c4acf7b093f4987aeb7d62dd5f4bca3b37b40426",
};
export const MAPS = Object.keys(ANCHORS);
const SORTED = 1 << 18; // values that percentiles are taken of, at most

// 256 colours, as the 32 bits of a pixel.
function colours(map) {
  const rgb = ANCHORS[map].match(/../g).map((pair) => parseInt(pair, 16));
  const last = rgb.length / 3 - 1;
  return Uint32Array.from({ length: 256 }, (_, i) => {
    const place = (i / 255) * last, low = Math.min(Math.floor(place), last - 1), part = place - low;
    const [r, g, b] = [0, 1, 2].map((c) => Math.round(rgb[3 * low + c] * (1 - part) + rgb[3 * low + 3 + c] * part));
    return (255 << 24) | (b << 16) | (g << 8) | r;
  });
}

// What is darkest and brightest: of finite values, for logarithms of positive ones.
export function limits(values, { low, high, log }) {
  const step = Math.max(1, Math.ceil(values.length / SORTED));
  const kept = new Float64Array(Math.ceil(values.length / step));
  let count = 0;
  const whole = low <= 0 && high >= 100;
  let least = Infinity, most = -Infinity;
  for (let i = 0; i < values.length; i += whole ? 1 : step) {
    const v = values[i];
    if (!Number.isFinite(v) || (log && v <= 0)) continue;
    if (whole) { if (v < least) least = v; if (v > most) most = v; } else kept[count++] = v;
  }
  if (whole) return least <= most ? [least, most] : [0, 1];
  if (!count) return [0, 1];
  const sorted = kept.subarray(0, count).sort();
  return [low, high].map((part) => {
    const place = (part / 100) * (count - 1), below = Math.floor(place);
    return sorted[below] + (sorted[Math.min(below + 1, count - 1)] - sorted[below]) * (place - below);
  });
}

// Numbers of an array; what is not a number has no frame, or is none in the files.
function numbers(values) {
  let least = Infinity, most = -Infinity, sum = 0, count = 0;
  for (const v of values) {
    if (Number.isNaN(v)) continue;
    if (v < least) least = v;
    if (v > most) most = v;
    sum += v;
    count += 1;
  }
  return { least, most, sum, count, missing: values.length - count };
}

export const digits = (v) =>
  v === undefined ? "" : Number.isNaN(v) ? "no value"
    : Number.isInteger(v) && Math.abs(v) < 1e15 ? v.toLocaleString("en") : !Number.isFinite(v) || (v && (Math.abs(v) < 1e-3 || Math.abs(v) >= 1e15)) ? String(Number(v.toPrecision(6)))
        : v.toLocaleString("en", { maximumSignificantDigits: Math.max(6, String(Math.trunc(Math.abs(v))).length) });

const AROUND = 2;
const LEAST = 512; // pixels of the longer side of a picture that is saved

// Each pixel as a square of as many as make the picture large enough.
function enlarged(canvas) {
  const times = Math.ceil(LEAST / Math.max(canvas.width, canvas.height));
  const all = make("canvas", { width: canvas.width * times, height: canvas.height * times }), context = all.getContext("2d");
  context.imageSmoothingEnabled = false;
  context.drawImage(canvas, 0, 0, all.width, all.height);
  return all;
}

// A picture in a figure with the class "picture": its canvas, controls and tables.
export class Picture {
  constructor(figure, look, changed) {
    Object.assign(this, { figure, look, changed, values: null, rows: 0, columns: 0, at: [0, 0] });
    this.canvas = figure.querySelector("canvas");
    this.caption = figure.querySelector("figcaption");
    this.controls();
  }

  controls() {
    const { look } = this;
    const set = (name, value) => { look[name] = value; this.draw(); this.changed(); };
    const part = (name, least, most) => make("input", {
      type: "number", min: least, max: most, step: "any", value: look[name], class: "short",
      onchange: ({ target }) => {
        const value = target.valueAsNumber;
        const other = name === "low" ? look.high - value : value - look.low;
        const good = value >= 0 && value <= 100 && other > 0;
        mark(target, good ? "" : `A percentile from 0 to 100, dark below bright: ${look[name]} is used`);
        if (good) set(name, value);
      },
    });
    const percentiles = make("span", { hidden: look.low <= 0 && look.high >= 100 },
      make("label", {}, "Dark below", part("low"), "%"), make("label", {}, "bright above", part("high"), "%"));
    const scaling = make("select", {
      onchange: ({ target }) => {
        percentiles.hidden = target.value === "all";
        Object.assign(look, percentiles.hidden ? { low: 0, high: 100 } : { low: 1, high: 99 });
        for (const [i, input] of [...percentiles.querySelectorAll("input")].entries()) input.value = [look.low, look.high][i];
        set("log", look.log);
      },
    }, make("option", { value: "all" }, "lowest to highest"), make("option", { value: "part", selected: !percentiles.hidden }, "percentiles"));
    this.figure.querySelector(".look").append(
      make("label", {}, "Colours", make("select", { onchange: ({ target }) => set("map", target.value) },
        ...MAPS.map((map) => make("option", { selected: map === look.map }, map)))),
      make("label", {}, "Scale", scaling), percentiles,
      make("label", {}, make("input", { type: "checkbox", checked: look.log, onchange: ({ target }) => set("log", target.checked) }), "logarithms"),
      make("span", {}, "Save what is seen: ", ...this.savers().flatMap((each) => [each, " "])),
    );
  }

  savers() {
    const name = this.figure.id, rows = () => Array.from({ length: this.rows }, (_, y) => [...this.values.subarray(y * this.columns, (y + 1) * this.columns)]);
    const acts = {
      png: () => savePicture(`${name}.png`, enlarged(this.canvas)),
      npy: () => save(`${name}.npy`, ...npy(this.values, this.rows, this.columns)),
      csv: () => save(`${name}.csv`, csv(rows())),
    };
    return Object.entries(acts).map(([form, act]) => saver(form, () => this.values && act(), undefined, name));
  }

  // Values are by rows; NaN is left out of the picture.
  set(values, rows, columns, of = 1) {
    Object.assign(this, { values, rows, columns, of });
    this.draw();
    this.tell();
  }

  draw() {
    const { canvas, values, rows, columns, look } = this;
    if (!values) return;
    const started = performance.now();
    if (canvas.width !== columns || canvas.height !== rows) Object.assign(canvas, { width: columns, height: rows });
    const [low, high] = limits(values, look);
    const level = look.log ? Math.log : Number;
    const bottom = level(low), span = level(high) - bottom || 1;
    const table = colours(look.map);
    const image = new ImageData(columns, rows);
    const pixels = new Uint32Array(image.data.buffer);
    for (let i = 0; i < pixels.length; i += 1) {
      const v = values[i];
      if (Number.isNaN(v)) continue;
      const place = look.log && v <= 0 ? 0 : ((level(v) - bottom) / span) * 255;
      pixels[i] = table[place > 255 ? 255 : place > 0 ? Math.round(place) : 0];
    }
    canvas.getContext("2d").putImageData(image, 0, 0);
    performance.measure("draw", { start: started });
  }

  point(at) {
    this.at = at;
    this.tell();
  }

  // Writes the numbers of the picture, and those around the cursor.
  tell() {
    const { values, rows, columns, at, of } = this;
    if (!values) return;
    const { least, most, sum, count, missing } = numbers(values);
    const facts = [["Lowest", digits(count ? least : NaN)], ["Highest", digits(count ? most : NaN)],
      ["Mean", digits(count ? sum / count : NaN)], ["Sum", digits(sum)]];
    if (missing) facts.push(["Without a value", `${digits(missing)} of ${digits(values.length)}`]);
    this.figure.querySelector(".numbers").replaceChildren(
      ...facts.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
    const [row, column] = at.map((place) => Math.floor(place / of));
    const span = (middle, length) => {
      const first = Math.max(0, Math.min(middle - AROUND, length - 2 * AROUND - 1));
      return Array.from({ length: Math.min(2 * AROUND + 1, length) }, (_, i) => first + i);
    };
    const across = span(column, columns);
    const head = make("tr", {}, make("td"), ...across.map((x) => make("th", { scope: "col", class: "number" }, digits(x * of))));
    const lines = span(row, rows).map((y) => make("tr", {}, make("th", { scope: "row", class: "number" }, digits(y * of)),
      ...across.map((x) => make("td", { class: y === row && x === column ? "number here" : "number" }, digits(values[y * columns + x])))));
    this.figure.querySelector(".around tbody").replaceChildren(head, ...lines);
  }
}

// Shows how long a round length of an axis is below a picture; hidden where no unit is known.
export function scaleBar(element, axis, length) {
  element.hidden = !axis?.unit || !(axis.scale > 0);
  if (element.hidden) return;
  const most = (length * axis.scale) / 3;
  const power = 10 ** Math.floor(Math.log10(most));
  const long = [5, 2, 1].find((m) => m * power <= most) * power;
  const bar = element.firstElementChild;
  bar.style.width = `${(100 * long) / axis.scale / length}%`;
  element.lastElementChild.textContent = `${Number(long.toPrecision(3))} ${axis.unit}`;
}
