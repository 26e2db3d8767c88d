// Arrays of the service: its streams of frames, read as float arrays.
import { post, Problem } from "./api.js";

const DATA = 1, END = 3, ERROR = 4;

// The answer broke off, or the server stops: to be asked again.
export class Interrupted extends Error {}

// Yields {kind, header, payload}; the payload has a buffer of its own, so any type fits it.
export async function* read(response) {
  const reader = response.body.getReader();
  const chunks = [];
  let held = 0;
  const take = async (count) => {
    while (held < count) {
      const { done, value } = await reader.read();
      if (done) throw new Interrupted("The answer was cut.");
      chunks.push(value);
      held += value.length;
    }
    held -= count;
    const bytes = new Uint8Array(count);
    for (let at = 0; at < count;) {
      const part = chunks[0].subarray(0, count - at);
      bytes.set(part, at);
      at += part.length;
      if (part.length === chunks[0].length) chunks.shift();
      else chunks[0] = chunks[0].subarray(part.length);
    }
    return bytes;
  };
  for (;;) {
    const prefix = new DataView((await take(32)).buffer);
    const kind = prefix.getUint8(4);
    const header = JSON.parse(new TextDecoder().decode(await take(prefix.getUint32(8, true))));
    const payload = await take(Number(prefix.getBigUint64(12, true)));
    if (kind === ERROR) throw new Problem(header.problem.status, header.problem);
    if (kind === END && header.reason === "drain") throw new Interrupted("The server stops.");
    yield { kind, header, payload };
    if (kind === END) return;
  }
}

const TYPES = { "<f4": Float32Array, "<f8": Float64Array };
const floats = (header, payload) => new TYPES[header.dtype](payload.buffer);

const dataset = (id) => `/v1/datasets/${encodeURIComponent(id)}`;

// The one result of a reduction, {values, shape}. `progress` is told parts of 1.
export async function reduce(id, view, reduction, { signal, progress }) {
  const response = await post(`${dataset(id)}/reduce`, { view, reduction }, { signal });
  let result = null;
  for await (const { kind, header, payload } of read(response)) {
    if (kind === DATA) result ??= { values: floats(header, payload), shape: header.shape };
    else if (header.of) progress?.(header.done / header.of);
  }
  return result;
}

// Hands over each tile of a view as {values, shape, origin}; their dtype has to be <f4 or <f8.
export async function tiles(id, view, { signal, progress }, use) {
  const response = await post(`${dataset(id)}/tiles`, view, { signal });
  const total = Number(response.headers.get("Thalweg-Tiles"));
  for await (const { kind, header, payload } of read(response)) {
    if (kind !== DATA) continue;
    use({ values: floats(header, payload), shape: header.shape, origin: header.origin });
    progress?.((header.tile + 1) / total);
  }
}

// A float type that holds the values of another: exactly, but for integers beyond 2^53.
export const floatOf = (dtype) => (/^(.[iuf][12]|.b1|.f4)$/.test(dtype) ? "<f4" : "<f8");
