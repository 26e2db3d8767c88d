// Pipelines: batches looked at, and what a token says.
import { at, make, post, request, show, state, whenColoured } from "./api.js";
import { read } from "./arrays.js";
import { digits, limits } from "./image.js";
import { ofBatches, showLines } from "./lines.js";
import { READERS } from "./records.js";
import { table } from "./tables.js";

const find = (id) => document.getElementById(id);
const MOST = 8; // items, and numbers of each, that are shown
const RESUMED = 3; // batches that are read twice
const EDGE = 96; // pixels of a picture

// Reads some numbers of an array, from an element on.
function numbers(view, array, from, count) {
  const reader = typeof array.dtype === "string" && READERS[array.dtype.slice(1)];
  if (!reader) return null;
  const [get, size] = reader;
  const little = array.dtype[0] !== ">";
  return Array.from({ length: count }, (_, k) => Number(get.call(view, array.offset + (from + k) * size, little)));
}

const product = (shape) => shape.reduce((all, one) => all * one, 1);

// Draws a frame in grey between its 1st and 99th percentile.
function picture(values, [height, width], label) {
  const [low, high] = limits(values, { low: 1, high: 99 });
  const canvas = make("canvas", { width, height, class: "frame", role: "img", "aria-label": label });
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  values.forEach((value, k) => {
    const grey = Math.min(Math.max((value - low) / (high - low || 1), 0), 1) * 255;
    image.data.set([grey, grey, grey, 255], 4 * k);
  });
  context.putImageData(image, 0, 0);
  canvas.style.width = canvas.style.height = `${EDGE}px`;
  return canvas;
}

// One item of an array, as a picture, a text or numbers.
function item(view, array, index, title) {
  const shape = array.shape.slice(1);
  const size = product(shape);
  if (shape.length === 2 && shape[0] > 3 && shape[1] > 3 && size <= 1 << 18) {
    const values = numbers(view, array, index * size, size);
    if (values) {
      const [low, high] = values.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]);
      return [picture(values, shape, title), make("br"), `${digits(low)} … ${digits(high)}`];
    }
  }
  const values = numbers(view, array, index * size, Math.min(size, MOST));
  if (!values) return [String(array.dtype)];
  return [values.map(digits).join(", ") + (size > MOST ? ", …" : "")];
}

// Rows of a ragged field: texts where its values are octets.
function raggedItem(view, values, offsets, index) {
  const [start, stop] = numbers(view, offsets, index, 2);
  if (values.dtype === "|u1") {
    const octets = new Uint8Array(view.buffer, view.byteOffset + values.offset + start, Math.min(stop - start, 200));
    return [new TextDecoder().decode(octets)];
  }
  const found = numbers(view, values, start, Math.min(stop - start, MOST)) ?? [];
  return [found.map(digits).join(", ") + (stop - start > MOST ? ", …" : "")];
}

function draw({ header, view }) {
  const named = new Map(header.arrays.map((array) => [array.name, array]));
  const fields = header.arrays.filter((array) => !(array.name.endsWith(".offsets") && named.has(array.name.slice(0, -8))));
  const rows = [];
  for (let k = 0; k < Math.min(header.count, MOST); k += 1) {
    const cells = fields.map((array) => {
      const offsets = named.get(`${array.name}.offsets`);
      const parts = offsets ? raggedItem(view, array, offsets, k) : item(view, array, k, `${array.name} of item ${k}`);
      return make("td", {}, ...parts);
    });
    rows.push(make("tr", {}, make("th", { scope: "row" }, String(k)), ...cells));
  }
  const heads = fields.map((a) => make("th", { scope: "col" }, `${a.name} ${a.dtype} [${a.shape.slice(1).join(" × ")}]`));
  const head = make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "Item"), ...heads));
  const more = header.count > MOST ? `, the first ${MOST} shown` : "";
  find("batch-shown").replaceChildren(
    make("p", {}, `Batch ${header.seq} of epoch ${header.epoch}: ${header.count} items${more}. The token after it: `, make("code", {}, header.token)),
    make("table", { tabindex: "0" }, head, make("tbody", {}, ...rows)),
  );
}

const MARK = 2; // pixels of an item in the picture of the order

// Draws where items are in the data, by their order: a line where they come as they lie, a cloud where not.
function order() {
  const canvas = find("order");
  if (!canvas) return;
  const places = [...find("places").tBodies[0].rows].flatMap((row) => row.cells[1].textContent.split(", ").map(Number));
  const most = Math.max(...places, 1), context = canvas.getContext("2d");
  canvas.hidden = false;
  whenColoured(() => {
    context.clearRect(0, 0, canvas.width, canvas.height);
    context.fillStyle = getComputedStyle(canvas).color;
    places.forEach((place, k) => context.fillRect((k / places.length) * (canvas.width - MARK), (1 - place / most) * (canvas.height - MARK), MARK, MARK));
  });
}

// Reads some batches twice, counted from the beginning and from the token of the one before, and
// compares all bytes of their arrays.
async function resume(fetched, seq, token) {
  const rows = [];
  for (let k = 1; k <= RESUMED; k += 1) {
    let pair;
    try {
      pair = await Promise.all([fetched({ offset: seq + k }), fetched({ after: token })]);
    } catch (error) {
      if (error.status === 416) break;
      throw error;
    }
    const [one, other] = pair.map(({ view }) => new Uint8Array(view.buffer, view.byteOffset));
    const same = one.length === other.length && one.every((byte, i) => byte === other[i]);
    rows.push([String(seq + k), `${token.slice(0, 12)}…`, one.length.toLocaleString("en"), same ? "the same" : "not the same"]);
    token = pair[1].header.token;
  }
  find("resumed").replaceChildren(rows.length ? table(["Batch", "From the token", "Bytes", "As counted from the beginning"], rows, "Each is read twice: counted from the beginning, and from the token of the one before.") : "No batch follows.");
}

function batches() {
  const form = find("batch-form");
  if (!form) return;
  const { id, batches: count } = form.dataset;
  let shown = null; // the header of the batch that is seen
  async function fetched(query) {
    const path = `/v1/pipelines/${encodeURIComponent(id)}/batch?${new URLSearchParams(query)}`;
    const response = await request(path, { headers: { Accept: "application/vnd.thalweg.frames" } });
    const { value: { header, payload } } = await read(response).next();
    return { header, view: new DataView(payload.buffer) };
  }
  async function look(query) {
    find("batch-problem").hidden = true;
    find("resumed").replaceChildren();
    try {
      const frame = await fetched(query);
      draw(frame);
      shown = frame.header;
      find("batch").value = shown.seq;
      find("token").value = shown.token;
      find("next-batch").disabled = find("prove").disabled = false;
      state.set({ batch: shown.seq });
      find("lines").replaceChildren();
      showLines(find("lines"), `Batch ${shown.seq} and those after it`, ofBatches(location.origin + at(""), id, shown, "keyed" in form.dataset));
      find("taking").hidden = false;
    } catch (error) {
      find("batch-shown").replaceChildren();
      if (error.status === 416) {
        error.message = count ? `The last batch is number ${count - 1}.` : "No such batch follows.";
        error.hint = "";
      }
      show(find("batch-problem"), error);
    }
  }
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    look({ offset: find("batch").value });
  });
  find("next-batch").addEventListener("click", () => look({ after: shown.token }));
  find("prove").addEventListener("click", () => resume(fetched, shown.seq, shown.token).catch((error) => show(find("batch-problem"), error)));
  form.querySelector("button").disabled = false;
  find("batch").value = state.get("batch", "0");
  look({ offset: find("batch").value });
}

function tokens() {
  const form = find("token-form");
  form.querySelector("button").disabled = false;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const table = find("token-table");
    find("token-problem").hidden = true;
    table.hidden = true;
    try {
      const said = await (await post("/v1/tokens/inspect", { token: find("token").value.trim() })).json();
      const rows = Object.entries(said).map(([name, value]) =>
        make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, make("code", {}, typeof value === "string" ? value : JSON.stringify(value)))));
      table.querySelector("tbody").replaceChildren(...rows);
      table.hidden = false;
    } catch (error) {
      show(find("token-problem"), error);
    }
  });
}

order();
tokens();
batches();
