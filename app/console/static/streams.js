// The table of the streams of a run, with how fast each comes.
import { at, make, state } from "./api.js";
import { size, written } from "./tables.js";
import { fileOf } from "./upload.js";

const MOST = 300; // rows; a run may have ten thousand streams, and pages list them
const WINDOW = 3000; // milliseconds that a speed is of
const body = document.querySelector("#streams tbody");
const measured = new Map(); // [time, bytes, events] of each stream, of the last seconds

function speeds({ id, offset, events }) {
  const now = performance.now();
  const seen = measured.get(id) ?? [];
  seen.push([now, offset, events]);
  while (seen.length > 2 && now - seen[1][0] > WINDOW) seen.shift();
  measured.set(id, seen);
  const [then, bytes, before] = seen[0];
  const seconds = (now - then) / 1000;
  if (seconds < 0.2 || offset <= bytes) return ["", ""];
  return [size((offset - bytes) / seconds), written(Math.round((events - before) / seconds))];
}

function faultOf({ fault }) {
  if (!fault) return [];
  const parts = [fault.detail, fault.event !== undefined && `event ${fault.event}`, fault.offset !== undefined && `offset ${written(fault.offset)}`];
  const link = fault.code ? [" ", make("a", { href: at(`/problems/${encodeURIComponent(fault.code)}`) }, fault.code)] : [];
  return [parts.filter(Boolean).join(" · "), ...link];
}

const rowOf = (stream) => document.getElementById(`stream-${stream.id}`);

// Draws a stream: its row is made where there is none and still room for one.
export function draw(stream, act) {
  let row = rowOf(stream);
  if (!row) {
    if (body.rows.length >= MOST || state.get("after")) return;
    row = make("tr", { id: `stream-${stream.id}` }, make("th", { scope: "row", class: "number" }, String(stream.partition)), ...Array.from({ length: 7 }, () => make("td")));
    [2, 3, 4, 5].forEach((k) => row.cells[k].classList.add("number"));
    const next = [...body.rows].find((other) => parseInt(other.cells[0].textContent, 10) > stream.partition);
    body.insertBefore(row, next ?? null);
  }
  const [name] = row.cells, file = fileOf(stream.id);
  if (file && !name.childElementCount) name.append(make("div", { class: "faint" }, file));
  const [perSecond, events] = stream.state === "uploading" ? speeds(stream) : ["", ""];
  const whole = stream.length === null ? "" : ` of ${written(stream.length)}`;
  const values = [
    [make("span", { class: `state ${stream.state}` }, stream.state)], [`${written(stream.offset)}${whole}`],
    [perSecond], [written(stream.events)], [events], faultOf(stream), act(stream),
  ];
  values.forEach((value, k) => {
    const cell = row.cells[k + 1];
    const before = make("div", {}, ...value);
    if (cell.innerHTML !== before.innerHTML) cell.replaceChildren(...before.childNodes);
  });
  document.getElementById("no-streams").hidden = true;
}

export function remove(id) {
  rowOf({ id })?.remove();
  measured.delete(id);
}

// Speeds of what has stopped are not left standing.
export function fade() {
  const now = performance.now();
  for (const [id, seen] of measured) {
    if (now - seen.at(-1)[0] < WINDOW) continue;
    measured.delete(id);
    const cells = rowOf({ id })?.cells;
    if (cells) [cells[3].textContent, cells[5].textContent] = ["", ""];
  }
}
