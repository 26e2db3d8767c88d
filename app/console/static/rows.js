// Rows of a run as they come, on demand: the last few of them, and how many there were.
import { request, show } from "./api.js";
import { table, written } from "./tables.js";

const LAST = 50;
const DRAW = 250; // milliseconds between two drawings
const said = document.getElementById("rows-said");
const place = document.getElementById("rows-table");
const button = document.getElementById("show-rows");
const choice = document.getElementById("row-report");
let reading = null;

// Lines of a body; the rest of one that was cut is dropped.
async function* lines(body) {
  let rest = "";
  for await (const text of body.pipeThrough(new TextDecoderStream())) {
    const parts = (rest + text).split("\n");
    rest = parts.pop();
    yield parts.filter(Boolean).map((line) => JSON.parse(line));
  }
}

// A page that is not seen holds no connection.
async function seen() {
  while (document.hidden) await new Promise((done) => { document.addEventListener("visibilitychange", done, { once: true }); });
}

async function* bodies(run, report, signal) {
  let after = "";
  for (let wait = 1; ; wait = Math.min(2 * wait, 15)) {
    const query = new URLSearchParams({ format: "ndjson", follow: "true", ...(after && { after }) });
    const left = new AbortController();
    const leave = () => { if (document.hidden) left.abort(); };
    document.addEventListener("visibilitychange", leave);
    try {
      await seen();
      const both = AbortSignal.any([signal, left.signal]);
      const response = await request(`/v1/runs/${encodeURIComponent(run)}/rows/${report}?${query}`, { signal: both });
      yield { open: true };
      for await (const some of lines(response.body)) {
        wait = 1;
        for (const line of some) {
          if (line.checkpoint) after = line.checkpoint.token;
          yield line;
          if (line.end || line.error) return;
        }
      }
    } catch (error) {
      if (signal.aborted || !(left.signal.aborted || error instanceof TypeError)) throw error;
      said.textContent = left.signal.aborted ? "" : "The service does not answer; trying again.";
    } finally {
      document.removeEventListener("visibilitychange", leave);
    }
    // Rows after the last checkpoint come again.
    yield { cut: true };
    await new Promise((done) => { setTimeout(done, wait * 1000); });
    signal.throwIfAborted();
  }
}

async function read(run, report, signal) {
  let [kept, unsure, count, ending, drawn] = [[], [], 0, "", ""];
  const began = performance.now();
  const draw = () => {
    if (drawn === `${count} ${ending}`) return;
    drawn = `${count} ${ending}`;
    const rows = [...kept, ...unsure].slice(-LAST);
    const rate = written(Math.round(count / Math.max((performance.now() - began) / 1000, 0.1)));
    said.textContent = `${written(count)} rows, ${rate} per second${ending && ` · ${ending}`}`;
    if (rows.length) place.replaceChildren(table(Object.keys(rows.at(-1)), rows.map((row) => Object.values(row).map(written)), `The last ${rows.length} rows of ${report}`));
  };
  const timer = setInterval(draw, DRAW);
  try {
    for await (const line of bodies(run, report, signal)) {
      if (line.checkpoint) {
        kept = [...kept, ...unsure].slice(-LAST);
        unsure = [];
      } else if (line.open) {
        drawn = ""; // in place of what was said of the connection
      } else if (line.cut) {
        count -= unsure.length;
        unsure = [];
      } else if (line.error) {
        ending = `ended: ${line.error.detail}`;
      } else if (line.end) {
        ending = line.end.reason;
      } else {
        unsure.push(line);
        count += 1;
      }
    }
  } finally {
    clearInterval(timer);
    draw();
  }
}

export function offerRows(run) {
  document.getElementById("rows").hidden = false;
  button.addEventListener("click", async () => {
    if (reading) { reading.abort(); return; }
    reading = new AbortController();
    button.textContent = "Stop";
    said.textContent = "Waiting for rows …";
    try {
      await read(run, choice.value, reading.signal);
    } catch (error) {
      if (error.name !== "AbortError") show(said, error);
    }
    reading = null;
    button.textContent = `Show the last ${LAST} rows`;
  });
}
