// What happens to a run, as it happens: by server-sent events, and by asking again where these do not
// come or belong to another run. Pages and workers use this, so no document is known here.
import { at, json } from "./api.js";

const FIRST = 1; // seconds until the first attempt after a failure
const LONGEST = 15;
const AFTER_END = 5;
const BETWEEN = 2; // and between two questions about a run that has no stream

// Whether asking again would not help: the run is gone, or who asks may not see it.
const isFinal = ({ status }) => status >= 400 && status < 500 && status !== 408 && status !== 429;

// Until it is refused calls
//   on.changed(event)     its streams are all of the run if it is whole, else those that changed
//   on.offline(seconds)   until the next attempt; 0 once the service answers again
//   on.refused(problem)
export function follow(run, on) {
  const path = `/v1/runs/${encodeURIComponent(run)}`;
  let [source, control, timer, wait, state] = [null, null, 0, FIRST, ""];
  let [over, streamed] = [false, true];

  function close() {
    clearTimeout(timer);
    source?.close();
    control?.abort();
    source = control = null;
  }

  const later = (seconds) => { timer = setTimeout(look, seconds * 1000); };

  function look() {
    close();
    if (over) return;
    if (streamed) listen(); else ask();
  }

  function take(event) {
    state = event.state;
    wait = FIRST;
    on.offline(0);
    on.changed(event);
  }

  function listen() {
    source = new EventSource(at(`${path}/progress`));
    for (const kind of ["state", "change"]) {
      source.addEventListener(kind, ({ data }) => take({ ...JSON.parse(data), whole: kind === "state" }));
    }
    // One that has failed may be repaired.
    source.addEventListener("end", () => { close(); if (state !== "done") later(AFTER_END); });
    source.addEventListener("problem", ask);
    source.onerror = ask;
  }

  // Asks plainly, also why no events come; the answer is as good as an event.
  async function ask() {
    close();
    control = new AbortController();
    const { signal } = control;
    try {
      const [described, { streams, after }] = await Promise.all([json(path, { signal }), json(`${path}/streams?limit=1000`, { signal })]);
      take({ ...described, streams, deleted: [], whole: after === null });
      if (streamed || state !== "done") later(streamed ? AFTER_END : BETWEEN);
    } catch (error) {
      if (signal.aborted) return;
      if (isFinal(error)) { over = true; on.refused(error); return; }
      on.offline(wait);
      timer = setTimeout(ask, wait * 1000);
      wait = Math.min(2 * wait, LONGEST);
    }
  }

  look();
  return {
    again: look,
    stream(on) { if (streamed !== on) { streamed = on; look(); } },
    stop() { over = true; close(); },
  };
}
