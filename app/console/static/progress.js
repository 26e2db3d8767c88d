// What happens to a run, as it happens: by server-sent events, and by asking again where these do not
// come. A page that is not seen holds no connection, so that many may be open.
import { json } from "./api.js";

const FIRST = 1; // seconds until the first attempt after a failure
const LONGEST = 15;
const AFTER_END = 5;

// Whether asking again would not help: the run is gone, or who asks may not see it.
const isFinal = ({ status }) => status >= 400 && status < 500 && status !== 408 && status !== 429;

// Until it is refused calls
//   on.changed(event)     its streams are all of the run if it is whole, else those that changed
//   on.offline(seconds)   until the next attempt; 0 once the service answers again
//   on.refused(problem)
export function watch(run, on) {
  const path = `/v1/runs/${encodeURIComponent(run)}`;
  let source = null;
  let wait = FIRST;
  let timer = 0;
  let over = false;
  let state = "";

  function close() {
    clearTimeout(timer);
    source?.close();
    source = null;
  }

  function listen() {
    close();
    if (over || document.hidden) return;
    source = new EventSource(`${path}/progress`);
    const take = ({ type, data }) => {
      const event = { ...JSON.parse(data), whole: type === "state" };
      state = event.state;
      wait = FIRST;
      on.offline(0);
      on.changed(event);
    };
    source.addEventListener("state", take);
    source.addEventListener("change", take);
    // One that has failed may be repaired.
    source.addEventListener("end", () => { close(); if (state !== "done") timer = setTimeout(listen, AFTER_END * 1000); });
    source.addEventListener("problem", ask);
    source.onerror = ask;
  }

  // Asks plainly why no events come; the answer is as good as an event.
  async function ask() {
    close();
    try {
      const [described, { streams, after }] = await Promise.all([json(path), json(`${path}/streams?limit=1000`)]);
      on.offline(0);
      on.changed({ ...described, streams, deleted: [], whole: after === null });
      timer = setTimeout(listen, AFTER_END * 1000);
    } catch (error) {
      if (isFinal(error)) { over = true; on.refused(error); return; }
      on.offline(wait);
      timer = setTimeout(ask, wait * 1000);
      wait = Math.min(2 * wait, LONGEST);
    }
  }

  document.addEventListener("visibilitychange", () => { if (document.hidden) close(); else listen(); });
  listen();
  return { again: listen, stop() { over = true; close(); } };
}
