// The curves, drawn from the server's own history (/history), with axes, units and the values under the pointer.

import { $, bytes, count, make, rate, read, say, time } from "./elements.js";

const percent = (n) => `${(100 * n).toFixed(1)} %`;
const LEAST = new Map([[count, 2], [rate, 0.2], [bytes, 2], [percent, 0.02]]); // the least top of an axis, for values of 0
const CURVES = [
  ["pages", "Pages fetched", "pages/s", rate],
  ["bytes", "Received", "per second", bytes],
  ["new", "New URLs found", "URLs/s", rate],
  ["todo", "URLs waiting to be fetched", "", count],
  ["failing", "Failing hosts", "", count],
  ["in_flight", "Requests under way", "", count],
  ["again", "Known pages fetched again", "pages/s", rate, true],
  ["requests", "Page server", "requests/s", rate, true],
  ["fresh", "Share of copies expected to be current", "", percent, true],
  ["found", "New pages published", "pages/day", rate, true],
]; // the last entry: shown only if it was ever above 0
const EVERY = 60000; // ms between two looks at the server's history; meanwhile, each sample adds a point

const figures = new Map();
let history = { times: [] }, isLive = () => true, loaded = false;

function svg(name, attributes) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

// The least number that is at least n and of the form 1, 2, 4, 6 or 8 times a power of ten. So half of it is short, too.
function round(n) {
  const power = 10 ** Math.floor(Math.log10(Math.max(n, 1e-3)));
  return [1, 2, 4, 6, 8, 10].map((factor) => factor * power).find((value) => value >= n * 0.9999);
}

function figure(name, title, unit) {
  const value = make("span", {}), top = make("span", {}), middle = make("span", {}), zero = make("span", {});
  const drawing = svg("svg", { viewBox: "0 0 1000 100", preserveAspectRatio: "none", class: "curve", role: "img" });
  for (const y of [2, 51]) drawing.append(svg("line", { class: "grid", x1: 0, x2: 1000, y1: y, y2: y }));
  const area = svg("polygon", { class: "area" }), line = svg("polyline", { class: "line" });
  const cursor = svg("line", { class: "cursor", y1: 0, y2: 100, visibility: "hidden" });
  drawing.append(area, line, cursor);
  const from = make("span", {}), to = make("span", {});
  const element = make("figure", { "data-curve": name },
    make("figcaption", {}, unit ? `${title}, ${unit}` : title, value),
    make("div", { class: "plot" },
      make("div", { class: "scale", "aria-hidden": "true" }, top, middle, zero), drawing),
    make("div", { class: "axis", "aria-hidden": "true" }, from, to));
  drawing.addEventListener("pointermove", (event) => point(name, event));
  drawing.addEventListener("pointerleave", () => { figures.get(name).at = null; draw(); });
  $("curves").append(element);
  return { element, drawing, value, top, middle, zero, area, line, cursor, from, to, at: null };
}

function point(name, event) {
  const box = figures.get(name).drawing.getBoundingClientRect();
  figures.get(name).at = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
  draw();
}

function clock(instant, span) {
  if (!instant) return "";
  return span < 1200 ? time(instant) : time(instant, { hour: "2-digit", minute: "2-digit" });
}

export function draw() {
  if (document.hidden) return;
  const times = history.times, first = times[0] || 0, last = times.at(-1) || 0, span = Math.max(1, last - first);
  for (const [name, title, unit, format, rare] of CURVES) {
    const values = history[name] || [];
    if (rare && !values.some((value) => value > 0)) continue;
    if (!figures.has(name)) figures.set(name, figure(name, title, unit));
    const parts = figures.get(name), top = round(Math.max(LEAST.get(format), ...values));
    const points = values.map((value, k) => `${(1000 * (times[k] - first) / span).toFixed(1)},${(100 - 98 * value / top).toFixed(1)}`);
    parts.line.setAttribute("points", points.join(" "));
    parts.area.setAttribute("points", points.length ? `0,100 ${points.join(" ")} 1000,100` : "");
    const shown = parts.at === null ? values.length - 1 : nearest(times, first + parts.at * span);
    const moment = parts.at === null ? (isLive() ? "now" : "last") : `at ${clock(times[shown], 0)}`;
    say(parts.value, values.length ? `${moment} ${format(values[shown])}` : "no data yet");
    const x = 1000 * ((times[shown] || first) - first) / span;
    for (const end of ["x1", "x2"]) parts.cursor.setAttribute(end, x);
    parts.cursor.setAttribute("visibility", parts.at === null ? "hidden" : "visible");
    say(parts.top, format(top));
    say(parts.middle, format(top / 2));
    say(parts.zero, "0");
    say(parts.from, clock(first, span));
    say(parts.to, clock(last, span));
    const most = Math.max(0, ...values);
    parts.drawing.setAttribute("aria-label", `${title}, ${unit}: ${values.length ? `${isLive() ? "now" : "last"} ${format(values.at(-1))}, maximum ${format(most)}` : "no data yet"}`);
  }
}

function nearest(times, instant) {
  let best = 0;
  for (let k = 1; k < times.length; k += 1) if (Math.abs(times[k] - instant) < Math.abs(times[best] - instant)) best = k;
  return best;
}

// Add a live point behind the history, until the history itself has it.
export function add(sample) {
  if (!loaded || sample.point.pages === undefined || sample.at <= (history.times.at(-1) || 0)) return;
  history.times.push(sample.at);
  for (const [name] of CURVES) (history[name] = history[name] || []).push(sample.point[name] || 0);
  draw();
}

export async function load() {
  try {
    history = await read("/history");
    loaded = true;
    draw();
  } catch { /* the state of the connection is shown above */ }
}

export function start(live) {
  isLive = live;
  setInterval(() => isLive() && load(), EVERY);
}
