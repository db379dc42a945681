// What changed since the earlier report.

const SHOWN_CHANGES = 15;
const GOOD_STATUSES = ["passed", "unexpected pass"];

function showTrend() {
  const trend = report.trend;
  const view = document.querySelector("#changes > div");
  if (!trend) {
    view.replaceChildren();
    return;
  }
  const gained = trend.route_changes.filter((each) => each.gained);
  const lost = trend.route_changes.filter((each) => !each.gained);
  const passes = trend.verdict_changes.filter((each) => GOOD_STATUSES.includes(each.after) && !GOOD_STATUSES.includes(each.before));
  const fails = trend.verdict_changes.filter((each) => !GOOD_STATUSES.includes(each.after) && GOOD_STATUSES.includes(each.before));
  const others = trend.verdict_changes.filter((each) => !passes.includes(each) && !fails.includes(each));
  view.replaceChildren(
    h("p", { class: "quiet" }, `Since ${trend.source}, written ${moment(trend.written)} with torch ${trend.torch}`),
    h("div", { class: "figures" },
      figure(`+${count(gained.length)}`, "", "operators on a better route"),
      figure(lost.length ? `−${count(lost.length)}` : "0", "", "on a worse one"),
      figure(`+${count(passes.length)}`, "", "verdicts pass now"),
      figure(fails.length ? `−${count(fails.length)}` : "0", "", "pass no more")),
    ...[
      fails.length && changeCard("Pass no more", fails.map(verdictRow), VERDICT_HEAD),
      lost.length && changeCard("Lost: a worse route than before", lost.map(routeRow), ROUTE_HEAD),
      gained.length && changeCard("Gained: a better route than before", gained.map(routeRow), ROUTE_HEAD),
      passes.length && changeCard("Pass now", passes.map(verdictRow), VERDICT_HEAD),
      others.length && changeCard("Other verdicts that changed", others.map(verdictRow), VERDICT_HEAD),
      card("Operators by route", dataTable("Operators by route", [["route"], ["before", 1], ["now", 1], ["", 1]],
        trend.routes.filter(([, before, now]) => before || now).map(([route, before, now]) =>
          [routeBadge(route), count(before), count(now), difference(now - before)]))),
      scoreCard(trend),
      numberCard(trend),
    ].filter(Boolean));
}

const VERDICT_HEAD = [["entry"], ["check"], ["dtype"], ["before"], ["now"]];
const ROUTE_HEAD = [["operator"], ["before"], ["now"]];

const card = (title, ...children) => h("section", { class: "card" }, h("h3", {}, title), ...children);

// The first rows; the others for who asks.
function changeCard(title, rows, head) {
  const others = rows.slice(SHOWN_CHANGES);
  return card(`${title} (${count(rows.length)})`, dataTable(title, head, rows.slice(0, SHOWN_CHANGES)),
    others.length > 0 && h("details", {}, h("summary", {}, `${count(others.length)} more`), dataTable(title, head, others)));
}

const verdictRow = (each) => [entryLink(each.entry), each.check, each.dtype, each.before, each.after];
const routeRow = (each) => [
  operatorByName.has(each.operator) ? operatorLink(each.operator) : each.operator,
  routeBadge(each.before) || "not there", routeBadge(each.after) || "not there",
];

function difference(value, text = count(Math.abs(value))) {
  if (!value) return h("span", { class: "quiet" }, "=");
  return `${value > 0 ? "+" : "−"}${text}`;
}

// How many points of a percent each score has moved.
function scoreCard(trend) {
  const cells = new Map(trend.scores.map(([check, dtype, ...counts]) => [`${check} ${dtype}`, counts]));
  if (!trend.scores.some(([, , before, of, now, all]) => before !== now || of !== all)) return null;
  const { checks, dtypes } = report.conformance;
  return card("Scores, in points of a percent", checkMatrix("Scores, in points of a percent", checks, dtypes, (check, dtype) => {
    const counts = cells.get(`${check} ${dtype}`);
    if (!counts) return null;
    const [before, of, now, all] = counts;
    const points = 100 * (now / all - before / of);
    const title = `${check}, ${dtype}: ${count(before)} of ${count(of)} before, ${count(now)} of ${count(all)} now`;
    const kind = Math.abs(points) < 0.05 ? "same" : points > 0 ? "all" : "few";
    const text = kind === "same" ? "=" : `${points > 0 ? "+" : "−"}${Math.abs(points).toFixed(1)}`;
    return [{ "data-grade": kind }, h("span", { title }, text)];
  }));
}

function numberCard(trend) {
  const rows = trend.sizes.map(([name, before, now]) =>
    [name, before ? bytes(before) : "", now ? bytes(now) : "", before && now ? difference(now - before, bytes(Math.abs(now - before))) : ""]);
  if (trend.host_seconds) {
    const [before, now] = trend.host_seconds;
    rows.push(["time on the CPU", duration(before), duration(now), difference(now - before, duration(Math.abs(now - before)))]);
  }
  for (const { benchmark, name, before, now, change, is_certain: certain } of trend.benchmarks) {
    const text = `${(100 * Math.abs(change)).toFixed(1)} %${certain ? "" : ", within the spread"}`;
    rows.push([`${benchmark}: ${name}`, measure({ median: before }), measure({ median: now }), difference(change, text)]);
  }
  return rows.length > 0 && card("Sizes and times", dataTable("Sizes and times", [[""], ["before", 1], ["now", 1], ["", 1]], rows));
}
