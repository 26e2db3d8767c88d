// Files that are dropped on the first page: losses are uploaded to a run of their own, and what is to
// be registered is looked for below the dataset roots.
import { at, json, make, numbersOf, post, show } from "./api.js";
import { areOver, drop, forget, kindOf, offerUploads, recall, remember } from "./upload.js";

const find = (id) => document.getElementById(id);
const KINDS = { 1: "gul", 2: "il", 3: "" }; // perspectives of streams of items, by their fourth byte
const LEFT = "left"; // the run of an upload that did not come to its end
const registering = (path) => at(`/console/datasets?${new URLSearchParams({ files: path })}#register`);
let uploads = null; // to the run, once there is one

// The fourth byte of a loss stream is its kind; 0 of other files.
async function kindOfStream(file) {
  const [version = 0, ...rest] = new Uint8Array(await file.slice(0, 4).arrayBuffer());
  return version && version < 9 && rest.length === 3 && !rest[0] && !rest[1] && rest[2] in KINDS ? rest[2] : 0;
}

// Makes a run of streams and of what lies beside them; returns its page once all of it is sent.
export async function upload(streams, inputs, { seal, perspective = find("perspective").value, options = {} } = {}) {
  const run = await (await post("/v1/runs", { perspective, reports: ["aal", "ept", "melt"], options })).json();
  find("periods").onchange = null;
  if (seal) find("periods").value = ""; // a sample tells it
  const path = `/v1/runs/${encodeURIComponent(run.id)}`, page = `/console/runs/${encodeURIComponent(run.id)}`;
  find("made").querySelector("a").href = at(page);
  find("made").hidden = false;
  find("left").hidden = true;
  remember(LEFT, run.id);
  await new Promise((done) => {
    // A transfer is over a little after it has said so.
    const changed = () => setTimeout(() => { if (areOver()) done(); }, 100);
    uploads = offerUploads({ path, changed });
    uploads.addInputs(inputs);
    uploads.addStreams(streams);
  });
  forget(LEFT);
  if (seal) await post(`${path}/seal`, {});
  if (seal || !find("unknown").querySelector(".failed")) return page;
  find("made").lastChild.textContent = " has all that was sent, but not the files listed above.";
  return "";
}

const tell = (name, ...said) => find("unknown").append(make("li", { class: "failed" }, make("strong", {}, name), ...said));

async function explain(file, present) {
  if (present.includes(file.name)) {
    tell(file.name, "is not sent, as it lies below the dataset roots:", make("a", { href: registering(file.name) }, "register it"));
  } else if (kindOf(file)) {
    tell(file.name, `is not sent: named like ${kindOf(file)}, it belongs to a run. Drop it together with the loss streams.`);
  } else {
    tell(file.name, "is not sent: it is no loss stream, nor named like a file that goes with one. If it is of a detector, put it below the dataset roots, and register its path.");
  }
}

const fail = (error) => show(find("problem"), error);

async function take(files, text) {
  if (!uploads) find("unknown").replaceChildren();
  find("problem").hidden = true;
  if (!files.length && text.trim()) { location.href = registering(text.trim()); return; }
  try {
    const kinds = await Promise.all(files.map((file) => kindOfStream(file).catch(() => NaN)));
    const streams = files.filter((_file, k) => kinds[k]);
    files.filter((_file, k) => Number.isNaN(kinds[k])).forEach((file) => tell(file.name, "cannot be read."));
    const others = files.filter((_file, k) => kinds[k] === 0);
    // Of a file in two forms, one is enough: the packed one tells more.
    const packed = new Set(others.filter(({ name }) => name.endsWith(".bin")).map(kindOf));
    const belonging = streams.length || uploads ? others.filter(kindOf) : [];
    const inputs = [];
    for (const file of belonging) {
      if (file.name.endsWith(".bin") || !packed.has(kindOf(file))) inputs.push(file);
      else find("unknown").append(make("li", {}, make("strong", {}, file.name), `is not sent: the packed file beside it tells more of ${kindOf(file)}.`));
    }
    const unknown = others.filter((file) => !belonging.includes(file));
    if (unknown.length) {
      const listed = await json("/console/files").catch(() => ({ entries: [] }));
      const present = listed.entries.map(({ name }) => name);
      for (const file of unknown) explain(file, present);
    }
    if (uploads) { uploads.addInputs(inputs); uploads.addStreams(streams); return; }
    if (!streams.length) return;
    const kind = KINDS[kinds.find((each) => each)];
    const options = {}, periods = find("periods"), of = (kind) => inputs.find((file) => kindOf(file) === kind);
    if (!of("return_periods")) options.return_periods = numbersOf(find("drop-files").dataset.periods);
    periods.onchange = () => { periods.onchange = null; take(files, text); };
    if (!periods.value && of("occurrence")?.name.endsWith(".csv")) {
      tell(of("occurrence").name, "needs the number of periods: fill it in above, and all is uploaded.");
      periods.focus();
      return;
    }
    if (periods.value) options.no_of_periods = periods.valueAsNumber;
    const page = await upload(streams, inputs, { ...(kind && { perspective: kind }), options });
    if (page) location.href = at(page);
  } catch (error) { fail(error); }
}

// Leads to the run of an upload that a reload has cut off.
async function remind() {
  const run = recall(LEFT);
  if (!run) return;
  const { state } = await json(`/v1/runs/${encodeURIComponent(run)}`);
  if (!["created", "uploading", "failed"].includes(state)) return;
  find("left").querySelector("a").href = at(`/console/runs/${encodeURIComponent(run)}`);
  find("left").hidden = uploads !== null;
}

export function offerDrop() {
  const area = find("drop-files");
  if (!area) return;
  drop("files", take);
  area.querySelector("form").addEventListener("submit", (event) => {
    event.preventDefault();
    take([], event.target.elements.path.value);
  });
  area.hidden = false;
  remind().catch(({ status }) => status === 404 && forget(LEFT));
}
