"use strict";
// Keeps the page live. The server renders everything; the page works without this file.
(() => {
  const root = document.documentElement, base = root.dataset.base;
  // How far the server's clock is ahead of the browser's, when the page arrived.
  const arrived = performance.getEntriesByType("navigation")[0];
  const ahead = Date.parse(root.dataset.now) - (performance.timeOrigin + (arrived ? arrived.responseStart : 0));
  const byID = (id) => document.getElementById(id);

  // Relative times, as the server writes them.
  const span = (ms) => {
    for (const [unit, most, name] of [[1, 1e3, "ms"], [1e3, 12e4, "s"], [6e4, 72e5, "min"], [36e5, 1728e5, "h"]])
      if (ms < most) return Math.floor(ms / unit) + " " + name;
    return Math.floor(ms / 864e5) + " d";
  };
  const relate = (within) => {
    for (const t of within.querySelectorAll("time[datetime]")) {
      const ago = Date.now() + ahead - Date.parse(t.dateTime);
      const text = ago > -500 ? (ago < 1e3 ? "now" : span(ago) + " ago") : "in " + span(-ago);
      if (t.textContent !== text) t.textContent = text;
    }
  };
  setInterval(() => relate(document), 1e3);
  relate(document);

  // Panels. A panel that a person uses (focus or selection) changes afterwards.
  const waiting = new Map();
  const inUse = (body) => {
    const selection = getSelection();
    return body.contains(document.activeElement) && !document.activeElement.classList.contains("scroll") ||
      selection && !selection.isCollapsed && body.contains(selection.anchorNode);
  };
  let level = "";
  let lost = false; // the worker does not answer, so the page may be old
  const announce = () => {
    const says = byID("says"), now = says && says.dataset.level;
    if (now && level && now !== level) byID("announce").textContent = says.textContent;
    level = now || level;
    root.dataset.level = level;
    document.title = (lost ? "? - " : { stale: "STALE - ", unknown: "? - " }[level] || "") + "unstale";
  };
  const show = (name, html) => {
    const body = document.querySelector('[data-panel="' + name + '"]');
    if (!body) return;
    const next = /data-level="(\w+)"/.exec(html);
    if (inUse(body) && !(next && next[1] !== level)) { waiting.set(name, html); return; }
    waiting.delete(name);
    const focused = body.contains(document.activeElement), scroll = body.querySelector(".scroll");
    const left = scroll ? scroll.scrollLeft : 0;
    body.innerHTML = html;
    const again = body.querySelector(".scroll");
    if (again) { again.scrollLeft = left; if (focused) again.focus({ preventScroll: true }); }
    relate(body);
    if (name === "sentence") announce();
  };
  setInterval(() => { for (const [name, html] of [...waiting]) show(name, html); }, 1e3);
  announce();

  // Live updates, which a person can pause. A page in the background needs none.
  const button = byID("live"), panels = [...document.querySelectorAll("[data-panel]")].map((p) => p.dataset.panel);
  let source = null, paused = false;
  const silence = 5e3; // more than twice what live.go waits
  let heard = 0, tried = 0;
  const state = (name, text) => {
    button.dataset.state = name;
    byID("live-text").textContent = text;
    lost = name === "lost";
    byID("lost").hidden = !lost;
    announce();
  };
  // A sentence that nobody confirms any more is no answer. The next one replaces this.
  const doubt = () => {
    const says = byID("says");
    if (!says) return;
    says.className = "verdict unknown";
    says.dataset.level = "unknown";
    says.lastElementChild.textContent = "Unknown: the worker that serves this page has not answered for " + span(Date.now() - heard) + ".";
    announce();
  };
  // The session may have ended: then a reload leads to the login.
  const relogin = () => fetch(base + "/panel/sentence").then((answer) => { if (answer.redirected || answer.status === 401) location.reload(); }, () => {});
  const close = () => { if (source) source.close(); source = null; };
  const open = () => {
    if (source || paused || document.hidden) return;
    source = new EventSource(base + "/events");
    tried = Date.now();
    if (!lost) heard = tried;
    source.onopen = () => { heard = Date.now(); state("live", "Live"); };
    source.addEventListener("alive", () => { heard = Date.now(); });
    source.onerror = () => {
      state("lost", "Reconnecting …");
      // A browser gives up after an answer such as 401 or 503.
      if (source && source.readyState === EventSource.CLOSED) { close(); relogin(); setTimeout(open, 5e3); }
    };
    for (const name of panels) source.addEventListener(name, (e) => { heard = Date.now(); show(name, e.data); });
  };
  setInterval(() => {
    if (source && button.dataset.state === "live") byID("live-text").textContent = waiting.size ? "Live, held while in use" : "Live";
    if (!tried || paused || document.hidden || Date.now() - heard < silence) return;
    if (button.dataset.state !== "lost") state("lost", "Reconnecting …");
    doubt();
    if (!source || Date.now() - tried < silence) return;
    close();
    open();
  }, 1e3);
  if (button && panels.length) {
    button.hidden = false;
    button.addEventListener("click", () => {
      paused = !paused;
      button.setAttribute("aria-pressed", String(!paused));
      if (paused) { close(); state("paused", "Paused"); } else { state("", "Connecting …"); open(); }
    });
    document.addEventListener("visibilitychange", () => document.hidden ? close() : open());
    addEventListener("pagehide", close);
    addEventListener("pageshow", open);
    state("", "Connecting …");
    open();
  }

  // While the answer to a search says that something is stale, it is asked for again. The page has
  // its full time for that (wait).
  const askAgain = async () => {
    const says = byID("answer-says"), parts = [byID("answer"), byID("found")];
    if (!says || says.dataset.level !== "stale") return;
    if (!document.hidden && !parts.some(inUse)) {
      const url = new URL(location.href);
      url.searchParams.set("wait", "1");
      const html = await fetch(url).then((answer) => answer.text(), () => "");
      const page = new DOMParser().parseFromString(html, "text/html");
      byID("lost").hidden = html !== "";
      for (const part of parts) {
        const next = page.getElementById(part.id);
        if (next) { part.innerHTML = next.innerHTML; relate(part); }
      }
      if (byID("answer-says").dataset.level !== "stale") byID("announce").textContent = byID("answer-says").textContent;
    }
    setTimeout(askAgain, 3e3);
  };
  setTimeout(askAgain, 3e3);

  // "/" goes to the search, as in many consoles.
  addEventListener("keydown", (e) => {
    if (e.key !== "/" || e.ctrlKey || e.metaKey || e.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName)) return;
    e.preventDefault();
    byID("q").select();
  });

  // The theme: the system's, light or dark. A cookie keeps it, so the next page has it from the start.
  const theme = byID("theme");
  if (theme) {
    const names = ["system", "light", "dark"];
    const label = () => { theme.textContent = "Theme: " + (root.dataset.theme || "system"); };
    theme.hidden = false;
    label();
    theme.addEventListener("click", () => {
      const next = names[(names.indexOf(root.dataset.theme || "system") + 1) % 3];
      if (next === "system") delete root.dataset.theme; else root.dataset.theme = next;
      document.cookie = "unstale_theme=" + next + "; path=" + base + "/; max-age=31536000; samesite=strict";
      label();
    });
  }
})();
