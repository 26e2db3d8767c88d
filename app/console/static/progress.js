// Watches a run while its page is seen, through the one event stream of the browser.
import { follow } from "./follow.js";

// Browsers for phones have no such workers, and others none where storage is blocked: there, each page
// that is seen has a stream.
function shared(run, on, failed) {
  const worker = new SharedWorker(new URL("./shared.js", import.meta.url), { type: "module" });
  worker.onerror = failed;
  worker.port.onmessage = ({ data: [name, value] }) => on[name](value);
  const say = (act) => () => worker.port.postMessage([act, run]);
  say("join")();
  return { again: say("join"), stop: say("leave") };
}

// Calls of `on` are those of `follow`.
export function watch(run, on) {
  let following = null;
  const alone = () => { following = follow(run, on); };
  const stop = () => { following?.stop(); following = null; };
  const again = () => {
    if (document.hidden) return;
    if (following) { following.again(); return; }
    try { following = shared(run, on, alone); } catch { alone(); }
  };
  document.addEventListener("visibilitychange", () => { if (document.hidden) stop(); else again(); });
  // A page that is left, and one that is come back to.
  addEventListener("pagehide", stop);
  addEventListener("pageshow", ({ persisted }) => { if (persisted) again(); });
  again();
  return { again, stop };
}
