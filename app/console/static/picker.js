// Picks summaries by a search: a run may have a hundred thousand, so there is never a list of all.
import { comesBack, isAway, json, make, show } from "./api.js";

const DELAY = 150;
const FOUND = 20; // that the service tells at once

export function picker({ run, chosen, most, change }) {
  const about = (query) => json(`/console/runs/${encodeURIComponent(run)}/about?${new URLSearchParams(query)}`);
  const chips = make("span");
  const found = make("ul", { class: "found", "aria-label": "Summaries found" });
  const said = make("span", { class: "faint", role: "status" });
  const input = make("input", { type: "search", size: "24", placeholder: "id or description", "aria-label": "Find a summary", autocomplete: "off" });
  let timer = 0, entered = false;

  function add(id) {
    const ids = [...new Set([...chosen(), id])];
    if (ids.length > most) said.textContent = `At most ${most} at once: remove one first.`;
    else change(ids);
  }

  function entry(id, name) {
    return make("li", {}, make("button", { class: "plain", type: "button", onclick: () => add(id) }, name ? `${id} · ${name}` : `Summary ${id}`));
  }

  async function search() {
    const text = input.value.trim();
    try {
      const { summaries } = await about({ q: text });
      if (input.value.trim() !== text) return;
      const rows = (summaries ?? []).map(({ id, name }) => entry(id, name));
      const number = /^[1-9][0-9]{0,9}$/.test(text) ? Number(text) : 0;
      if (number && !summaries?.some(({ id }) => id === number)) rows.unshift(entry(number, ""));
      found.replaceChildren(...rows);
      said.textContent = summaries ? (rows.length >= FOUND ? `The first ${FOUND}: type more of a name to find others.` : rows.length ? "" : "No summary is described so.") : (number ? "" : "The run has no summary info: type the number of a summary.");
      if (entered) found.querySelector("button")?.click();
      entered = false;
    } catch (error) {
      show(said, error);
      if (isAway(error)) comesBack().then(search);
    }
  }

  input.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(search, DELAY); });
  input.addEventListener("focus", () => { if (!found.childElementCount) search(); });
  input.addEventListener("keydown", (event) => {
    if (event.key === "Escape") found.replaceChildren();
    if (event.key === "Enter") { entered = true; clearTimeout(timer); search(); }
  });

  function drawChips(names) {
    chips.replaceChildren(...chosen().map((id) => make("button", {
      class: "chip", type: "button", "aria-label": `Remove summary ${id}`,
      onclick: () => change(chosen().filter((each) => each !== id)),
    }, names.get(id) ? `${id} · ${names.get(id)}` : `Summary ${id}`, " ×")));
  }
  drawChips(new Map());
  if (chosen().length) {
    about({ ids: chosen().join(",") }).then(({ summaries }) => drawChips(new Map((summaries ?? []).map(({ id, name }) => [id, name])))).catch(() => {});
  }
  return make("span", { class: "picker" }, chips, input, said, found);
}
