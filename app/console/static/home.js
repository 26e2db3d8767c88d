// The first page: throughput while it is looked at, and samples to try the service with.
import { answersAgain, at, json, post, request, show } from "./api.js";
import { offerDrop, upload } from "./dropping.js";
import { size } from "./tables.js";

const find = (id) => document.getElementById(id);
const problem = find("problem");
const EVERY = 2000;
const COUNTERS = {
  requests: ["thalweg_requests_total"],
  received: ["thalweg_body_bytes_total", "thalweg_upload_bytes_total"],
  sent: ["thalweg_answer_bytes_total"],
};

// Adds up the counters of a page of metrics.
function sums(text) {
  const found = { requests: 0, received: 0, sent: 0 };
  for (const line of text.split("\n")) {
    const name = line.slice(0, line.search(/[{ ]/));
    for (const [key, names] of Object.entries(COUNTERS)) {
      if (names.includes(name)) found[key] += Number(line.slice(line.lastIndexOf(" ") + 1));
    }
  }
  return found;
}

let before = null;
async function poll() {
  if (document.hidden) { before = null; return; }
  try {
    const text = await (await request("/metrics")).text();
    const now = { at: performance.now(), ...sums(text) };
    if (before) {
      const seconds = (now.at - before.at) / 1000;
      for (const key of Object.keys(COUNTERS)) {
        find(key).textContent = (key === "requests" ? (n) => n.toFixed(1) : size)(Math.max(now[key] - before[key], 0) / seconds);
      }
    }
    before = now;
    const ready = await fetch(at("/readyz"));
    answersAgain(problem);
    find("health").textContent = ready.ok ? "ready" : (await ready.json()).reasons.join("; ");
  } catch (error) {
    before = null;
    find("health").textContent = error.status === 401 ? "sign in again" : "no answer";
  }
}
const buttons = ["try-run", "try-scan"].map(find).filter(Boolean);
function step(value, text) {
  const place = find("progress");
  place.hidden = false;
  place.querySelector("progress").value = value;
  place.querySelector("span").textContent = text;
}

function offer(button, act) {
  if (!button) return;
  button.disabled = false;
  button.addEventListener("click", async () => {
    problem.hidden = true;
    for (const each of buttons) each.disabled = true;
    try {
      location.href = at(await act());
    } catch (error) {
      show(problem, error);
      find("progress").hidden = true;
    } finally {
      for (const each of buttons) each.disabled = false;
    }
  });
}

async function tryRun() {
  step(1, "Fetching the sample");
  const files = await Promise.all(["stream.bin", "occurrence.bin"].map(async (name) => new File([await (await request(`/console/samples/${name}`)).blob()], name)));
  step(3, "Uploading it to a run");
  return upload(files.slice(0, 1), files.slice(1), { seal: true });
}

async function tryScan() {
  step(1, "Writing the file");
  const spec = await (await request("/console/samples/scan", { method: "POST" })).json();
  step(3, "Registering the dataset");
  const dataset = await (await post("/v1/datasets", spec)).json();
  step(5, "Done");
  return `/console/datasets/${encodeURIComponent(dataset.id)}`;
}

// Commands about a dataset that there is.
async function nameDataset() {
  const { datasets } = await json("/v1/datasets?limit=1");
  if (!datasets.length) return;
  const line = find("tiles-line");
  const { address, authorization } = line.dataset;
  const path = encodeURIComponent(datasets[0]).replaceAll("'", "%27");
  line.textContent = `curl -sS --fail-with-body ${authorization}${address}/v1/datasets/${path}\ncurl -sSf ${authorization}${address}/v1/datasets/${path}/image.png -o sum.png`;
  const stages = [{ op: "source", dataset: datasets[0] }, { op: "permute", seed: 7 }, { op: "batch", size: 4 }];
  const spec = JSON.stringify({ order: 1, stages }).replaceAll("'", "'\\''");
  find("batches-line").textContent = `curl -sS --fail-with-body ${authorization}${address}/v1/pipelines -d '${spec}'`;
}

offerDrop();
offer(find("try-run"), tryRun);
offer(find("try-scan"), tryScan);
if (!("stranger" in find("live").dataset)) {
  setInterval(poll, EVERY);
  document.addEventListener("visibilitychange", poll);
  poll();
  nameDataset().catch(() => {});
}
