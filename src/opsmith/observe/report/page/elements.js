// Elements from values: text is text, so nothing of the data is ever read as markup.

function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// Not by toLocaleString, whose first call takes as long as a view.
const count = (value) => String(value).replace(/\B(?=(\d{3})+$)/g, ",");
const plural = (value, what, many = `${what}s`) => `${count(value)} ${value === 1 ? what : many}`;

// Never rounded up to 100 %: that is for when all passed.
function percent(passed, total) {
  if (passed === total) return "100";
  return (Math.floor((passed / total) * 1000) / 10).toFixed(1);
}

function duration(seconds) {
  if (seconds >= 100) return `${count(Math.round(seconds))} s`;
  if (seconds >= 0.1 && seconds < 1) return `${Math.round(seconds * 1e3)} ms`;
  if (seconds >= 1) return `${seconds.toFixed(1)} s`;
  return `${(seconds * 1e3).toFixed(seconds < 0.01 ? 2 : 1)} ms`;
}

function bytes(value) {
  return value >= 1e6 ? `${(value / 1e6).toFixed(2)} MB` : `${count(Math.round(value / 1e3))} kB`;
}

// An ISO time as people read it.
const moment = (time) => time.replace("T", " ").replace(/(\+00:00|Z)$/, " UTC").replace(/\.\d+/, "");

function routeBadge(route) {
  return route ? h("span", { class: "route", "data-route": route }, h("i", { class: "swatch" }), route) : "";
}

// What stands between backticks is code.
const prose = (text) => text.split("`").map((part, index) => (index % 2 ? h("code", {}, part) : part));

const operatorLink = (name) => h("a", { href: `#${encodeURIComponent(name)}` }, name);
const entryLink = (name) => h("a", { href: `#/entries/${encodeURIComponent(name)}` }, name);

// The name with the searched words marked.
function marked(name, words) {
  const lower = name.toLowerCase();
  const spans = [];
  for (const word of words) {
    const at = lower.indexOf(word);
    if (at >= 0) spans.push([at, at + word.length]);
  }
  spans.sort((one, other) => one[0] - other[0]);
  const parts = [];
  let done = 0;
  for (const [from, to] of spans) {
    if (from < done) continue;
    parts.push(name.slice(done, from), h("mark", {}, name.slice(from, to)));
    done = to;
  }
  parts.push(name.slice(done));
  return parts;
}

// A table of checks by dtypes; `cell` gives the attributes and the content of one, or null.
function checkMatrix(caption, checks, dtypes, cell) {
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    h("table", { class: "matrix" }, h("caption", { class: "unseen" }, caption),
      h("thead", {}, h("tr", {}, h("td"), dtypes.map((dtype) => h("th", { scope: "col" }, dtype)))),
      h("tbody", {}, checks.map((check) => h("tr", {}, h("th", { scope: "row" }, check), dtypes.map((dtype) => {
        const [attributes, content] = cell(check, dtype) ?? [{ class: "none" }, h("span", {}, "·")];
        return h("td", attributes, content);
      }))))));
}

function dataTable(caption, headings, rows) {
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    h("table", {}, h("caption", { class: "unseen" }, caption),
      h("thead", {}, h("tr", {}, headings.map(([text, number]) =>
        h("th", { scope: "col", class: number ? "number" : null }, text)))),
      h("tbody", {}, rows.map((cells) => h("tr", {}, cells.map((cell, index) =>
        h("td", { class: headings[index][1] ? "number" : null }, cell)))))));
}
