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
export const saver = (text, act, failed) =>
  make("button", { class: "plain", type: "button", onclick: () => Promise.resolve().then(act).catch(failed) }, text);
