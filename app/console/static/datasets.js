// The list of datasets: what each is, asked for once its row is seen; files are registered.
import { at, json, post, Problem, show } from "./api.js";

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
const READ = {
  files: (text) => text.split("\n").map((line) => line.trim()).filter(Boolean),
  nav_shape: lengths, sig_shape: lengths, file_header: whole,
};

function entry() {
  const values = {};
  for (const input of form.querySelectorAll("[name]")) {
    if (input.type === "checkbox") { if (input.checked) values[input.name] = true; continue; }
    const text = input.value.trim();
    if (text || input.name === "files") values[input.name] = (READ[input.name] ?? String)(text);
  }
  return values;
}

// The field that a problem is about.
function field({ option, path, code, detail = "" }) {
  const name = option?.split(".")[0] ?? (path ? "files" : { "head-exists": "id", format: "format", "format-ambiguous": "format" }[code] ?? detail.split(" ")[0]);
  return /^[a-z_]+$/.test(name) ? form.querySelector(`[name=${name}]`) : null;
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = form.querySelector("button");
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
    show(refused, problem);
    const input = field(problem);
    (input?.closest(".field") ?? form.querySelector(".cards")).after(refused);
    input?.setAttribute("aria-invalid", "true");
    input?.setAttribute("aria-describedby", "refused");
    (input ?? refused).focus();
  } finally {
    button.disabled = false;
  }
});
