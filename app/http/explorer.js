// The page of all routes, made to send requests: a form for each route, from the OpenAPI document.
const LIMIT = 1 << 20, SHOWN = 100_000;

const make = (name, properties = {}, ...children) => {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
};
const quote = (text) => /^[\w./:=?&%-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
const base = new URL(".", location.href);
const key = make("input", {type: "password", autocomplete: "off", id: "key"});
let description;

async function described() {
  description ??= fetch("openapi.json").then((answer) => {
    if (!answer.ok) throw new Error(`openapi.json: status ${answer.status}`);
    return answer.json();
  });
  try {
    return await description;
  } catch (error) {
    description = undefined;
    throw error;
  }
}

function field(label, input, note = "") {
  return make("label", {}, make("code", {textContent: label}), " ", input, " ",
    make("span", {className: "small", textContent: note}));
}

function choices(schema) {
  return schema?.enum ?? schema?.anyOf?.find((option) => option.enum)?.enum;
}

function inputOf(parameter) {
  const values = choices(parameter.schema);
  const name = `${parameter.in}:${parameter.name}`;
  if (!values) return make("input", {name, required: parameter.in === "path"});
  return make("select", {name}, ...["", ...values].map((value) => make("option", {textContent: value})));
}

function bodyOf(operation) {
  const content = operation.requestBody?.content;
  if (!content) return [];
  const [type, media] = Object.entries(content)[0];
  if (type.includes("json")) {
    const text = JSON.stringify(media.example ?? {}, null, 1);
    return [field("body", make("textarea", {name: "body", rows: 8, value: text}), type)];
  }
  return [field("body", make("input", {type: "file", name: "file"}), `a file: ${type}`)];
}

function requestOf(method, path, form) {
  const url = new URL(base), headers = {};
  const query = new URLSearchParams();
  for (const input of form.elements) {
    const [place, ...rest] = input.name.split(":"), name = rest.join(":");
    if (place === "path") path = path.replace(`{${name}}`, encodeURIComponent(input.value));
    else if (place === "query" && input.value) query.append(name, input.value);
    else if (place === "header" && input.value) headers[name] = input.value;
  }
  url.pathname += path.slice(1);
  url.search = query;
  if (key.value) headers.Authorization = `Bearer ${key.value}`;
  const file = form.elements.file?.files[0], text = form.elements.body?.value;
  if (text !== undefined) headers["Content-Type"] ??= "application/json";
  return {url, method, headers, file, body: file ?? text};
}

function curl({url, method, headers, file, body}) {
  const parts = ["curl", ...(method === "GET" ? [] : ["-X", method])];
  for (const [name, value] of Object.entries(headers)) {
    const hidden = name === "Authorization" ? '"Authorization: Bearer $THALWEG_KEY"' : quote(`${name}: ${value}`);
    parts.push("-H", hidden);
  }
  if (file) parts.push("--data-binary", quote(`@${file.name}`));
  else if (body !== undefined) parts.push("-d", quote(body));
  return [...parts, quote(url.href)].join(" ");
}

// Streams may be long, or never end: what is shown of them is bounded.
async function beginning(answer) {
  const pieces = [];
  let length = 0;
  for (const reader = answer.body?.getReader(); reader && length < LIMIT;) {
    const {done, value} = await reader.read();
    if (done) return {pieces, length, whole: true};
    pieces.push(value);
    length += value.length;
  }
  return {pieces, length, whole: !answer.body};
}

function shown(type, blob, bytes) {
  if (type.startsWith("image/")) {
    const url = URL.createObjectURL(blob);
    return make("img", {src: url, alt: "the picture of the answer", onload: () => URL.revokeObjectURL(url)});
  }
  let text;
  if (/json|text|csv|xml|event-stream/.test(type)) {
    text = new TextDecoder().decode(bytes.subarray(0, SHOWN));
    try {
      if (type.includes("json")) text = JSON.stringify(JSON.parse(text), null, 1);
    } catch { /* Not whole, or lines of JSON: shown as it is. */ }
  } else {
    text = [...bytes.subarray(0, 256)].map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
  }
  return make("pre", {tabIndex: 0, textContent: text});
}

async function send(request, output, signal) {
  output.replaceChildren(make("pre", {tabIndex: 0, textContent: curl(request)}), make("p", {textContent: "…"}));
  const {url, method, headers, body} = request;
  const answer = await fetch(url, {method, headers, body, signal});
  const {pieces, length, whole} = await beginning(answer);
  const type = answer.headers.get("content-type") ?? "";
  const blob = new Blob(pieces, {type});
  const bytes = new Uint8Array(await blob.arrayBuffer());
  const lines = [...answer.headers].map(([name, value]) => `${name}: ${value}`).join("\n");
  const end = whole ? "" : ", the beginning of a longer answer, which was left";
  output.lastChild.replaceWith(
    make("p", {}, make("b", {textContent: `${answer.status} ${answer.statusText}`}), ` ${length} bytes${end}`),
    make("pre", {className: "small", tabIndex: 0, textContent: lines}),
    ...(length ? [shown(type, blob, bytes)] : []));
}

function formOf(section, method, path, operation) {
  const output = make("div", {role: "status"});
  const button = make("button", {textContent: `Send ${method}`});
  const stop = make("button", {type: "button", textContent: "Stop", disabled: true});
  const fields = (operation.parameters ?? []).map((each) => field(each.name, inputOf(each), each.in));
  const form = make("form", {}, ...fields, ...bodyOf(operation), make("p", {}, button, " ", stop));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const control = new AbortController();
    stop.onclick = () => control.abort();
    button.disabled = !(stop.disabled = false);
    try {
      await send(requestOf(method, path, form), output, control.signal);
    } catch (error) {
      const text = error.name === "AbortError" ? "Stopped" : `No answer: ${error.message}`;
      output.append(make("p", {textContent: text}));
    }
    control.abort();
    button.disabled = !(stop.disabled = true);
  });
  section.append(form, output);
  form.elements[0]?.focus();
}

function prepare(section) {
  const [method, path] = section.dataset.operation.split(" ");
  const open = make("button", {type: "button", textContent: "Try it"});
  open.setAttribute("aria-label", `Try ${method} ${path}`);
  open.addEventListener("click", async () => {
    try {
      const operation = (await described()).paths[path][method.toLowerCase()];
      open.remove();
      formOf(section, method, path, operation);
    } catch (error) {
      open.after(make("p", {role: "alert", textContent: `No description: ${error.message}`}));
    }
  });
  section.append(open);
}

const sections = [...document.querySelectorAll("[data-operation]")];
const words = make("input", {type: "search", id: "words"});
words.addEventListener("input", () => {
  const wanted = words.value.toLowerCase().split(/\s+/);
  for (const section of sections) {
    section.hidden = !wanted.every((word) => section.textContent.toLowerCase().includes(word));
  }
});
document.querySelector("#tools").append(field("Find routes", words), field("API key", key, "if the service has keys"));
sections.forEach(prepare);
