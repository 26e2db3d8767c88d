// The browser of a dataset of frames: an image of the scan, and what lies at a place of it.
import { at, comesBack, isAway, json, make, post, Problem, show, state } from "./api.js";
import { floatOf, Interrupted, reduce, tiles } from "./arrays.js";
import { fromText, reduction, toText, words } from "./detector.js";
import { Handle } from "./handles.js";
import { MAPS, Picture, scaleBar } from "./image.js";
import { contiguous, ofImage, ofView, showLines } from "./lines.js";
import { Preview } from "./preview.js";

const MOST = 1 << 22; // values of a picture; larger ones are thinned out, and say so
const UNASKED = 2 ** 30; // bytes that are read for a first picture without being asked for

const service = location.origin + at("");
const page = document.querySelector("#browser");
const id = page.dataset.id;
const find = (selector) => page.querySelector(selector);
const gone = document.querySelector("#gone"), trouble = document.querySelector("#trouble");

for (const button of document.querySelectorAll(".reload")) button.addEventListener("click", () => location.reload());

function fail(problem) {
  show(trouble.querySelector("p"), problem);
  trouble.hidden = false;
}

async function start(dataset) {
  const nav = dataset.nav_shape, frame = dataset.sig_shape;
  const scan = [nav.at(-2) ?? 1, nav.at(-1)];
  const planes = nav.slice(0, -2);
  const plane = planes.map((count, axis) => clampWhole(state.get("plane").split(",")[axis], count));
  const running = new Map(), waiting = new Map();
  let over = false, blamed = null, preview = null, drawn = 0;
  page.hidden = false;

  // Runs what fills a picture, in place of what did before; tells how far it is and how it fails.
  async function run(figure, job) {
    running.get(figure)?.abort();
    waiting.delete(figure);
    if (over) return;
    const control = new AbortController();
    running.set(figure, control);
    const bar = figure.querySelector("progress") ?? make("progress");
    bar.hidden = false;
    bar.removeAttribute("value");
    try {
      await job({ signal: control.signal, progress: (part) => { bar.value = part; } });
      if (blamed === figure) trouble.hidden = true;
      await check(control.signal);
    } catch (problem) {
      if (control.signal.aborted) return;
      if (!isGone(problem)) broken(figure, problem);
      else { waiting.set(figure, job); wait(); }
    } finally {
      if (running.get(figure) === control) { bar.hidden = true; running.delete(figure); }
    }
  }

  // What was read is of the version of the page, if that is still the present one. Data that is
  // declared growing keeps what it had: the page goes on showing that.
  async function check(signal) {
    const now = await json(`/v1/datasets/${encodeURIComponent(id)}`, { signal });
    if (now.fingerprint === dataset.fingerprint) return;
    if (dataset.growing && now.growing && now.frames >= dataset.frames) { grown(now.frames); return; }
    throw new Problem(412, {
      detail: `The dataset has changed: its fingerprint was ${dataset.fingerprint} and is ${now.fingerprint}`,
      code: "data-changed",
    });
  }

  function grown(frames) {
    find("#grown").hidden = false;
    find("#grown span").textContent = `There are ${frames.toLocaleString("en")} frames now; this page shows ${dataset.frames.toLocaleString("en")}.`;
  }

  function broken(figure, problem) {
    fail(problem);
    blamed = figure;
    over = [404, 410, 412].includes(problem.status);
    for (const each of (over ? page : figure).querySelectorAll("figcaption")) each.textContent = each.textContent.replace(/^Computing/, "Not computed");
    trouble.querySelector("button").hidden = !over;
    if (!over) return;
    for (const control of running.values()) control.abort();
    preview = null;
    page.classList.add("stale");
  }

  async function wait() {
    if (!gone.hidden) return;
    gone.hidden = false;
    await comesBack();
    gone.hidden = true;
    for (const [figure, job] of [...waiting]) run(figure, job);
  }

  const look = (name, map) => {
    const [chosen, low, high, log] = state.get(name).split(",");
    const limits = [Number(low || 1), Number(high || 99)];
    const good = limits[0] >= 0 && limits[0] < limits[1] && limits[1] <= 100;
    return { map: MAPS.includes(chosen) ? chosen : map,
      low: good ? limits[0] : 1, high: good ? limits[1] : 99, log: log === "log" };
  };
  const keep = () => {
    find("#lines").replaceChildren();
    find("#crop").hidden = detector.value.kind !== "rectangle";
    state.set({
      place: toText(place.value), detector: toText(detector.value), plane: plane.join(","),
      nav: lookText(image.look), frame: lookText(picture.look),
    }, true);
    search = location.search;
  };
  let { search } = location;
  addEventListener("popstate", () => location.search === search || location.reload());
  const image = new Picture(find("#scan"), look("nav", "viridis"), keep);
  const picture = new Picture(find("#frame"), look("frame", "inferno"), keep);

  // Says what is asked for, and that what stands there is not that yet.
  const pending = (shown, what) => {
    shown.caption.textContent = `${over ? "Not computed" : "Computing"}: ${what} …${shown.values ? " what is seen is of before" : ""}`;
  };

  const corner = () => plane.map((at) => [at, at + 1]);
  const whole = () => [...corner(), ...(nav.length > 1 ? [[0, scan[0]]] : []), [0, scan[1]]];
  const region = ({ y0, y1, x0, x1 }) => [...corner(), ...(nav.length > 1 ? [[y0, y1]] : []), [x0, x1]];

  const thin = Math.ceil(Math.sqrt(Math.max(1, (frame[0] * frame[1]) / MOST)));
  const seen = frame.map((length) => length - (length % thin));
  const pixels = thin > 1 ? { sig: seen.map((length) => [0, length]), bin: { sig: thin } } : {};
  const frameSize = seen.map((length) => length / thin);
  const every = Math.ceil(Math.sqrt(Math.max(1, (scan[0] * scan[1]) / MOST)));

  function showFrame(shape) {
    const many = shape.kind !== "point";
    const what = { point: `Frame at ${words(shape)}`, rectangle: `Sum over the frames of a ${words(shape)}`, sum: "Sum over all frames" }[shape.kind];
    pending(picture, what);
    return run(picture.figure, async (how) => {
      let values = new Float32Array(frameSize[0] * frameSize[1]);
      if (many) {
        const select = { nav: shape.kind === "sum" ? whole() : region(shape) };
        ({ values } = await reduce(id, { select, ...pixels }, { op: "sum" }, how));
      } else {
        const select = { nav: region({ y0: shape.y, y1: shape.y + 1, x0: shape.x, x1: shape.x + 1 }) };
        const dtype = thin > 1 ? "<f8" : floatOf(dataset.corrected_dtype ?? dataset.dtype);
        values = dtype === "<f8" ? new Float64Array(values.length) : values;
        await tiles(id, { select, dtype, missing: "nan", ...pixels }, how, (tile) => place2d(values, frameSize[1], tile));
      }
      picture.set(values, ...frameSize, thin);
      const none = !many && values.every(Number.isNaN);
      picture.caption.textContent = [none ? `There is no frame at ${words(shape)}` : what,
        thin > 1 ? `; each pixel is the sum of ${thin} × ${thin}` : ""].join("");
    });
  }

  // The copy that shows what a detector sees while it moves: asked for once one is chosen.
  const copying = find("#copying");
  async function copy() {
    if (preview || running.has(copying) || copying.dataset.none) return;
    copying.hidden = false;
    await run(copying, async (how) => {
      preview = await Preview.fetch(id, corner(), Math.min(nav.length, 2), scan, frame, how);
      if (!preview) copying.dataset.none = true;
    });
    copying.hidden = true;
  }

  function showPreview(shape, since) {
    running.get(image.figure)?.abort();
    cancelAnimationFrame(drawn);
    if (!preview || over || shape.kind === "sum") return;
    drawn = requestAnimationFrame(() => {
      const { values, rows, columns } = preview.image(shape, every);
      image.set(values, rows, columns, every);
      image.caption.textContent = `${preview.words}: ${words(shape)}; the exact image follows on release or Enter`;
      performance.measure("preview", { start: since });
    });
  }

  function showImage(shape) {
    cancelAnimationFrame(drawn);
    const what = words(shape);
    pending(image, what);
    return run(image.figure, async (how) => {
      const nav = whole().map(([from, to]) => [from, to, to - from > 1 ? every : 1]);
      const { values } = await reduce(id, { select: { nav } }, reduction(shape), how);
      image.set(values, ...scan.map((length) => Math.ceil(length / every)), every);
      image.caption.textContent = `Exact: ${what}${every > 1 ? `; every ${every}th position of a row, every ${every}th row` : ""}`;
    });
  }

  const place = new Handle(find("#scan .stage"), find("#scan .shape"), scan, scan.map((n) => Math.ceil(n / every) * every),
    fromText(state.get("place"), ["point", "rectangle", "sum"], scan), (shape, { ended }) => {
      if (shape.kind === "point") image.point([shape.y, shape.x]);
      if (ended) keep();
      // A frame is small: it is shown while the pointer moves. Sums wait until it rests.
      if (ended || (shape.kind === "point" && !running.has(picture.figure))) showFrame(shape);
    });
  const detector = new Handle(find("#frame .stage"), find("#frame .shape"), frame, seen,
    fromText(state.get("detector"), ["sum", "disk", "annulus", "rectangle"], frame), (shape, { ended, since }) => {
      picture.point(middle(shape));
      if (!ended) { showPreview(shape, since); return; }
      ask.hidden = true;
      keep();
      showImage(shape);
      if (shape.kind !== "sum") copy();
    });
  const ask = find("#compute");
  find("#scan .stage").classList.toggle("strip", nav.length === 1);
  if (place.value.kind === "point") image.point([place.value.y, place.value.x]);
  picture.point(middle(detector.value));
  scaleBar(find("#scan .scale"), dataset.axes[nav.length - 1], scan[1]);
  scaleBar(find("#frame .scale"), dataset.axes[nav.length + 1], seen[1]);

  // The service keeps the view whose lines are written: curl and zarr need a name for it.
  async function write() {
    const lines = find("#lines"), shape = place.value, box = detector.value;
    const chosen = shape.kind === "sum" ? whole() : region(shape.kind === "rectangle" ? shape : { y0: shape.y, y1: shape.y + 1, x0: shape.x, x1: shape.x + 1 });
    const sig = find("#crop input").checked && box.kind === "rectangle" ? [[box.y0, box.y1], [box.x0, box.x1]] : null;
    const lengths = [...chosen, ...(sig ?? frame.map((length) => [0, length]))].map(([from, to]) => to - from);
    const view = { select: { nav: chosen }, ...(sig && { sig }) };
    const bytes = Number((dataset.corrected_dtype ?? dataset.dtype).slice(2));
    const holes = dataset.sync.frames_inserted_start || dataset.sync.frames_inserted_end;
    await run(lines, async ({ signal }) => {
      const answer = await post(`/v1/datasets/${encodeURIComponent(id)}/views`, contiguous(view, lengths, bytes, holes), { signal });
      const stored = await answer.json(), keyed = "keyed" in page.dataset;
      lines.replaceChildren();
      showLines(lines, `Frames, ${stored.shape.join(" × ")} of ${stored.dtype}`, ofView(service, id, chosen, sig, stored, keyed));
      const all = corner().length ? { select: { nav: whole() } } : {};
      showLines(lines, `Image of the scan: ${words(box)}`, ofImage(service, id, all, reduction(box), keyed));
    });
  }
  find("#write").addEventListener("click", write);
  find("#crop").hidden = detector.value.kind !== "rectangle";

  // Axes before the last two: one number each.
  find("#planes").append(...planes.map((count, axis) => make("label", {}, dataset.axes[axis].name, make("input", {
    type: "number", min: 0, max: count - 1, step: 1, value: plane[axis], class: "short",
    onchange: ({ target }) => {
      if (!target.reportValidity() || target.value === "") return;
      plane[axis] = target.valueAsNumber;
      running.get(copying)?.abort();
      preview = null;
      keep();
      showFrame(place.value);
      showImage(detector.value).then(() => detector.value.kind !== "sum" && copy());
    },
  }))));

  await showFrame(place.value);
  const bytes = dataset.frames * dataset.frame_bytes;
  const begin = async () => {
    ask.hidden = true;
    await showImage(detector.value);
    if (detector.value.kind !== "sum") copy();
  };
  ask.addEventListener("click", begin);
  if (bytes <= UNASKED) return begin();
  ask.hidden = false;
  image.caption.textContent = `This scan holds ${(bytes / 2 ** 30).toFixed(1)} GiB: its image is computed when you ask for it`;
}

const lookText = ({ map, low, high, log }) => [map, low, high, log ? "log" : "linear"].join(",");

function clampWhole(text, count) {
  const value = Number(text ?? 0);
  return Number.isInteger(value) && value >= 0 && value < count ? value : 0;
}

const isGone = (problem) => problem instanceof Interrupted || isAway(problem);

// The pixel of a frame in the middle of a shape.
function middle(shape) {
  if (shape.kind === "rectangle") return [Math.floor((shape.y0 + shape.y1) / 2), Math.floor((shape.x0 + shape.x1) / 2)];
  return [Math.round(shape.y ?? 0), Math.round(shape.x ?? 0)];
}

// Puts a tile of one frame, whose last axes are rows and columns, in its place.
function place2d(values, columns, { values: part, shape, origin }) {
  const [height, width] = shape.slice(-2), [top, left] = origin.slice(-2);
  for (let row = 0; row < height; row += 1) {
    values.set(part.subarray(row * width, (row + 1) * width), (top + row) * columns + left);
  }
}

const described = await json(`/v1/datasets/${encodeURIComponent(id)}`).catch((problem) => fail(problem));
if (described?.sig_shape?.length === 2 && described.nav_shape.length) await start(described);
