// Views, addresses and keys.
//
// #add.Tensor opens an operator, #/entries/linalg.norm an entry; #/operators?route=fallback a listing as
// filtered, #/overview and #/changes the other views.

const listings = { operators: operatorListing(), entries: entryListing() };
const VIEWS = ["overview", "operators", "entries", "changes"];
// How each view is drawn, when it is first seen.
const DRAWN = {
  overview: showOverview,
  operators: () => listings.operators.refresh(),
  entries: () => listings.entries.refresh(),
  changes: showTrend,
};
const undrawn = new Set(VIEWS);
let view = "";

function available(name) {
  return name === "entries" ? Boolean(report.conformance) : name === "changes" ? Boolean(report.trend) : true;
}

function showView(name) {
  const moved = view !== name;
  view = name;
  for (const each of VIEWS) document.getElementById(each).hidden = each !== name;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#/${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (undrawn.delete(name)) DRAWN[name]();
  if (moved) scrollTo(0, 0);
}

const listing = () => listings[view];

function openOperator(operator, how) {
  openDetail("operators", operator, showOperator, `#${encodeURIComponent(operator.name)}`, how);
}

function openEntry(entry, how) {
  openDetail("entries", entry, showEntry, `#/entries/${encodeURIComponent(entry.name)}`, how);
}

// follow: the details are open and follow the active row, so the address is replaced and the focus stays.
function openDetail(name, item, show, hash, { follow = false, arrived = false } = {}) {
  showView(name);
  if (arrived) listings[name].draw(true);
  show(listings[name], item);
  listings[name].draw(true);
  if (location.hash !== hash) history[follow ? "replaceState" : "pushState"](null, "", hash);
  if (arrived) listings[name].show(item);
  if (!follow) listings[name].detail.querySelector("h3").focus({ preventScroll: true });
}

function showQuery(which) {
  const query = which.filters.query;
  history.replaceState(null, "", `#/${which.id}${query ? `?${query}` : ""}`);
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

// What the address says.
function arrive() {
  const hash = location.hash.slice(1);
  for (const name in listings) if (!listings[name].detail.hidden) hideDetail(listings[name]);
  if (hash && !hash.startsWith("/")) {
    const operator = operatorByName.get(decoded(hash).replace(/^aten::/, ""));
    if (operator) openOperator(operator, { arrived: true });
    else {
      showView("operators");
      listings.operators.filters.values = { q: [decoded(hash)] };
      refreshListing("operators");
    }
    return;
  }
  const [path, query] = hash.slice(1).split(/\?(.*)/s);
  const [name, item] = path.split(/\/(.*)/s);
  if (name === "entries" && item) {
    const entry = entryByName.get(decoded(item));
    if (entry) {
      openEntry(entry, { arrived: true });
      return;
    }
  }
  const wanted = VIEWS.includes(name) && available(name) ? name : "overview";
  showView(wanted);
  if (listings[wanted] && (query !== undefined || !item)) {
    listings[wanted].filters.query = query ?? "";
    refreshListing(wanted);
  }
}

function go(hash) {
  history.pushState(null, "", hash);
  arrive();
}

function refreshListing(name) {
  listings[name].refresh();
  listings[name].draw(true);
}

// How many there are of what a view lists; a view without any has no link.
function showCounts() {
  for (const link of document.querySelectorAll("nav [data-needs]")) {
    const found = report[link.dataset.needs];
    link.hidden = !found;
    if (found) {
      link.querySelector(".number").textContent = link.dataset.needs === "conformance"
        ? count(found.entries.length)
        : count(found.route_changes.length + found.verdict_changes.length);
    }
  }
}

const isControl = (element) => element.matches?.("input[type=search], select, textarea");

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const target = event.target;
  const now = listing();
  if (isControl(target)) {
    if (target.type !== "search") return;
    if (event.key === "Escape") {
      if (target.value) {
        target.value = "";
        target.dispatchEvent(new Event("input", { bubbles: true }));
      } else now.grid.focus({ preventScroll: true });
    } else if (event.key === "ArrowDown") {
      now.grid.focus({ preventScroll: true });
      now.activate(0);
    } else if (event.key === "Enter" && now.shown.length) {
      now.activate(Math.max(0, now.active));
      now.open(now.shown[now.active]);
    } else return;
    event.preventDefault();
    return;
  }
  const page = now ? Math.max(1, Math.floor((now.sight.bottom - now.sight.top) / now.rowHeight) - 4) : 1;
  const inDetail = Boolean(now && now.detail.contains(target) && !target.matches("h3"));
  const moves = {
    j: 1, ArrowDown: 1, k: -1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity,
  };
  if (event.key === "/") {
    if (!now) go("#/operators");
    listing().filters.search.select();
  } else if (event.key === "?") document.getElementById("keys").showModal();
  else if (event.key === "t") nextTheme();
  else if (VIEWS[Number(event.key) - 1] && available(VIEWS[Number(event.key) - 1])) {
    go(`#/${VIEWS[Number(event.key) - 1]}`);
  } else if (now && event.key === "Escape" && !now.detail.hidden) closeDetail(now);
  else if (now && event.key in moves && !(inDetail && event.key.length > 1)) now.move(moves[event.key]);
  else if (now && event.key === "Enter" && target.closest("a, button") === null && now.active >= 0) {
    now.open(now.shown[now.active]);
  } else return;
  event.preventDefault();
});

document.getElementById("keys-button").addEventListener("click", () => document.getElementById("keys").showModal());
addEventListener("hashchange", arrive);

showCounts();
showChoices();
arrive();
requestAnimationFrame(() => setTimeout(() => {
  performance.mark("opsmith:interactive");
  document.documentElement.dataset.ready = "yes";
}));
