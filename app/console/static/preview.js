// A small copy of a scan, in which positions and pixels are summed in blocks. It shows what a detector
// sees while that moves; the exact image follows from the service.
import { tiles } from "./arrays.js";
import { covers } from "./detector.js";

const MOST = 1 << 24; // values of a copy, of 4 bytes: 64 MiB
const FINE = 64; // pixels of a frame of the copy along an axis, at most
const COARSE = 24; // and below which positions are summed rather than pixels

// The blocks of a copy that keeps its bound, {nav, sig, size}; null if there are none. Blocks are
// squares, so none is longer than the shortest axis; those of positions at most `most`.
export function blocks(scan, frame, most) {
  const least = Math.min(...frame);
  let nav = 1, sig = Math.min(least, Math.ceil(Math.max(...frame) / FINE));
  for (;;) {
    const size = [...scan.map((n) => Math.max(1, Math.floor(n / nav))), ...frame.map((n) => Math.floor(n / sig))];
    if (size.reduce((a, b) => a * b) <= MOST) return { nav, sig, size };
    if (sig < least && (Math.max(...frame) / sig > COARSE || nav >= most)) sig += 1;
    else if (nav < most) nav += 1;
    else return null;
  }
}

export class Preview {
  // Asks for the copy of a plane of the scan; `corner` chooses it among the axes before. A scan of
  // one line has one row. Returns null if no copy keeps the bound.
  static async fetch(id, corner, lines, scan, frame, how) {
    const most = corner.length ? 1 : Math.min(...scan.slice(2 - lines));
    const found = blocks(scan, frame, most);
    if (!found) return null;
    const copy = Object.assign(new Preview(), found, { scan });
    const { nav, sig, size: [rows, columns, height, width] } = found;
    // By pixels, then positions: a detector adds up long stretches of memory.
    copy.values = new Float32Array(rows * columns * height * width);
    const view = {
      select: { nav: [...corner, ...[[0, rows * nav], [0, columns * nav]].slice(2 - lines)] },
      sig: [[0, height * sig], [0, width * sig]], bin: { nav, sig }, dtype: "<f4", missing: "nan",
    };
    const count = rows * columns;
    await tiles(id, view, how, ({ values, shape, origin }) => {
      const [tileRows, tileColumns, tileHeight, tileWidth] = [lines === 1 ? 1 : shape.at(-4), ...shape.slice(-3)];
      const [top, left, up, across] = [lines === 1 ? 0 : origin.at(-4), ...origin.slice(-3)];
      for (let from = 0, r = 0; r < tileRows; r += 1) {
        for (let c = 0; c < tileColumns; c += 1) {
          const at = (top + r) * columns + left + c;
          for (let y = 0; y < tileHeight; y += 1) {
            const pixel = (up + y) * width + across;
            for (let x = 0; x < tileWidth; x += 1) copy.values[(pixel + x) * count + at] = values[from + x];
            from += tileWidth;
          }
        }
      }
    });
    return copy;
  }

  get words() {
    const { nav, sig } = this;
    return `Preview from a copy of ${(this.values.byteLength / 2 ** 20).toFixed(1)} MiB, binned by ${nav} × ${nav} positions and ${sig} × ${sig} pixels`;
  }

  // How much of each pixel of the copy a detector covers: places and parts.
  weights(detector) {
    const [, , height, width] = this.size, { sig } = this;
    const places = [], parts = [];
    for (let y = 0; y < height; y += 1) {
      for (let x = 0; x < width; x += 1) {
        let count = 0;
        for (let i = 0; i < sig; i += 1) {
          for (let j = 0; j < sig; j += 1) count += covers(detector, y * sig + i, x * sig + j);
        }
        if (count) { places.push(y * width + x); parts.push(count / sig ** 2); }
      }
    }
    return { places: Int32Array.from(places), parts: Float64Array.from(parts) };
  }

  // The image of a detector, {values, rows, columns}: of every nth position of the scan, each with
  // the mean of its block.
  image(detector, every) {
    const { places, parts } = this.weights(detector);
    const [rows, columns] = this.size;
    const [down, right] = this.scan.map((n) => Math.min(n, this.nav));
    const count = rows * columns, small = new Float64Array(count);
    for (let k = 0; k < places.length; k += 1) {
      const from = places[k] * count, part = parts[k] / (down * right);
      for (let at = 0; at < count; at += 1) small[at] += this.values[from + at] * part;
    }
    const [all, across] = this.scan.map((n) => Math.ceil(n / every));
    const values = new Float64Array(all * across);
    for (let row = 0, at = 0; row < all; row += 1) {
      const up = Math.min(rows - 1, Math.floor((row * every) / down)) * columns;
      for (let column = 0; column < across; column += 1, at += 1) {
        values[at] = small[up + Math.min(columns - 1, Math.floor((column * every) / right))];
      }
    }
    return { values, rows: all, columns: across };
  }
}
