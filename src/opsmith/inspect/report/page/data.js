// The document of the page, and what the views need of it by name instead of by index.

const report = JSON.parse(document.getElementById("report").textContent);

const STATUS = {
  p: "passed", f: "failed", t: "timed out", c: "crashed",
  g: "gap", x: "gap passes", s: "skipped",
};
const BAD = "ftcx";

const operators = readOperators(report.operators);
const operatorByName = new Map(operators.map((operator) => [operator.name, operator]));
let entries = [];
let entryByName = new Map();

function readOperators(columns) {
  const { strings } = columns;
  const lists = columns.lists.map((list) => list.map((index) => strings[index]));
  const roads = columns.roads.map((road) =>
    road.map(([key, what]) => ({ key: strings[key], what: strings[what] })));
  return columns.name.map((name, row) => ({
    row,
    name,
    lower: name.toLowerCase(),
    schema: columns.schema[row],
    route: strings[columns.route[row]],
    rank: ROUTES.indexOf(strings[columns.route[row]]),
    why: strings[columns.why[row]],
    library: strings[columns.library[row]],
    variant: strings[columns.variant[row]],
    composite: strings[columns.composite[row]],
    gradient: strings[columns.differentiable[row]],
    structured: columns.structured[row],
    tags: lists[columns.tags[row]],
    dtypes: lists[columns.dtypes[row]],
    stubs: lists[columns.stubs[row]],
    variants: lists[columns.variants[row]],
    kernels: lists[columns.kernels[row]],
    reached: lists[columns.reached[row]],
    get road() {
      const places = columns.places[row];
      return roads[columns.road[row]].map((stop, index) => ({ ...stop, place: strings[places[index]] }));
    },
    get source() {
      const found = columns.sources[columns.source[row]];
      return found && { symbol: found[0], place: found[1], link: strings[found[2]] };
    },
    named: [],
    callers: [],
    tests: null,
    use: null,
  }));
}

// How the marks of an entry end, over all checks and dtypes or over one of them.
function countMarks(entry, check = -1, dtype = -1) {
  const { checks, dtypes } = report.conformance;
  const counts = { passed: 0, total: 0, bad: 0, gaps: 0, skipped: 0 };
  for (let cell = 0; cell < checks.length * dtypes.length; cell++) {
    if (check >= 0 && Math.floor(cell / dtypes.length) !== check) continue;
    if (dtype >= 0 && cell % dtypes.length !== dtype) continue;
    const mark = entry.marks[cell];
    if (mark === "s") counts.skipped++;
    if (mark === "." || mark === "s") continue;
    counts.total++;
    if (mark === "p" || mark === "x") counts.passed++;
    if (mark === "g") counts.gaps++;
    if (BAD.includes(mark)) counts.bad++;
  }
  return counts;
}

function verdictOf(counts) {
  if (counts.bad) return "failing";
  if (counts.gaps) return "gaps";
  if (counts.total) return "passing";
  return counts.skipped ? "skipped" : "none";
}

// Reads report.conformance anew: once at the start, and for each answer while a run goes on.
function readConformance() {
  const found = report.conformance;
  for (const operator of operators) {
    operator.named = [];
    operator.callers = [];
    operator.tests = null;
  }
  entries = !found ? [] : found.entries.map((name, row) => ({
    row,
    name,
    lower: name.toLowerCase(),
    marks: found.marks[row],
    seconds: found.seconds[row],
    samples: found.samples[row],
    route: found.routes[row],
    rank: ROUTES.indexOf(found.routes[row]),
    calls: found.calls[row].map((index) => operators[index]),
    note(cell) {
      const message = found.notes[row]?.[cell];
      return message === undefined ? "" : found.messages[message];
    },
  }));
  entryByName = new Map(entries.map((entry) => [entry.name, entry]));
  for (const entry of entries) {
    entry.counts = countMarks(entry);
    for (const operator of entry.calls) operator.callers.push(entry);
    for (const index of found.named[entry.row]) operators[index].named.push(entry);
  }
  for (const operator of operators) {
    // What is named for it says more of an operator than what calls it among others.
    const tested = operator.named.length ? operator.named : operator.callers;
    if (!tested.length) continue;
    const sum = { passed: 0, total: 0, bad: 0, gaps: 0, skipped: 0 };
    for (const entry of tested) for (const key in sum) sum[key] += entry.counts[key];
    operator.tests = sum;
  }
}

for (const use of report.program?.operators ?? []) {
  const operator = operatorByName.get(use.name);
  if (operator) operator.use = use;
}
readConformance();
