// Shapes on a picture: virtual detectors in a frame, places in a scan. Their numbers, what they
// cover, and how they are moved. Pixel (y, x) has its centre at y, x, as in the service's reductions.
import { svg } from "./api.js";

const FIELDS = {
  sum: [],
  point: ["y", "x"],
  disk: ["y", "x", "radius"],
  annulus: ["y", "x", "inner", "outer"],
  rectangle: ["y0", "y1", "x0", "x1"],
};
const LABELS = { y0: "rows from", y1: "to before", x0: "columns from", x1: "to before" };
export const label = (name) => LABELS[name] ?? name;
export const fields = (kind) => FIELDS[kind];

const tenth = (value) => Math.round(value * 10) / 10;
const clamp = (value, least, most) => Math.min(Math.max(value, least), most);

// A detector in the middle of a frame.
export function initial(kind, [h, w]) {
  const y = Math.floor(h / 2), x = Math.floor(w / 2), r = Math.max(1, Math.floor(Math.min(h, w) / 8));
  return {
    sum: { kind },
    point: { kind, y, x },
    disk: { kind, y, x, radius: r },
    annulus: { kind, y, x, inner: r, outer: 2 * r },
    rectangle: { kind, y0: Math.max(0, y - r), y1: Math.min(h, y + r), x0: Math.max(0, x - r), x1: Math.min(w, x + r) },
  }[kind];
}

// What is wrong with a detector; "" if nothing is.
export function fault(d, [h, w]) {
  if (FIELDS[d.kind].some((name) => !Number.isFinite(d[name]))) return "Every number is needed";
  if (d.kind === "point" && !(Number.isInteger(d.y) && Number.isInteger(d.x) && d.y >= 0 && d.y < h && d.x >= 0 && d.x < w)) {
    return `There are positions 0 to ${h - 1}, 0 to ${w - 1}`;
  }
  if (d.kind === "disk" && d.radius < 0) return "The radius is negative";
  if (d.kind === "annulus" && !(d.inner >= 0 && d.inner <= d.outer)) return "The inner radius is from 0 to the outer one";
  if (d.kind !== "rectangle") return "";
  if (FIELDS.rectangle.some((name) => !Number.isInteger(d[name]))) return "A rectangle has whole numbers of pixels";
  const inside = d.y0 >= 0 && d.y0 < d.y1 && d.y1 <= h && d.x0 >= 0 && d.x0 < d.x1 && d.x1 <= w;
  return inside ? "" : `A rectangle is inside ${h} × ${w}, and ends after its beginning`;
}

// To the address of the page, disk:32,32,8, and from it, if it is of one of these kinds.
export const toText = (d) => [d.kind, FIELDS[d.kind].map((name) => d[name]).join(",")].filter(Boolean).join(":");
export function fromText(text, kinds, shape) {
  const [kind, numbers = ""] = text.split(":");
  if (!kinds.includes(kind)) return initial(kinds[0], shape);
  const given = numbers.split(",").map((part) => (part.trim() === "" ? NaN : Number(part)));
  const found = Object.fromEntries(FIELDS[kind].map((name, i) => [name, given[i]]));
  const detector = { kind, ...found };
  return fault(detector, shape) ? initial(kind, shape) : detector;
}

// The reduction that computes it.
export function reduction(d) {
  if (d.kind === "sum") return { op: "sum", over: "pixels" };
  const shape = {
    disk: () => ({ disk: { centre: [d.y, d.x], radius: d.radius } }),
    annulus: () => ({ annulus: { centre: [d.y, d.x], inner: d.inner, outer: d.outer } }),
    rectangle: () => ({ rectangle: [[d.y0, d.y1], [d.x0, d.x1]] }),
  }[d.kind]();
  return { op: "virtual", detectors: [shape] };
}

export const words = (d) => ({
  sum: () => "sum over all pixels",
  point: () => `${d.y}, ${d.x}`,
  disk: () => `disk at ${d.y}, ${d.x} of radius ${d.radius}`,
  annulus: () => `annulus at ${d.y}, ${d.x} from ${d.inner} to ${d.outer}`,
  rectangle: () => `rectangle of rows ${d.y0} to ${d.y1 - 1}, columns ${d.x0} to ${d.x1 - 1}`,
})[d.kind]();

// Whether a pixel belongs to it.
export function covers(d, y, x) {
  if (d.kind === "sum") return true;
  if (d.kind === "rectangle") return y >= d.y0 && y < d.y1 && x >= d.x0 && x < d.x1;
  const far = (y - d.y) ** 2 + (x - d.x) ** 2;
  return d.kind === "disk" ? far <= d.radius ** 2 : far >= d.inner ** 2 && far <= d.outer ** 2;
}

export function moved(d, dy, dx, [h, w]) {
  if (d.kind === "sum") return d;
  if (d.kind === "point") return { ...d, y: clamp(d.y + Math.round(dy), 0, h - 1), x: clamp(d.x + Math.round(dx), 0, w - 1) };
  if (d.kind !== "rectangle") {
    return { ...d, y: tenth(clamp(d.y + dy, 0, h - 1)), x: tenth(clamp(d.x + dx, 0, w - 1)) };
  }
  const down = clamp(Math.round(dy), -d.y0, h - d.y1), right = clamp(Math.round(dx), -d.x0, w - d.x1);
  return { ...d, y0: d.y0 + down, y1: d.y1 + down, x0: d.x0 + right, x1: d.x1 + right };
}

export function grown(d, by, [h, w]) {
  if (d.kind === "disk") return { ...d, radius: tenth(Math.max(0, d.radius + by)) };
  if (d.kind === "annulus") return { ...d, outer: tenth(Math.max(d.inner, d.outer + by)) };
  if (d.kind !== "rectangle") return d;
  return { ...d, y1: clamp(d.y1 + by, d.y0 + 1, h), x1: clamp(d.x1 + by, d.x0 + 1, w) };
}

// What a pointer takes hold of: an edge, or the whole. Returns how it moves from (y, x) by a drag.
// Beside a rectangle, or if it is to be another, a drag draws one; a click has it move there.
export function hold(d, [y, x], near, shape, another = false) {
  if (d.kind === "sum") return null;
  const [h, w] = shape;
  if (d.kind === "point") return ([toY, toX]) => moved(d, toY - d.y, toX - d.x, shape);
  if (d.kind === "rectangle") {
    const close = (edge, place) => Math.abs(edge - place - 0.5) <= near;
    const row = close(d.y0, y) ? "y0" : close(d.y1, y) ? "y1" : null;
    const column = close(d.x0, x) ? "x0" : close(d.x1, x) ? "x1" : null;
    const within = y > d.y0 - near - 1 && y < d.y1 + near && x > d.x0 - near - 1 && x < d.x1 + near;
    if (!within || another) {
      const span = (from, to, length) => [Math.min(from, to), Math.max(from, to) + 1].map((edge, k) => clamp(Math.round(edge), k, length - 1 + k));
      const there = moved(d, y - (d.y0 + d.y1 - 1) / 2, x - (d.x0 + d.x1 - 1) / 2, shape);
      return ([toY, toX]) => {
        if (Math.hypot(toY - y, toX - x) < 1) return there;
        const [[y0, y1], [x0, x1]] = [span(y, toY, h), span(x, toX, w)];
        return { ...d, y0, y1, x0, x1 };
      };
    }
    if (row || column) {
      return ([toY, toX]) => {
        const next = { ...d };
        if (row === "y0") next.y0 = clamp(Math.round(toY + 0.5), 0, d.y1 - 1);
        if (row === "y1") next.y1 = clamp(Math.round(toY + 0.5), d.y0 + 1, h);
        if (column === "x0") next.x0 = clamp(Math.round(toX + 0.5), 0, d.x1 - 1);
        if (column === "x1") next.x1 = clamp(Math.round(toX + 0.5), d.x0 + 1, w);
        return next;
      };
    }
    return ([toY, toX]) => moved(d, toY - y, toX - x, shape);
  }
  const far = Math.hypot(y - d.y, x - d.x);
  for (const name of d.kind === "disk" ? ["radius"] : ["outer", "inner"]) {
    if (Math.abs(far - d[name]) > near || d[name] < near) continue;
    const least = name === "outer" ? d.inner : 0, most = name === "inner" ? d.outer : Infinity;
    return ([toY, toX]) => ({ ...d, [name]: tenth(clamp(Math.hypot(toY - d.y, toX - d.x), least, most)) });
  }
  const from = far <= (d.radius ?? d.outer) ? d : { ...d, y: tenth(y), x: tenth(x) };
  return ([toY, toX]) => moved(from, toY - y, toX - x, shape);
}

// Draws it into an <svg> whose units are pixels of the frame.
export function outline(drawing, d) {
  const ring = (r) => svg("circle", { cx: d.x + 0.5, cy: d.y + 0.5, r });
  const parts = {
    sum: () => [],
    point: () => [svg("rect", { x: d.x, y: d.y, width: 1, height: 1 })],
    disk: () => [ring(d.radius)],
    annulus: () => [ring(d.inner), ring(d.outer)],
    rectangle: () => [svg("rect", { x: d.x0, y: d.y0, width: d.x1 - d.x0, height: d.y1 - d.y0 })],
  }[d.kind]();
  // Two strokes, dark under light, are seen on any picture.
  drawing.replaceChildren(...parts.flatMap((part) => {
    const under = part.cloneNode();
    under.setAttribute("class", "under");
    return [under, part];
  }));
}
