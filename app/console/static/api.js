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

// A link to what a problem is; its code is for programs.
export const explained = (code) => make("a", { href: at(`/problems/${encodeURIComponent(code)}`), title: code, target: "_blank" }, "What is this?");

// Whether asking again may help, as the service is away; and until it is back.
export const isAway = (error) => error instanceof TypeError || error.status === 503;
export async function comesBack() {
  do await new Promise((done) => { setTimeout(done, 2000); });
  while (!(await fetch(at("/readyz")).then(({ ok }) => ok, () => false)));
}

// Hides what was said while the service did not answer, once it does.
export function answersAgain(element) { if (element.dataset.offline) element.hidden = true; }

// Shows a problem in an element with role="alert", in the words of a form; names are text, never markup.
export function show(element, problem, form) {
  const { message, hint } = words(problem, form);
  element.textContent = problem instanceof TypeError ? "The service does not answer." : message;
  if (hint) element.append(document.createElement("br"), hint);
  if (problem.code) element.append(" ", explained(problem.code));
  element.dataset.offline = problem instanceof TypeError || "";
  element.hidden = false;
}

// Makes an element with attributes and children; text children are text.
function made(element, attributes = {}, ...children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value != null) element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}
export const make = (name, ...rest) => made(document.createElement(name), ...rest);
export const svg = (name, ...rest) => made(document.createElementNS("http://www.w3.org/2000/svg", name), ...rest);

// The numbers of a text, between spaces, commas or semicolons.
export const numbersOf = (text) => text.split(/[\s,;]+/).filter(Boolean).map(Number);

// The state of a page is in its address: reads and writes parameters of the query.
export const state = {
  get: (name, fallback = "") => new URLSearchParams(location.search).get(name) ?? fallback,
  list: (name, fallback) => state.get(name, fallback).split(",").filter(Boolean),
  // A choice that Back undoes is an entry of its own.
  set(values, isChoice = false) {
    const query = new URLSearchParams(location.search), before = `${query}`;
    for (const [name, value] of Object.entries(values)) {
      if (value === "" || value == null) query.delete(name); else query.set(name, value);
    }
    if (`${query}` !== before) history[isChoice ? "pushState" : "replaceState"](null, "", query.size ? `?${query}` : location.pathname);
  },
};

// Inputs are parts of it by their names, but for what was refused; the boxes of one name are a list, beside what has no box here.
export function fill(inputs, defaults) {
  for (const input of inputs) {
    if (input.ariaInvalid) continue;
    const value = state.get(input.name, defaults[input.name]);
    if (input.type === "checkbox") input.checked = value.split(",").includes(input.value); else input.value = value;
  }
}

export function bind(inputs, change) {
  for (const input of inputs) {
    input.addEventListener("input", () => { if (input.ariaInvalid) mark(input, ""); });
    input.addEventListener("change", () => {
      if (!input.checkValidity() && !input.ariaInvalid) mark(input, input.title || input.validationMessage);
      if (input.ariaInvalid) return;
      const boxes = inputs.filter(({ name }) => name === input.name);
      const others = state.list(input.name).filter((each) => !boxes.some(({ value }) => value === each));
      const chosen = [...others, ...boxes.filter(({ checked }) => checked).map(({ value }) => value)].join(",");
      change({ [input.name]: input.type === "checkbox" ? chosen : input.value.trim() });
    });
  }
}

// Says beside a box what is wrong with what is typed, or what is remarkable.
export function mark(input, fault, said = fault) {
  input.setCustomValidity(fault);
  input.ariaInvalid = fault ? "true" : null;
  const label = input.closest("label");
  label.querySelector("small")?.remove();
  if (said) label.append(make("small", { role: "status" }, said));
}

// Draws now, and again when the colours of the page are others.
export function whenColoured(draw) {
  draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
}

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
