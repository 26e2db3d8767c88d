// Files that are dropped on the first page: losses are uploaded to a run of their own, and what is to
// be registered is looked for below the dataset roots.
import { at, json, make, numbersOf, post, show } from "./api.js";
import { areOver, drop, kindOf, offerUploads } from "./upload.js";

const find = (id) => document.getElementById(id);
const KINDS = { 1: "gul", 2: "il", 3: "" }; // perspectives of streams of items, by their fourth byte
const registering = (path) => at(`/console/datasets?${new URLSearchParams({ files: path })}#register`);
let uploads = null; // to the run, once there is one

// The fourth byte of a loss stream is its kind; 0 of other files.
async function kindOfStream(file) {
  const [version = 0, ...rest] = new Uint8Array(await file.slice(0, 4).arrayBuffer());
  return version && version < 9 && rest.length === 3 && !rest[0] && !rest[1] && rest[2] in KINDS ? rest[2] : 0;
}

// Makes a run of streams and of what lies beside them; returns its page once all of it is sent.
export async function upload(streams, inputs, { seal, perspective = find("perspective").value, options } = {}) {
  const run = await (await post("/v1/runs", { perspective, reports: ["aal", "ept", "melt"], options: options ?? {} })).json();
  const path = `/v1/runs/${encodeURIComponent(run.id)}`, page = `/console/runs/${encodeURIComponent(run.id)}`;
  find("made").querySelector("a").href = at(page);
  find("made").hidden = false;
  await new Promise((done) => {
    // A transfer is over a little after it has said so.
    const changed = () => setTimeout(() => { if (areOver()) done(); }, 100);
    uploads = offerUploads({ path, known: () => new Map(), options: () => ({}), changed });
    uploads.addInputs(inputs);
    uploads.addStreams(streams);
  });
  if (seal) await post(`${path}/seal`, {});
  return page;
}

const tell = (name, ...said) => find("unknown").append(make("li", { class: "failed" }, make("strong", {}, name), ...said));

async function explain(file, present) {
  if (present.includes(file.name)) {
    tell(file.name, "lies below the dataset roots:", make("a", { href: registering(file.name) }, "register it"));
  } else if (kindOf(file)) {
    tell(file.name, `is named like ${kindOf(file)}, which belongs to a run: drop it together with the loss streams.`);
  } else {
    tell(file.name, "is no loss stream. If it is of a detector, it is not uploaded: put it below the dataset roots, and register its path.");
  }
}

const fail = (error) => show(find("problem"), error);

async function take(files, text) {
  find("unknown").replaceChildren();
  if (!files.length && text.trim()) { location.href = registering(text.trim()); return; }
  try {
    const kinds = await Promise.all(files.map((file) => kindOfStream(file).catch(() => NaN)));
    const streams = files.filter((_file, k) => kinds[k]);
    files.filter((_file, k) => Number.isNaN(kinds[k])).forEach((file) => tell(file.name, "cannot be read: folders are not taken, the files in them are."));
    const others = files.filter((_file, k) => kinds[k] === 0);
    const inputs = streams.length || uploads ? others.filter(kindOf) : [];
    const kind = KINDS[kinds.find((each) => each)];
    const options = { return_periods: numbersOf(find("drop-files").dataset.periods) };
    if (uploads) { uploads.addInputs(inputs); uploads.addStreams(streams); }
    else if (streams.length) upload(streams, inputs, { ...(kind && { perspective: kind }), options }).then((page) => { location.href = at(page); }, fail);
    const unknown = others.filter((file) => !inputs.includes(file));
    if (!unknown.length) return;
    const listed = await json("/console/files").catch(() => ({ entries: [] }));
    const present = listed.entries.map(({ name }) => name);
    for (const file of unknown) explain(file, present);
  } catch (error) { fail(error); }
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
}
