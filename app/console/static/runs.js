// The list of runs, kept as the server would show it now: cells that changed are replaced, so that
// neither the place on the page nor the focus is lost.
import { request, show, whileVisible } from "./api.js";

const problem = document.getElementById("problem");
const rowsOf = (root) => [...root.querySelectorAll("#list tr[id]")];

function refresh(fresh) {
  const [old, now] = [rowsOf(document), rowsOf(fresh)];
  const same = old.length === now.length && old.every((row, k) => row.id === now[k].id);
  if (!same || !now.length) {
    const list = document.getElementById("list");
    const focused = document.activeElement?.closest?.("tr[id]")?.id;
    list.replaceChildren(...fresh.getElementById("list").childNodes);
    if (focused) document.getElementById(focused)?.querySelector("a").focus({ preventScroll: true });
    return;
  }
  old.forEach((row, k) => [...row.cells].forEach((cell, c) => {
    if (cell.innerHTML !== now[k].cells[c].innerHTML) cell.replaceChildren(...now[k].cells[c].childNodes);
  }));
}

whileVisible(4, async () => {
  try {
    const page = await (await request(location.href, { headers: { Accept: "text/html" } })).text();
    refresh(new DOMParser().parseFromString(page, "text/html"));
    problem.hidden = true;
  } catch (error) {
    show(problem, error);
    problem.append(" The list is not up to date.");
  }
});
