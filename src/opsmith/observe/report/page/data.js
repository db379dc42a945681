// The document of the page, and what the views need of it by name instead of by index.

const report = JSON.parse(document.getElementById("report").textContent);

const STATUS = {
  p: "passed", f: "failed", t: "timed out", c: "crashed",
  g: "expected failure", x: "unexpected pass", s: "skipped",
};
const BAD = "ftcx";

class Operator {
  constructor(columns, lists, row) {
    const { strings } = columns;
    this.columns = columns;
    this.row = row;
    this.name = columns.name[row];
    this.lower = this.name.toLowerCase();
    this.schema = columns.schema[row];
    this.route = strings[columns.route[row]];
    this.place = strings[columns.place[row]];
    this.rank = ROUTES.indexOf(this.route);
    this.why = strings[columns.why[row]];
    this.library = strings[columns.library[row]];
    this.variant = strings[columns.variant[row]];
    this.composite = strings[columns.composite[row]];
    this.gradient = strings[columns.differentiable[row]];
    this.structured = columns.structured[row];
    this.tags = lists[columns.tags[row]];
    this.dtypes = lists[columns.dtypes[row]];
    this.stubs = lists[columns.stubs[row]];
    this.variants = lists[columns.variants[row]];
    this.kernels = lists[columns.kernels[row]];
    this.reached = lists[columns.reached[row]];
    this.named = [];
    this.callers = [];
    this.tests = null;
    this.use = null;
  }

  get dispatch_path() {
    const { strings, dispatch_paths, dispatch_path, locations } = this.columns;
    return dispatch_paths[dispatch_path[this.row]].map(([key, what], index) =>
      ({ key: strings[key], what: strings[what], location: strings[locations[this.row][index]] }));
  }

  get source() {
    const found = this.columns.sources[this.columns.source[this.row]];
    return found && { symbol: found[0], location: found[1], link: this.columns.strings[found[2]] };
  }
}

function readOperators(columns) {
  const lists = columns.lists.map((list) => list.map((index) => columns.strings[index]));
  return columns.name.map((name, row) => new Operator(columns, lists, row));
}

const operators = readOperators(report.operators);
const operatorByName = new Map(operators.map((operator) => [operator.name, operator]));
let entries = [];
let entryByName = new Map();

// How the marks of an entry end, over all checks and dtypes or over one of them.
function countMarks(entry, check = -1, dtype = -1) {
  const { checks, dtypes } = report.conformance;
  const counts = { passed: 0, total: 0, bad: 0, expected: 0, skipped: 0 };
  for (let cell = 0; cell < checks.length * dtypes.length; cell++) {
    if (check >= 0 && Math.floor(cell / dtypes.length) !== check) continue;
    if (dtype >= 0 && cell % dtypes.length !== dtype) continue;
    const mark = entry.marks[cell];
    if (mark === "s") counts.skipped++;
    if (mark === "." || mark === "s") continue;
    counts.total++;
    if (mark === "p" || mark === "x") counts.passed++;
    if (mark === "g") counts.expected++;
    if (BAD.includes(mark)) counts.bad++;
  }
  return counts;
}

function verdictOf(counts) {
  if (counts.bad) return "failing";
  if (counts.expected) return "expected";
  if (counts.total) return "passing";
  return counts.skipped ? "skipped" : "none";
}

// Reads report.conformance into entries, and into what is known of operators by their tests.
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
    tested: found.named[row].map((index) => operators[index]),
    note(cell) {
      const message = found.notes[row]?.[cell];
      return message === undefined ? "" : found.messages[message];
    },
  }));
  entryByName = new Map(entries.map((entry) => [entry.name, entry]));
  for (const entry of entries) {
    entry.counts = countMarks(entry);
    for (const operator of entry.calls) operator.callers.push(entry);
    for (const operator of entry.tested) operator.named.push(entry);
  }
  for (const operator of operators) {
    // What is named for it says more of an operator than what calls it among others.
    const tested = operator.named.length ? operator.named : operator.callers;
    if (!tested.length) continue;
    const sum = { passed: 0, total: 0, bad: 0, expected: 0, skipped: 0 };
    for (const entry of tested) for (const key in sum) sum[key] += entry.counts[key];
    operator.tests = sum;
  }
}

// Each measurement, with the name of its benchmark.
const measurements = (report.benchmarks?.results ?? []).flatMap((result) =>
  result.measurements.map((each) => ({ benchmark: result.name, ...each })));

for (const use of report.program?.operators ?? []) {
  const operator = operatorByName.get(use.name);
  if (operator) operator.use = use;
}
readConformance();
