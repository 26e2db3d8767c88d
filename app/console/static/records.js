// Packed records of a report, read as they come: never all of them at once.
import { Problem, request } from "./api.js";

// How numbers of a type are read, and their bytes.
const { getUint8, getInt8, getUint16, getInt16, getUint32, getInt32, getBigUint64, getBigInt64, getFloat32, getFloat64 } = DataView.prototype;
export const READERS = {
  u1: [getUint8, 1], i1: [getInt8, 1], b1: [getUint8, 1], u2: [getUint16, 2], i2: [getInt16, 2], u4: [getUint32, 4], i4: [getInt32, 4],
  u8: [getBigUint64, 8], i8: [getBigInt64, 8], f4: [getFloat32, 4], f8: [getFloat64, 8],
};

// The layout that Thalweg-Dtype tells: [["SummaryId", "<i4"], …].
function layout(text) {
  let offset = 0;
  const fields = JSON.parse(text).map(([name, type]) => {
    const [get, size] = READERS[type.slice(1)];
    const from = offset;
    offset += size;
    return { name, read: (view, at) => Number(get.call(view, at + from, true)) };
  });
  return { fields, size: offset };
}

// A report that is being computed is asked for again until it is there.
export async function answered(path, signal, onWait) {
  for (;;) {
    const response = await request(path, { signal });
    if (response.status !== 202) return response;
    onWait?.(await response.json());
    await new Promise((done) => { setTimeout(done, 1000); });
    signal?.throwIfAborted();
  }
}

// Calls take(values) with the named fields of each record, always the same array; returns the bytes read.
export async function readRecords(path, names, take, { signal, onWait, most = Infinity } = {}) {
  const response = await answered(path, signal, onWait);
  const { fields, size } = layout(response.headers.get("Thalweg-Dtype"));
  const read = names.map((name) => fields.find((field) => field.name === name).read);
  const values = new Array(names.length);
  const reader = response.body.getReader();
  let rest = new Uint8Array(0);
  let bytes = 0;
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    bytes += value.length;
    if (bytes > most) {
      await reader.cancel();
      throw new Problem(0, { detail: `The report has more than ${most >> 20} MiB of points here.`, hint: "Compute it at return periods of your choice, below." });
    }
    const data = new Uint8Array(rest.length + value.length);
    data.set(rest);
    data.set(value, rest.length);
    const view = new DataView(data.buffer);
    let at = 0;
    for (; at + size <= data.length; at += size) {
      for (let k = 0; k < read.length; k += 1) values[k] = read[k](view, at);
      take(values);
    }
    rest = data.subarray(at);
  }
  if (rest.length) throw new Problem(0, { detail: "The report was cut.", hint: "Load the page again." });
  return bytes;
}

export async function readLines(path, options = {}) {
  const response = await answered(path, options.signal, options.onWait);
  return (await response.text()).split("\n").filter(Boolean).map((line) => JSON.parse(line));
}
