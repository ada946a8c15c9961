// The latest fetches and lines of the log, filtered by the server, and the explanation of a URL.

import { $, duration, make, read, say, table, timeOf, words } from "./elements.js";

const EVERY = 2000; // ms
const LIMIT = 100;
let fetchesAsked = 0, logAsked = 0; // numbers of requests; an answer that a later request has overtaken is not shown

async function fetches() {
  const number = ++fetchesAsked;
  const query = new URLSearchParams({ outcome: $("fetches-outcome").value, text: $("fetches-text").value.trim(), limit: LIMIT });
  try {
    const { rows } = await read(`/fetches?${query}`);
    if (number !== fetchesAsked) return;
    table($("fetches"), ["when", "URL", "outcome", "status#", "took#"], rows.map((row) => [
      timeOf(row.ts), make("button", { type: "button", class: "link", "data-key": `${row.ts} ${row.url}`, "data-url": row.url }, row.url),
      words(row.outcome || ""), row.status ? String(row.status) : "", row.took ? duration(row.took) : "",
    ]), query.get("outcome") || query.get("text") ? "none of the latest fetches matches" : "no URL has been fetched yet");
  } catch { /* the state of the connection is shown above */ }
}

async function log() {
  const number = ++logAsked;
  const query = new URLSearchParams({ level: $("log-level").value, text: $("log-text").value.trim(), limit: LIMIT });
  try {
    const { rows } = await read(`/log?${query}`);
    if (number !== logAsked) return;
    const lines = rows.map((row) => make("div", { class: ["error", "critical"].includes(row.level) ? "bad" : "" }, row.line));
    $("log").replaceChildren(...(lines.length ? lines : ["none of the latest lines matches"]));
  } catch { /* the state of the connection is shown above */ }
}

async function why(url) {
  $("why-url").value = url;
  $("why").hidden = false;
  $("why-copies").hidden = true;
  try {
    const facts = await read(`/why?url=${encodeURIComponent(url)}`);
    say($("why"), JSON.stringify(facts, null, 2));
    copies(facts);
  } catch (error) { say($("why"), error.message); }
}

// Offer the stored copy of a page, and its picture, if the page server runs and shows them.
function copies({ url, record, captures, withheld, page_server: address }) {
  const [, host, port] = /^(.*):([1-9]\d*)$/.exec(address || "") || [];
  if (!port || withheld || !captures || !captures.length) return;
  const base = `http://${["0.0.0.0", "[::]"].includes(host) ? location.hostname : host}:${port}`, named = encodeURIComponent(url);
  const links = [make("a", { href: `${base}/page?url=${named}` }, "stored copy")];
  if (record && record.shown && record.shown.pictured) links.push(" ", make("a", { href: `${base}/view?url=${named}` }, "picture"));
  $("why-copies").replaceChildren(...links);
  $("why-copies").hidden = false;
}

// Show the fetches with an outcome.
export function withOutcome(outcome) {
  const choice = $("fetches-outcome");
  if (![...choice.options].some((option) => option.value === outcome)) choice.append(make("option", { value: outcome }, words(outcome)));
  choice.value = outcome;
  fetches();
  $("fetches-title").scrollIntoView();
  choice.focus({ preventScroll: true });
}

export function offer(outcomes) {
  const choice = $("fetches-outcome"), known = new Set([...choice.options].map((option) => option.value));
  for (const name of outcomes) if (!known.has(name)) choice.append(make("option", { value: name }, words(name)));
}

export function start(isLive) {
  $("fetches-outcome").addEventListener("change", fetches);
  $("fetches-text").addEventListener("input", fetches);
  $("log-level").addEventListener("change", log);
  $("log-text").addEventListener("input", log);
  $("fetches").addEventListener("click", (event) => {
    const button = event.target.closest("button[data-url]");
    if (!button) return;
    why(button.dataset.url);
    $("why-title").scrollIntoView();
    $("why").focus({ preventScroll: true });
  });
  $("why-form").addEventListener("submit", (event) => {
    event.preventDefault();
    why($("why-url").value.trim());
  });
  const look = () => { fetches(); log(); };
  look();
  setInterval(() => isLive() && !document.hidden && $("follow").checked && look(), EVERY);
}
