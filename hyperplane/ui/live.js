// Requests the content of the page again and replaces the parts of it that have changed. A request
// instead of server-sent events: a browser has six connections to a server, and each tab with
// events keeps one.
"use strict";

const pause = document.getElementById("pause");
const announcement = document.getElementById("announcement");
let timer = 0;
let paused = false;
let hasProblem = false;
// Milliseconds of the last request; updates take at most about a tenth of the time of the server.
let took = 0;
const SHARE = 10;

function getContent() {
  return document.getElementById("content");
}

function announce(text) {
  if (announcement && announcement.textContent !== text) announcement.textContent = text;
}

function schedule() {
  window.clearTimeout(timer);
  const seconds = Number(getContent().dataset.seconds);
  if (seconds > 0 && !paused && !document.hidden) {
    timer = window.setTimeout(update, Math.max(1000 * seconds, SHARE * took));
  }
}

// A selection of text, and an open form, would be lost.
function isInUse() {
  const selection = window.getSelection();
  const content = getContent();
  const selects = selection && !selection.isCollapsed && content.contains(selection.anchorNode);
  const active = document.activeElement;
  const fills = active && content.contains(active) && active.matches("input, select");
  return Boolean(selects || fills);
}

function findSame(element, parent) {
  if (element.id) return document.getElementById(element.id);
  const href = element.getAttribute("href");
  const links = href ? parent.querySelectorAll(`a[href="${CSS.escape(href)}"]`) : [];
  return links.length ? links[0] : null;
}

function replace(old, fresh) {
  const folded = new Map();
  old.querySelectorAll("details[id]").forEach((each) => folded.set(each.id, each.open));
  const scrolled = new Map();
  old.querySelectorAll("pre[id]").forEach((each) => {
    const isAtEnd = each.scrollTop + each.clientHeight >= each.scrollHeight - 4;
    scrolled.set(each.id, isAtEnd ? Infinity : each.scrollTop);
  });
  const active = old.contains(document.activeElement) ? document.activeElement : null;
  const place = document.importNode(fresh, true);
  old.replaceWith(place);
  place.querySelectorAll("details[id]").forEach((each) => {
    if (folded.has(each.id)) each.open = folded.get(each.id);
  });
  place.querySelectorAll("pre[id]").forEach((each) => {
    const top = scrolled.has(each.id) ? scrolled.get(each.id) : Infinity;
    each.scrollTop = top === Infinity ? each.scrollHeight : top;
  });
  const same = active && findSame(active, place);
  if (same) same.focus({ preventScroll: true });
}

function show(fresh) {
  const old = getContent();
  const before = Array.from(old.children);
  const after = Array.from(fresh.children);
  const isSame = before.length === after.length && before.every((each, place) =>
    each.tagName === after[place].tagName && each.id === after[place].id);
  if (isSame) {
    before.forEach((each, place) => {
      const wasFolded = each.cloneNode(true);
      const folded = Array.from(wasFolded.querySelectorAll("details"));
      Array.from(after[place].querySelectorAll("details")).forEach((detail, number) => {
        if (folded[number]) folded[number].open = detail.open;
      });
      if (!wasFolded.isEqualNode(after[place])) replace(each, after[place]);
    });
    for (const name of ["seconds", "digest", "state"]) old.dataset[name] = fresh.dataset[name];
  } else {
    replace(old, fresh);
  }
}

function report(problem) {
  hasProblem = true;
  announce(problem);
}

async function receive(response) {
  const state = getContent().dataset.state;
  if (response.status !== 204) {
    const parsed = new DOMParser().parseFromString(await response.text(), "text/html");
    const fresh = parsed.getElementById("content");
    if (fresh) show(fresh);
  }
  const now = getContent().dataset.state;
  if (now !== state) announce(now);
  else if (hasProblem) announce("");
  hasProblem = false;
}

async function update() {
  if (isInUse()) {
    schedule();
    return;
  }
  const content = getContent();
  const began = performance.now();
  try {
    const response = await fetch(window.location.href, {
      headers: { "x-hyperplane-content": content.dataset.digest },
      cache: "no-store",
      redirect: "error",
      signal: AbortSignal.timeout(30000),
    });
    if (response.status === 401 || response.status === 403) {
      announce("The server has another token: open the address that it printed.");
      return;
    }
    if (response.status >= 500) {
      // Such as a database that is locked for a moment: what is shown is kept, and is older.
      report(`The server could not update this page (status ${response.status}); it tries again.`);
    } else {
      await receive(response);
    }
  } catch (error) {
    report("The server does not answer. It may have ended.");
  }
  took = performance.now() - began;
  schedule();
}

if (pause) {
  pause.hidden = false;
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    if (paused) window.clearTimeout(timer);
    else update();
  });
  document.addEventListener("visibilitychange", () => {
    window.clearTimeout(timer);
    if (!document.hidden && !paused && Number(getContent().dataset.seconds) > 0) update();
  });
}
document.querySelectorAll("#content pre").forEach((each) => { each.scrollTop = each.scrollHeight; });
schedule();
