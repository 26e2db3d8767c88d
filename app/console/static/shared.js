// A worker that all pages of a browser share. A browser opens six connections to a host at most, and
// an event stream keeps one: there is one stream, of the run that was looked at last, and other runs
// are asked about now and then. Of a run that is seen nowhere nothing is asked.
import { follow } from "./follow.js";

const runs = new Map(); // {ports, following} by run; the last has the stream

function give() {
  const all = [...runs.values()];
  all.forEach(({ following }, k) => following.stream(k === all.length - 1));
}

function join(run, port) {
  const found = runs.get(run);
  runs.delete(run);
  const ports = (found?.ports ?? new Set()).add(port);
  const tell = (name, value) => { for (const each of ports) each.postMessage([name, value]); };
  const refused = ({ message, ...rest }) => { runs.delete(run); give(); tell("refused", { ...rest, message }); };
  const on = { changed: (event) => tell("changed", event), offline: (seconds) => tell("offline", seconds), refused };
  runs.set(run, { ports, following: found?.following ?? follow(run, on) });
  give();
  found?.following.again(); // who joins is told the whole state
}

function leave(run, port) {
  const found = runs.get(run);
  found?.ports.delete(port);
  if (found?.ports.size !== 0) return;
  found.following.stop();
  runs.delete(run);
  give();
}

onconnect = ({ ports: [port] }) => {
  port.onmessage = ({ data: [act, run] }) => { if (act === "join") join(run, port); else leave(run, port); };
};
