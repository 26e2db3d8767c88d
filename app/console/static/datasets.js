// The list of datasets: what each is, asked for once its row is seen; files are registered.
import { at, json, make, post, Problem, show, state } from "./api.js";

const TOGETHER = 4; // questions at a time

const shape = (lengths) => (lengths ? lengths.join(" × ") : "");
const items = (units) => Object.entries(units ?? {}).map(([unit, { count }]) => `${count.toLocaleString("en")} ${unit}s`).join(", ");

async function fill(row) {
  const cells = row.querySelectorAll("td");
  try {
    const found = await json(`/v1/datasets/${encodeURIComponent(row.dataset.id)}`);
    const bytes = found.files.reduce((sum, file) => sum + file.bytes, 0).toLocaleString("en");
    const texts = [found.format, found.nav_shape ? shape(found.nav_shape) : items(found.items), shape(found.sig_shape), found.dtype ?? "", bytes];
    texts.forEach((text, i) => { cells[i].textContent = text; });
  } catch (problem) {
    cells[0].textContent = problem instanceof Problem ? problem.message : "The service does not answer";
    cells[0].className = "faint";
  }
}

const seen = [];
let asking = 0;
async function ask() {
  if (asking === TOGETHER) return;
  asking += 1;
  while (seen.length) await fill(seen.shift());
  asking -= 1;
}

const watch = new IntersectionObserver((entries) => {
  for (const { target } of entries.filter((entry) => entry.isIntersecting)) {
    watch.unobserve(target);
    seen.push(target);
    ask();
  }
});
for (const row of document.querySelectorAll("#datasets tbody tr")) watch.observe(row);

// Registering

const section = document.querySelector("#register"), form = section.querySelector("form");
const refused = section.querySelector("#refused");
section.hidden = false;

const whole = (text) => (/^\d+$/.test(text) ? Number(text) : text);
const lengths = (text) => text.split(/[\s,×x]+/).filter(Boolean).map(whole);
const paths = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean);
const READ = { files: paths, nav_shape: lengths, sig_shape: lengths, file_header: whole };
const NAMES = { scan_step: ["z", "y", "x"], frame_step: ["w", "v", "u"] };

// Axes of "0.5 nm", or of a step for each axis, "0.5 0.25 nm"; as many as there are lengths, else two.
function axes(input, count) {
  const parts = input.value.replace(/(\d)(?=[^\d\s.,/e])/g, "$1 ").split(/[\s,]+/).filter(Boolean);
  const numbers = parts.findIndex((part) => Number.isNaN(Number(part)));
  const scales = parts.slice(0, numbers < 0 ? parts.length : numbers).map(Number);
  const unit = numbers < 0 ? "" : parts.slice(numbers).join(" ");
  if (parts.length && !(scales.length && scales.every((each) => each > 0) && [1, count].includes(scales.length))) {
    const detail = `${input.value} is no step of ${count} axes`;
    throw new Problem(0, { detail, hint: "Such as 0.5 nm; or a number for each axis, as 0.5 0.25 nm", option: input.name });
  }
  return NAMES[input.name].slice(-count).map((name, k) => ({ name, ...(scales.length && { scale: scales[k] ?? scales[0] }), ...(unit && { unit }) }));
}

function entry() {
  const values = {}, corrections = {};
  for (const input of form.querySelectorAll("[name]")) {
    const text = input.value.trim(), { name } = input;
    if (input.type === "checkbox") { if (input.checked) values[name] = true; continue; }
    if (name in NAMES || (!text && name !== "files")) continue;
    if (name.startsWith("corrections.")) corrections[name.slice(12)] = text;
    else values[name] = (READ[name] ?? String)(text);
  }
  const { scan_step: scan, frame_step: frame } = form.elements;
  if (scan.value.trim() || frame.value.trim()) {
    values.axes = [...axes(scan, values.nav_shape?.length ?? 2), ...axes(frame, values.sig_shape?.length ?? 2)];
  }
  return Object.keys(corrections).length ? { ...values, corrections } : values;
}

// The field that a problem is about.
function field({ option, path, code, detail = "" }) {
  const named = [...form.querySelectorAll("[name^=corrections]")].find(({ value }) => path && value.trim() === path);
  if (named && !paths(files.value).includes(path)) return named;
  const found = option ?? (path ? "files" : { "head-exists": "id", format: "format", "format-ambiguous": "format" }[code] ?? detail.split(" ")[0]);
  const name = found.startsWith("axes") ? "scan_step" : found.startsWith("corrections") ? found : found.split(".")[0];
  return form.querySelector(`[name="${CSS.escape(name)}"]`);
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = form.querySelector("button:not([type])");
  for (const input of form.querySelectorAll("[aria-invalid]")) {
    input.removeAttribute("aria-invalid");
    input.removeAttribute("aria-describedby");
  }
  refused.hidden = true;
  button.disabled = true;
  try {
    const { id } = await (await post("/v1/datasets", entry())).json();
    location.assign(at(`/console/datasets/${encodeURIComponent(id)}`));
  } catch (problem) {
    show(refused, problem, form);
    const input = field(problem);
    if (input) input.closest(".field").append(refused); else form.querySelector(".cards").after(refused);
    input?.setAttribute("aria-invalid", "true");
    input?.setAttribute("aria-describedby", "refused");
    (input ?? refused).focus();
  } finally {
    button.disabled = false;
  }
});

// A name for the dataset, until one is typed: that of its first file.
const { files, id } = form.elements;
let typed = false;
id.addEventListener("input", () => { typed = id.value !== ""; });
function suggest() {
  if (typed) return;
  const last = (paths(files.value)[0] ?? "").split("/").pop().replace(/[*?[\]]/g, "");
  const name = last.replace(/(.)\.[^.]*$/, "$1").replace(/[^A-Za-z0-9._-]+/g, "-").replace(/^[^A-Za-z0-9]+|-+$/g, "").slice(0, 120);
  const taken = new Set([...document.querySelectorAll("[data-id]")].map((row) => row.dataset.id));
  id.value = name;
  for (let k = 2; taken.has(id.value); k += 1) id.value = `${name}-${k}`;
}
files.addEventListener("input", suggest);

// Files below the roots, to be chosen from.
const browse = section.querySelector("#browse"), list = browse.querySelector("ul"), target = browse.querySelector("#target");
const entryOf = (text, onclick) => make("li", {}, make("button", { type: "button", class: "plain", onclick }, text));

function choose(path) {
  const input = form.querySelector(`[name="${target.value}"]`);
  if (input !== files) { input.value = path; return; }
  files.value = [...new Set([...paths(files.value), path])].join("\n");
  suggest();
}

async function open(path) {
  const said = browse.querySelector("[role=status]");
  try {
    const found = await json(`/console/files?${new URLSearchParams({ path })}`);
    const inside = (name) => (path ? `${path}/${name}` : name);
    browse.querySelector("strong").textContent = path || "the dataset roots";
    list.replaceChildren(...(path ? [entryOf("← back", () => open(path.split("/").slice(0, -1).join("/")))] : []),
      ...found.entries.map(({ name, directory }) => entryOf(directory ? `${name}/` : name, () => (directory ? open(inside(name)) : choose(inside(name))))));
    said.textContent = found.of > found.entries.length ? `The first ${found.entries.length} of ${found.of}: type the paths of others, or a pattern such as ${inside("*.npy")}.`
      : found.of ? "" : "No files are here.";
    browse.hidden = false;
  } catch (problem) {
    // Who may register some files only types their paths.
    if (!browse.hidden) show(said, problem);
  }
}
open("");
if (state.get("files")) { files.value = state.get("files"); suggest(); section.scrollIntoView(); }
