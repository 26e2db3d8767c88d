// Requests to the service. A problem is an Error with the members of RFC 9457.
import { words } from "./hints.js";

export class Problem extends Error {
  constructor(status, body) {
    super(body.detail || body.title || `status ${status}`);
    Object.assign(this, body, { status });
  }
}

// Where the service is: at the root of its host, or below the path of its public URL.
const root = new URL("../../..", import.meta.url).pathname.slice(0, -1);
export const at = (path) => root + path;

// Sends a request; returns the response, or throws a Problem, or a TypeError without connection.
export async function request(path, options = {}) {
  const response = await fetch(path[0] === "/" ? at(path) : path, { credentials: "same-origin", ...options });
  if (response.ok) return response;
  const text = await response.text();
  let body = {};
  try { body = JSON.parse(text); } catch { body.detail = text.slice(0, 500); }
  throw new Problem(response.status, body);
}

export const json = async (path, options) => (await request(path, options)).json();

export const post = (path, value, options = {}) =>
  request(path, {
    method: "POST", body: JSON.stringify(value), ...options,
    headers: { "Content-Type": "application/json", ...options.headers },
  });

// Shows a problem in an element with role="alert", in the words of a form; names are text, never markup.
export function show(element, problem, form) {
  const { message, hint } = words(problem, form);
  element.textContent = problem instanceof TypeError ? "The service does not answer." : message;
  if (hint) element.append(document.createElement("br"), hint);
  if (problem.code) {
    const link = document.createElement("a");
    link.href = at(`/problems/${encodeURIComponent(problem.code)}`);
    link.textContent = problem.code;
    element.append(" ", link);
  }
  element.hidden = false;
}

// Makes an element with attributes and children; text children are text.
export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value != null) element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

// The state of a page is in its address: reads and writes parameters of the query.
export const state = {
  get: (name, fallback = "") => new URLSearchParams(location.search).get(name) ?? fallback,
  set(values) {
    const query = new URLSearchParams(location.search);
    for (const [name, value] of Object.entries(values)) {
      if (value === "" || value == null) query.delete(name); else query.set(name, value);
    }
    history.replaceState(null, "", query.size ? `?${query}` : location.pathname);
  },
};

// Looks again every so many seconds while the page is seen; the next wait begins once a look is over.
export function whileVisible(seconds, look) {
  let timer = 0;
  const next = () => { timer = setTimeout(run, seconds * 1000); };
  const run = async () => {
    if (!document.hidden && await look() === false) return;
    next();
  };
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) { clearTimeout(timer); run(); }
  });
  next();
}
