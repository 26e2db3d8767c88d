// The curves of a run that is done: exceedance curves, averages, and losses by period. What is shown
// is in the address, so that a link shows the same.
import { at, bind, comesBack, fill, isAway, json, make, mark, numbersOf, post, show, state, whenColoured } from "./api.js";
import { chart, clear, colours, picture } from "./chart.js";
import { TYPES, isPointOf, lossesAt, readCurves, tabled, union } from "./curve.js";
import { answered, readLines, readRecords } from "./records.js";
import { picker } from "./picker.js";
import { csv, save, savePicture, saver } from "./save.js";
import { table, written } from "./tables.js";

const MOST_RUNS = 6;
const MOST_SUMMARIES = 12;
const BARS = 60;
const root = document.getElementById("curves");
const own = document.getElementById("run").dataset.run;
const path = (run, rest) => `/v1/runs/${encodeURIComponent(run)}${rest}`;
const short = (run) => run.slice(0, 8);
const { list } = state;
const DEFAULTS = { types: "1,3", calc: "2" };

const facts = new Map(); // what is known of runs, by id: {about, run}
const read = new Map(); // of each path {promise, signal, whole} by summary
const first = new Map(); // the first summary of a report by its path
let turn = new AbortController();

async function learn(run) {
  if (!facts.has(run)) {
    const [described, about] = await Promise.all([
      json(path(run, "")), json(`/console/runs/${encodeURIComponent(run)}/about`),
    ]);
    facts.set(run, { described, about });
  }
  return facts.get(run);
}

// The variant of a run that has a report: the one asked for, its own, or any.
function variantOf(run, report, wanted = "") {
  const results = facts.get(run).described.results;
  const having = Object.keys(results).filter((name) => results[name].reports.includes(report));
  return [wanted, "own"].find((name) => having.includes(name)) ?? having[0] ?? null;
}

function reportPath(run, report, query) {
  const variant = variantOf(run, report, run === own ? state.get("variant") : "");
  const given = { ...query, set: state.get("set"), variant: variant === "own" ? "" : variant };
  const search = new URLSearchParams(Object.entries(given).filter(([, value]) => value));
  return path(run, `/reports/${report}?${search}`);
}

// -- the parts of the section --------------------------------------------------------

const find = (selector) => root.querySelector(selector);
const [problem, busy, figure, caption, canvas] = [".problem", "#busy", "figure", "figcaption", ".canvas"].map(find);
const [numbers, links, averages, periods, offers] = ["#ep-table", ".links", "#averages", "#by-period", "#offers"].map(find);
const controls = [...root.querySelectorAll(".controls [name]")];

const ends = controls.filter(({ name }) => ["from", "to"].includes(name));
const unmark = () => ends.forEach((input) => mark(input, ""));

const types = () => list("types", DEFAULTS.types);
const without = (run) => list("runs").filter((each) => each !== run).join(",");
const runs = () => [own, ...list("runs").filter((run) => run !== own)].slice(0, MOST_RUNS);

// How people tell runs: what of, when, how much.
const title = ({ id, label, perspective, created, streams }) => `${label ?? short(id)} · ${perspective}, ${created.slice(0, 16).replace("T", " ")}, ${streams} stream${streams > 1 ? "s" : ""}`;
const titleOf = ({ described }) => title({ ...described, streams: Object.values(described.streams).reduce((a, b) => a + b) });
const others = []; // runs that are done, as far as listed
let next = ""; // the id after which there are more, or null
const chooser = find("#lay-over");

async function listRuns() {
  const after = next;
  next = null;
  try {
    const page = await json(`/v1/runs?${new URLSearchParams({ limit: "100", after })}`);
    others.push(...page.runs.filter((run) => run.state === "done" && run.id !== own));
    next = page.after;
    others.sort((one, other) => other.created.localeCompare(one.created));
  } catch (error) { show(problem, error); }
  offerRuns();
}

function offerRuns() {
  const shown = runs();
  const left = others.filter(({ id }) => !shown.includes(id));
  chooser.replaceChildren(make("option", { value: "" }, left.length ? "a run" : "no other run is done"),
    ...left.map((run) => make("option", { value: run.id }, title(run))),
    ...(next ? [make("option", { value: "more" }, "more runs …")] : []));
}

function drawRuns() {
  offerRuns();
  if (next === "") listRuns();
  find("#laid-over").replaceChildren(...runs().slice(1).map((run) => make("button", {
    class: "chip", "aria-label": `Remove run ${run}`,
    onclick: () => change({ runs: without(run) }),
  }, facts.has(run) ? titleOf(facts.get(run)) : short(run), " ×")));
  find("#difference").hidden = runs().length !== 2;
}

function drawVariants() {
  const variants = facts.get(own).described.results;
  const withCurves = Object.keys(variants).filter((name) => variants[name].reports.includes("ept"));
  find("#variants").hidden = withCurves.length < 2;
  find("[name=variant]").replaceChildren(...withCurves.map((name) => make("option", { value: name }, describeVariant(name, variants[name]))));
}

function drawPicker() {
  const hadFocus = find("#picker").contains(document.activeElement);
  find("#picker").replaceChildren(picker({
    run: own, chosen: () => chosenSummaries, most: MOST_SUMMARIES,
    change: (ids) => change({ summaries: ids.join(",") }),
  }));
  if (hadFocus) find("#picker input").focus();
}

let picked = ""; // the summaries that the picker shows

function drawControls() {
  drawRuns();
  drawVariants();
  fill(controls, { ...DEFAULTS, variant: variantOf(own, "ept", state.get("variant")) });
  if (picked === chosenSummaries.join() && picked) return;
  picked = chosenSummaries.join();
  drawPicker();
}

const describeVariant = (name, result) =>
  name === "own" ? "of the run" : `${name}: ${Object.entries(result.options).map(([k, v]) => `${k} ${[v].flat().slice(0, 4).join(", ")}`).join("; ") || "other inputs"}`;

// -- what is drawn -------------------------------------------------------------------

let chosenSummaries = [];

// The summaries of the address, or the first that the run has.
async function summaries() {
  const asked = list("summaries").map(Number).filter((id) => id > 0).slice(0, MOST_SUMMARIES);
  if (asked.length) return asked;
  const source = reportPath(own, "ept", { format: "bin" });
  if (!first.has(source)) {
    const response = await fetch(at(source), { headers: { Range: "bytes=0-3" } });
    if (response.status !== 206) return [1];
    first.set(source, new DataView(await response.arrayBuffer()).getInt32(0, true));
  }
  return [first.get(source)];
}

const wait = ({ done, total }) => { busy.textContent = `Being computed (${done ?? 0} of ${total ?? "?"}) …`; };

// The curves of summaries; those that were read before are not read again.
async function curvesOf(run, ids, signal) {
  const source = reportPath(run, "ept", { format: "bin" });
  if (!read.has(source)) read.set(source, new Map());
  const known = read.get(source);
  const missing = ids.filter((id) => !known.get(id)?.whole && (known.get(id)?.signal.aborted ?? true));
  if (missing.length) {
    const entry = { signal, whole: false };
    entry.promise = readCurves(reportPath(run, "ept", { format: "bin", summary_ids: missing.join(",") }), { signal, onWait: wait });
    for (const id of missing) known.set(id, entry);
    entry.promise.then(() => { entry.whole = true; }, () => { for (const id of missing) if (known.get(id) === entry) known.delete(id); });
  }
  return Object.assign({}, ...await Promise.all(ids.map((id) => known.get(id).promise)));
}

// What curves of a run are made of: options and inputs of the run, and those of its variant.
function sources(run) {
  const { described } = facts.get(run);
  return [described, described.results[variantOf(run, "ept", run === own ? state.get("variant") : "")]].filter(Boolean);
}
const isWhole = (run) => !sources(run).some(({ options, inputs }) => options.return_periods || inputs.return_periods);
const weightsOf = (run) => sources(run).findLast(({ inputs }) => inputs.periods)?.inputs.periods;

// The series to draw: one for each run, summary and type that there is.
function seriesOf(loaded, ids, calculation) {
  const all = [];
  for (const [run, curves] of loaded) {
    for (const id of ids) {
      for (const type of types()) {
        const curve = curves[`${id}/${calculation}/${type}`];
        if (curve) all.push({ run, id, type, curve: Object.assign(curve, { isWhole: type % 2 > 0 && isWhole(run) }) });
      }
    }
  }
  const name = ({ run, id, type }) => [TYPES[type], ids.length > 1 && `summary ${id}`, loaded.size > 1 && `run ${short(run)}`].filter(Boolean).join(", ");
  const years = union(all.map((each) => each.curve));
  const series = all.map((each) => ({ ...each, name: name(each), losses: lossesAt(each.curve, years), parts: [each.curve] }));
  if (loaded.size !== 2 || state.get("diff") !== "1") return { years, series };
  const [first, second] = [...loaded.keys()];
  const differences = series.filter((each) => each.run === second).flatMap((each) => {
    const other = series.find((one) => one.run === first && one.id === each.id && one.type === each.type);
    if (!other) return [];
    const losses = each.losses.map((loss, k) => loss === null || other.losses[k] === null ? null : loss - other.losses[k]);
    const title = `${TYPES[each.type]}, ${ids.length > 1 ? `summary ${each.id}, ` : ""}${short(second)} − ${short(first)}`;
    return [{ ...each, name: title, losses, parts: [each.curve, other.curve] }];
  });
  return { years, series: differences };
}

function describe(loaded, series) {
  const calculation = find("[name=calc]").selectedOptions[0].text;
  const curves = series.flatMap(({ parts }) => parts);
  const points = curves.reduce((sum, curve) => sum + curve.points, 0);
  const drawn = curves.reduce((sum, curve) => sum + curve.periods.length, 0);
  const absent = chosenSummaries.filter((id) => !series.some((each) => each.id === id));
  const thinned = drawn < points ? `${written(drawn)} of ${written(points)} points are drawn: those within 1.3 % of a return period of the one before are left out; the EPT of each run has all` : `${written(points)} points`;
  const what = `${types().map((type) => TYPES[type]).join(", ")} · ${calculation}`;
  const weigh = new Set([...loaded.keys()].map(weightsOf)).size > 1 ? [make("br"), "Their periods weigh differently: a difference mixes model and weights."] : [];
  caption.replaceChildren(...[...loaded.keys()].flatMap((run) => [figureLine(what, run, run), make("br")]), make("span", { class: "faint" }, thinned), ...weigh,
    absent.length ? ` · There is no such curve of summary ${absent.join(", ")}.` : "");
}

// The range of the address; what is none, or none of the curves, is told at its field, and all is drawn.
function rangeOf(years) {
  const range = ends.map(({ name }) => { const value = Number(state.get(name)); return value > 0 ? value : null; });
  const [from, to] = [range[0] ?? years[0], range[1] ?? years.at(-1)];
  const isNone = from >= to && range.some(Boolean);
  ends.forEach((input, k) => mark(input, input.validity.patternMismatch ? input.title : isNone && k === Number(range[1] !== null) ? `${from} to ${to} is no range of these curves: all is drawn` : ""));
  return isNone ? [null, null] : range;
}

// Losses at return periods of the table, of all series, in the range that is seen.
function drawNumbers(years, series) {
  const [from, to] = rangeOf(years);
  const at = tabled(years.filter((year) => year >= from && year <= (to ?? year)));
  const place = new Map([...years].map((year, k) => [year, k]));
  const columns = series.map((each) => {
    if (at.every((year) => place.has(year))) return at.map((year) => each.losses[place.get(year)]);
    const [one, other] = each.parts.map((curve) => lossesAt(curve, at));
    return other ? one.map((loss, k) => loss === null || other[k] === null ? null : loss - other[k]) : one;
  });
  const exact = series.map(({ parts }) => at.map(isPointOf(parts)));
  const places = [...at.keys()].filter((k) => columns.some((column) => column[k] !== null)).reverse();
  const isExact = exact.map((each) => each.every(Boolean));
  const rows = places.map((k) => [written(at[k]), ...columns.map((column, c) => column[k] === null || exact[c][k] ? written(column[k]) : `≈ ${written(column[k])}`)]);
  numbers.replaceChildren(table(["Return period (years)", ...series.map((each) => each.name)], rows,
    `Losses on these curves${from || to ? ", in the range that is seen" : ""}${isExact.every(Boolean) ? "." : "; with ≈ between two points, linear in the return period."}`));
  return [["Return period", ...series.flatMap(({ name }, c) => (isExact[c] ? [name] : [name, `${name}: is between two points`]))],
    ...places.map((k) => [at[k], ...columns.flatMap((column, c) => (isExact[c] ? [column[k]] : [column[k], Number(column[k] !== null && !exact[c][k])]))])];
}

function drawLinks(ids, loaded, rows) {
  const query = { summary_ids: ids.join(",") };
  const dark = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "";
  const look = { ...query, theme: dark, currency: state.get("currency"), plot_tvar: types().some((type) => type % 2 === 0) ? "true" : "" };
  const failed = (error) => show(problem, error);
  links.replaceChildren("Of what is seen: ", saver("csv of the table below", () => save("curves.csv", csv(rows)), failed), " ",
    saver("png of the picture", () => savePicture("curves.png", picture(canvas, ...caption.innerText.split("\n"))), failed),
    ...[...loaded.keys()].flatMap((run) => [make("br"), `EPT of run ${short(run)} alone: summary ${ids.join(", ")}, all types and calculations: `,
      ...[["csv", query], ["parquet", query], ["svg", look], ["png", look]].flatMap(([format, given]) =>
        [make("a", { href: at(reportPath(run, "ept", { format, ...given })), download: `ept-${short(run)}.${format}` }, format), " "])]));
}

async function drawCurves(signal) {
  busy.textContent = "Reading …";
  const missing = [];
  const loaded = new Map();
  for (const run of runs()) {
    try { await learn(run); } catch (error) {
      if (run === own || error.status !== 404) throw error;
      show(problem, error); // the others are drawn without it
      state.set({ runs: without(run) });
      continue;
    }
    if (variantOf(run, "ept")) loaded.set(run, null); else missing.push(run);
  }
  offers.replaceChildren(...missing.map((run) => offer(run, "ept", `Run ${short(run)} has no EPT, the table of curves.`)));
  figure.hidden = !loaded.size;
  if (!loaded.has(own)) { drawControls(); return; }
  chosenSummaries = await summaries();
  drawControls();
  await Promise.all([...loaded.keys()].map(async (run) => { loaded.set(run, await curvesOf(run, chosenSummaries, signal)); }));
  signal.throwIfAborted();
  const calculation = state.get("calc", "2");
  const { years, series } = seriesOf(loaded, chosenSummaries, calculation);
  describe(loaded, series);
  const tell = () => drawLinks(chosenSummaries, loaded, drawNumbers(years, series));
  tell();
  if (!series.length) {
    clear(canvas);
    canvas.replaceChildren(make("p", {}, "There is no such curve: choose another calculation, type or summary."));
    return;
  }
  const dashes = { 1: [], 3: [8, 4], 2: [2, 3], 4: [8, 3, 2, 3] };
  const groups = [...new Set(series.map((each) => `${each.run}/${each.id}`))];
  const many = groups.length > 1;
  chart(canvas, {
    xs: years, logarithmic: true, xTitle: "Return period (years)",
    yTitle: `${state.get("diff") === "1" && loaded.size === 2 ? "Difference of losses" : "Loss"}${state.get("currency") ? ` (${state.get("currency")})` : ""}`,
    range: rangeOf(years),
    onZoom: (from, to) => { unmark(); state.set({ from: from && String(Number(from.toPrecision(4))), to: to && String(Number(to.toPrecision(4))) }, true); drawControls(); tell(); },
    series: series.map((each, k) => ({
      name: each.name, values: each.losses, dash: dashes[each.type], isPoint: isPointOf(each.parts),
      colour: colours()[(many ? groups.indexOf(`${each.run}/${each.id}`) : k) % colours().length],
    })),
  });
}

// -- reports that the run does not have ----------------------------------------------

function offer(run, report, detail) {
  const input = report === "ept" && make("input", { size: "40", placeholder: "return periods such as 1000, 500, 250; every point without", "aria-label": "Return periods" });
  const said = make("p", { class: "problem", role: "alert", hidden: true });
  return make("form", { class: "card", onsubmit: async (event) => {
    event.preventDefault();
    const values = numbersOf(input ? input.value : "");
    const asked = { reports: [report], ...(values.length && { options: { return_periods: values } }) };
    try {
      const { variant } = await (await post(path(run, "/reports"), asked)).json();
      const { body } = await answered(path(run, `/reports/${report}${variant === "own" ? "" : `?variant=${variant}`}`), undefined, wait);
      body.cancel();
      if (run === own && report === "ept") state.set({ variant: variant === "own" ? "" : variant });
      location.reload();
    } catch (error) { show(said, error); }
  } }, make("p", {}, detail), input || "", " ", make("button", { class: "plain" }, `Compute ${report}`), said);
}

// -- averages ------------------------------------------------------------------------

const CONVERGENCE = { SummaryId: "Summary", SampleSize: "Samples", MeanLoss: "AAL", StandardError: "Standard error", RelativeError: "Relative error", LowerCI: "Lower bound", UpperCI: "Upper bound" };
const UNKNOWN = /Error|CI/; // of one sample
const MEANS = { 1: "analytical", 2: "sample" };

async function drawAverages(signal) {
  const heading = make("h2", {}, "Average annual loss");
  const having = runs().filter((run) => facts.has(run) && variantOf(run, "aal"));
  if (!having.length) {
    averages.replaceChildren(heading, offer(own, "aal", "The run has no AAL, the table of averages."));
    return;
  }
  const query = { format: "ndjson", summary_ids: chosenSummaries.join(",") };
  const rows = await Promise.all(having.map(async (run) => (await readLines(reportPath(run, "aal", query), { signal }))
    .map((row) => [short(run), String(row.SummaryId), MEANS[row.SampleType] ?? String(row.SampleType), written(row.MeanLoss), written(row.SDLoss)])));
  averages.replaceChildren(heading, table(["Run", "Summary", "Mean", "AAL", "Standard deviation"], rows.flat(), having.map((run) => figureLine("annual losses", run)).join("; ")));
  averages.append(make("h3", {}, "Convergence"));
  if (!variantOf(own, "alct")) { averages.append(offer(own, "alct", "The run has no ALCT, the averages by number of samples.")); return; }
  const lines = await readLines(reportPath(own, "alct", query), { signal });
  averages.append(table(Object.values(CONVERGENCE), lines.map((line) => Object.keys(CONVERGENCE).map((name) => line.SampleSize < 2 && UNKNOWN.test(name) ? "–" : written(line[name]))), `${figureLine("estimates by number of samples")} · the csv below has the parts of the variance, too`), find("#converging").content.cloneNode(true));
}

function figureLine(what, run = own, name = short(run)) {
  const { perspective, samples, periods: years } = facts.get(run).about;
  return [`run ${name}`, perspective, state.get("currency") || "currency not stated", what, samples && `${written(samples)} samples`, years && `${written(years)} ${weightsOf(run) ? "weighted " : ""}periods`].filter(Boolean).join(" · ");
}

// -- losses by period ----------------------------------------------------------------

async function drawPeriods(signal) {
  const heading = make("h2", {}, "Losses by period");
  if (!variantOf(own, "mplt")) {
    periods.replaceChildren(heading, offer(own, "mplt", "The run has no MPLT, the means of losses by period."));
    return;
  }
  if (state.get("plt") !== "1") {
    periods.replaceChildren(heading, make("button", { class: "plain", onclick: () => change({ plt: "1" }) }, "Show them"));
    return;
  }
  const [summary] = chosenSummaries;
  const sums = { 1: new Map(), 2: new Map() };
  await readRecords(reportPath(own, "mplt", { format: "bin", summary_ids: String(summary) }), ["Period", "SampleType", "MeanLoss"], ([period, type, loss]) => {
    const of = sums[type];
    of?.set(period, (of.get(period) ?? 0) + loss);
  }, { signal, most: 1 << 30 });
  const kind = sums[2].size ? 2 : 1;
  const top = [...sums[kind]].sort((a, b) => b[1] - a[1]).slice(0, BARS).sort((a, b) => a[0] - b[0]);
  const area = make("div", { class: "canvas", role: "group", "aria-label": "Losses by period; the table below has the numbers" });
  const said = `${figureLine(`${MEANS[kind]} mean losses of summary ${summary}`)} · the ${top.length} periods with most of ${written(sums[kind].size)} with any`;
  periods.replaceChildren(heading, make("figure", { class: "figure" }, make("figcaption", {}, said), area),
    make("details", {}, make("summary", {}, "The numbers"), table(["Period", "Loss"], top.map(([period, loss]) => [String(period), written(loss)]))),
    make("button", { class: "plain", onclick: () => change({ plt: "" }) }, "Hide them"));
  if (top.length) {
    chart(area, {
      xs: Float64Array.from(top.keys()), xTitle: "Period", yTitle: "Loss", bars: true, labels: top.map(([period]) => String(period)),
      series: [{ name: "Loss", values: top.map(([, loss]) => loss), colour: colours()[0], dash: [] }],
    });
  }
}

// ------------------------------------------------------------------------------------

async function change(values) {
  state.set(values, true);
  turn.abort();
  turn = new AbortController();
  const { signal } = turn;
  problem.hidden = true;
  try {
    await drawCurves(signal);
    await drawAverages(signal);
    await drawPeriods(signal);
  } catch (error) {
    if (error.name === "AbortError") return;
    show(problem, error);
    if (isAway(error)) comesBack().then(() => signal.aborted || change({}));
    if (error.status === 0) offers.replaceChildren(offer(own, "ept", "EPT at fewer return periods:"));
  } finally {
    if (!signal.aborted) busy.textContent = "";
  }
}

bind(controls, change);
find("#all").addEventListener("click", () => { unmark(); change({ from: "", to: "" }); });
chooser.addEventListener("change", () => {
  if (chooser.value === "more") listRuns();
  else if (chooser.value) change({ runs: [...new Set([...list("runs"), chooser.value])].join(",") });
});
addEventListener("popstate", () => { unmark(); change({}); });
root.hidden = false;
whenColoured(() => change({}));
