// The page: asks the planner whenever a control moves, and shows what it says. Nothing is computed here but places on the screen.
// Each number is a button that names its derivation; choosing it shows the formula.

import { bars, lines, logTicks, roundTicks, stack } from "./charts.js";
import { fromQuery, option, read, setUp, toQuery, write } from "./form.js";

const API = "plan/api";
const $ = (id) => document.getElementById(id);
const form = $("form");
let choices, answer, whys, key = "", shownWhy = null, opener = null;

// ---- asking

async function ask(body) {
  const headers = { "content-type": "application/json" };
  for (;;) {
    if (key) headers.authorization = `Bearer ${key}`;
    const response = await fetch(API, body ? { method: "POST", headers, body: JSON.stringify(body) } : { headers }).catch(() => null);
    if (!response) throw new Error("The server does not answer. Is it still running?");
    if (response.status === 401) {
      await askForKey();
      continue;
    }
    const value = await response.json();
    if (!response.ok) throw new Error(value.error.message);
    return value;
  }
}

function tell(error) {
  $("error").textContent = error.message;
  $("error").hidden = false;
}

function askForKey() {
  const dialog = $("key");
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.oncancel = (event) => event.preventDefault();
    $("key-form").onsubmit = (event) => {
      event.preventDefault();
      key = $("key-input").value;
      $("key-input").value = "";
      dialog.close();
      resolve();
    };
  });
}

// One question at a time; the last one asked meanwhile is asked next.
let isAsking = false, isStale = false;
async function refresh() {
  isStale = true;
  if (isAsking) return;
  isAsking = true;
  $("plan").ariaBusy = "true";
  while (isStale) {
    isStale = false;
    const asked = read(form);
    const query = toQuery(asked, choices.defaults);
    history.replaceState(null, "", query ? `#${query}` : location.pathname + location.search);
    try {
      answer = await ask(asked);
      $("error").hidden = true;
      show();
    } catch (error) {
      tell(error);
    }
  }
  $("plan").ariaBusy = "false";
  isAsking = false;
}

// ---- numbers

const KI = 1024;
function bytes(value) {
  let size = value, unit = 0;
  while (Math.abs(size) >= KI && unit < 4) size /= KI, unit++;
  return unit ? `${size.toFixed(1)} ${["KiB", "MiB", "GiB", "TiB"][unit - 1]}` : `${Math.round(size)} B`;
}
const count = (value) => value.toLocaleString("en", { maximumFractionDigits: Number.isInteger(value) ? 0 : 2 });
const percent = (value) => `${(100 * value).toLocaleString("en", { maximumFractionDigits: 1 })} %`;
const dollars = (value) => `$${value.toLocaleString("en", value < 100 ? { minimumFractionDigits: 3, maximumFractionDigits: 3 } : { maximumFractionDigits: 0 })}`;
const rate = (value) => value.toLocaleString("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const k = (tokens) => (tokens % KI ? count(tokens) : `${tokens / KI}k`);
const FORMS = { B: bytes, "tok/s": rate, $: dollars, s: (value) => (value < 1 ? `${rate(1000 * value)} ms` : `${rate(value)} s`), tokens: count, "": count };

// The number of that name as a button, or a dash where the plan has none. `shown`: another number, of which this is the derivation.
function number(name, how, shown) {
  const why = whys.get(name);
  if (!why) return "–";
  const button = Object.assign(document.createElement("button"), { type: "button", className: "n" });
  button.textContent = (how ?? FORMS[why.unit])(shown ?? why.result);
  button.dataset.why = name;
  button.title = `${name} = ${why.formula}`;
  button.ariaExpanded = String(name === shownWhy);
  return button;
}

function explain(name) {
  shownWhy = name;
  const why = whys.get(name);
  $("why").hidden = !why;
  for (const button of document.querySelectorAll(".n")) button.ariaExpanded = String(button.dataset.why === name);
  if (!why) return;
  const list = document.createElement("dl");
  const code = node("code", why.values);
  const exact = why.result.toLocaleString("en", { maximumSignificantDigits: 15 });
  const result = why.unit === "B" && why.result >= KI ? `${exact} B = ${bytes(why.result)}` : `${exact} ${why.unit}`;
  list.append(node("dt", name), node("dd", why.formula), node("dt", "with values"), node("dd", code), node("dt", "result"), node("dd", result));
  $("why").lastElementChild.replaceChildren(list);
}

// ---- showing

function node(name, ...content) {
  const element = document.createElement(name);
  element.append(...content);
  return element;
}

function fill(id, head, rows) {
  const line = (kind, cells) => {
    const first = node("th", cells[0]);
    first.scope = kind === "th" ? "col" : "row";
    return node("tr", first, ...cells.slice(1).map((cell) => Object.assign(node(kind, cell), kind === "th" ? { scope: "col" } : {})));
  };
  const parts = head ? [node("thead", line("th", head))] : [];
  $(id).replaceChildren(...parts, node("tbody", ...rows.map((cells) => line("td", cells))));
}

function swatch(colour, text, dashed = false) {
  const box = document.createElement("span");
  box.className = `swatch ${colour}${dashed ? " dashed" : ""}`;
  return node("span", box, text);
}

function show() {
  const { plan } = answer;
  const hadFocus = document.activeElement?.dataset?.why;
  whys = new Map(answer.derivations.map((line) => [line.name, line]));
  showHead(plan);
  showTiles(plan);
  showMemory(plan.sizing);
  showContexts(plan);
  showFormats(plan);
  showFloors(plan);
  showCost(plan);
  fill("derivations", ["number", "formula", "with values", "result"],
    answer.derivations.map((line) => [line.name, line.formula, line.values, `${FORMS[line.unit](line.result)}`]));
  if (shownWhy) explain(shownWhy);
  if (hadFocus) document.querySelector(`.n[data-why="${CSS.escape(hadFocus)}"]`)?.focus();
}

function showHead({ model, device, tp, pp, dp, weights, kv, notes }) {
  const devices = tp * pp * dp;
  $("what").textContent = `${model.name}, ${(model.parameters / 1e9).toFixed(2)} B weights (${weights}), KV in ${kv}, on ${devices} × ${device.name}`;
  $("notes").replaceChildren(...notes.map((text) => node("li", text)));
}

function showTiles(plan) {
  const talk = plan.conversation;
  const longest = whys.has("longest context") ? "longest context" : "bytes of the longest context";
  const holds = whys.get(`sequences of ${count(talk)}`).result > 0;
  const api = plan.costs[0]?.against[0]?.api, mix = plan.costs[0]?.cost.workload;
  const tiles = [
    ["KV pool of a device", number("available for KV")],
    ["tokens in the pool", number("tokens")],
    [`conversations of ${count(talk)}`, number(`sequences of ${count(talk)}`)],
    ["longest context", number(longest, count, plan.sizing.longest_context)],
    ["tok/s each, at best", holds ? number("tokens/s a sequence") : "–"],
    ["tok/s in all, at best", holds ? number("tokens/s in all") : "–"],
    ["$ a million output tokens", number(`$ a million output tokens, ${mix}`)],
    [api ? `break-even against ${api}` : "break-even", number(`break-even against ${api}, ${mix}`, percent)],
  ];
  $("tiles").replaceChildren(...tiles.map(([name, value]) => node("div", node("dt", name), node("dd", value))));
}

function showMemory(s) {
  const parts = [
    { name: "weights", value: s.weight_bytes, colour: "c0" },
    { name: "activations", value: s.activation_bytes, colour: "c1" },
    { name: "reserve", value: s.reserve_bytes, colour: "c2" },
    { name: "available for KV", value: s.available_bytes, colour: "c3" },
    { name: "left alone", value: s.total_bytes - s.requested_bytes, colour: "c4" },
  ].map((part) => ({ ...part, text: bytes(part.value) }));
  stack($("memory-chart"), parts, s.total_bytes, parts.map((part) => `${part.name} ${part.text}`).join(", "));
  fill("memory", null, [
    ...parts.map((part) => [swatch(part.colour, part.name), number(part.name)]),
    ["total", number("total")],
    ["requested", number("requested")],
    ["KV of a token, of a block", node("span", number("bytes a token"), ", ", number("bytes a block"))],
    ["blocks, one of them the null block", number("blocks")],
    ["a step: tokens, requests", node("span", number("tokens a step"), ", ", number("requests a step"))],
    [`a request of ${count(s.model_len)} fits`, number("fit check", (value) => (value ? "yes" : "no"))],
    ["largest length that start-up takes", number("largest length")],
  ]);
  $("logline").replaceChildren("KV cache size: ", number("tokens in the log line"),
    ` tokens, Maximum concurrency for ${count(s.model_len)} tokens per request: `, number("max concurrency", (value) => `${value.toFixed(2)}x`));
}

function showContexts({ sizing }) {
  const rows = sizing.concurrency.map((row) => ({ label: k(row.context), value: row.sequences, text: count(row.sequences) }));
  bars($("contexts-chart"), rows, rows.map((row) => `${row.text} of ${row.label}`).join(", "));
}

function showFormats({ formats, conversation }) {
  fill("formats", ["weights", "KV", `conversations of ${count(conversation)}`, "gain"], formats.map((row) => {
    const pair = `${row.weights} weights, ${row.kv} KV`;
    return [row.weights, row.kv, number(`conversations in ${pair}`), number(`gain of ${pair}`, (value) => `${value.toFixed(1)}x`)];
  }));
  for (const [i, row] of formats.entries()) $("formats").tBodies[0].rows[i].classList.toggle("chosen", row.is_chosen);
}

function showFloors({ decode }) {
  const full = decode.filter((row) => row.full);
  const series = [
    { name: "alone", colour: "c0", dots: true, points: decode.map((row) => [row.context, row.one.per_sequence]) },
    { name: "each of all that fit", colour: "c1", dots: true, points: full.map((row) => [row.context, row.full.per_sequence]) },
    { name: "all that fit", colour: "c3", dots: true, points: full.map((row) => [row.context, row.full.aggregate]) },
  ];
  const values = series.flatMap((one) => one.points.map(([, value]) => value));
  const ticks = logTicks(Math.min(...values), Math.max(...values), count);
  const contexts = decode.map((row) => row.context);
  lines($("floors-chart"), series,
    { from: contexts[0], to: contexts.at(-1), log: true, ticks: contexts.map((context) => [context, k(context)]), title: "tokens of context" },
    { from: ticks[0][0], to: ticks.at(-1)[0], log: true, ticks, title: "tok/s" }, "Tokens a second by context; the table below has the numbers");
  fill("floors", ["context", "at once", swatch("c0", "alone"), swatch("c1", "each"), swatch("c3", "all"), "bound by"],
    decode.map((row) => [
      k(row.context), number(`sequences of ${count(row.context)}`), number(`tokens/s alone at ${count(row.context)}`),
      number(`tokens/s a sequence at ${count(row.context)}`), number(`tokens/s in all at ${count(row.context)}`),
      row.full?.bound ?? "–",
    ]));
}

function showCost({ costs, utilization }) {
  const place = $("cost-chart");
  if (!costs.length) {
    place.replaceChildren(answer.usd_per_hour === null ? "No price is known for this device: move “$ an hour for a device”." : "Not one sequence of this workload fits.");
    $("cost").replaceChildren();
    $("prices").textContent = "";
    return;
  }
  const { cost, against, wished_batch: wished } = costs[0];
  const top = 1.15 * Math.max(...against.map((other) => other.api_usd_per_million_output), 1.5 * cost.usd_per_million_output);
  const apis = against.map((other, i) => ({ ...other, colour: ["c0", "c1", "c5"][i % 3], dashed: i % 2 === 1 }));
  const series = [
    { name: "own", colour: "c3", points: answer.cost_curve },
    ...apis.map((api) => ({ ...api, name: api.api, points: [0, 1].map((at) => [at, api.api_usd_per_million_output]) })),
  ];
  const crossings = apis.filter((api) => api.break_even <= 1).map((api) => [api.break_even, api.api_usd_per_million_output, api.colour, `${api.api}: ${percent(api.break_even)}`]);
  lines(place, series,
    { from: 0, to: 1, ticks: [0, 0.2, 0.4, 0.6, 0.8, 1].map((at) => [at, percent(at)]), title: "share of the time at work" },
    { from: 0, to: top, ticks: roundTicks(top, (value) => `$${count(value)}`), title: "$" },
    apis.map((api) => `break-even against ${api.api} at ${percent(api.break_even)}`).join(", "), { now: utilization ?? undefined, points: crossings });
  const busy = utilization === null ? "–" : number(`$ a million output tokens at the given utilization, ${cost.workload}`);
  fill("cost", ["", "$ a million", "break-even", utilization === null ? "cheaper" : `at ${percent(utilization)}`], [
    [swatch("c3", "own, always busy"), number(`$ a million output tokens, ${cost.workload}`), "", busy],
    ...apis.map((api) => [
      swatch(api.colour, api.api, api.dashed), number(`$ a million output tokens of ${api.api}, ${cost.workload}`),
      number(`break-even against ${api.api}, ${cost.workload}`, percent),
      answer.verdicts[api.api] ?? (api.break_even > 1 ? "API at any" : "–"),
    ]),
    ["a month of idling", number("idle month"), "", ""],
  ]);
  const lowered = cost.batch === wished ? "" : ` ${wished} at once do not fit: ${cost.batch} do.`;
  const dates = [...choices.apis, ...choices.machines].map((price) => price.date).sort();
  $("prices").textContent = `${cost.workload}: ${cost.batch} requests at once, ${count(cost.context)} tokens of context.${lowered} Prices as of ${dates[0]}: look again before you decide.`;
}

// ---- beginning

function fillChoices() {
  $("model").append(...choices.models.map((name) => option(name, name === "numbers" ? "by numbers" : name)));
  $("weights").append(...choices.weights.map((name) => option(name)));
  $("kv_cache_dtype").append(...choices.kv.map((name) => option(name)));
  $("device").append(...choices.devices.map((device) => option(device.name)), option("numbers", "by numbers"));
  $("workload").append(...choices.workloads.map((mix) => option(mix.name)), option("own", "by numbers"));
}

function load() {
  write(form, fromQuery(form, location.hash.slice(1), choices.defaults));
  refresh();
}

setUp(form);
if (matchMedia("(max-width: 46rem)").matches) for (const part of document.querySelectorAll("form details:not(:first-of-type)")) part.open = false;
form.addEventListener("input", refresh);
form.addEventListener("submit", (event) => event.preventDefault());
addEventListener("hashchange", load);
$("reset").addEventListener("click", (event) => {
  event.preventDefault();
  write(form, choices.defaults);
  refresh();
});
document.addEventListener("click", (event) => {
  const button = event.target.closest(".n");
  if (!button) return;
  opener = button.dataset.why;
  explain(opener === shownWhy ? null : opener);
});
function close() {
  explain(null);
  if (opener) document.querySelector(`.n[data-why="${CSS.escape(opener)}"]`)?.focus();
}
$("close").addEventListener("click", close);
addEventListener("keydown", (event) => event.key === "Escape" && shownWhy && close());
let width = 0;
new ResizeObserver(() => {
  if (answer && $("plan").clientWidth !== width) show();
  width = $("plan").clientWidth;
}).observe($("plan"));

try {
  choices = await ask(null);
  fillChoices();
  load();
} catch (error) {
  tell(error);
}
