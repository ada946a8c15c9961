// Numbers as text, and elements of the page. Text from the crawl is always set as text, never as markup.

export const $ = (id) => document.getElementById(id);

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 2 });
export const count = (n) => (n < 100000 ? whole.format(n) : short.format(n));
export const several = (n, word) => `${count(n)} ${word}${n === 1 ? "" : "s"}`;
export const rate = (n) => (n < 10 ? n.toFixed(1) : count(n));
const said = new Map(); // outcomes in the server's words
export const learn = (outcomes) => { for (const each of outcomes) said.set(each.outcome, each.said); };
export const words = (name) => said.get(name) || name.replaceAll("_", " ");
// A time of day in the reader's own form, as wide as any other; `parts` says which parts to show.
const ALL = { hour: "2-digit", minute: "2-digit", second: "2-digit" };
export const time = (seconds, parts = ALL) => new Date(1000 * seconds).toLocaleTimeString([], parts);
export const timeOf = (iso) => time(Date.parse(iso) / 1000);

// The same words as `duration` in admin/eta.py, for lengths that only the page knows.
export function duration(n) {
  if (!Number.isFinite(n)) return "";
  if (n > 0 && n < 0.1) return `${Math.ceil(1000 * n)} ms`;
  for (const [unit, length] of [["d", 86400], ["h", 3600], ["min", 60]])
    if (n >= 2 * length) return `${(n / length).toFixed(1)} ${unit}`;
  return `${n.toFixed(n < 10 ? 1 : 0)} s`;
}

export function bytes(n) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let k = 0;
  while (n >= 1000 && k < units.length - 1) { n /= 1000; k += 1; }
  return `${n < 10 && k ? n.toFixed(1) : Math.round(n)} ${units[k]}`;
}

export function make(name, attributes, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// Fill a list of terms; rows are [term, value] and keep their elements.
export function fill(list, rows) {
  const old = new Map([...list.children].map((row) => [row.dataset.name, row]));
  for (const [name, value] of rows) {
    let row = old.get(name);
    if (!row) {
      row = make("div", { "data-name": name }, make("dt", {}, name), make("dd", {}));
      list.append(row);
    }
    old.delete(name);
    say(row.lastChild, String(value));
  }
  for (const row of old.values()) row.remove();
}

// Rows are [cells...]; a cell is text, a number, or an element. A head that ends in "#" is a column of numbers.
// On narrow screens each row is a card whose cells show their heads (`data-head`). Rows with the same key, which is
// that of an element in them or else the text of the first cell, keep their elements, and so selection and focus.
export function table(target, heads, rows, empty) {
  const numeric = heads.map((text) => text.endsWith("#"));
  const names = heads.map((text) => text.replace("#", ""));
  if (target.dataset.heads !== heads.join()) {
    target.dataset.heads = heads.join();
    target.classList.toggle("pairs", heads.length === 2);
    target.setAttribute("role", "table");
    const head = names.map((text, k) => make("th", { scope: "col", role: "columnheader", class: numeric[k] ? "number" : "" }, text));
    target.replaceChildren(make("thead", { role: "rowgroup" }, make("tr", { role: "row" }, ...head)), make("tbody", { role: "rowgroup" }));
  }
  const body = target.lastChild, old = new Map([...body.children].map((row) => [row.dataset.key, row])), used = new Set();
  const wanted = rows.map((cells) => {
    const marked = cells.find((cell) => cell instanceof Element && cell.dataset.key);
    let key = marked ? marked.dataset.key : String(cells[0] instanceof Element ? cells[0].textContent : cells[0]);
    while (used.has(key)) key += " ";
    used.add(key);
    const row = old.get(key) || make("tr", { role: "row", "data-key": key }, ...names.map((name, k) =>
      make("td", { role: "cell", class: numeric[k] ? "number" : "text", "data-head": name })));
    cells.forEach((cell, k) => put(row.children[k], cell));
    return row;
  });
  if (!rows.length) wanted.push(make("tr", { role: "row" }, make("td", { role: "cell", colspan: heads.length }, empty || "none")));
  arrange(body, wanted);
}

function put(place, cell) {
  if (!(cell instanceof Element)) say(place, typeof cell === "number" ? count(cell) : String(cell));
  else if (!place.firstElementChild || place.firstElementChild.outerHTML !== cell.outerHTML) place.replaceChildren(cell);
}

// Make `rows` the children of `body`. Move as few of them as possible, since a moved element loses the focus.
function arrange(body, rows) {
  const kept = new Set(rows);
  for (const row of [...body.children]) if (!kept.has(row)) row.remove();
  const focused = document.activeElement;
  let at = body.firstChild;
  for (const row of rows) {
    if (row === at) at = at.nextSibling;
    else body.insertBefore(row, at);
  }
  if (focused !== document.activeElement && body.contains(focused)) focused.focus({ preventScroll: true });
}

export async function read(path) {
  const answer = await fetch(path);
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.why || found.error || `status ${answer.status}`);
  return found;
}
