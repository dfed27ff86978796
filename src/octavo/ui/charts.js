// Four small charts as SVG, drawn to the width that there is. Colours are classes c0 to c5 of the style sheet.

const NS = "http://www.w3.org/2000/svg";
const LEFT = 52, RIGHT = 14, TOP = 22, FOOT = 36, HEIGHT = 240;

function mark(name, attributes, text) {
  const element = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, typeof value === "number" ? value.toFixed(1) : value);
  if (text !== undefined) element.textContent = text;
  return element;
}

function drawing(place, height, label, draw) {
  const width = Math.max(240, place.clientWidth);
  const svg = mark("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  draw(svg, width);
  place.replaceChildren(svg);
}

function titled(element, text) {
  element.append(mark("title", {}, text));
  return element;
}

// parts: {name, value, text, colour}, drawn side by side as shares of `total`; what lies beyond it is cut at the frame.
export function stack(place, parts, total, label) {
  drawing(place, 44, label, (svg, width) => {
    let x = 0;
    for (const part of parts) {
      const end = Math.min(width, x + (Math.max(0, part.value) / total) * width);
      svg.append(titled(mark("rect", { class: `area ${part.colour}`, x, y: 2, width: Math.max(0, end - x), height: 40 }), `${part.name} ${part.text}`));
      x = end;
    }
    svg.append(mark("rect", { class: "grid", x: 0.5, y: 2.5, width: width - 1, height: 39, fill: "none" }));
  });
}

// rows: {label, value, text}; lengths are logarithmic, so that 2 and 2,000 can both be seen.
export function bars(place, rows, label) {
  const step = 30;
  drawing(place, rows.length * step, label, (svg, width) => {
    const most = Math.log1p(Math.max(1, ...rows.map((row) => row.value)));
    rows.forEach((row, i) => {
      const length = (Math.log1p(row.value) / most) * (width - LEFT - 64);
      svg.append(mark("text", { class: "tick", x: LEFT - 8, y: i * step + 19, "text-anchor": "end" }, row.label));
      svg.append(mark("rect", { class: "area c3", x: LEFT, y: i * step + 4, width: length, height: step - 8, rx: 2 }));
      svg.append(mark("text", { x: LEFT + length + 6, y: i * step + 19 }, row.text));
    });
  });
}

// series: {name, colour, dashed, points: [[x, y]]}. x and y: {from, to, log, ticks: [[value, text]], title}.
export function lines(place, series, x, y, label, extra = {}) {
  drawing(place, HEIGHT, label, (svg, width) => {
    const scale = (axis, low, high) => (value) => {
      const at = axis.log ? Math.log(value / axis.from) / Math.log(axis.to / axis.from) : (value - axis.from) / (axis.to - axis.from);
      return low + at * (high - low);
    };
    const toX = scale(x, LEFT, width - RIGHT), toY = scale(y, HEIGHT - FOOT, TOP);
    const spare = Math.ceil(x.ticks.length / ((width - LEFT - RIGHT) / 44));
    for (const [value, text] of x.ticks.filter((_, i) => i % spare === 0)) {
      svg.append(mark("line", { class: "grid", x1: toX(value), x2: toX(value), y1: TOP, y2: HEIGHT - FOOT }));
      svg.append(mark("text", { class: "tick", x: toX(value), y: HEIGHT - FOOT + 15, "text-anchor": "middle" }, text));
    }
    for (const [value, text] of y.ticks) {
      svg.append(mark("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: toY(value), y2: toY(value) }));
      svg.append(mark("text", { class: "tick", x: LEFT - 6, y: toY(value) + 4, "text-anchor": "end" }, text));
    }
    svg.append(mark("text", { class: "tick", x: (LEFT + width - RIGHT) / 2, y: HEIGHT - 3, "text-anchor": "middle" }, x.title));
    svg.append(mark("text", { class: "tick", x: LEFT, y: TOP - 8 }, y.title));
    if (extra.now !== undefined) svg.append(mark("line", { class: "now", x1: toX(extra.now), x2: toX(extra.now), y1: TOP, y2: HEIGHT - FOOT }));
    for (const one of series) {
      const seen = one.points.filter(([, value]) => value <= y.to);
      const path = seen.map(([a, b]) => `${toX(a).toFixed(1)},${toY(b).toFixed(1)}`).join(" ");
      svg.append(mark("polyline", { class: `line ${one.colour}${one.dashed ? " dashed" : ""}`, points: path }));
      if (one.dots) for (const [a, b] of seen) svg.append(titled(mark("circle", { class: `dot ${one.colour}`, cx: toX(a), cy: toY(b), r: 4 }), `${one.name}: ${b.toLocaleString("en", { maximumFractionDigits: 1 })}`));
    }
    for (const [a, b, colour, text] of extra.points ?? []) svg.append(titled(mark("circle", { class: `dot ${colour}`, cx: toX(a), cy: toY(b), r: 5 }), text));
  });
}

// Round values from 0 to at least `top`, four to eight of them.
export function roundTicks(top, text) {
  const power = 10 ** Math.floor(Math.log10(top / 4));
  const step = [1, 2, 5, 10].map((digit) => digit * power).find((size) => top / size <= 8);
  return Array.from({ length: Math.floor(top / step + 1e-9) + 1 }, (_, i) => [i * step, text(i * step)]);
}

// Powers of ten from the one below `low` to the one above `high`.
export function logTicks(low, high, text) {
  const from = Math.floor(Math.log10(low)), to = Math.max(from + 1, Math.ceil(Math.log10(high)));
  return Array.from({ length: to - from + 1 }, (_, i) => [10 ** (from + i), text(10 ** (from + i))]);
}
