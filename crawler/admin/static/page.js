// The dashboard: the verdict, the figures and the tables, from one event a second.

import { $, bytes, count, duration, fill, learn, make, rate, say, several, table, time, words } from "./elements.js";
import { connect } from "./connection.js";
import * as actions from "./actions.js";
import * as curves from "./curves.js";
import * as hosts from "./hosts.js";
import * as tails from "./tails.js";

let latest = null, connection = "connecting";
const isLive = () => connection === "live" || connection === "late";

// Labels of counters whose names need an explanation; others are shown by name.
const HOSTS = {
  reached: "have answered so far", front: "active", ready: "ready, not active yet", waiting: "waiting for their next request",
  excluded: "over the limit of hosts per domain", blocked: "blocked by the operator", refused: "dropped after too many refusals",
  given_up: "given up in this run", failing: "failing", nameless: "whose name does not exist",
};
const WAITS = {
  host: "minimum gap of a host", address: "minimum gap of an address", rate: "overall rate limit",
  full: "all fetch slots in use", empty: "no URL to fetch",
};
const LINKS = {
  accepted: "accepted by the URL filter", cache_hits: "dropped as recently seen", received: "received from other processes",
  links: "found on pages", seeds: "from the seeds", new_seeds: "from the seeds, not known before", done: "fetched or given up",
  resharded: "moved here from other processes", to_due: "passed to duplicate elimination", to_outbox: "queued for other processes",
};
// The reasons are those of `render_reasons.py`.
const RENDERED = {
  pages: "pages", added: "gained links or text", failed: "no browser could show", cut: "stopped at a limit",
  why_mark: "because: looked unfinished", why_learned: "because: similar pages gained by rendering", why_chance: "because: drawn by chance",
  why_again: "because: gained by rendering before", held_back: "put off after failed attempts",
  why_always: "because: all are shown", why_request: "because: requested with render=True",
  requests: "requests of pages", cached: "requests answered from the cache", missing: "requests without an answer",
};
const SERVED = {
  requests: "requests", connections: "open connections", evicted: "slow clients disconnected", turned_away: "clients refused for lack of room",
  ready_bytes: "bytes of answers in memory", ready_hits: "answered from memory", ready_misses: "answers built anew",
  disk_bytes: "bytes of pages in the cache on disk", disk_hits: "pages from the cache on disk", counted_pages: "pages whose requests are counted",
};
const BETWEEN = {
  sent: "links sent and confirmed", waiting: "links that wait to be sent", repeated: "repeats left out", batches: "batches sent", bytes: "bytes sent",
  applied: "links received", local: "links that stay in their process", foreign: "links of other processes", cache_hits: "dropped as recently sent",
  scope_told: "sites in scope, sent", scope_heard: "sites in scope, received", signals_told: "change signals sent", signals_heard: "change signals received",
  credits_told: "importance sent", credits_heard: "importance received",
  recoveries: "losses after which links were sent again",
};
const DUE = { known: "links to known URLs", new: "links to new URLs", pending: "waiting for the next flush", runs: "sorted runs" };
const ROBOTS = { fetched: "read", gone: "the site has none (404 or 410)" };

// -- the verdict ------------------------------------------------------------------

function verdict() {
  const status = latest.status, health = status.health || { state: "", problems: [] };
  const state = connection === "live" ? health.state : connection;
  const title = {
    healthy: "Healthy", degraded: "Works, but needs a look", unhealthy: "Not healthy", paused: "Paused", "at rest": "At rest", late: "Slow to answer",
    reconnecting: "Reconnecting", lost: "The crawl does not answer", stopped: "Stopped", failed: "Ended with an error",
  }[state] || "Connecting";
  say($("verdict"), title);
  document.title = state === "healthy" ? `${speed()} pages/s - crawler` : `${title} - crawler`;
  $("health").className = { unhealthy: "bad", lost: "bad", failed: "bad", degraded: "warn", healthy: "good" }[state] || "calm";
  const texts = connection === "live" ? health.problems.map((each) => each.text) : [about(connection)];
  const list = $("problems");
  if (list.dataset.shown !== texts.join("\n")) {
    list.dataset.shown = texts.join("\n");
    list.replaceChildren(...texts.filter(Boolean).map((text) => make("li", {}, text)));
  }
  $("health").classList.toggle("old", !isLive());
  document.body.classList.toggle("old", !isLive());
}

let ending = null;

// While the crawl does not run, nothing is fetched, so its last rates and the time left would be untrue.
const ended = () => ["lost", "stopped", "failed"].includes(connection);
const speed = () => rate((latest.point.pages || 0) + (latest.point.again || 0));

function about(state) {
  const seen = `the figures are those of ${time(latest.at)}`;
  if (state === "late") return `A process takes long to answer; ${seen}.`;
  if (state === "reconnecting") return `The connection broke; ${seen}.`;
  if (state === "stopped") return `The crawl ended cleanly at ${time(ending.at)}; ${seen}. Continue it with the same command.`;
  if (state === "failed") return `The crawl ended at ${time(ending.at)}: ${ending.why}`;
  const error = (latest.status.errors || []).filter((each) => each.level === "error").sort((a, b) => a.at - b.at).at(-1);
  return `It ended without notice, or it cannot be reached; ${seen}. ` + (error ? `Its last error: ${error.message}` : "It had logged no error.");
}

function state() {
  const health = latest && latest.status.health;
  const words = { live: health ? health.state : "live", late: "slow", lost: "no answer" }[connection] || connection;
  say($("state"), words);
  $("state").className = { lost: "bad", failed: "bad", live: { unhealthy: "bad", degraded: "warn" }[words] }[connection] || "";
}

// -- the figures ------------------------------------------------------------------

function crawl(facts) {
  if (!facts) return;
  const more = facts.seeds_total - facts.seeds.length;
  say($("crawl"), `${facts.directory}` + (facts.seeds.length ? ` · seeds at ${facts.seeds.join(", ")}${more > 0 ? ` and ${several(more, "other host")}` : ""}` : "") + ` · crawler ${facts.version}`);
}

function failures(list) {
  const key = list.map((each) => `${each.outcome} ${each.count}`).join();
  if ($("failures").dataset.shown === key) return;
  $("failures").dataset.shown = key;
  const focused = document.activeElement.dataset.cause;
  $("failures").replaceChildren(...list.slice(0, 4).map((each) => make("li", {},
    make("button", { type: "button", class: "link", "data-cause": each.outcome }, each.said), `: ${several(each.count, "time")}`)));
  if (!list.length) $("failures").replaceChildren(make("li", {}, "nothing so far"));
  const again = focused && [...$("failures").querySelectorAll("button")].find((button) => button.dataset.cause === focused);
  if (again) again.focus();
}

function show() {
  const { status } = latest, health = status.health || {};
  learn(health.failures || []);
  crawl(status.crawl);
  failures(health.failures || []);
  figures();
  members(status);
  details(status);
  actions.allowCrawl(isLive(), status.paused || []);
  hosts.offer(health.failures || []);
  tails.offer(Object.keys(status.pages || {}));
}

function figures() {
  const { status, point } = latest;
  const frontier = status.frontier || {}, pages = status.pages || {}, again = (status.refresh || {}).done || 0;
  const started = Math.min(...(status.processes || []).map((process) => process.started));
  say($("left"), ended() ? "the crawl does not run" : (status.outlook || {}).said || "not known yet");
  fill($("tiles"), [
    ["Pages/s", ended() ? "-" : speed()],
    ["Received/s", ended() ? "-" : bytes(point.bytes || 0)],
    ["Fetched", count(pages.fetched || 0)],
    ...(again ? [["Fetched again", count(again)]] : []),
    ["To fetch", count(frontier.todo || 0)],
    ["Hosts", count(frontier.hosts || 0)],
    ["Failing hosts", count(frontier.hosts_failing || 0)],
    [ended() ? "Ran for" : "Running for", duration(latest.at - started) || "-"],
  ]);
}

// After a clean end, no process is missing, although the last sample may have been taken while they ended one by one.
function members(status) {
  const missing = (status.members || []).filter((member) => member.state === "missing" && connection !== "stopped");
  $("lacking").hidden = !missing.length;
  say($("lacking"), missing.map((member) => `The totals contain ${member.seen_at ? `the last figures of ${member.name}, of ${time(member.seen_at)}` : `nothing of ${member.name}, which has not answered yet`}.`).join(" "));
  processes(status, missing);
}

function processes(status, missing) {
  const now = { lost: "no answer", stopped: "ended", failed: "ended" }[connection] || "running";
  const alive = (status.processes || []).map((p) => [p.name, now, String(p.pid), duration(p.cpu_seconds), bytes(p.rss_bytes), p.descriptors, `${Math.ceil(1000 * (p.loop_lag || 0))} ms`]);
  const gone = missing.map((m) => [m.name, m.seen_at ? `not running, last seen at ${time(m.seen_at)}` : "not running", "", "", "", "", ""]);
  table($("processes"), ["process", "state", "pid#", "CPU#", "memory#", "open files#", "event-loop delay#"], [...gone, ...alive]);
  $("processes").querySelectorAll("tbody tr").forEach((row, k) => row.classList.toggle("gone", k < gone.length));
}

const numbers = (section, prefix, labels = {}) => Object.entries(section || {}).filter(([, n]) => typeof n === "number")
  .map(([name, n]) => [`${prefix}: ${labels[name] || words(name)}`, n < 1 && n > 0 ? n.toExponential(1) : n]);

function rendered(counts) {
  const pages = counts.pages || 0;
  const costs = pages ? [["CPU time", duration((counts.cpu_ms || 0) / 1000) || "0 s"],
    ["CPU time per page", `${((counts.cpu_ms || 0) / pages / 1000).toFixed(2)} s`], ["time per page", `${((counts.ms || 0) / pages / 1000).toFixed(1)} s`]] : [];
  const known = Object.entries(RENDERED).filter(([name]) => counts[name]).map(([name, label]) => [label, counts[name]]);
  table($("rendered"), ["figure", "value#"], [...known, ...costs], "none; the flag --render shows pages in a browser");
}

function details(status) {
  rendered(status.rendered || {});
  const frontier = status.frontier || {}, urls = status.urls || {};
  const troubles = new Set(((status.health || {}).failures || []).map((each) => each.outcome));
  const outcomes = Object.entries(status.pages || {}).sort((a, b) => b[1] - a[1]);
  const ofRobots = Object.entries(status.robots || {}).filter(([, n]) => n > 0 && !name.endsWith("_ignored")).sort((a, b) => b[1] - a[1]);
  table($("outcomes"), ["outcome", "fetches#"], [...outcomes.map(([name, n]) => [
    make("button", { type: "button", class: "link", "data-outcome": name, "data-key": name }, words(name)), n]),
    ...ofRobots.map(([name, n]) => {
      const text = `robots.txt: ${ROBOTS[name] || words(name)}`;
      return [troubles.has(name) ? make("button", { type: "button", class: "link", "data-cause": name, "data-key": text }, text) : text, n];
    })], "no fetch yet");
  const states = Object.entries(frontier).filter(([name, n]) => name.startsWith("hosts_") && n).map(([name, n]) => [`hosts: ${HOSTS[name.slice(6)] || words(name.slice(6))}`, n]);
  const waited = Object.entries(status.waited || {}).filter(([, n]) => n > 0).map(([name, n]) => [`waiting: ${WAITS[name] || words(name)}`, duration(n)]);
  table($("waits"), ["state or cause", "hosts or time#"], [...states, ...waited]);
  table($("links"), ["links", "number#"], [...numbers(urls, "links", LINKS), ...numbers(urls.filtered, "refused by rule"), ...numbers(status.due, "duplicate elimination", DUE)]);
  const peers = Object.entries(status.peers || {}).flatMap(([process, all]) => Object.entries(all).map(([peer, facts]) =>
    [`${process} to ${peer}`, `${facts.connected === false ? "not connected, " : ""}${count(facts.outbox_links || 0)} links wait`]));
  table($("serve"), ["figure", "value#"], [...numbers(status.serve, "page server", SERVED), ...numbers(status.refresh, "refresh"), ...numbers(status.splitter, "between processes", BETWEEN), ...peers], "not in use");
}

// -- the whole --------------------------------------------------------------------

document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  if (button.dataset.cause) {
    hosts.failing(button.dataset.cause);
    $("hosts-title").scrollIntoView();
    $("hosts-cause").focus({ preventScroll: true });
  } else if (button.dataset.outcome) tails.withOutcome(button.dataset.outcome);
});

// A page that nobody sees is not drawn.
document.addEventListener("visibilitychange", () => {
  if (document.hidden || !latest) return;
  show();
  curves.draw();
});

actions.start();
hosts.start(isLive);
tails.start(isLive);
curves.start(isLive);
connect(
  (sample) => {
    if (!isLive()) curves.load();
    connection = "live";
    latest = sample;
    curves.add(sample);
    if (!document.hidden) show();
    verdict();
    state();
  },
  (next, end) => {
    connection = next;
    ending = end;
    if (latest) {
      verdict();
      figures();
      members(latest.status);
    }
    state();
    actions.allowCrawl(isLive(), latest ? latest.status.paused || [] : []);
    if (end) say($("control-said"), "");
    curves.draw();
  },
);
