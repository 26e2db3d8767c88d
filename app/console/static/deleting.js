// Buttons that delete what a page shows: the first click asks, the second does it.
import { at, make, request, show } from "./api.js";

export function isSure(button, question) {
  if (button.dataset.asked) return true;
  const before = button.textContent;
  button.dataset.asked = "1";
  button.textContent = question;
  button.addEventListener("blur", () => { delete button.dataset.asked; button.textContent = before; }, { once: true });
  return false;
}

for (const button of document.querySelectorAll("[data-path]")) {
  const { path, then, question = "Really delete it?" } = button.dataset;
  const said = make("p", { class: "problem", role: "alert", hidden: true });
  button.hidden = false;
  button.after(said);
  button.addEventListener("click", async () => {
    if (!isSure(button, question)) return;
    try {
      await request(path, { method: "DELETE" });
      location.href = at(then);
    } catch (error) { show(said, error); }
  });
}
