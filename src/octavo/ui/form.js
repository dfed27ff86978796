// The controls: what each slider goes through, the fields of a question, and a setting as text for the address bar.

const sliders = new Map(); // input -> its steps; "auto" or a number each

// "auto 0..1/0.5 4 8..32*2" -> ["auto", 0, 0.5, 1, 4, 8, 16, 32]
export function parseSteps(text) {
  const steps = [];
  for (const word of text.split(" ")) {
    const range = word.match(/^([\d.]+?)\.\.([\d.]+)([/*])([\d.]+)$/);
    if (!range) {
      steps.push(word === "auto" ? word : Number(word));
      continue;
    }
    const [from, to, by] = [range[1], range[2], range[4]].map(Number);
    if (range[3] === "*") for (let value = from; value <= to; value *= by) steps.push(value);
    else for (let i = 0; i <= Math.round((to - from) / by); i++) steps.push(Number((from + i * by).toFixed(6)));
  }
  return inOrder(steps);
}

export function setUp(form) {
  for (const input of form.querySelectorAll("input[type=range]")) setSteps(input, parseSteps(input.dataset.steps));
  form.addEventListener("input", () => label(form));
}

// The question as an object; what is "auto" is not in it.
export function read(form) {
  const asked = {};
  for (const input of form.elements) {
    if (!input.name) continue;
    const value = sliders.has(input) ? fieldOf(input) : input.value || null;
    if (value !== null) asked[input.name] = value;
  }
  return asked;
}

export function write(form, values) {
  for (const input of form.elements) {
    if (!input.name) continue;
    const value = values[input.name] ?? null;
    if (sliders.has(input)) move(input, value);
    else select(input, value ?? "");
  }
  label(form);
}

// What differs from `defaults`, as a query.
export function toQuery(asked, defaults) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(asked)) if (String(value) !== String(defaults[name] ?? "")) query.set(name, value);
  for (const [name, value] of Object.entries(defaults)) if (value !== null && !(name in asked)) query.set(name, "auto");
  return query.toString();
}

// The setting that a query tells; what it garbles stays as `defaults` have it.
export function fromQuery(form, text, defaults) {
  const values = { ...defaults };
  for (const [name, word] of new URLSearchParams(text)) {
    const input = form.elements.namedItem(name);
    if (!input || !Object.hasOwn(defaults, name)) continue;
    if (!sliders.has(input)) values[name] = word;
    else if (word === "auto" && sliders.get(input).includes(word)) values[name] = null;
    else if (word.trim() !== "" && Number.isFinite(Number(word))) values[name] = Number(word);
  }
  return values;
}

export function option(value, text = value) {
  return Object.assign(document.createElement("option"), { value, textContent: text });
}

function inOrder(steps) {
  const numbers = [...new Set(steps.filter((step) => step !== "auto"))].sort((a, b) => a - b);
  return steps.includes("auto") ? ["auto", ...numbers] : numbers;
}

function setSteps(input, steps) {
  sliders.set(input, steps);
  Object.assign(input, { min: 0, max: steps.length - 1, step: 1 });
}

function fieldOf(input) {
  const step = sliders.get(input)[input.valueAsNumber];
  if (step === "auto") return null;
  return input.dataset.scale ? Math.round(step * Number(input.dataset.scale)) : step;
}

// Move a slider to a field's value; one that is no step of it becomes one.
function move(input, value) {
  const step = value === null ? "auto" : value / Number(input.dataset.scale ?? 1);
  if (step === "auto" && !sliders.get(input).includes("auto")) return;
  if (!sliders.get(input).includes(step)) setSteps(input, inOrder([...sliders.get(input), step]));
  input.value = sliders.get(input).indexOf(step);
}

function select(input, value) {
  if (![...input.options].some((known) => known.value === value)) input.append(option(value));
  input.value = value;
}

// Tell each slider's value beside it, and show only the controls that matter.
function label(form) {
  for (const [input, steps] of sliders) {
    const step = steps[input.valueAsNumber];
    const text = step === "auto" ? (input.dataset.auto ?? step) : input.dataset.as === "percent" ? `${Math.round(step * 1000) / 10} %` : step.toLocaleString("en");
    form.querySelector(`output[for=${input.id}]`).textContent = text;
    input.setAttribute("aria-valuetext", text);
  }
  for (const part of form.querySelectorAll("[data-when]")) {
    const [name, value] = part.dataset.when.split("=");
    part.hidden = form.elements.namedItem(name).value !== value;
  }
}
