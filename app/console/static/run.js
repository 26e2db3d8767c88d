// The page of a run: how far it has come, as it comes.
import { answersAgain, json, make, numbersOf, post, request, show } from "./api.js";
import { isSure } from "./deleting.js";
import { watch } from "./progress.js";
import { offerRows } from "./rows.js";
import { draw, fade, remove } from "./streams.js";
import { written } from "./tables.js";
import { drop, isTransferring, offerUploads, recall } from "./upload.js";

const page = document.getElementById("run").dataset;
const path = `/v1/runs/${encodeURIComponent(page.run)}`;
const element = (id) => document.getElementById(id);
const problem = element("problem");
const offline = element("offline");
const badge = element("state");
const OPEN = ["created", "uploading", "failed"];
const streams = new Map();
let described = null;
let asked = "";

// -- what the run lacks --------------------------------------------------------------

function lacks() {
  const all = [...streams.values()];
  const wanted = Number(page.partitions) || 0;
  const open = all.filter((stream) => stream.state !== "complete");
  const said = [
    ...(described?.missing_inputs ?? []).map((name) => `the input ${name}`),
    ...(wanted > all.length ? [`${wanted - all.length} of ${wanted} partitions`] : []),
    ...open.slice(0, 5).map((stream) => `partition ${stream.partition}, which ${stream.state === "failed" ? "is faulty: delete it" : "is not complete"}`),
    ...(open.length > 5 ? [`${open.length - 5} others`] : []),
    ...(all.length || wanted ? [] : ["a stream"]),
  ];
  const numbers = all.map((stream) => stream.partition).sort((a, b) => a - b);
  const gap = numbers.findIndex((number, k) => number !== k + 1);
  element("lacks").textContent = said.length ? `Still missing: ${said.join("; ")}.` : gap < 0 ? "Nothing is missing." : `No partition ${gap + 1}: is a file missing?`;
  element("seal").disabled = said.length > 0;
}

// Inputs and the like are not in events: they are asked for when something else changes.
async function describe() {
  described = await json(path);
  element("inputs").textContent = Object.keys(described.inputs).join(", ") || "none";
  element("notes").replaceChildren(...described.notes.map((note) => make("p", { class: "note" }, note)));
  const periods = element("return-periods");
  if (periods) periods.placeholder = described.inputs.return_periods ? "those of the uploaded file" : "none: every point of a curve";
  if (element("uploads")) lacks();
}

function count() {
  const states = [...streams.values()].map((stream) => stream.state);
  const of = (state) => states.filter((each) => each === state).length;
  const complete = of("complete"), failed = of("failed");
  const rest = states.length - complete - failed;
  element("streams-count").textContent = `${complete} complete${page.partitions && ` of ${page.partitions}`}${rest ? `, ${rest} not yet` : ""}${failed ? `, ${failed} failed` : ""}`;
}

// -- what happens --------------------------------------------------------------------

function act(stream) {
  if (!element("uploads") || (isTransferring(stream.id) && stream.state !== "failed")) return [];
  const removal = make("button", { class: "plain", "data-delete": stream.id, "aria-label": `Delete the stream of partition ${stream.partition}` }, "Delete");
  if (stream.state === "complete" || stream.state === "failed") return [removal];
  return [make("button", { class: "plain", "data-again": stream.id }, `Choose ${recall(stream.id) ?? "its file"} again`), " ", removal];
}

function changed(event) {
  badge.textContent = event.sealing ? `${event.state}: ${event.sealing.done} of ${event.sealing.total}` : event.state;
  badge.className = `state ${event.state}`;
  element("bytes").textContent = written(event.bytes);
  element("events").textContent = written(event.events);
  for (const stream of event.streams) {
    streams.set(stream.id, stream);
    draw(stream, act);
  }
  const present = new Set(event.streams.map((stream) => stream.id));
  const gone = event.whole ? [...streams.keys()].filter((id) => !present.has(id)) : event.deleted;
  for (const id of gone) { streams.delete(id); remove(id); }
  count();
  // What the page offers is another in another kind of state.
  const kind = (state) => (OPEN.includes(state) ? "open" : state);
  if (kind(event.state) !== kind(page.state) || (event.state === "failed") !== (page.state === "failed")) { location.reload(); return; }
  const now = [event.state, ...[...streams.values()].map((stream) => `${stream.id} ${stream.state}`)].join();
  if (now !== asked) { asked = now; describe().catch(() => {}); }
  if (element("uploads")) lacks();
}

const watching = watch(page.run, {
  changed,
  offline(seconds) {
    offline.hidden = !seconds;
    if (!seconds) answersAgain(problem);
    else offline.textContent = `The service does not answer. What you see may be old; trying again in ${seconds} s.`;
  },
  refused(error) {
    show(problem, error);
    if (error.status === 404 || error.status === 410) problem.prepend("This run is gone: ");
    element("uploads")?.remove();
    offline.hidden = true;
  },
});
setInterval(fade, 1000);

const uploads = element("uploads") && offerUploads({
  path,
  // Other things than streams are in no event.
  changed: () => { asked = ""; watching.again(); },
});

if (uploads) {
  const taking = (take) => (files) => { problem.hidden = true; take(files); };
  drop("streams", taking(uploads.addStreams));
  drop("inputs", taking(uploads.addInputs));
}

// -- what is done --------------------------------------------------------------------

async function attempt(work) {
  problem.hidden = true;
  try {
    await work();
  } catch (error) {
    show(problem, error);
    const faulty = error.streams ?? [];
    if (faulty.length > 1) for (const each of faulty) problem.append(make("br"), `Partition ${each.partition}: ${each.reason ?? ""} ${each.remedy ?? each.hint ?? ""}`);
  }
  watching.again();
}

element("streams").addEventListener("click", ({ target }) => {
  const { delete: id, again } = target.dataset;
  if (id && isSure(target, "Really?")) attempt(() => request(`${path}/streams/${encodeURIComponent(id)}`, { method: "DELETE" }));
  if (again) chooseAgain(again);
});
element("seal")?.addEventListener("click", () => {
  const input = element("return-periods");
  if (input && !input.reportValidity()) return;
  const given = input && input.value !== input.defaultValue, periods = numbersOf(input?.value ?? "");
  attempt(() => post(`${path}/seal`, given ? { options: { return_periods: periods.length ? periods : null } } : {}));
});

function chooseAgain(stream) {
  const input = make("input", { type: "file", onchange: () => { problem.hidden = true; uploads.addAgain(stream, input.files[0], problem); } });
  input.click();
}

offerRows(page.run);
if (element("uploads")) element("uploads").hidden = false;
if (page.state === "done") await import("./curves.js");
