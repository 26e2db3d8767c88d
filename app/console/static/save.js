// What a page shows, as files: tables as csv, pictures as PNG, answers of the service.
import { make } from "./api.js";

export function save(name, ...parts) {
  const href = URL.createObjectURL(new Blob(parts));
  make("a", { href, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(href), 60_000);
}

const quoted = (cell) => (/[",\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell);
export const csv = (rows) => rows.map((row) => `${row.map((cell) => quoted(String(cell ?? ""))).join(",")}\r\n`).join("");

export async function savePicture(name, canvas) {
  save(name, await new Promise((done) => { canvas.toBlob(done); }));
}

// A button that saves; a fault of `act` is told by `failed`.
export const saver = (text, act, failed, what = "") =>
  make("button", { class: "plain", type: "button", "aria-label": what ? `${what}: ${text}` : null, onclick: () => Promise.resolve().then(act).catch(failed) }, text);

// An array of rows as npy; numbers stay as they are.
export function npy(values, rows, columns) {
  const text = `{'descr': '<f${values.BYTES_PER_ELEMENT}', 'fortran_order': False, 'shape': (${rows}, ${columns}), }`;
  const head = `\x93NUMPY\x01\x00..${text.padEnd(Math.ceil((text.length + 11) / 64) * 64 - 11)}\n`;
  const bytes = Uint8Array.from(head, (letter) => letter.charCodeAt(0));
  new DataView(bytes.buffer).setUint16(8, head.length - 10, true);
  return [bytes, values];
}
