"use strict";
// Drives Chromium for the tests with the build tag browser. Each line of standard input is a call, a
// JSON object: of one of the functions below, of a method of the page, or, with "on", of a method of
// the locator of a selector. Each line of standard output is the answer: the result, the error, and
// the problems that the browser has reported since the last one.
const { chromium } = require("playwright-core");
const axe = require("axe-core").source;

const [executablePath, base, proxy] = process.argv.slice(2);
const wide = { width: 1280, height: 900 };
let browser, context, page, problems = [];

const calls = {
  // open begins a session: a context without cookies, with one page.
  async open(options) {
    if (context) await context.close();
    context = await browser.newContext({ baseURL: base, viewport: wide, reducedMotion: "reduce", ...options });
    context.setDefaultTimeout(60e3);
    context.on("request", (r) => { if (!r.url().startsWith(base + "/")) problems.push("request to " + r.url()); });
    context.on("console", (m) => { if (m.type() === "error" || m.type() === "warning") problems.push("console: " + m.text() + " " + m.location().url); });
    context.on("weberror", (e) => problems.push("script: " + e.error()));
    context.on("dialog", (d) => { problems.push("dialog: " + d.message()); return d.dismiss(); });
    page = await context.newPage();
  },

  // forget removes all cookies.
  forget: () => context.clearCookies(),

  // axe returns the violations of accessibility: light and dark, on a wide screen and on a phone.
  async axe() {
    const found = [];
    await page.evaluate(axe);
    for (const [colorScheme, width] of [["light", 1440], ["dark", 1440], ["dark", 390], ["light", 390]]) {
      await page.emulateMedia({ colorScheme });
      await page.setViewportSize({ ...wide, width });
      const { violations } = await page.evaluate(() => axe.run({ resultTypes: ["violations"] }));
      for (const v of violations) found.push([page.url(), colorScheme, width, v.id, ...v.nodes.slice(0, 3).map((n) => n.target + ": " + n.failureSummary)].join(" "));
    }
    await page.emulateMedia({ colorScheme: null });
    await page.setViewportSize(wide);
    return found;
  },

  // visit opens pages and returns what is wrong with them: see inspect. name is what the person has
  // entered before.
  async visit(list) {
    const wrong = [];
    for (const want of list) {
      await context.addCookies([{ name: "unstale_name", value: encodeURIComponent(want.name || ""), url: base }]);
      await page.goto(want.path, { waitUntil: "domcontentloaded" });
      for (const text of await page.evaluate(inspect, want)) wrong.push(want.path + ": " + text);
    }
    return wrong;
  },
  inspect: (want) => page.evaluate(inspect, want),

  // tabs presses a key such as Tab until the focus leaves the page. It returns the controls that the
  // focus has not reached, or where it cannot be seen. A live page may replace controls by equal ones.
  async tabs(key) {
    const seen = new Map();
    for (;;) {
      await page.keyboard.press(key);
      const [at, problem] = await page.evaluate(focused);
      if (at < 0 || seen.has(at)) break;
      seen.set(at, problem);
    }
    const all = await page.evaluate(controls);
    return all.flatMap((html, i) => !seen.has(i) ? ["not reached: " + html] : seen.get(i) ? [seen.get(i) + ": " + html] : []);
  },

  type: (text) => page.keyboard.type(text),
  press: (key) => page.keyboard.press(key),
};

const selector = "a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex='0']";

// controls returns the start of each control that shows, as HTML.
const controls = new Function(`return [...document.querySelectorAll("${selector}")].filter((e) => e.checkVisibility()).map((e) => e.outerHTML.slice(0, 200))`);

// focused returns the index of the control that has the focus, -1 for none, and why that cannot be
// seen.
const focused = new Function(`
  const e = document.activeElement, style = getComputedStyle(e), box = e.getClientRects()[0];
  const at = [...document.querySelectorAll("${selector}")].filter((e) => e.checkVisibility()).indexOf(e);
  if (at < 0) return [-1];
  const x = (Math.max(box.left, 0) + Math.min(box.right, innerWidth)) / 2, y = (Math.max(box.top, 0) + Math.min(box.bottom, innerHeight)) / 2;
  const top = document.elementFromPoint(x, y);
  if (style.outlineStyle === "none" || parseFloat(style.outlineWidth) < 1) return [at, "no outline"];
  if (!top || !(e.contains(top) || top.contains(e) && top.localName !== "main")) return [at, "behind " + (top ? top.outerHTML.slice(0, 200) : "the edge")];
  return [at, ""];`);

// inspect returns what is wrong with a page: elements and attributes that no template has, texts
// that it does not show, and inputs with another value.
const inspect = ({ texts, values }) => {
  const wrong = [], elements = new Set(("html head meta title link script body a header svg path rect text g form label input button select option " +
    "datalist textarea div span main section h1 h2 h3 p ul ol li dl dt dd table thead tbody tr th td code abbr strong figure figcaption progress time noscript details summary").split(" "));
  for (const e of document.querySelectorAll("*")) {
    const known = elements.has(e.localName) && (e.localName !== "script" || e.src && !e.textContent);
    const strange = [...e.attributes].find((a) => /^on|^style$/.test(a.name) || /^(href|src|action|formaction)$/.test(a.name) && !/^([/#]|https:\/\/github\.com\/unstale\/unstale\/blob\/main\/docs\/[a-z#.-]+$)/.test(a.value) || / /.test(a.value) && a.name === "href");
    if (!known || strange) wrong.push("element " + e.outerHTML.slice(0, 300));
  }
  const all = document.body.textContent;
  for (const text of texts || []) if (!all.includes(text)) wrong.push("no text " + JSON.stringify(text));
  for (const [name, value] of Object.entries(values || {})) {
    const has = [...document.getElementsByName(name)].map((e) => e.value);
    const want = value.replace(/\0/g, "\ufffd").replace(/[\r\n]/g, "");
    if (!has.some((v) => v.replace(/[\r\n]/g, "") === want)) wrong.push(name + " is " + JSON.stringify(has) + " instead of " + JSON.stringify(want));
  }
  return wrong;
};

(async () => {
  browser = await chromium.launch({ executablePath, args: ["--disable-gpu", "--proxy-server=" + proxy] });
  for await (const line of require("node:readline").createInterface({ input: process.stdin })) {
    const { on, call, args } = JSON.parse(line), answer = {};
    try {
      const to = on ? page.locator(on) : calls[call] ? calls : page;
      const result = await to[call](...args || []);
      answer.result = result && result.status ? result.status() : result && result.constructor === Object || Array.isArray(result) || typeof result !== "object" ? result : null;
    } catch (e) {
      answer.error = String(e.stack || e);
    }
    answer.problems = problems.splice(0);
    process.stdout.write(JSON.stringify(answer) + "\n");
  }
  await browser.close();
})();
