// Keeps a view true while somebody looks at it: new content by server-sent events, and the age of every moment shown.
// Without this script the page shows the same, as of its loading.
"use strict";

const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
const AGES_EVERY_MS = 1000;
const LATE_MS = 3000; // a stream that ends in order is back before that
const REFUSED_MS = 15000; // until the server is asked again for a stream that it refused

const live = document.getElementById("live");
const liveness = document.getElementById("liveness");
let serverAhead = live ? Date.parse(live.dataset.now) - Date.now() : 0; // ms

function age(moment) {
  const away = (Date.parse(moment) - Date.now() - serverAhead) / 1000;
  const [unit, size] = UNITS.find(([name, seconds]) => Math.abs(away) >= seconds || name === "s");
  const count = Math.floor(Math.abs(away) / size);
  if (count === 0) return "now";
  return away > 0 ? `in ${count} ${unit}` : `${count} ${unit} ago`;
}

function tellAges() {
  for (const time of document.querySelectorAll("time:not(.as-of)")) {
    const told = age(time.dateTime);
    if (time.textContent !== told) time.textContent = told;
  }
}

// Changes `from` into `to`, and nothing that is the same: focus, selection and open details stay.
function change(from, to) {
  if (from.nodeType === Node.TEXT_NODE) {
    if (from.data !== to.data) from.data = to.data;
    return;
  }
  if (from.isEqualNode(to) || (from.nodeName === "TIME" && from.dateTime === to.dateTime)) return;
  for (const { name } of [...from.attributes]) {
    if (!to.hasAttribute(name) && name !== "open") from.removeAttribute(name);
  }
  for (const { name, value } of to.attributes) {
    if (from.getAttribute(name) !== value) from.setAttribute(name, value);
  }
  changeChildren(from, to);
}

function changeChildren(from, to) {
  let at = from.firstChild;
  for (const wanted of [...to.childNodes]) {
    const found = wanted.id ? [...from.children].find((child) => child.id === wanted.id) : at;
    if (!found || !alike(found, wanted)) {
      from.insertBefore(wanted, at);
    } else {
      if (found === at) at = at.nextSibling;
      else from.insertBefore(found, at);
      change(found, wanted);
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function alike(one, other) {
  return one.nodeName === other.nodeName && (one.id || "") === (other.id || "");
}

function tell(text) {
  if (liveness.textContent !== text) liveness.textContent = text;
}

// What had the focus was moved, or another one like it stands in its place: whoever uses keys must not begin anew.
function focusAgain(lost) {
  const like = (each) =>
    lost.id ? each.id === lost.id : each.textContent === lost.textContent && each.href === lost.href;
  const found = lost.isConnected ? lost : [...live.querySelectorAll(lost.nodeName)].find(like);
  if (found) found.focus({ preventScroll: true });
}

function show({ now, html }) {
  serverAhead = Date.parse(now) - Date.now();
  const made = document.createElement("template");
  made.innerHTML = html;
  const focused = live.contains(document.activeElement) ? document.activeElement : null;
  changeChildren(live, made.content);
  if (focused && document.activeElement !== focused) focusAgain(focused);
  const asOf = document.querySelector("time.as-of");
  asOf.dateTime = now;
  asOf.textContent = now.slice(0, 19).replace("T", " ");
  tellAges();
  tell("Live.");
}

function follow() {
  let stream = null;
  let late = 0;
  let again = 0;

  function stop() {
    clearTimeout(late);
    clearTimeout(again);
    if (stream) stream.close();
    stream = null;
  }

  function start() {
    stop();
    stream = new EventSource(live.dataset.stream);
    stream.addEventListener("open", () => { clearTimeout(late); late = 0; });
    stream.addEventListener("frame", (event) => show(JSON.parse(event.data)));
    stream.addEventListener("away", () => tell("The database does not answer: this is what it said last."));
    stream.addEventListener("error", () => {
      if (!late) late = setTimeout(() => tell("Not live: the connection is lost. It is tried again."), LATE_MS);
      if (stream.readyState === EventSource.CLOSED) again = setTimeout(start, REFUSED_MS);
    });
  }

  function followWhileSeen() {
    if (document.hidden) stop();
    else start();
  }

  document.addEventListener("visibilitychange", followWhileSeen);
  window.addEventListener("pagehide", stop);
  window.addEventListener("pageshow", (event) => { if (event.persisted) followWhileSeen(); });
  followWhileSeen();
}

// A second click would send a form again, and show the refusal of the second instead of what came of the first.
document.addEventListener("submit", (event) => {
  if (event.target.method !== "post") return;
  if (event.target.dataset.sent) event.preventDefault();
  event.target.dataset.sent = "yes";
});
window.addEventListener("pageshow", () => {
  for (const form of document.querySelectorAll("form[data-sent]")) delete form.dataset.sent;
});

setInterval(tellAges, AGES_EVERY_MS);
if (live) follow();
