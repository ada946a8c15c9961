// Changes of the crawl: they need the token, are offered only where they can act, and answer where the click was.

import { $, bytes, say, several } from "./elements.js";

const CONFIRM = 5000; // ms in which the second press of Stop counts
const CONTROLS = ["pause", "resume", "stop"];
let token = "", live = false, paused = false, host = "";

// The link printed at the start has the token after "#", which browsers send to no server. If the page is already
// open, the browser does not load it again for such a link, but reports a change of the fragment.
function take() {
  const brought = /^#token=([0-9a-f]{32})$/.exec(location.hash);
  if (brought) {
    sessionStorage.setItem("token", brought[1]);
    history.replaceState(null, "", location.pathname);
  }
  use(sessionStorage.getItem("token") || "");
}

function send(command) {
  const headers = { "Content-Type": "application/json", "X-Admin-Token": token };
  return fetch("/do", { method: "POST", headers, body: JSON.stringify(command) });
}

// Count the pages first, and ask once.
export async function withdraw(what, output) {
  const counted = await send({ command: "withdraw", dry_run: true, ...what }).catch(() => null);
  if (!counted || !counted.ok) return act({ command: "withdraw", ...what }, output);
  const found = (await counted.json()).answers[0];
  const question = found.pages ? `Take down ${several(found.pages, "stored page")} (${bytes(found.bytes)})? What is taken down is not fetched again.`
    : "No stored page matches. Withdraw it nevertheless, so that it is never fetched?";
  if (confirm(question)) act({ command: "withdraw", ...what }, output);
}

// Send a command; write what the server says to `output`, an element beside the control.
export async function act(command, output) {
  say(output, "…");
  output.className = "said";
  try {
    const answer = await send(command);
    const found = await answer.json();
    say(output, answer.ok ? found.said.replaceAll("\n", "; ") : `${command.command} refused: ${found.why || found.error}`);
    output.classList.toggle("bad", !answer.ok || Boolean(found.answers[0]?.refused?.length));
    if (answer.status === 403) {
      sessionStorage.removeItem("token");
      use("");
    }
  } catch {
    say(output, `${command.command}: the crawl did not answer`);
    output.classList.add("bad");
  }
}

function use(secret) {
  token = secret;
  allow();
}

function allow() {
  const able = Boolean(token) && live;
  $("pause").disabled = !able || paused;
  $("resume").disabled = !able || !paused;
  $("stop").disabled = !able;
  for (const button of document.querySelectorAll("#seed-form button, #retire-form button, #withdraw-form button, #set-form button")) button.disabled = !able;
  $("host-withdraw").disabled = !able;
  $("host-block").disabled = !able || host === "blocked";
  $("host-unblock").disabled = !able || !["blocked", "refused", "given_up"].includes(host);
  $("token-form").hidden = Boolean(token);
  $("no-token").hidden = Boolean(token);
  $("read-only").hidden = Boolean(token) || !live;
}

// Note the state of the crawl: whether it can be asked, and whether the user has paused it.
export function allowCrawl(isLive, reasons) {
  live = isLive;
  paused = reasons.includes("user");
  allow();
}

export function allowHost(state) {
  host = state;
  allow();
}

let asked = 0;

function stop() {
  if (Date.now() - asked < CONFIRM) {
    asked = 0;
    $("stop").textContent = "Stop";
    act({ command: "stop" }, $("control-said"));
    return;
  }
  asked = Date.now();
  $("stop").textContent = "Stop: sure?";
  say($("control-said"), "Press again to stop the crawl. It can be continued later.");
  setTimeout(() => {
    if (!asked || Date.now() - asked < CONFIRM) return;
    asked = 0;
    $("stop").textContent = "Stop";
    say($("control-said"), "");
  }, CONFIRM + 50);
}

function onSubmit(name, command) {
  $(`${name}-form`).addEventListener("submit", (event) => {
    event.preventDefault();
    const value = new FormData(event.target).values().next().value.trim();
    command(value, event.target.querySelector("output"));
  });
}

export function start() {
  for (const command of CONTROLS) {
    $(command).addEventListener("click", () => (command === "stop" ? stop() : act({ command }, $("control-said"))));
  }
  onSubmit("seed", (url, output) => act({ command: "seed", urls: [url] }, output));
  onSubmit("retire", (pattern, output) => act({ command: "retire", pattern }, output));
  onSubmit("withdraw", (url, output) => withdraw({ url }, output));
  onSubmit("set", (text, output) => {
    const at = text.indexOf("=");
    if (at < 1) {
      say(output, "Write it as key=value, for example politeness.delay=5");
      output.className = "said bad";
    } else act({ command: "set", settings: { [text.slice(0, at).trim()]: text.slice(at + 1).trim() } }, output);
  });
  onSubmit("token", (secret) => {
    sessionStorage.setItem("token", secret);
    use(secret);
  });
  addEventListener("hashchange", take);
  take();
}
