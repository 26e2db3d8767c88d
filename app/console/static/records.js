// Packed records of a report, read as they come: never all of them at once.
import { Problem, request } from "./api.js";

const READ = {
  i4: [(view, at) => view.getInt32(at, true), 4], i8: [(view, at) => Number(view.getBigInt64(at, true)), 8],
  f4: [(view, at) => view.getFloat32(at, true), 4], f8: [(view, at) => view.getFloat64(at, true), 8],
};

// The layout that Thalweg-Dtype tells: [["SummaryId", "<i4"], …].
function layout(text) {
  let offset = 0;
  const fields = JSON.parse(text).map(([name, type]) => {
    const [get, size] = READ[type.slice(1)];
    const from = offset;
    offset += size;
    return { name, read: (view, at) => get(view, at + from) };
  });
  return { fields, size: offset };
}

// A report that is being computed is asked for again until it is there.
async function answered(path, signal, onWait) {
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
