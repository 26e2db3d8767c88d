// Creates a run of what the form says.
import { at, numbersOf, post, show } from "./api.js";

const form = document.getElementById("new");
const problem = document.getElementById("problem");
const needs = document.getElementById("needs");
const chosen = () => [...form.querySelectorAll('[name="reports"]:checked')];
const LISTED = ["return_periods", "quantiles"];

function neededInputs() {
  return new Set(chosen().flatMap((box) => box.dataset.needs.split(" ")).filter(Boolean));
}

function adapt() {
  const inputs = neededInputs();
  const wanted = new Set([...inputs, ...chosen().map((box) => box.value)]);
  for (const field of form.querySelectorAll("[data-for]")) {
    field.hidden = !field.dataset.for.split(" ").some((name) => wanted.has(name));
  }
  const files = [...inputs].filter((name) => !form.elements[name]?.value);
  needs.textContent = files.length ? `These reports need: ${files.join(", ")}. Upload them on the next page.` : "";
}

function spec() {
  const options = { float_width: Number(form.elements.float_width.value), order: form.elements.order.value };
  for (const name of ["partitions", "no_of_periods", "return_periods", "quantiles", "confidence"]) {
    const text = form.elements[name].value.trim();
    if (!text || form.elements[name].closest("[data-for]")?.hidden) continue;
    options[name] = LISTED.includes(name) ? numbersOf(text) : Number(text);
  }
  const days = form.elements.days.value.trim();
  return {
    perspective: form.elements.perspective.value,
    reports: chosen().map((box) => box.value),
    options,
    ...(days && { days: Number(days) }),
    label: form.elements.label.value.trim() || undefined,
  };
}

// The same key for the same form: a lost answer creates no second run.
const draw = () => crypto.getRandomValues(new Uint32Array(4)).join("-");
let key = draw();

form.addEventListener("input", () => {
  key = draw();
  adapt();
});
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  problem.hidden = true;
  try {
    const run = await (await post("/v1/runs", spec(), { headers: { "Idempotency-Key": key } })).json();
    location.href = at(`/console/runs/${encodeURIComponent(run.id)}`);
  } catch (error) {
    show(problem, error, form);
  }
});
adapt();
form.querySelector("button").disabled = false;
