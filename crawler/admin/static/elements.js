// Numbers as text, and elements of the page. Text from the crawl is always set as text, never as markup.

export const $ = (id) => document.getElementById(id);

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 2 });
export const count = (n) => (n < 100000 ? whole.format(n) : short.format(n));
export const several = (n, word) => `${count(n)} ${word}${n === 1 ? "" : "s"}`;
export const rate = (n) => (n < 10 ? n.toFixed(1) : count(n));
export const words = (name) => name.replaceAll("_", " ");
export const time = (seconds) => new Date(1000 * seconds).toLocaleTimeString();

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
// On narrow screens each row is a card whose cells show their heads (`data-head`). Focus inside the table is kept.
export function table(target, heads, rows, empty) {
  const kept = target.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  const numeric = heads.map((text) => text.endsWith("#"));
  const names = heads.map((text) => text.replace("#", ""));
  const head = make("tr", { role: "row" }, ...names.map((text, k) => make("th", { scope: "col", role: "columnheader", class: numeric[k] ? "number" : "" }, text)));
  const body = rows.map((cells) => make("tr", { role: "row" }, ...cells.map((cell, k) => {
    const attributes = { role: "cell", class: numeric[k] ? "number" : "text", "data-head": names[k] };
    return make("td", attributes, cell instanceof Node ? cell : typeof cell === "number" ? count(cell) : String(cell));
  })));
  if (!rows.length) body.push(make("tr", { role: "row" }, make("td", { role: "cell", colspan: heads.length }, empty || "none")));
  target.setAttribute("role", "table");
  target.replaceChildren(make("thead", { role: "rowgroup" }, head), make("tbody", { role: "rowgroup" }, ...body));
  if (kept) {
    const again = [...target.querySelectorAll("[data-key]")].find((element) => element.dataset.key === kept);
    if (again) again.focus();
  }
}

export async function read(path) {
  const answer = await fetch(path);
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.why || found.error || `status ${answer.status}`);
  return found;
}
