// Tables of numbers as people read them.
import { make } from "./api.js";

// A number with four digits at least, and none that a loss does not need.
export function written(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return String(value);
  const digits = Math.abs(value) >= 1000 || Number.isInteger(value) ? { maximumFractionDigits: 0 } : { maximumSignificantDigits: 4 };
  return value.toLocaleString("en", digits);
}

// A number of bytes, or of bytes a second.
export function size(bytes) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let k = 0;
  for (; bytes >= 999.5 && k < units.length - 1; k += 1) bytes /= 1000;
  return `${k ? bytes.toPrecision(3).replace(/\.0+$/, "") : Math.round(bytes)} ${units[k]}`;
}

// Cells are text; of the first column headings.
export function table(columns, rows, caption = "") {
  return make("table", { tabindex: "0" }, ...(caption ? [make("caption", {}, caption)] : []),
    make("thead", {}, make("tr", {}, ...columns.map((name) => make("th", { scope: "col", class: "number" }, name)))),
    make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((cell, k) => make(k ? "td" : "th", { scope: k ? null : "row", class: "number" }, cell))))));
}
