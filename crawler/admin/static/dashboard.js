// The dashboard: one event per second from /events, the curves of the last day from /history.
// Text from the crawl is always set as text, never as markup.
"use strict";

const $ = (id) => document.getElementById(id);
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 2 });
const count = (n) => (n < 100000 ? whole.format(n) : short.format(n));
const words = (name) => name.replaceAll("_", " ");
let token = "";
let latest = null;
let curves = null;
const recent = { times: [] };
const RECENT_MAX = 300, FEW = 30;

// The link printed at the start has the token after "#", which browsers send to no server.
const brought = /^#token=([0-9a-f]{32})$/.exec(location.hash);
if (brought) {
  sessionStorage.setItem("token", brought[1]);
  history.replaceState(null, "", location.pathname);
}
use(sessionStorage.getItem("token") || "");

function use(secret) {
  token = secret;
  const selector = "[data-do], #seed-form button, #retire-form button, #withdraw-form button, #set-form button, #host-block, #host-unblock, #host-withdraw";
  for (const button of document.querySelectorAll(selector)) button.disabled = !token;
}

function make(name, attributes, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

function seconds(n) {
  if (!Number.isFinite(n)) return "";
  if (n < 120) return `${n < 10 ? n.toFixed(1) : Math.round(n)} s`;
  if (n < 7200) return `${Math.round(n / 60)} min`;
  if (n < 172800) return `${(n / 3600).toFixed(1)} h`;
  return `${(n / 86400).toFixed(1)} d`;
}

function bytes(n) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let k = 0;
  while (n >= 1000 && k < units.length - 1) { n /= 1000; k += 1; }
  return `${n < 10 && k ? n.toFixed(1) : Math.round(n)} ${units[k]}`;
}

function fill(list, rows) {
  const old = new Map([...list.children].map((row) => [row.dataset.name, row]));
  for (const [name, value] of rows) {
    let row = old.get(name);
    if (!row) {
      row = make("div", { "data-name": name }, make("dt", {}, name), make("dd", {}));
      list.append(row);
    }
    old.delete(name);
    const text = String(value);
    if (row.lastChild.textContent !== text) row.lastChild.textContent = text;
  }
  for (const row of old.values()) row.remove();
}

// Format a fact about a host: names of instants end in _at, gaps and waits are in seconds.
function fact(name, value) {
  if (typeof value !== "number") return String(value);
  if (name.endsWith("_at")) return value > 0 ? new Date(value * 1000).toLocaleTimeString() : "-";
  if (["gap", "wait"].includes(name)) return value > 0 && value < 1 ? `${value.toFixed(2)} s` : seconds(value);
  return Number.isInteger(value) ? count(value) : value.toFixed(2);
}

// Rows are [cells...]; a cell is text, a number, or an element. Focus inside the table is kept.
function table(id, heads, rows, empty) {
  const target = $(id);
  const kept = target.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  const numeric = heads.map((text) => text.endsWith("#"));
  const head = make("tr", {}, ...heads.map((text, k) => make("th", { scope: "col", class: numeric[k] ? "number" : "" }, text.replace("#", ""))));
  const body = rows.map((cells) => make("tr", {}, ...cells.map((cell, k) => {
    if (cell instanceof Node) return make("td", { class: "text" }, cell);
    return make("td", { class: numeric[k] ? "number" : "text" }, typeof cell === "number" ? count(cell) : String(cell));
  })));
  if (!rows.length) body.push(make("tr", {}, make("td", { colspan: heads.length }, empty || "none")));
  target.replaceChildren(make("thead", {}, head), make("tbody", {}, ...body));
  if (kept) {
    const again = [...target.querySelectorAll("[data-key]")].find((element) => element.dataset.key === kept);
    if (again) again.focus();
  }
}

const CURVES = [
  ["pages", "Pages per second", (n) => n.toFixed(n < 10 ? 1 : 0)],
  ["bytes", "Received per second", bytes],
  ["new", "New URLs per second", (n) => n.toFixed(n < 10 ? 1 : 0)],
  ["todo", "URLs to fetch", count],
  ["in_flight", "Fetches in flight", count],
  ["requests", "Page server requests per second", (n) => n.toFixed(n < 10 ? 1 : 0)],
];

// While the history is short, show the last minutes as received by this page.
function draw() {
  const drawn = curves && curves.times.length >= FEW ? curves : recent;
  const times = drawn.times;
  const title = drawn === recent ? "Last minutes" : "Last day";
  if ($("curves-title").textContent !== title) $("curves-title").textContent = title;
  const shown = CURVES.map(([name, title, format]) => {
    const values = drawn[name] || [];
    const top = Math.max(1e-9, ...values);
    const first = times[0] || 0, span = Math.max(1, (times.at(-1) || 1) - first);
    const points = values.map((v, k) => `${(1000 * (times[k] - first) / span).toFixed(1)},${(98 - 94 * v / top).toFixed(1)}`);
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    const text = values.length ? `${title}: now ${format(values.at(-1))}, maximum ${format(top)}` : `${title}: no data yet`;
    svg.setAttribute("viewBox", "0 0 1000 100");
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("class", "curve");
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", text);
    for (const [kind, d] of [["area", `0,100 ${points.join(" ")} 1000,100`], ["line", points.join(" ")]]) {
      const shape = document.createElementNS("http://www.w3.org/2000/svg", kind === "area" ? "polygon" : "polyline");
      shape.setAttribute("class", kind);
      shape.setAttribute("points", d);
      svg.append(shape);
    }
    const clock = (t) => (t ? new Date(1000 * t).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" }) : "");
    return make("figure", {},
      make("figcaption", {}, title, make("span", {}, values.length ? `${format(values.at(-1))} (maximum ${format(top)})` : "")),
      svg,
      make("div", { class: "axis", "aria-hidden": "true" }, make("span", {}, clock(times[0])), make("span", {}, clock(times.at(-1)))));
  });
  $("curves").replaceChildren(...shown);
}

async function loadCurves() {
  try {
    curves = await (await fetch("/history")).json();
    draw();
  } catch { /* the state line reports that the crawl does not answer */ }
}

function remember(point, now) {
  for (const [name, value] of Object.entries({ ...point, times: now })) {
    recent[name] = recent[name] || [];
    recent[name].push(value);
    if (recent[name].length > RECENT_MAX) recent[name].shift();
  }
  if (!curves || curves.times.length < FEW) draw();
}

// Labels of counters whose names need an explanation; others are shown by name.
const HOSTS = {
  reached: "hosts: fetched from so far",
  front: "hosts: active",
  ready: "hosts: ready, not active yet",
  waiting: "hosts: waiting for their next request",
  excluded: "hosts: over the limit of hosts per domain",
  blocked: "hosts: blocked by the operator",
  refused: "hosts: dropped after too many refusals",
  given_up: "hosts: given up in this run",
};
const WAITS = {
  host: "waiting: minimum gap of a host",
  address: "waiting: minimum gap of an address",
  rate: "waiting: overall rate limit",
  full: "waiting: all fetch slots in use",
  empty: "waiting: no URL to fetch",
};
const LINKS = {
  accepted: "accepted by the URL filter",
  cache_hits: "dropped as recently seen",
  received: "received from other processes",
  resharded: "moved here from other processes",
  to_due: "passed to duplicate elimination",
  to_outbox: "queued for other processes",
};
const DUE = {
  known: "duplicate elimination: known URLs",
  new: "duplicate elimination: new URLs",
  pending: "duplicate elimination: waiting for the next flush",
  runs: "duplicate elimination: sorted runs",
};

function show(event) {
  if (latest && event.now !== latest.now) remember(event.point, event.now);
  latest = event;
  const { status, point } = event;
  const frontier = status.frontier || {}, pages = status.pages || {};
  const processes = status.processes || [];
  const started = Math.min(...processes.map((process) => process.started));
  const paused = status.paused && status.paused.length ? `paused (${status.paused.join(", ")})` : "crawling";
  const rate = point.pages || 0;
  const outlook = status.outlook || {}, members = status.members || [];
  const missing = members.filter((member) => member.state === "missing");
  const gone = missing.map((member) => member.name).join(", ");
  const said = `${paused}, up ${seconds(event.now - started)}` + (gone ? `; not running: ${gone}` : "");
  if ($("state").textContent !== said) $("state").textContent = said;
  $("state").title = outlook.said || "";
  $("state").className = gone ? "bad" : "";
  document.title = `${rate.toFixed(rate < 10 ? 1 : 0)} pages/s - crawler`;
  fill($("tiles"), [
    ["Pages/s", rate.toFixed(rate < 10 ? 1 : 0)],
    ["Received/s", bytes(point.bytes || 0)],
    ["Fetched", count(pages.fetched || 0)],
    ["To fetch", count(frontier.todo || 0)],
    ["In flight", count(frontier.in_flight || 0)],
    ["Hosts", count(frontier.hosts || 0)],
    ["Parked", count(frontier.parked || 0)],
    ["Time left at this rate", outlook.seconds == null ? (outlook.brings == null ? "-" : "growing") : seconds(outlook.seconds)],
  ]);
  table("outcomes", ["outcome", "fetches#"], Object.entries(pages).sort((a, b) => b[1] - a[1]).map(([name, n]) => [words(name), n]), "no fetch yet");
  const waited = Object.entries(status.waited || {}).filter(([, n]) => n > 0).map(([name, n]) => [WAITS[name] || `waiting: ${words(name)}`, seconds(n)]);
  const states = Object.entries(frontier).filter(([name, n]) => name.startsWith("hosts_") && n).map(([name, n]) => [HOSTS[name.slice(6)] || `hosts: ${words(name.slice(6))}`, n]);
  table("waits", ["state or cause", "hosts or time#"], [...states, ...waited]);
  const urls = status.urls || {}, due = status.due || {};
  const links = Object.entries(urls).filter(([, n]) => typeof n === "number").map(([name, n]) => [LINKS[name] || words(name), n]);
  const filtered = Object.entries(urls.filtered || {}).map(([name, n]) => [`rejected by rule: ${words(name)}`, n]);
  const dues = Object.entries(due).map(([name, n]) => [DUE[name] || `DUE: ${words(name)}`, n < 1 && n > 0 ? n.toExponential(1) : n]);
  table("links", ["links", "number#"], [...links, ...filtered, ...dues]);
  const alive = processes.map((p) => [p.name, String(p.pid), seconds(p.cpu_seconds), bytes(p.rss_bytes), p.descriptors, `${Math.ceil(1000 * (p.loop_lag || 0))} ms`]);
  const dead = missing.map((m) => [m.name, make("span", { class: "bad" }, m.seen_at ? `not running, last seen ${new Date(1000 * m.seen_at).toLocaleTimeString()}` : "not running"), "", "", "", ""]);
  table("processes", ["process", "pid#", "CPU#", "memory#", "open files#", "loop lag#"], [...alive, ...dead]);
  const rest = [];
  for (const [section, name] of [["serve", "page server"], ["refresh", "refresh"], ["splitter", "splitter"]]) {
    for (const [key, value] of Object.entries(status[section] || {})) {
      if (typeof value === "number") rest.push([`${name}: ${words(key)}`, value]);
    }
  }
  for (const [process, peers] of Object.entries(status.peers || {})) {
    for (const [peer, facts] of Object.entries(peers)) rest.push([`${process} to ${peer}`, facts.state || `${facts.outbox_links || 0} links waiting`]);
  }
  table("serve", ["figure", "value#"], rest, "not in use");
  const errors = (status.errors || []).slice(-20).reverse();
  table("errors", ["when", "message"], errors.map((e) => [new Date(1000 * e.at).toLocaleTimeString(), make("span", { class: e.level === "error" ? "bad" : "" }, e.message)]), "none");
  hosts(status.waiting || [], event.now);
}

const ORDERS = {
  busy: (a, b) => (b.state === "in_flight") - (a.state === "in_flight") || b.todo - a.todo,
  failing: (a, b) => b.failures - a.failures || b.refusals - a.refusals || b.todo - a.todo,
  wait: (a, b) => b.wait - a.wait,
  size: (a, b) => b.known - a.known,
};

function hosts(list, now) {
  const rows = [...list].sort(ORDERS[$("hosts-order").value]).slice(0, 50).map((host) => {
    const name = make("button", { type: "button", class: "link", "data-key": host.host, "data-host": host.host }, host.host);
    return [name, words(host.state + (host.cause ? `: ${host.cause}` : "")), host.wait > 0.05 ? seconds(host.wait) : "", host.todo, host.known, host.failures, host.slowdown > 1 ? `x ${host.slowdown.toFixed(1)}` : ""];
  });
  table("hosts", ["host", "state", "wait#", "to fetch#", "known URLs#", "failures#", "slowdown#"], rows, "no host yet");
}

async function showHost(name) {
  const answer = await fetch(`/hosts/${encodeURIComponent(name)}`);
  const facts = await answer.json();
  $("host").hidden = false;
  $("host-name").textContent = name;
  $("host-ledger").href = `/bot/ledger?host=${encodeURIComponent(name)}`;
  const plain = Object.entries(facts).filter(([, value]) => typeof value !== "object" && value !== "");
  const robots = (facts.robots || []).map((copy) => [`robots.txt of ${copy.of}`, copy.fetched_at ? `${copy.status} at ${copy.fetched_at}` : `${words(copy.outcome)}, next try ${copy.retry_at || ""}`]);
  fill($("host-facts"), [...plain.map(([key, value]) => [words(key), fact(key, value)]), ...robots]);
  table("host-fetches", ["when", "URL", "status#", "outcome", "gap#"], (facts.fetches || []).map((f) => [new Date(f.ts).toLocaleTimeString(), make("span", {}, f.url), String(f.status), words(f.outcome || ""), f.gap === null ? "" : seconds(f.gap)]), "none in the log");
  $("host-close").focus();
}

function notice(text) {
  $("notice").hidden = false;
  $("notice").textContent = text;
}

function outcome(command, answers) {
  if (command === "seed") return [`${answers[0].queued} queued`, ...answers[0].refused.map((each) => `rejected: ${each.url}: ${each.why}`)].join("; ");
  if (command === "retire") return `${answers.reduce((sum, each) => sum + each.retired, 0)} waiting URLs dropped; stored pages are kept`;
  if (command === "withdraw") return `${answers[0].pages} pages (${answers[0].bytes} bytes) withdrawn`;
  return "done";
}

function send(command) {
  return fetch("/do", { method: "POST", headers: { "Content-Type": "application/json", "X-Admin-Token": token }, body: JSON.stringify(command) });
}

// Counts the pages first, and asks once.
async function withdraw(what) {
  const counted = await send({ command: "withdraw", dry_run: true, ...what }).catch(() => null);
  if (!counted || !counted.ok) return act({ command: "withdraw", ...what });
  const { pages, bytes } = (await counted.json()).answers[0];
  if (confirm(`Take down ${pages} stored pages (${bytes} bytes)? They are not fetched again.`)) act({ command: "withdraw", ...what });
}

async function act(command) {
  try {
    const answer = await send(command);
    const said = await answer.json();
    notice(answer.ok ? `${command.command}: ${outcome(command.command, said.answers)}` : `${command.command}: ${said.why || said.error}`);
    if (answer.status === 403) use("");
  } catch { notice(`${command.command}: no answer`); }
}

document.addEventListener("click", (event) => {
  const target = event.target.closest("button");
  if (!target) return;
  if (target.dataset.do) act({ command: target.dataset.do });
  else if (target.dataset.host) showHost(target.dataset.host);
  else if (target.id === "host-close") { $("host").hidden = true; $("hosts-order").focus(); }
  else if (target.id === "host-withdraw") withdraw({ host: $("host-name").textContent });
  else if (target.id === "host-block" || target.id === "host-unblock") act({ command: target.id.slice(5), host: $("host-name").textContent });
});
$("hosts-order").addEventListener("change", () => latest && hosts(latest.status.waiting || [], latest.now));

function onSubmit(id, take) {
  $(id).addEventListener("submit", (event) => {
    event.preventDefault();
    take(new FormData(event.target).values().next().value.trim());
  });
}
onSubmit("seed-form", (url) => act({ command: "seed", urls: [url] }));
onSubmit("retire-form", (pattern) => act({ command: "retire", pattern }));
onSubmit("withdraw-form", (url) => withdraw({ url }));
onSubmit("set-form", (text) => {
  const at = text.indexOf("=");
  act({ command: "set", settings: { [text.slice(0, at)]: text.slice(at + 1) } });
});
onSubmit("token-form", (secret) => { sessionStorage.setItem("token", secret); use(secret); $("token").value = ""; notice("The token is set."); });
onSubmit("why-form", async (url) => {
  const answer = await fetch(`/why?url=${encodeURIComponent(url)}`);
  $("why").hidden = false;
  $("why").textContent = JSON.stringify(await answer.json(), null, 2);
});

const events = new EventSource("/events");
events.onmessage = (message) => show(JSON.parse(message.data));
events.onerror = () => { $("state").textContent = "the crawl does not answer"; $("state").className = "bad"; };
loadCurves();
setInterval(loadCurves, 10000);
