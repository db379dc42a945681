// The two listings: the operators, and the entries of OpInfo.

const checkIndex = (values) => (values.check ? report.conformance.checks.indexOf(values.check[0]) : -1);
const dtypeIndex = (values) => (values.dtype ? report.conformance.dtypes.indexOf(values.dtype[0]) : -1);

// The counts of the chosen check and dtype; of all, where none is chosen.
function chosenCounts(entry, values) {
  if (!values.check && !values.dtype) return entry.counts;
  return countMarks(entry, checkIndex(values), dtypeIndex(values));
}

const isVerdict = (verdict, wanted) =>
  verdict === wanted || (wanted === "open" && (verdict === "failing" || verdict === "expected"));

// Failures first, then expected ones; what was not tested comes last.
function testsOrder(counts) {
  if (!counts?.total) return null;
  return -counts.bad * 1e6 - counts.expected * 1e3 + counts.passed / counts.total;
}

function operatorListing() {
  const changed = new Map((report.trend?.route_changes ?? []).map((each) => [each.operator, each]));
  return new Listing("operators", {
    what: ["operator"],
    template: "minmax(14rem, 3fr) minmax(7.5rem, 1fr) minmax(6.5rem, 1fr) minmax(6rem, 1fr) minmax(5rem, 1fr) minmax(10.5rem, 1fr)",
    items: () => operators,
    open: openOperator,
    columns: [
      { key: "name", label: "operator", cell: (operator, words) => h("a", { href: `#${encodeURIComponent(operator.name)}`, tabindex: -1 }, marked(operator.name, words)) },
      { key: "route", label: "route", order: (operator) => operator.rank, cell: (operator) => [routeBadge(operator.route), changed.has(operator.name) && h("span", { class: "new", title: `before: ${changed.get(operator.name).before || "not there"}` }, "changed")] },
      { key: "variant", label: "variant", order: (operator) => operator.variant, cell: (operator) => operator.variant },
      { key: "gradient", label: "gradient", order: (operator) => operator.gradient, cell: (operator) => operator.gradient },
      { key: "library", label: "library", order: (operator) => operator.library || null, cell: (operator) => operator.library },
      { key: "tests", label: "tests", number: true, order: (operator) => testsOrder(operator.tests), cell: (operator) => (operator.tests ? testsText(operator.tests) : "") },
    ],
    tests: {
      route: (operator, value) => operator.route === value,
      tag: (operator, value) => operator.tags.includes(value),
      variant: (operator, value) => operator.variant === value,
      gradient: (operator, value) => operator.gradient === value,
      library: (operator, value) => operator.library === value,
      composite: (operator, value) => operator.composite === value,
      structured: (operator, value) => operator.structured === (value === "yes"),
      verdict: (operator, value) => isVerdict(operator.tests ? verdictOf(operator.tests) : "none", value),
    },
  });
}

function entryListing() {
  return new Listing("entries", {
    what: ["entry", "entries"],
    template: "minmax(14rem, 3fr) minmax(10.5rem, 1fr) minmax(7.5rem, 1fr) minmax(5rem, 1fr) minmax(5rem, 1fr)",
    items: () => entries,
    open: openEntry,
    columns: [
      { key: "name", label: "entry", cell: (entry, words) => h("a", { href: `#/entries/${encodeURIComponent(entry.name)}`, tabindex: -1 }, marked(entry.name, words)) },
      { key: "tests", label: "verdicts", number: true, order: (entry, values) => testsOrder(chosenCounts(entry, values)), cell: (entry, words, values) => testsText(chosenCounts(entry, values)) },
      { key: "route", label: "route", order: (entry) => entry.rank, cell: (entry) => routeBadge(entry.route) },
      { key: "samples", label: "samples", number: true, first: "most", order: (entry) => entry.samples, cell: (entry) => count(entry.samples) },
      { key: "time", label: "time", number: true, first: "most", order: (entry) => entry.seconds, cell: (entry) => duration(entry.seconds) },
    ],
    tests: {
      route: (entry, value) => entry.route === value,
      verdict: (entry, value, values) => isVerdict(verdictOf(chosenCounts(entry, values)), value),
      check: (entry, value, values) => verdictOf(chosenCounts(entry, values)) !== "none",
      dtype: (entry, value, values) => verdictOf(chosenCounts(entry, values)) !== "none",
    },
  });
}

// Controls that show what the data has: counts by route, checks and dtypes of the run.
function showChoices() {
  const numbers = {};
  for (const { route } of operators) numbers[route] = (numbers[route] ?? 0) + 1;
  for (const chip of document.querySelectorAll("#operators .chip")) {
    const number = numbers[chip.dataset.route] ?? 0;
    chip.querySelector(".number").textContent = count(number);
    chip.hidden = number === 0;
  }
  for (const [key, wanted] of [["check", report.conformance?.checks], ["dtype", report.conformance?.dtypes]]) {
    const select = document.querySelector(`#entries [data-filter=${key}]`);
    if (select.options.length === (wanted?.length ?? 0) + 1) continue;
    const chosen = select.value;
    select.replaceChildren(h("option", { value: "" }, "any"), ...(wanted ?? []).map((each) => h("option", {}, each)));
    select.value = wanted?.includes(chosen) ? chosen : "";
  }
}
