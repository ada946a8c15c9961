// The list of all hosts, ranked and searched by the server, and the panel of one host. Both are live.

import { $, count, duration, fill, make, read, say, several, table, time, timeOf, words } from "./elements.js";
import * as actions from "./actions.js";

const EVERY = 2000; // ms
const LIMIT = 100;
const STATES = {
  in_flight: "being fetched", ready: "ready", waits: "waits for its gap", idle: "nothing to fetch", excluded: "not fetched: limit of hosts per domain",
  backing_off: "waits after a failure", waits_for_robots: "waits for robots.txt", waits_for_address: "waits for its address",
  waits_for_look_up: "waits for DNS", retries: "waits to retry", blocked: "blocked", refused: "dropped: refused too often", given_up: "given up in this run",
};
const FACTS = {
  todo: "to fetch", known: "known URLs", parked: "parked URLs", failures: "failures in a row", refusals: "refusals in a row",
  gap: "gap between requests", ready_at: "next request from", next_retry_at: "next retry", slowdown: "slowed down by the factor",
};
let open = "", asked = 0, listedAt = 0;

const state = (host) => (STATES[host.state] || words(host.state)) + (host.said ? `: ${host.said}` : "");

export async function refresh() {
  const number = ++asked;
  const query = new URLSearchParams({ order: $("hosts-order").value, search: $("hosts-search").value.trim(), cause: $("hosts-cause").value, limit: LIMIT });
  try {
    const found = await read(`/hosts?${query}`);
    if (number === asked) list(found);
  } catch (error) { say($("hosts-said"), `The list is ${listedAt ? `that of ${time(listedAt)}` : "not available"}: ${error.message}`); }
}

function list(found) {
  listedAt = Date.now() / 1000;
  const shown = found.rows.length, filtered = found.matched !== found.hosts;
  const lacking = found.missing.length ? ` Without the hosts of ${found.missing.join(", ")}.` : "";
  const unsearched = found.unsearched ? ` ${count(found.unsearched)} hosts were not searched; write the whole name.` : "";
  say($("hosts-said"), `${several(found.hosts, "host")}, ${count(found.failing)} of them failing. ` +
    (filtered ? `Matching: ${count(found.matched)}. ` : "") + `Listed: ${count(shown)}.${unsearched}${lacking}`);
  const rows = found.rows.map((host) => {
    const name = make("button", { type: "button", class: "link", "data-key": host.host, "data-host": host.host }, host.host);
    return [name, state(host), host.todo && host.wait > 0.05 ? duration(host.wait) : "", host.todo, host.known, host.failures, host.slowdown > 1 ? `x ${host.slowdown.toFixed(1)}` : ""];
  });
  table($("hosts"), ["host", "state", "wait#", "to fetch#", "known URLs#", "failures#", "slowed#"], rows, "no host matches");
}

function fact(name, value) {
  if (name.endsWith("_at")) return value > 0 ? time(value) : "-";
  if (name === "gap") return value > 0 && value < 1 ? `${value.toFixed(2)} s` : duration(value);
  return Number.isInteger(value) ? count(value) : value.toFixed(2);
}

const instant = (text) => (text ? new Date(text).toLocaleString() : "an unknown time");

async function show(name) {
  let facts;
  try {
    facts = await read(`/hosts/${encodeURIComponent(name)}`);
  } catch (error) {
    say($("host-state"), `Not available: ${error.message}`);
    return;
  }
  if (open !== name) return;
  say($("host-state"), state(facts));
  const robots = (facts.robots || []).map((copy) => [`robots.txt of ${copy.of}`, copy.fetched_at ? `${copy.status} at ${instant(copy.fetched_at)}` : `${copy.said}, next try at ${instant(copy.retry_at)}`]);
  fill($("host-facts"), [...Object.entries(FACTS).map(([key, text]) => [text, fact(key, facts[key] || 0)]), ...robots]);
  const rows = (facts.fetches || []).map((f) => [timeOf(f.ts), make("span", {}, f.url), String(f.status), words(f.outcome || ""), f.gap === null ? "" : duration(f.gap)]);
  table($("host-fetches"), ["when", "URL", "status#", "outcome", "gap#"], rows, "no fetch of this host in the log");
  actions.allowHost(facts.state);
}

function reveal(name) {
  open = name;
  $("host").hidden = false;
  say($("host-name"), name);
  say($("host-said"), "");
  $("host-ledger").href = `/bot/ledger?format=html&host=${encodeURIComponent(name)}`;
  $("host-close").focus();
  show(name);
}

function close() {
  open = "";
  $("host").hidden = true;
  $("hosts-search").focus();
}

// Show the hosts that fail for a cause.
export function failing(cause) {
  const choice = $("hosts-cause");
  if (![...choice.options].some((option) => option.value === cause)) choice.append(make("option", { value: cause }, words(cause)));
  choice.value = cause;
  $("hosts-order").value = "failing";
  refresh();
}

// Offer the causes that occur as filters.
export function offer(failures) {
  const choice = $("hosts-cause"), known = new Set([...choice.options].map((option) => option.value));
  for (const each of failures) if (!known.has(each.outcome)) choice.append(make("option", { value: each.outcome }, each.said));
}

export function start(isLive) {
  for (const id of ["hosts-order", "hosts-cause"]) $(id).addEventListener("change", refresh);
  $("hosts-search").addEventListener("input", refresh);
  $("hosts").addEventListener("click", (event) => {
    const button = event.target.closest("button[data-host]");
    if (button) reveal(button.dataset.host);
  });
  $("host-close").addEventListener("click", close);
  $("host-withdraw").addEventListener("click", () => actions.withdraw({ host: open }, $("host-said")));
  for (const command of ["block", "unblock"]) {
    $(`host-${command}`).addEventListener("click", async () => {
      await actions.act({ command, host: open }, $("host-said"));
      show(open);
      refresh();
    });
  }
  refresh();
  setInterval(() => {
    if (!isLive() || document.hidden) return;
    refresh();
    if (open) show(open);
  }, EVERY);
}
