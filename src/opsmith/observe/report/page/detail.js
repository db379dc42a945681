// The pane beside a listing: one operator, or one entry of OpInfo, with all that is known of it.

function fillDetail(listing, title, badge, children) {
  const pane = listing.detail;
  // A run that goes on changes the details in place.
  const top = !pane.hidden && pane.querySelector("h3").textContent === title ? pane.scrollTop : 0;
  pane.replaceChildren(
    h("header", {},
      h("h3", { tabindex: -1 }, title), badge,
      h("button", { type: "button", class: "quiet close", "aria-label": "Close the details",
        onclick: () => closeDetail(listing) }, "Close")),
    ...children.filter(Boolean));
  pane.hidden = false;
  pane.scrollTop = top;
  listing.view.classList.add("opened");
  document.documentElement.classList.add("has-detail");
}

function hideDetail(listing) {
  listing.detail.hidden = true;
  listing.detail.replaceChildren();
  listing.view.classList.remove("opened");
  document.documentElement.classList.remove("has-detail");
}

function closeDetail(listing) {
  hideDetail(listing);
  showQuery(listing);
  listing.grid.focus({ preventScroll: true });
}

function block(title, ...children) {
  return h("section", {}, h("h4", {}, title), ...children);
}

function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.filter(([, value]) => value && value.length !== 0)
    .map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

// The schema, which may be broken between its words only.
function schemaText(schema) {
  return h("code", { class: "schema" }, schema.split(" ").map((word, index) =>
    [index ? " " : "", word.length < 30 ? h("span", { class: "token" }, word) : word]));
}

function showOperator(listing, operator) {
  const source = operator.source;
  const change = report.trend?.route_changes.find((each) => each.operator === operator.name);
  const rows = measurements.filter((each) => each.operator === operator.name);
  const path = operator.dispatch_path;
  fillDetail(listing, operator.name, routeBadge(operator.route), [
    schemaText(operator.schema),
    h("p", { class: "why" }, prose(operator.why)),
    change && h("p", { class: "note" }, change.before
      ? ["Before: ", routeBadge(change.before)] : "It was not there in the earlier report."),
    facts([
      ["kernel", source && [h("code", {}, source.symbol), h("br"), sourceLink(source)]],
      ["computed", operator.place],
      ["library", operator.library],
      ["variant", operator.variant],
      ["group", operator.variants.map((name, index) => [index ? ", " : "", operatorLink(name)])],
      ["checked by", operator.structured && "PyTorch’s structured meta function"],
      ["composite", operator.composite],
      ["comes to", operator.route === "composite" && operator.reached.filter((route) => route !== "composite").map((route) => [routeBadge(route), " "])],
      ["gradient", operator.gradient],
      ["dtypes", operator.dtypes.join(", ") || (operator.library && "all")],
      ["tags", operator.tags.join(", ")],
      ["stubs", operator.stubs.join(", ")],
      ["libraries’ kernels", operator.kernels.map((kernel) => h("div", {}, h("code", {}, kernel)))],
    ]),
    path.length > 0 && block("A call on the device", h("ol", { class: "dispatch-path" }, path.map((stop) =>
      h("li", { class: stop.what.startsWith("passes") ? "passed" : null },
        h("b", {}, stop.key), " ", h("span", {}, stop.what), h("code", {}, stop.location))))),
    operator.use && block("In the program", facts([
      ["calls", count(operator.use.calls)],
      ["own time", duration(operator.use.seconds)],
      ["fell back", operator.use.fell_back && `${plural(operator.use.fell_back, "call")}, ${duration(operator.use.fallback_seconds)}`],
      ["on copies", operator.use.on_copies && `${plural(operator.use.on_copies, "call")}, ${duration(operator.use.copies_seconds)}`],
    ])),
    rows.length > 0 && block("Benchmarks", benchmarkTable(rows)),
    testsOf(operator),
  ]);
}

function sourceLink(source) {
  const at = source.link.lastIndexOf(":");
  const [path, line] = [source.link.slice(0, at), source.link.slice(at + 1)];
  const root = `${report.source_root}/`;
  const relative = path.startsWith(root) ? path.slice(root.length) : null;
  const location = h("code", {}, source.location);
  if (!report.source_link || (relative === null && report.source_link.includes("{relative}"))) return location;
  const href = report.source_link
    .replaceAll("{path}", path).replaceAll("{relative}", relative).replaceAll("{line}", line);
  return h("a", { href }, location);
}

const SHOWN_ENTRIES = 12;

function testsOf(operator) {
  if (!report.conformance) return null;
  const named = operator.named;
  const tested = [...(named.length ? named : operator.callers)].sort((one, other) =>
    other.counts.bad - one.counts.bad || (one.lower < other.lower ? -1 : 1));
  if (!tested.length) return block("Tests", h("p", { class: "quiet" }, "No entry of OpInfo called it on the device."));
  const note = named.length ? null : h("p", { class: "quiet" },
    `${plural(tested.length, "entry", "entries")} of OpInfo called it; none is named for it.`);
  return block("Tests", note, named.length
    ? tested.slice(0, SHOWN_ENTRIES).map((entry) => [h("h5", {}, entryLink(entry.name), " ", testsText(entry.counts)), verdictGrid(entry), badNotes(entry)])
    : h("ul", { class: "plain" }, tested.slice(0, SHOWN_ENTRIES).map((entry) =>
      h("li", {}, entryLink(entry.name), " ", testsText(entry.counts)))),
  tested.length > SHOWN_ENTRIES
    && h("p", { class: "quiet" }, `and ${plural(tested.length - SHOWN_ENTRIES, "more entry", "more entries")}`));
}

function testsText(counts) {
  const verdict = verdictOf(counts);
  if (verdict === "none") return "";
  if (verdict === "skipped") return h("span", { class: "verdict", "data-verdict": "skipped" }, "skipped");
  const text = `${count(counts.passed)} / ${count(counts.total)}`;
  return h("span", { class: "verdict", "data-verdict": verdict },
    verdict === "failing" ? `${text}, ${count(counts.bad)} bad` : verdict === "expected" ? `${text}, ${plural(counts.expected, "expected failure")}` : text);
}

// Signs that every font has.
const SIGN = { p: "✓", f: "✗", t: "T", c: "C", g: "○", x: "!", s: "–", ".": "" };

function verdictGrid(entry) {
  const { checks, dtypes } = report.conformance;
  const run = dtypes.map((dtype, second) => checks.some((check, first) => entry.marks[first * dtypes.length + second] !== "."));
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `Verdicts of ${entry.name}` },
    h("table", { class: "verdicts" },
      h("thead", {}, h("tr", {}, h("td"), dtypes.map((dtype, second) => run[second] && h("th", { scope: "col" }, h("span", {}, dtype))))),
      h("tbody", {}, checks.map((check, first) => h("tr", {}, h("th", { scope: "row" }, check),
        dtypes.map((dtype, second) => {
          if (!run[second]) return null;
          const cell = first * dtypes.length + second;
          const mark = entry.marks[cell];
          const status = STATUS[mark] ?? "not run";
          const text = [`${check}, ${dtype}: ${status}`, entry.note(cell)].filter(Boolean).join("\n");
          return h("td", { "data-mark": mark, title: text },
            h("span", { "aria-hidden": "true" }, SIGN[mark]), h("span", { class: "unseen" }, status));
        }))))));
}

// What is bad or expected to fail, in words, the same message once.
function badNotes(entry) {
  const { checks, dtypes } = report.conformance;
  const byText = new Map();
  for (let cell = 0; cell < entry.marks.length; cell++) {
    const mark = entry.marks[cell];
    if (!BAD.includes(mark) && mark !== "g") continue;
    const check = checks[Math.floor(cell / dtypes.length)];
    const key = `${check}\n${STATUS[mark]}\n${entry.note(cell)}`;
    byText.set(key, [...(byText.get(key) ?? []), dtypes[cell % dtypes.length]]);
  }
  if (!byText.size) return null;
  return h("ul", { class: "notes" }, [...byText].map(([key, dtypesOfIt]) => {
    const [check, status, ...message] = key.split("\n");
    return h("li", {}, h("b", {}, `${check}, ${dtypesOfIt.join(", ")}`), ` ${status}`, message.join("\n") && h("pre", {}, message.join("\n")));
  }));
}

function showEntry(listing, entry) {
  const others = entry.calls.filter((operator) => !entry.tested.includes(operator));
  const links = (list) => list.map((operator, index) => [index ? ", " : "", operatorLink(operator.name)]);
  fillDetail(listing, entry.name, routeBadge(entry.route), [
    facts([
      ["verdicts", testsText(entry.counts)],
      ["tests", links(entry.tested)],
      ["calls too", links(others)],
      ["samples", count(entry.samples)],
      ["time", duration(entry.seconds)],
    ]),
    block("Verdicts", verdictGrid(entry), h("p", { class: "legend" }, "✓ passed, ✗ failed, T timed out, C crashed, ○ expected failure, ! unexpected pass, – skipped"), badNotes(entry)),
    skippedNotes(entry),
  ]);
}

function skippedNotes(entry) {
  const byText = new Map();
  for (let cell = 0; cell < entry.marks.length; cell++) {
    const note = entry.marks[cell] === "s" && entry.note(cell);
    if (note) byText.set(note, (byText.get(note) ?? 0) + 1);
  }
  return byText.size > 0 && block("Skipped", h("ul", { class: "plain" }, [...byText].map(([note, times]) =>
    h("li", {}, note, " ", h("span", { class: "quiet" }, `×${times}`)))));
}
