// Loss sets together: curves before and after a programme of reinsurance, which is drawn as a tower and
// moved by sliders, and what each part adds. All that is chosen is in the address.
import { bind, comesBack, fill, isAway, json, make, mark, post, show, state, svg, whenColoured } from "./api.js";
import { brief, chart, colours, picture } from "./chart.js";
import { STANDARD, TYPES } from "./curve.js";
import { save, savePicture, saver } from "./save.js";
import { table, written } from "./tables.js";

const POINTS = 80; // of a curve
const FEWER = 4; // and while a layer moves, one of so many
const REST = 400; // milliseconds after which it rests
const find = (id) => document.getElementById(id);
const { list } = state;
const section = find("portfolio"), problem = find("problem");
const sets = new Map(); // what is known of loss sets, by id
const answers = new Map(); // of questions; of those with a programme only the last one
let priced = ""; // the last question with one
let turn = new AbortController();

// -- a programme: layers by the names of OED -------------------------------------------

// Where a layer has its attachment and its limit, by its type.
const TERMS = "OccAttachment OccLimit AggAttachment AggLimit RiskAttachment RiskLimit CededPercent Reinstatement ReinstatementCharge HoursClause OccFranchiseDed OccReverseFranchise".split(" ");
const places = ({ ReinsType: type }) => TERMS.slice(...(["AXL", "SL"].includes(type) ? [2, 4] : ["FAC", "PR", "SS"].includes(type) ? [4, 6] : [0, 2]));
const percent = (value) => Math.round((value ?? 1) * 1e4) / 100;
const placed = ({ PlacedPercent, TreatyShare }) => (PlacedPercent ?? 1) * (TreatyShare ?? 1);
let layers = [];
let wrong = false; // whether the address has none, which is told until there are some
let most = 1; // the largest loss of the curves

function readLayers(text) {
  let found;
  try { found = JSON.parse(text || "[]"); } catch ({ message }) {
    throw new Error(`The programme is no JSON (${/line \d+ column \d+/.exec(message) ?? "it ends too early"}): see to its brackets, quotes and commas.`);
  }
  const given = Array.isArray(found) ? found : found.layers;
  if (!Array.isArray(given) || given.some((layer) => layer === null || typeof layer !== "object")) throw new Error('A programme is {"layers": [{…}, …]}.');
  return given;
}

const attachment = (layer) => Number(layer[places(layer)[0]]) || 0;
const limit = (layer) => { const value = layer[places(layer)[1]]; return value == null ? null : Number(value); };
const topOf = (all) => Math.max(0, ...all.map((layer) => attachment(layer) + (limit(layer) ?? 0)));

const title = (layer) => layer.ReinsName || `Layer ${layer.ReinsNumber ?? layers.indexOf(layer) + 1}`;
// Texts of the service name layers by their places.
const named = (text) => text.replace(/layers\[(\d+)\](\.?)/g, (place, k, dot) => (layers[k] ? `${title(layers[k])}${dot && ": "}` : place));

// A number times a scale, without what binary fractions add; what is none stays.
const scaled = (value, scale) => { const found = Number(value) * scale; return Number.isNaN(found) ? value : Number(found.toPrecision(15)); };
const chargesOf = ({ ReinstatementCharge: charge }) => String(charge ?? 0).split(/[;,]/).map((each) => scaled(each, 100)); // in %

// Reinstatements in words: 2 at 100 %, or at 0 % and 50 %.
function reinstated(layer) {
  const count = layer.Reinstatement;
  return count == null ? "" : `${count} reinstatement${count === 1 ? "" : "s"}${count ? ` at ${chargesOf(layer).map((each) => `${each} %`).join(" and ")}` : ""}`;
}

function words(layer) {
  const line = limit(layer), share = percent(layer.CededPercent);
  const cover = `${line === null ? "unlimited" : written(line)} xs ${written(attachment(layer))}`; // of risks before the share
  const whose = [layer.Scope ?? []].flat().join(", ");
  const what = layer.ReinsType === "QS" ? `${share} % of ${whose ? "the" : "all"} losses` : share === 100 ? cover : places(layer)[0] === "RiskAttachment" ? `${share} % of ${cover} of each risk` : `${cover} of ${share} % of each loss`;
  const ofYear = TERMS.slice(2, 4).map((name, k) => layer[name] && !places(layer).includes(name) && `annual ${["deductible", "limit"][k]} ${written(Number(layer[name]))}`);
  return [`${title(layer)}: ${what}${whose && ` of ${whose}`}`, ...ofYear, `${percent(placed(layer))} % placed`, reinstated(layer)].filter(Boolean).join(", ");
}

// Whether a programme needs to know of which part, or which risk, a loss is.
const isByPart = () => layers.some((layer) => layer.Scope != null || layer.RiskLimit != null || ["FAC", "PR", "SS"].includes(layer.ReinsType));

// -- the tower -------------------------------------------------------------------------

const [WIDE, HIGH, LEFT, LINE] = [420, 320, 78, 16];
// A column for each priority; losses upward, the share that is ceded to the right.
function drawTower() {
  const top = topOf(layers) * 1.1 || most;
  const priorities = [...new Set(layers.map((layer) => layer.InuringPriority ?? 1))].sort((a, b) => a - b);
  const wide = (WIDE - LEFT) / Math.max(1, priorities.length);
  const y = (loss) => HIGH - 20 - Math.min(loss / top, 1) * (HIGH - 40);
  const ticks = [0, 0.25, 0.5, 0.75, 1].map((part) => svg("text", { x: LEFT - 8, y: y(part * top) + 4, "text-anchor": "end" }, brief.format(part * top)));
  const boxes = layers.flatMap((layer) => {
    const left = LEFT + priorities.indexOf(layer.InuringPriority ?? 1) * wide;
    const low = attachment(layer), line = limit(layer);
    const upper = y(line === null ? top : low + line), height = Math.max(y(low) - upper, 2);
    const share = placed(layer) * (layer.CededPercent ?? 1);
    const frame = { x: left, y: upper, height };
    const lines = Math.floor(height / LINE), text = make("div", {}, `${title(layer)}\n${reinstated(layer)}`);
    text.style.webkitLineClamp = lines; // as many as there is room for
    return [svg("rect", { ...frame, width: wide - 6, class: "whole" }), svg("rect", { ...frame, width: Math.max((wide - 6) * share, 1), class: `layer ${layer.ReinsType}` }, svg("title", {}, words(layer))),
      ...(lines ? [svg("foreignObject", { x: left + 6, y: upper + 1, width: wide - 18, height: lines * LINE }, text)] : [])];
  });
  find("tower").setAttribute("viewBox", `0 0 ${WIDE} ${HIGH}`);
  find("tower").replaceChildren(...ticks, svg("line", { x1: LEFT - 4, x2: WIDE, y1: y(0), y2: y(0) }), ...boxes);
  find("tower-said").textContent = layers.map(words).join("; ") || "No layer: net losses are the gross ones.";
}

// -- what is typed ---------------------------------------------------------------------

function numberOf(text) {
  if (!/^(\d+\.?\d*|\.\d+)(e[+-]?\d\d?)?$/i.test(text)) throw new Error(`“${text}” is no number such as 1250000 or 0.25, without commas.`);
  return Number(text);
}

function ratesOf(text) {
  const rates = {};
  for (const each of text.split(/[\s,;]+(?=[a-z])/i).filter(Boolean)) {
    const [, name, rate] = each.match(/^([A-Z]{3})\s*[:=]?\s*(\S.*)$/) ?? [];
    if (!name || name in rates) throw new Error(`“${each}” cannot be read: give each rate once, as USD 0.9.`);
    rates[name] = numberOf(rate);
  }
  return rates;
}

// Reads a box, and says beside it what is wrong with its text, which is then undefined, or remarkable.
function read(input, reader) {
  const text = input.value.trim();
  let value, fault = input.validity.patternMismatch ? input.title : "";
  try { value = reader(text); } catch (error) { fault = `${error.message} ${input.title}`; }
  const little = input.dataset.scale && text.split(";").every((each) => each > 0 && each <= 1);
  mark(input, fault, fault || (little ? `${text} %: all of it is 100` : ""));
  return value;
}

// -- its editor ------------------------------------------------------------------------

// A step of 1, 2 or 5 of some decade, about the 200th part.
function stepOf() {
  const power = 10 ** Math.floor(Math.log10(most / 200));
  return [1, 2, 5, 10].find((step) => step * power >= most / 200) * power;
}

// Fields of another type of layer go, and it has what it needs.
function retype(layer, type) {
  for (const name of TERMS) delete layer[name];
  layer.ReinsType = type;
  if (type === "QS") layer.CededPercent = 0.5; else layer[type === "SS" ? "RiskAttachment" : places(layer)[1]] = stepOf() * 40;
  drawEditor();
}

function follow(input, layer, range) {
  const { name } = input, scale = Number(input.dataset.scale ?? 1), value = layer[name];
  const isList = name === "ReinstatementCharge";
  const reader = (text) => {
    if (input.dataset.text || !text) return text;
    const found = (isList ? text.split(/\s*;\s*|\s+/) : [text]).map(numberOf);
    if (Math.max(...found) > input.dataset.most) throw new Error(`“${text}” is too much.`);
    const values = found.map((each) => scaled(each, 1 / scale));
    return values[1] === undefined ? values[0] : values.join(";");
  };
  // A value that is refused leaves the one before it was typed.
  let kept = value;
  const keep = () => { kept = layer[name]; isChoice = true; };
  if (value != null) input.value = isList ? chargesOf(layer).join(";") : input.dataset.text ? value : scaled(value, scale);
  input.addEventListener("input", () => {
    if (name === "ReinsType") { retype(layer, input.value); moved(); return; }
    const typed = read(input, reader), found = typed ?? kept ?? "";
    if (found === "") delete layer[name]; else layer[name] = found;
    if (name === "Reinstatement" && found) {
      const charge = input.closest("fieldset").querySelector("[name=ReinstatementCharge]");
      charge.value ||= 100;
      charge.dispatchEvent(new Event("input"));
    }
    if (range) range.value = found;
    moved();
  });
  input.addEventListener("change", keep);
  if (!range) return;
  Object.assign(range, { max: most, step: stepOf(), value: value ?? 0 });
  range.addEventListener("input", () => { input.value = range.value; input.dispatchEvent(new Event("input")); });
  range.addEventListener("change", () => { keep(); settled(); });
}

function editor(layer) {
  const fields = find("layer").content.firstElementChild.cloneNode(true);
  fields.querySelector("legend").textContent = `Layer ${layer.ReinsNumber}`;
  for (const part of fields.querySelectorAll("[data-of]")) part.hidden = !part.dataset.of.includes(layer.ReinsType);
  const others = { ...layer, ReinsNumber: undefined };
  for (const input of fields.querySelectorAll("[name]")) {
    follow(input, layer, input.closest("div")?.querySelector("[type=range]"));
    if (!input.closest("[hidden]")) delete others[input.name];
  }
  const also = JSON.stringify(others).slice(1, -1);
  if (also) fields.append(make("p", { class: "faint" }, `By its JSON also: ${also.replaceAll('"', "")}`));
  fields.querySelector("button").addEventListener("click", () => { layers = layers.filter((each) => each !== layer); changed(); });
  return fields;
}

let editedFor = 0; // the largest loss that its sliders are for
function drawEditor() {
  editedFor = most;
  find("layers").replaceChildren(...layers.map(editor));
}
function drawLayers() {
  drawTower();
  if (layers.length && (!find("layers").childElementCount || editedFor === 1)) drawEditor();
}

// -- questions -------------------------------------------------------------------------

function question(more) {
  const rates = ratesOf(state.get("rates")), currency = state.get("currency");
  const part = (id) => ({ id, weight: numberOf(state.get(`weight.${id}`, "1")), ...(state.get(`repeat.${id}`) && { samples: "repeat" }) });
  return { loss_sets: list("sets").map(part), rates, ...(currency && { currency }), ...more };
}

async function ask(more, signal) {
  const body = question(more), key = JSON.stringify(body);
  if (answers.has(key)) return answers.get(key);
  const answer = await (await post("/v1/portfolios/query", body, { signal })).json();
  if (more.programme) { answers.delete(priced); priced = key; }
  answers.set(key, answer);
  return answer;
}

// Years at which curves are asked for: usual ones, and between these every nth of those a screen shows.
function years(nth = 1) {
  const most = Math.min(...list("sets").map((id) => sets.get(id).periods));
  const between = Array.from({ length: POINTS }, (_, k) => Math.round(2 * (most / 2) ** (k / (POINTS - 1))));
  return [...new Set([...STANDARD, ...between.filter((_year, k) => k % nth === 0)])].filter((each) => each >= 2 && each <= most).sort((a, b) => a - b);
}

const ofCurve = (tables, type) => new Map((tables?.ept ?? []).filter((row) => row.EPCalc === 2 && row.EPType === Number(type)).map((row) => [row.ReturnPeriod, row.Loss]));
const mean = ({ aal }) => aal.find((row) => row.SampleType === 2)?.MeanLoss ?? 0;
const types = () => list("types", "1,3");

function drawCurves(gross, net, at) {
  const kinds = [["gross", gross, []], ...(net ? [["net", net, [8, 4]]] : [])];
  const series = types().flatMap((type, k) => kinds.map(([name, tables, dash]) => {
    const found = ofCurve(tables, type);
    return { name: `${TYPES[type]}, ${name}`, colour: colours()[k], dash, values: at.map((year) => found.get(year) ?? null) };
  }));
  chart(find("chart"), { xs: Float64Array.from(at), series, logarithmic: true, xTitle: "Return period (years)", yTitle: `Loss${state.get("currency") ? ` (${state.get("currency")})` : ""}` });
  const rows = at.flatMap((year, k) => (STANDARD.includes(year) ? [[written(year), ...series.map(({ values }) => written(values[k]))]] : []));
  find("points").replaceChildren(table(["Return period (years)", ...series.map(({ name }) => name)], rows.reverse(), "Full uncertainty: periods of all samples together."));
  const [before, after] = [mean(gross), net && mean(net)];
  const facts = { "Average annual loss, gross": before, ...(net && { net: after, ceded: before - after }) };
  find("averages").replaceChildren(...Object.entries(facts).map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, written(value)))));
}

const PRICED = Object.fromEntries([...document.querySelectorAll(".defined dt")].map((term) => [term.dataset.name, term.textContent]));

function drawPriced(net) {
  const rows = (net?.layers ?? []).filter((row) => row.SampleType === 2);
  const cell = (value, title) => written(title.endsWith("%") && value != null ? scaled(value, 100) : value);
  find("priced").replaceChildren(...(rows.length ? [table(["Layer", ...Object.values(PRICED)], rows.map((row) => [row.Name || `Layer ${row.Layer}`, ...Object.entries(PRICED).map(([name, title]) => cell(row[name], title))]), "Of the placed share, in a year; means over samples.")] : []));
}

// What each part adds: to the average, or to the mean of the losses at and above a return period.
const wanted = (group) => ({ group_by: [group], ...(state.get("part") ? { report: "contributions", curves: "F", return_periods: [Number(state.get("part"))] } : { report: "averages" }) });
const partsOf = (tables) => (state.get("part") ? tables.contributions.filter((row) => row.EPType === 4).map((row) => ({ ...row, part: row.Loss }))
  : tables.aal.filter((row) => row.SampleType === 2).map((row) => ({ ...row, part: row.MeanLoss })));

function drawParts(gross, net, group) {
  const rows = partsOf(gross).sort((a, b) => b.part - a.part);
  const left = new Map(net && partsOf(net).map((row) => [row.SummaryId, row.part]));
  const whole = rows.reduce((sum, { part }) => sum + part, 0) || 1;
  find("parts").replaceChildren(table([group, "Size", "Gross", "% of it", ...(net ? ["Net"] : [])], rows.map((row) => {
    const bar = make("div", { class: "bar" });
    bar.style.width = `${(8 * row.part) / (rows[0].part || 1)}rem`;
    return [String(row[group] ?? row.SummaryId), bar, written(row.part), String(percent(row.part / whole)), ...(net ? [written(left.get(row.SummaryId))] : [])];
  }), state.get("part") && net ? "They add up. Net ones are of the worst years of net, gross ones of those of gross: these may be other years, so that a net part may exceed its gross one."
    : "They add up; net ones are what the programme leaves of each part, event by event."));
}

// Files of what is seen, as the service writes them.
function drawSaves(questions) {
  const of = Object.entries(questions).filter(([, more]) => more).flatMap(([name, more]) => {
    const body = question(more);
    return [`; ${name}: `, ...["csv", "parquet"].flatMap((form) => [saver(form, async () => save(`${name.replaceAll(", ", "-")}.${form}`, await (await post(`/v1/portfolios/query?format=${form}`, body)).blob()), refused, name), " "])];
  });
  find("saves").replaceChildren("Save the picture: ", saver("png", () => savePicture("curves.png", picture(find("chart"), `Loss sets ${list("sets").join(", ")}`, ...layers.map(words))), refused), ...of);
}

// One that was deleted elsewhere is listed no more.
async function learn(id, signal) {
  try { sets.set(id, await json(`/v1/portfolios/loss-sets/${encodeURIComponent(id)}`, { signal })); } catch (error) {
    if (error.status === 404) {
      const box = document.querySelector(`#sets [value="${CSS.escape(id)}"]`);
      if (box) box.checked = false;
      box?.closest("tr").remove();
      state.set({ sets: list("sets").filter((each) => each !== id).join(",") });
    }
    throw error;
  }
}

// -- what is done ----------------------------------------------------------------------

// Figures that are seen are no answer to what the page asks now.
function earlier() {
  section.classList.add("earlier");
  find("busy").textContent = [document.querySelector("main [aria-invalid]") && "A value above is refused.", find("averages").childElementCount && "The figures below are of the earlier question."].filter(Boolean).join(" ");
}

function refused(error) {
  earlier();
  error.message = named(error.message);
  show(problem, error);
  problem.scrollIntoView({ block: "nearest" });
}

// Curves of a layer that moves have fewer points, and only the types that are seen; all numbers are exact.
async function draw({ moves = false } = {}) {
  turn.abort();
  turn = new AbortController();
  const { signal } = turn;
  problem.hidden = !wrong;
  const ids = list("sets"), group = state.get("group");
  section.hidden = !ids.length;
  if (!ids.length) return;
  try {
    const notes = new Set();
    const told = async (more) => {
      const answer = await ask(more, signal);
      for (const note of answer.notes ?? []) notes.add(named(note));
      return answer.tables;
    };
    await Promise.all(ids.map((id) => (moves && sets.has(id)) || learn(id, signal)));
    offerGroups(ids);
    const programme = layers.length ? { programme: { layers }, of: "net" } : null, byPart = programme && isByPart();
    const net = (asked) => programme && asked && { ...asked, ...programme, ...(byPart && !asked.group_by && { programme_by: [group] }) };
    if (byPart && !group) throw new Error("The programme has terms of parts of the losses (a Scope), or of each risk: choose under “Parts” by what the losses are grouped.");
    const curves = { report: "summary", curves: "Ff", return_periods: years() };
    const seen = moves ? { curves: ["f", "F"].filter((_letter, k) => types().some((type) => (type > 2) === (k > 0))).join(""), return_periods: years(FEWER) } : curves;
    find("busy").textContent = "Computing …";
    const gross = await told(curves);
    most = Math.max(1, ...gross.ept.map((row) => row.Loss));
    const left = programme && await told(net({ ...curves, ...seen }));
    drawCurves(gross, left, seen.return_periods);
    drawPriced(left);
    drawLayers();
    find("chart").dataset.of = JSON.stringify(layers);
    find("saves").hidden = moves;
    if (!moves) {
      const [ept, aal] = ["ept", "aal"].map((name) => ({ ...curves, table: name }));
      const parts = group && { ...wanted(group), table: state.get("part") ? "contributions" : "aal" };
      drawSaves({ curves: ept, "curves, net": net(ept), averages: aal, "averages, net": net(aal), prices: net({ ...curves, table: "layers" }), parts, "parts, net": net(parts) });
    }
    if (!moves && group) {
      const all = await told(wanted(group));
      drawParts(all, programme && await told(net(wanted(group))), group);
    } else if (!group) find("parts").replaceChildren();
    find("notes").replaceChildren(...[...notes].map((note) => make("p", { class: "note" }, note)));
    section.classList.remove("earlier");
    find("busy").textContent = "";
    if (document.querySelector("main [aria-invalid]")) earlier();
  } catch (error) {
    if (error.name === "AbortError") return;
    drawLayers();
    refused(error);
    if (isAway(error)) comesBack().then(() => signal.aborted || draw());
  }
}

// A layer was changed. Curves follow at once, one answer after the other: were each cancelled for the
// next, none would be seen before it rests. Then the parts follow, and the address, which browsers let
// nobody change at every move.
let [follows, again] = [false, false];
let isChoice = true; // until it is in the address: what is typed further into one box replaces it
async function moved() {
  wrong = false;
  find("programme").value = JSON.stringify({ layers }, null, 1);
  drawTower();
  clearTimeout(moved.timer);
  moved.timer = setTimeout(settled, REST);
  again = true;
  if (follows) return;
  follows = true;
  while (again) { again = false; await draw({ moves: true }); }
  follows = false;
}
function changed() {
  isChoice = true;
  drawEditor();
  moved();
}
function settled() {
  clearTimeout(moved.timer);
  again = false;
  state.set({ layers: layers.length ? JSON.stringify(layers) : "" }, isChoice);
  isChoice = false;
  draw();
}

function offerGroups(ids) {
  const known = ids.map((id) => sets.get(id).dimensions);
  const names = [...known[0].filter((name) => known.every((each) => each.includes(name))), ...(ids.length === 1 ? ["SummaryId"] : [])];
  if (state.get("group") && !names.includes(state.get("group"))) state.set({ group: "" });
  find("group").replaceChildren(make("option", { value: "" }, "nothing"), ...names.map((name) => make("option", { value: name }, name === "SummaryId" ? "summary" : name)));
  fill(controls, { types: "1,3" });
}

const controls = [...document.querySelectorAll("#sets [name], .controls [name], [name=group], [name=part]")];
for (const input of controls) {
  const { name, type } = input;
  input.disabled = false;
  if (type === "text") input.addEventListener("change", () => {
    read(input, name === "rates" ? ratesOf : (text) => text && name !== "currency" && numberOf(text));
    if (input.ariaInvalid) draw();
  });
}
bind(controls, (values) => { state.set(values, true); draw(); });
find("add").addEventListener("click", () => {
  layers.push({ ReinsNumber: Math.max(0, ...layers.map((layer) => layer.ReinsNumber || 0)) + 1, ReinsType: "CXL", OccAttachment: topOf(layers) || stepOf() * 20, OccLimit: stepOf() * 40 });
  changed();
});
find("apply").addEventListener("click", () => {
  try {
    layers = readLayers(find("programme").value);
    changed();
  } catch (error) { refused(error); }
});
const form = find("make");
if (form) {
  form.hidden = false;
  if (state.get("run")) form.elements.run.value = state.get("run");
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const said = form.querySelector("[role=status]"), { run, name, currency, summary_set: set } = Object.fromEntries(new FormData(form));
    problem.hidden = true;
    said.textContent = "Reading the run …";
    try {
      const { summary_info: info } = (await json(`/v1/runs/${encodeURIComponent(run)}`)).inputs;
      const body = { run, ...(name && { name }), ...(currency && { currency }), ...(set && { summary_set: Number(set) }), ...(info && { summary_info: info }) };
      const made = await (await post("/v1/portfolios/loss-sets", body)).json(), before = list("sets");
      state.set({ run: "", sets: [...new Set([...before, made.id])].join(",") });
      try { if (before.length) await post("/v1/portfolios/query", question({ report: "averages" })); } catch (error) {
        state.set({ sets: before.join(",") });
        form.after(make("p", { class: "note" }, `${made.id} is made, but not chosen beside the others: ${error.message}. `, make("a", { href: location.search || "?" }, "List it")));
        said.textContent = "";
        return;
      }
      location.reload();
    } catch (error) { show(problem, error); }
    said.textContent = "";
  });
}
// Takes all from the address.
function restore() {
  try { layers = readLayers(state.get("layers")); } catch (error) { wrong = true; show(problem, error); }
  find("programme").value = JSON.stringify({ layers }, null, 1);
}
addEventListener("popstate", () => {
  clearTimeout(moved.timer);
  [wrong, isChoice] = [false, true];
  restore();
  drawEditor();
  for (const input of controls) if (input.type === "text") mark(input, "");
  fill(controls, { types: "1,3" });
  draw();
});
restore();
document.addEventListener("visibilitychange", () => document.hidden || draw());
whenColoured(() => draw());
