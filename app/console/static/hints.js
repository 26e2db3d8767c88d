// What to do about a problem, in the terms of pages: buttons and fields instead of requests.

// By the code of the problem, or by how its hint begins or what follows.
const CODES = {
  unauthorized: "Sign in: the link is at the end of each page.",
  "partition-taken": "Delete that stream on the page of the run, or choose a file with another number in its name.",
  "stream-failed": "Delete it in the list of streams; then choose the corrected file.",
  "upload-taken": "Choose the file again: it goes on where it stopped.",
  "report-missing": "The page of the run offers to compute it.",
  "data-changed": "The data has changed: load the page again to see what there is now.",
  "report-not-ready": "Seal the run once all of its streams are complete.",
};
const HINTS = [
  [/^Delete the dataset first/, "Give another name, or delete that dataset on its page."],
  [/^Give one of them; those of a run/, "The run has these since it was created: leave the file out."],
  [/no_of_periods|period_no \d+ is not in/, "Correct the number of periods above: the file is then sent again."],
  [/^PUT |: PUT it to /, "Upload it under Auxiliary files."],
  [/^POST \S+\/seal /, "Seal the run once all of its streams are complete."],
  [/^POST .*reports/, "The page of the run offers to compute them."],
  [/^(GET \/v1\/\S+ lists|POST it to \/v1\/pipelines)/, "The lists that are linked at the top have those there are."],
  [/"samples": "repeat"/, "Tick “repeat” beside a set of one sample if its losses are certain."],
  [/POST the token/, "Take the token of a batch that is read now."],
];

// The title of a field, as people see it beside the field.
function titleOf(input) {
  const label = input.closest("label");
  const text = [...(label?.childNodes ?? [])].find(({ nodeType, data }) => nodeType === 3 && data.trim());
  return text ? text.data.trim() : label?.textContent.trim();
}

// Members of requests as the fields of a form that have their names: "nav_shape": as Scan.
function named(text, form) {
  let found = text;
  for (const input of form?.querySelectorAll("[name]") ?? []) {
    const name = input.name.split(".").pop(), title = titleOf(input);
    if (input.type === "checkbox") found = found.replace(new RegExp(`(add )?"${name}": true`), `tick “${title}”`);
    if (!title || !/_|^dtype$/.test(name)) continue;
    found = found.replace(new RegExp(`"${name}"(: )?|\\b${name}\\b( = )?`, "g"), (_all, one, other) => `“${title}”${one || other ? ": " : ""}`);
  }
  return found;
}

// The words for a problem: what is wrong, and what to do here.
export function words(problem, form) {
  const { code, hint = "", message } = problem;
  const own = problem.state === "failed" ? null : CODES[code] ?? HINTS.find(([pattern]) => pattern.test(`${hint} ${message}`))?.[1];
  return { message: named(message, form), hint: own ?? named(hint, form) };
}
