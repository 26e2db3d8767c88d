// Uploads of files to a run by tus: in parts, paused and continued, and after a reload, too. The
// service keeps name and beginning of each file with its stream, so that the same file is known again
// on any computer; a name is kept here as well, to ask for it. Files are read part by part.
import { make, request, show } from "./api.js";
import { size, written } from "./tables.js";

const PART = 8 << 20;
const FIRST_PART = 1 << 18; // which shows soon how fast it goes
const BEGINNING = 1 << 20;
const AT_ONCE = 3; // a browser opens six connections at most
const LONGEST = 30; // seconds between two attempts
const TUS = { "Tus-Resumable": "1.0.0" };
const NAMES = [
  ["return_periods", /return.?period/i], ["occurrence", /occurrence/i], ["periods", /periods?\b|period/i], ["quantiles", /quantile/i],
  ["event_rates", /event.?rate/i], ["summary_xref", /summary.?xref/i], ["summary_map", /summary.?map/i], ["summary_info", /summary.?info/i],
];

// The kind of auxiliary file that a name tells of.
export const kindOf = ({ name }) => NAMES.find(([, pattern]) => pattern.test(name))?.[0];

// The partition in a name such as summary_P1.bin; 0 if there is none.
const numberOf = ({ name }) => Number(/(?<![a-z])p(\d{1,6})\.[a-z]+$/i.exec(name)?.[1]) || 0;

const plain = (text) => String.fromCharCode(...new TextEncoder().encode(text)); // its bytes as letters
const encode = (text) => btoa(plain(text));
const metadataOf = (text) => Object.fromEntries((text ?? "").split(",").filter(Boolean).map((pair) => {
  const [key, value = ""] = pair.trim().split(" ");
  return [key, atob(value)];
}));

// Tells files apart by their first MiB; it need not withstand anybody, and works without TLS.
async function digest(file) {
  const bytes = new Uint8Array(await file.slice(0, BEGINNING).arrayBuffer());
  let [a, b] = [0xdeadbeef, 0x41c6ce57];
  for (const byte of bytes) {
    a = Math.imul(a ^ byte, 2654435761);
    b = Math.imul(b ^ byte, 1597334677);
    b ^= a >>> 13;
  }
  return [a, b].map((word) => (word >>> 0).toString(16).padStart(8, "0")).join("");
}

// The storage of a browser may be blocked.
const key = (stream) => `thalweg-file-${stream}`;
export function remember(stream, name) { try { localStorage.setItem(key(stream), name); } catch { /* asked for without its name */ } }
export function forget(stream) { try { localStorage.removeItem(key(stream)); } catch { /* as above */ } }
export function recall(stream) { try { return localStorage.getItem(key(stream)); } catch { return null; } }

const later = (seconds, signal) => new Promise((done, failed) => {
  const timer = setTimeout(done, seconds * 1000);
  signal.addEventListener("abort", () => { clearTimeout(timer); failed(signal.reason); }, { once: true });
});

// Whether to try again by itself: not what the client has done wrong, nor what another one took over.
const isPassing = (error) => error instanceof TypeError || error.status >= 500 || error.status === 408 || error.status === 429 || error.code === "offset-mismatch";

// Does work until it is done or an error is none that passes.
async function persist(work, signal, say) {
  for (let wait = 1; ;) {
    try {
      return await work(() => { wait = 1; });
    } catch (error) {
      if (signal.aborted || !isPassing(error)) throw error;
      const pause = Math.max(wait, error.retry_after ?? 0);
      say(error instanceof TypeError ? `the service does not answer; trying again in ${pause} s` : `${error.message}; trying again in ${pause} s`);
      await later(pause, signal);
      wait = Math.min(2 * wait, LONGEST);
    }
  }
}

class Transfer {
  constructor(file, work) {
    this.file = file;
    this.work = work;
    this.stream = null;
    this.running = false;
    this.over = false;
    this.bar = make("progress", { max: String(file.size || 1), value: "0", "aria-label": `Sent of ${file.name}` });
    this.said = make("span", { role: "status" });
    this.button = make("button", { class: "plain", type: "button", onclick: () => this.running ? this.pause() : this.start() }, "Pause");
    this.out = make("button", { class: "plain", type: "button", hidden: true, onclick: () => this.leave() }, "Leave out");
    this.row = make("li", {}, make("strong", {}, file.name), size(file.size), this.bar, this.said, this.button, " ", this.out);
    this.say("waiting");
  }

  say(text) { this.said.textContent = text; }

  progress(offset) {
    this.bar.value = offset;
    const seconds = (performance.now() - this.began) / 1000;
    const sent = offset - this.from;
    this.say(`${Math.floor(100 * offset / (this.file.size || 1))} %${sent > 0 && seconds > 0.5 ? ` · ${size(sent / seconds)}/s` : ""}`);
  }

  pause() {
    this.controller?.abort();
    this.queued = false;
  }

  start() {
    this.queued = true;
    this.button.textContent = "Pause";
    this.say("waiting");
    next();
  }

  async leave() {
    this.over = true;
    try {
      await this.left();
      this.row.remove();
    } catch (error) {
      this.over = false;
      show(this.said, error);
    }
  }

  async run() {
    this.controller = new AbortController();
    this.running = true;
    this.queued = false;
    this.out.hidden = true;
    this.button.hidden = false;
    this.row.classList.remove("failed");
    try {
      await this.work(this, this.controller.signal);
      this.over = true;
      this.button.remove();
    } catch (error) {
      if (this.controller.signal.aborted) this.say("paused");
      else {
        show(this.said, error);
        this.isFaulty = error.state === "failed";
        this.row.classList.add("failed");
        this.out.hidden = false;
        this.button.hidden = [400, 422].includes(error.status) || this.isFaulty; // the same file fails again
      }
      this.button.textContent = "Continue";
    }
    this.running = false;
    next();
  }
}

const transfers = [];

function next() {
  const running = transfers.filter((each) => each.running).length;
  transfers.filter((each) => each.queued).slice(0, Math.max(AT_ONCE - running, 0)).forEach((each) => each.run());
}

export const areOver = () => transfers.every((each) => each.over);
export const fileOf = (stream) => transfers.find((each) => each.stream === stream)?.file.name ?? recall(stream);
export const isTransferring = (stream) => transfers.some((each) => each.stream === stream && !each.over);

// Offers uploads to a run.
export function offerUploads({ path, changed }) {
  const listed = document.getElementById("transfers"), told = document.getElementById("periods");
  let turn = Promise.resolve(); // files look for their streams one after the other

  const address = (stream) => `${path}/streams/${encodeURIComponent(stream)}`;

  async function look(stream, signal) {
    const { headers } = await request(address(stream), { method: "HEAD", headers: TUS, signal });
    const length = headers.get("Upload-Length");
    return { offset: Number(headers.get("Upload-Offset")), length: length === null ? null : Number(length), metadata: metadataOf(headers.get("Upload-Metadata")) };
  }

  async function streams(signal) {
    const all = [];
    for (let after = ""; after !== null;) {
      const page = await (await request(`${path}/streams?limit=1000&after=${after}`, { signal })).json();
      all.push(...page.streams);
      after = page.after;
    }
    return all;
  }

  // The stream that has this file, or a part of it; null if none has. Empty streams differ by name only.
  async function find(file, beginning, all, signal) {
    for (const stream of all) {
      if (stream.length !== file.size) continue;
      // A look would end what is being sent.
      const other = transfers.find((each) => each.stream === stream.id && !each.over);
      if (other?.file.name === file.name) throw new Error("This file is being sent already.");
      if (other) continue;
      const { metadata } = await look(stream.id, signal);
      if (metadata.filename !== plain(file.name)) continue;
      if (stream.state === "failed") throw Object.assign(new Error(`A file of this name is partition ${stream.partition}, which is faulty.`), { code: "stream-failed" });
      if (metadata.beginning === beginning) return stream;
    }
    return null;
  }

  async function create(file, beginning, all, signal) {
    const wanted = numberOf(file);
    const holder = all.find((stream) => stream.partition === wanted);
    if (holder?.state === "failed") throw Object.assign(new Error(`Partition ${wanted} has a faulty stream.`), { code: "stream-failed" });
    const query = wanted && !holder ? `?partition=${wanted}` : "";
    const metadata = `filename ${encode(file.name)},beginning ${encode(beginning)}`;
    const headers = { ...TUS, "Upload-Length": String(file.size), "Upload-Metadata": metadata };
    const response = await request(`${path}/streams${query}`, { method: "POST", headers, signal });
    return response.headers.get("Location").split("/").pop();
  }

  async function claim(transfer, signal) {
    const { file } = transfer;
    const beginning = await digest(file), all = await streams(signal);
    const found = await find(file, beginning, all, signal);
    transfer.stream = found?.id ?? await create(file, beginning, all, signal);
    transfer.isOwn = !found;
    remember(transfer.stream, file.name);
  }

  async function send(transfer, signal) {
    const { file } = transfer;
    if (!transfer.stream) {
      const claimed = turn.then(() => persist(() => claim(transfer, signal), signal, (text) => transfer.say(text)));
      turn = claimed.catch(() => {});
      await claimed;
      changed();
    }
    await persist(async (worked) => {
      let { offset } = await look(transfer.stream, signal);
      transfer.from = offset;
      transfer.began = performance.now();
      let part = FIRST_PART;
      for (transfer.progress(offset); offset < file.size; transfer.progress(offset)) {
        const headers = { ...TUS, "Upload-Offset": String(offset), "Content-Type": "application/offset+octet-stream" };
        const response = await request(address(transfer.stream), { method: "PATCH", headers, body: file.slice(offset, offset + part), signal });
        part = Math.min(2 * part, PART);
        offset = Number(response.headers.get("Upload-Offset"));
        worked();
      }
    }, signal, (text) => transfer.say(text));
    transfer.say("complete");
    forget(transfer.stream);
    changed();
  }

  async function put(transfer, signal) {
    const { file, kind } = transfer;
    const periods = kind === "occurrence" && told.value;
    transfer.say("sending");
    await persist(() => request(`${path}/inputs/${kind}${periods ? `?no_of_periods=${periods}` : ""}`, { method: "PUT", body: file, signal }), signal, (text) => transfer.say(text));
    transfer.bar.value = file.size;
    transfer.say(`bound as ${kind}`);
    changed();
  }

  const failedOf = (kind) => transfers.filter((each) => kind && each.kind === kind && !each.over && each.row.className);
  told.addEventListener("change", () => failedOf("occurrence").forEach((each) => each.start()));

  // A file takes the place of one of its kind that was refused.
  function add(transfer) {
    for (const each of failedOf(transfer.kind)) each.out.click();
    transfers.push(transfer);
    // Its stream goes, too, unless it was begun by another page and may go on there.
    transfer.left = async () => {
      if (transfer.stream && (transfer.isOwn || transfer.isFaulty)) await request(address(transfer.stream), { method: "DELETE" });
      changed();
    };
    listed.append(transfer.row);
    transfer.start();
  }

  function addStreams(files) {
    const order = new Intl.Collator("en", { numeric: true }).compare;
    // Those that others are given are free of the numbers in names.
    for (const file of files.sort((a, b) => !numberOf(a) - !numberOf(b) || order(a.name, b.name))) add(new Transfer(file, send));
  }

  // Continues one stream with the file that was chosen for it, if that is the same.
  async function addAgain(stream, file, problem) {
    const signal = AbortSignal.timeout(60_000);
    try {
      const { length, metadata } = await look(stream, signal);
      const name = metadata.filename ? new TextDecoder().decode(Uint8Array.from(metadata.filename, (letter) => letter.charCodeAt(0))) : "its file";
      if (length !== null && length !== file.size) throw new Error(`Your ${file.name} has ${written(file.size)} bytes; ${name}, whose upload began, has ${written(length)}. Choose that one.`);
      if (metadata.beginning && metadata.beginning !== await digest(file)) throw new Error(`Your ${file.name} begins otherwise than ${name}, whose upload began. Choose that one.`);
      const transfer = new Transfer(file, send);
      transfer.stream = stream;
      add(transfer);
    } catch (error) { show(problem, error); }
  }

  function addInputs(files) {
    const chosen = document.getElementById("kind")?.value;
    for (const file of files) {
      const kind = chosen || kindOf(file);
      const transfer = new Transfer(file, put);
      transfer.kind = kind;
      if (kind) { add(transfer); continue; }
      transfer.say("of which kind? Choose it above, then the file again");
      transfer.button.remove();
      listed.append(transfer.row);
    }
  }

  addEventListener("beforeunload", (event) => { if (transfers.some((each) => each.running)) event.preventDefault(); });
  return { addAgain, addInputs, addStreams };
}

// The files below an entry of what is dropped; names that begin with a dot are of the system.
async function filesBelow(entry) {
  if (entry.isFile) return entry.name[0] === "." ? [] : [await new Promise((done, failed) => { entry.file(done, failed); })];
  const reader = entry.createReader(), found = [];
  const more = () => new Promise((done, failed) => { reader.readEntries(done, failed); });
  for (let some; (some = await more()).length;) found.push(...some);
  return (await Promise.all(found.map(filesBelow))).flat();
}

// Takes the files that are dropped on an area or chosen beside it; a dropped text is handed on, too.
export function drop(name, take) {
  const area = document.getElementById(`drop-${name}`);
  const input = document.getElementById(`choose-${name}`);
  const over = (on) => (event) => { event.preventDefault(); area.classList.toggle("over", on); };
  area.addEventListener("dragover", over(true));
  area.addEventListener("dragleave", over(false));
  area.addEventListener("drop", async (event) => {
    over(false)(event);
    // All is asked for at once: it is gone after the first wait.
    const { dataTransfer: data } = event, files = [...data.files], text = data.getData("text");
    const entries = [...data.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
    take(entries.some((entry) => entry.isDirectory) ? (await Promise.all(entries.map(filesBelow))).flat() : files, text);
  });
  input.addEventListener("change", () => { take([...input.files], ""); input.value = ""; });
}
