// The overview: figures, coverage by route, conformance by dtype, what runs on the CPU, benchmarks.

function showOverview() {
  const view = document.getElementById("overview");
  const { conformance, program } = report;
  view.querySelector(".warnings").replaceChildren(
    ...report.warnings.map((warning) => h("p", { class: "warning" }, warning)));
  view.querySelector(".figures").replaceChildren(...figures());
  document.getElementById("bars").replaceChildren(...bars());
  document.getElementById("matrix").replaceChildren(...(conformance ? matrix(conformance) : [hint(
    "No conformance results of this build yet. Run PyTorch’s own operator tests on the device, and write the report again:",
    `opsmith conform --backend ${report.description}`)]));
  document.getElementById("cost").replaceChildren(...(program ? cost(program) : [hint(
    "No program was measured. See what of yours runs on the CPU:",
    "opsmith coverage -o coverage.json script.py\nopsmith report --coverage coverage.json")]));
  const benchmarks = document.getElementById("benchmarks");
  benchmarks.hidden = !report.benchmarks;
  if (report.benchmarks) benchmarks.querySelector("div").replaceChildren(...benchmarked(report.benchmarks));
}

function hint(text, command) {
  return h("div", { class: "hint" }, h("p", {}, text), h("pre", {}, command));
}

function figure(value, unit, label, href) {
  return h(href ? "a" : "div", { class: "figure", href },
    h("b", {}, value, unit && h("small", {}, unit)), h("span", {}, label));
}

// Place.DEVICE of opsmith.plan.
const ON_DEVICE = "on the device";

function figures() {
  const core = report.coverage.find((each) => each.name === "core ATen");
  const found = [figure(count(operators.length), "", "operators", "#/operators")];
  if (core?.total) found.push(figure(percent(core.places[ON_DEVICE], core.total), "%", "of core ATen on the device", "#/operators?tag=core"));
  const forward = report.conformance?.scores.find(([check, dtype]) => check === "forward" && dtype === "float32");
  if (forward) found.push(figure(percent(forward[2], forward[3]), "%", "of forward float32 passes", "#/entries?check=forward&dtype=float32"));
  const bad = entries.filter((entry) => entry.counts.bad).length;
  if (report.conformance) found.push(figure(count(bad), "", bad === 1 ? "entry fails" : "entries fail", "#/entries?verdict=failing"));
  if (report.program) {
    const all = report.program.routes.reduce((sum, use) => sum + use.seconds, 0);
    const there = report.program.routes.filter((use) => use.place === ON_DEVICE).reduce((sum, use) => sum + use.seconds, 0);
    found.push(figure(percent(there, all || 1), "%", "of the program’s time on the device", null));
  }
  return found;
}

// Where each set of the coverage is listed.
const LISTED = {
  "ATen": ["#/operators", "", "every operator of PyTorch"],
  "core ATen": ["#/operators", "tag=core", "what exported programs are made of"],
  "OpInfo entries": ["#/entries", "", "by the least preferred route of what they call"],
};

function bars() {
  return report.coverage.map((each) => {
    const [view, query, about] = LISTED[each.name];
    const counts = ROUTES.map((route) => [route, each.routes[route]]).filter(([, number]) => number);
    const href = (route) => `${view}?${[query, `route=${route}`].filter(Boolean).join("&")}`;
    const places = Object.entries(each.places).filter(([, number]) => number).map(([place, number]) => `${percent(number, each.total)} % ${place}`);
    const cpu = each.on_cpu && `${percent(each.on_cpu, each.total)} % come to the fallback, by themselves or in their parts`;
    const refused = each.refused && `${percent(each.refused, each.total)} % to an error`;
    return h("div", { class: "bar" },
      h("p", {}, h("b", {}, each.name), " ", h("span", { class: "quiet" },
        [`${count(each.total)}, ${about}`, ...places, cpu, refused].filter(Boolean).join("; "))),
      h("div", { class: "track", "aria-hidden": "true" }, counts.map(([route, number]) =>
        h("a", { href: href(route), tabindex: -1, "data-route": route, style: `flex-grow:${number}`, title: `${route}: ${count(number)}` }))),
      h("ul", { class: "legend" }, counts.map(([route, number]) => h("li", {},
        h("a", { href: href(route) }, routeBadge(route), " ", h("b", {}, count(number)),
          h("span", { class: "quiet" }, ` ${percent(number, each.total)} %`))))));
  });
}

function grade(passed, total) {
  const share = passed / total;
  return share === 1 ? "all" : share >= 0.99 ? "most" : share >= 0.95 ? "many" : "few";
}

function matrix(found) {
  const cells = new Map(found.scores.map(([check, dtype, passed, total]) => [`${check} ${dtype}`, [passed, total]]));
  const state = found.complete ? "complete" : "not complete";
  return [
    h("p", { class: "quiet" }, `${plural(found.entries.length, "entry", "entries")}, ${plural(found.scores.reduce((sum, each) => sum + each[3], 0), "verdict")}; ${state}; torch ${found.torch}; ${moment(found.updated)}`),
    checkMatrix("Share of verdicts that pass, in percent", found.checks, found.dtypes, (check, dtype) => {
      const score = cells.get(`${check} ${dtype}`);
      if (!score) return null;
      const [passed, total] = score;
      return [{ "data-grade": grade(passed, total) }, h("a", {
        href: `#/entries?check=${check}&dtype=${dtype}${passed === total ? "" : "&verdict=open"}`,
        title: `${check}, ${dtype}: ${count(passed)} of ${count(total)} pass`,
      }, percent(passed, total))];
    }),
  ];
}

const SHOWN_COSTS = 15;

function cost(program) {
  const seconds = (use) => use.fallback_seconds + use.copies_seconds;
  const ofHost = program.operators.filter((use) => use.fell_back + use.on_copies)
    .sort((one, other) => seconds(other) - seconds(one));
  const total = ofHost.reduce((sum, use) => sum + seconds(use), 0);
  const all = program.routes.reduce((sum, route) => sum + route.seconds, 0);
  return [
    h("p", { class: "quiet" }, program.program, program.status ? `, which ended with status ${program.status}` : "",
      `: the CPU computed in the device’s place for ${duration(total)} of ${duration(all)} in operators`),
    dataTable("Calls and time by route", [["route"], ["where"], ["operators", 1], ["calls", 1], ["time", 1]],
      program.routes.map((route) => [routeBadge(route.route), route.place, count(route.operators), count(route.calls), duration(route.seconds)])),
    ofHost.length
      ? dataTable("What ran on the CPU", [["on the CPU"], ["fell back", 1], ["on copies", 1], ["time", 1], ["share", 1], [""]],
        ofHost.slice(0, SHOWN_COSTS).map((use) => [
          operatorByName.has(use.name) ? operatorLink(use.name) : use.name,
          count(use.fell_back), count(use.on_copies), duration(seconds(use)), `${percent(seconds(use), total || 1)} %`,
          h("span", { class: "share", "aria-hidden": "true" }, h("i", { style: `width:${(100 * seconds(use)) / (total || 1)}%` })),
        ]))
      : h("p", {}, "Nothing ran on the CPU."),
    ofHost.length > SHOWN_COSTS && h("p", { class: "quiet" }, `and ${plural(ofHost.length - SHOWN_COSTS, "more operator")}`),
    program.kernels.length > 0 && h("div", { class: "hint" }, h("p", {}, "Kernels to write, the most profitable first:"),
      program.kernels.map((advice) => h("pre", {}, `${advice.remedy}\n# ${duration(advice.seconds)} in ${plural(advice.calls, "call")}: ${advice.operators.join(", ")}`))),
  ].filter(Boolean);
}

function benchmarked(run) {
  const failed = run.results.filter((result) => result.failure);
  return [
    h("p", { class: "quiet" }, `${run.machine}; torch ${run.torch}; ${moment(run.started)}`),
    benchmarkTable(measurements, true),
    ...failed.map((result) => h("p", { class: "warning" }, `${result.name} failed: ${result.failure}`)),
  ];
}

function measure(figure) {
  if (!figure) return "";
  const { median, spread, rounds } = figure;
  const digits = Math.abs(median) >= 1000 ? count(Math.round(median)) : String(Number(median.toPrecision(3)));
  return [digits, rounds > 1 && h("span", { class: "quiet" }, ` ±${Math.round(100 * spread)} %`)];
}

function benchmarkTable(rows, all = false) {
  return dataTable("Benchmarks",
    [...(all ? [["benchmark"]] : []), ["measured"], ["opsmith", 1], ["peer", 1], ["unit"], ["ratio", 1], ["goal", 1], [""]],
    rows.map((row) => {
      const ratio = row.peer && row.ours.median / row.peer.median;
      const value = row.is_absolute || !row.peer ? row.ours.median : ratio;
      const ok = value <= row.goal;
      return [
        ...(all ? [row.benchmark] : []), row.name, measure(row.ours), measure(row.peer), row.unit,
        ratio ? ratio.toFixed(3) : "", row.goal === null ? "" : `≤ ${row.goal}`,
        row.goal === null ? "" : h("span", { class: "verdict", "data-verdict": ok ? "passing" : "failing" }, ok ? "ok" : "missed"),
      ];
    }));
}
