// Moves shapes on pictures: with the pointer, with keys, and by their numbers.
import { make, mark } from "./api.js";
import { fault, fields, grown, hold, initial, label, moved, outline } from "./detector.js";

const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
const NEAR = 8; // pixels of the screen
const REST = 300; // milliseconds after a key, after which a move has ended

// A shape on a stage, which holds a canvas and an <svg> above it.
// The picture shows `shown` rows and columns, which are a few more or fewer where it is thinned out.
// `changed(shape, {ended, since})` is told every move, and again when it has ended.
export class Handle {
  constructor(stage, controls, shape, shown, value, changed) {
    Object.assign(this, { stage, controls, shape, shown, value, kept: value, changed });
    this.svg = stage.querySelector("svg");
    this.svg.setAttribute("viewBox", `0 0 ${shown[1]} ${shown[0]}`);
    this.build();
    this.show();
    stage.addEventListener("pointerdown", (event) => this.down(event));
    stage.addEventListener("keydown", (event) => this.key(event));
  }

  // Says that the shape is another: where from, and whether it stays.
  put(value, ended, since = performance.now()) {
    this.value = value;
    if (ended) this.kept = value;
    this.show();
    this.changed(value, { ended, since });
  }

  place(event) {
    const box = this.stage.getBoundingClientRect();
    const part = (at, start, length, count) => ((at - start) / length) * count - 0.5;
    return [part(event.clientY, box.top, box.height, this.shown[0]), part(event.clientX, box.left, box.width, this.shown[1])];
  }

  down(event) {
    if (event.button !== 0) return;
    const near = (NEAR * this.shown[1]) / this.stage.getBoundingClientRect().width;
    const move = hold(this.value, this.place(event), near, this.shape, event.shiftKey);
    if (!move) return;
    event.preventDefault();
    this.stage.focus({ preventScroll: true }); // else places move from under the pointer
    this.stage.setPointerCapture(event.pointerId);
    const go = (at) => this.put(move(this.place(at)), false, at.timeStamp);
    const stop = () => {
      this.stage.removeEventListener("pointermove", go);
      this.stage.removeEventListener("lostpointercapture", stop);
      this.put(this.value, true);
    };
    this.stage.addEventListener("pointermove", go);
    this.stage.addEventListener("lostpointercapture", stop);
    go(event);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const step = STEPS[event.key], size = event.shiftKey ? 10 : 1;
    const grow = { "+": 1, "=": 1, "-": -1, _: -1 }[event.key];
    if (!step && !grow) return;
    event.preventDefault();
    this.put(step ? moved(this.value, step[0] * size, step[1] * size, this.shape) : grown(this.value, grow, this.shape), false, event.timeStamp);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.put(this.value, true), REST);
  }

  build() {
    const kind = this.controls.querySelector("select");
    kind.value = this.value.kind;
    kind.addEventListener("change", () => {
      const next = initial(kind.value, this.shape);
      for (const name of "yx") if (name in next && name in this.value) next[name] = this.value[name];
      this.value = next;
      this.inputs();
      this.put(next, true);
    });
    this.inputs();
  }

  inputs() {
    const whole = ["point", "rectangle"].includes(this.value.kind);
    const input = (name) => make("input", {
      type: "number", step: whole ? 1 : "any", class: "short", name,
      oninput: (event) => this.typed(event.target, false), onchange: (event) => this.typed(event.target, true),
    });
    const rowless = this.shape[0] === 1;
    const names = fields(this.value.kind).filter((name) => !(rowless && name.startsWith("y")));
    const labels = names.map((name) => make("label", {}, label(name), input(name)));
    this.controls.querySelector(".fields").replaceChildren(...labels);
    this.show();
  }

  typed(input, ended) {
    const value = { ...this.value, [input.name]: input.valueAsNumber };
    const wrong = fault(value, this.shape);
    if (!wrong) { mark(input, ""); this.put(value, ended); return; }
    // What is refused leaves what was there before it was typed.
    this.typing = ended ? null : input;
    const text = input.value;
    if (this.value !== this.kept || ended) this.put(this.kept, true);
    if (ended) mark(input, "", `“${text}” is refused: ${wrong}`); else mark(input, wrong);
    this.typing = null;
  }

  show() {
    outline(this.svg, this.value);
    for (const input of this.controls.querySelectorAll(".fields input")) {
      if (input === this.typing || (input === document.activeElement && input.valueAsNumber === this.value[input.name])) continue;
      input.value = this.value[input.name] ?? "";
      mark(input, "");
    }
  }
}
