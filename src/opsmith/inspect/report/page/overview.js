// The overview: figures, coverage by route, conformance by dtype, what runs on the CPU, benchmarks.

const ON_CPU = ["fallback", "denied", "missing"];

function showOverview() {
  const view = document.getElementById("overview");
  const { conformance, program } = report;
  view.querySelector(".warnings").replaceChildren(
    ...report.warnings.map((warning) => h("p", { class: "warning" }, warning)));
  view.querySelector(".figures").replaceChildren(...figures());
  document.getElementById("bars").replaceChildren(...bars());
  document.getElementById("matrix").replaceChildren(...(conformance ? matrix(conformance) : [hint(
    "No conformance results yet. Run PyTorch’s own operator tests on the device, and write the report again:",
    `opsmith conform ${report.backend}`)]));
  document.getElementById("cost").replaceChildren(...(program ? cost(program) : [hint(
    "No program was measured. See what of yours runs on the CPU:",
    "opsmith coverage script.py -o coverage.json\nopsmith report --coverage coverage.json")]));
  const benchmarks = document.getElementById("benchmarks");
  benchmarks.hidden = !report.benchmarks.length;
  if (report.benchmarks.length) {
    benchmarks.querySelector("div").replaceChildren(benchmarkTable(report.benchmarks, true));
  }
}

function hint(text, command) {
  return h("div", { class: "hint" }, h("p", {}, text), h("pre", {}, command));
}

function figure(value, unit, label, href) {
  return h(href ? "a" : "div", { class: "figure", href },
    h("b", {}, value, unit && h("small", {}, unit)), h("span", {}, label));
}

function figures() {
  const core = operators.filter((operator) => operator.tags.includes("core"));
  const served = (list) => list.filter((operator) => !ON_CPU.includes(operator.route)).length;
  const found = [figure(count(operators.length), "", "operators", "#/operators")];
  if (core.length) found.push(figure(percent(served(core), core.length), "%", "of core ATen off the CPU", "#/operators?tag=core"));
  const forward = report.conformance?.scores.find(([check, dtype]) => check === "forward" && dtype === "float32");
  if (forward) found.push(figure(percent(forward[2], forward[3]), "%", "of forward float32 passes", "#/entries?check=forward&dtype=float32"));
  const bad = entries.filter((entry) => entry.counts.bad).length;
  if (report.conformance) found.push(figure(count(bad), "", bad === 1 ? "entry fails" : "entries fail", "#/entries?verdict=failing"));
  if (report.program) {
    const seconds = report.program.fallbacks.reduce((sum, each) => sum + each.seconds, 0);
    found.push(figure(...duration(seconds).split(" "), "on the CPU", null));
  }
  return found;
}

function bars() {
  const found = [
    bar("ATen", "every operator of PyTorch", operators, "#/operators"),
    bar("core ATen", "what exported programs are made of", operators.filter((operator) => operator.tags.includes("core")), "#/operators", "tag=core"),
  ];
  const called = entries.filter((entry) => entry.route);
  if (called.length) found.push(bar("OpInfo entries", "by the least preferred route of what they call", called, "#/entries"));
  return found;
}

function bar(title, about, items, view, query) {
  const counts = ROUTES.map((route) => [route, items.filter((item) => item.route === route).length]).filter(([, number]) => number);
  const href = (route) => `${view}?${[query, `route=${route}`].filter(Boolean).join("&")}`;
  return h("div", { class: "bar" },
    h("p", {}, h("b", {}, title), " ", h("span", { class: "quiet" }, `${count(items.length)}, ${about}`)),
    h("div", { class: "track", "aria-hidden": "true" }, counts.map(([route, number]) =>
      h("a", { href: href(route), tabindex: -1, "data-route": route, style: `flex-grow:${number}`, title: `${route}: ${count(number)}` }))),
    h("ul", { class: "legend" }, counts.map(([route, number]) => h("li", {},
      h("a", { href: href(route) }, routeBadge(route), " ", h("b", {}, count(number)),
        h("span", { class: "quiet" }, ` ${percent(number, items.length)} %`))))));
}

function grade(passed, total) {
  const share = passed / total;
  return share === 1 ? "all" : share >= 0.99 ? "most" : share >= 0.95 ? "many" : "few";
}

function matrix(found) {
  const cells = new Map(found.scores.map(([check, dtype, passed, total]) => [`${check} ${dtype}`, [passed, total]]));
  const state = found.complete ? "complete" : "not complete";
  return [
    h("p", { class: "quiet" }, `${plural(found.entries.length, "entry", "entries")}, ${plural(found.scores.reduce((sum, each) => sum + each[3], 0), "verdict")}; ${state}; torch ${found.torch}; ${found.updated.replace("T", " ").replace("+00:00", " UTC").replace("Z", " UTC")}`),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Conformance by check and dtype" },
      h("table", { class: "matrix" }, h("caption", { class: "unseen" }, "Share of verdicts that pass, in percent"),
        h("thead", {}, h("tr", {}, h("td"), found.dtypes.map((dtype) => h("th", { scope: "col" }, dtype)))),
        h("tbody", {}, found.checks.map((check) => h("tr", {}, h("th", { scope: "row" }, check), found.dtypes.map((dtype) => {
          const score = cells.get(`${check} ${dtype}`);
          if (!score) return h("td", { class: "none" }, "·");
          const [passed, total] = score;
          return h("td", { "data-grade": grade(passed, total) }, h("a", {
            href: `#/entries?check=${check}&dtype=${dtype}${passed === total ? "" : "&verdict=open"}`,
            title: `${check}, ${dtype}: ${count(passed)} of ${count(total)} pass`,
          }, percent(passed, total)));
        })))))),
  ];
}

function cost(program) {
  const total = program.fallbacks.reduce((sum, each) => sum + each.seconds, 0);
  const routes = program.routes.filter(([, calls]) => calls);
  return [
    h("p", { class: "quiet" }, program.source),
    routes.length > 1 && dataTable("Calls by route", [["route"], ["calls", 1], ["time", 1]], routes.map(([route, calls, seconds]) =>
      [routeBadge(route), count(calls), seconds ? duration(seconds) : ""])),
    program.fallbacks.length
      ? dataTable("What ran on the CPU", [["operator"], ["calls", 1], ["time", 1], ["share", 1], [""]],
        program.fallbacks.slice(0, 15).map((each) => [
          operatorByName.has(each.operator) ? operatorLink(each.operator) : each.operator,
          count(each.calls), duration(each.seconds), `${percent(each.seconds, total || 1)} %`,
          h("span", { class: "share", "aria-hidden": "true" }, h("i", { style: `width:${(100 * each.seconds) / (total || 1)}%` })),
        ]))
      : h("p", {}, "Nothing ran on the CPU."),
    program.fallbacks.length > 15 && h("p", { class: "quiet" }, `and ${plural(program.fallbacks.length - 15, "more operator")}`),
    program.first && h("div", { class: "hint" }, h("p", {}, "Write this kernel first:"), h("pre", {}, program.first)),
  ].filter(Boolean);
}

function benchmarkTable(rows, all = false) {
  return dataTable("Benchmarks",
    [...(all ? [["benchmark"]] : []), ["measured"], ["ours", 1], ["peer", 1], ["ratio", 1], ["goal", 1], [""]],
    rows.map((row) => [
      ...(all ? [row.benchmark] : []), row.name, row.ours, row.peer, row.ratio.toFixed(3),
      row.goal === null ? "" : `≤ ${row.goal}`,
      row.goal === null ? "" : h("span", { class: "verdict", "data-verdict": row.ok ? "passing" : "failing" }, row.ok ? "ok" : "missed"),
    ]));
}
