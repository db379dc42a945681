// A listing: a search, filters, and a table of which only the rows in sight are in the page.

class Listing {
  // columns: {key, label, cell(item, words), order?(item), number?, first? ("most" sorts downwards first)}
  constructor(id, { columns, items, tests, open, what, template }) {
    Object.assign(this, { id, columns, items, open, what });
    this.view = document.getElementById(id);
    this.grid = this.view.querySelector(".grid");
    this.grid.style.setProperty("--columns", template);
    this.rows = this.view.querySelector(".rows");
    this.output = this.view.querySelector("output");
    this.clear = this.view.querySelector("button[type=reset]");
    this.nothing = this.view.querySelector(".nothing");
    this.detail = this.view.querySelector(".detail");
    this.filters = new Filters(this.view.querySelector("form"), tests, () => {
      performance.mark("opsmith:search");
      this.refresh();
      this.active = 0;
      this.draw(true);
      showQuery(this);
      performance.measure("opsmith:search", "opsmith:search");
    });
    const more = this.view.querySelector(".more");
    more.addEventListener("click", () =>
      more.setAttribute("aria-expanded", more.getAttribute("aria-expanded") === "false"));
    this.sort = { key: columns[0].key, down: false, chosen: false };
    this.active = -1;
    this.shown = [];
    this.words = [];
    this.range = [0, 0];
    this.grid.setAttribute("aria-colcount", columns.length);
    this.head();
    this.rows.addEventListener("click", (event) => {
      const row = event.target.closest("[data-index]");
      if (row && !event.ctrlKey && !event.metaKey) {
        event.preventDefault();
        this.activate(Number(row.dataset.index));
        this.open(this.shown[this.active]);
      }
    });
    this.grid.addEventListener("focus", () => {
      if (this.active < 0 && this.shown.length) this.activate(0);
    });
    // Captured: scrolling of the grid does not bubble.
    addEventListener("scroll", () => this.draw(), { passive: true, capture: true });
    addEventListener("resize", () => this.draw(true));
    addEventListener("beforeprint", () => this.draw(true, 400));
    addEventListener("afterprint", () => this.draw(true));
  }

  head() {
    this.view.querySelector(".head").replaceChildren(...this.columns.map((column, index) => {
      const sorted = this.sort.key === column.key;
      const button = h("button", { type: "button", class: "sort", onclick: () => this.sortBy(column) },
        column.label, h("i", { class: "arrow", "aria-hidden": "true" },
          sorted ? (this.sort.down ? "↓" : "↑") : ""));
      return h("div", {
        role: "columnheader", "aria-colindex": index + 1, "data-column": column.key,
        class: column.number ? "number" : null,
        "aria-sort": sorted ? (this.sort.down ? "descending" : "ascending") : "none",
      }, button);
    }));
  }

  sortBy(column) {
    const again = this.sort.key === column.key && (this.sort.chosen || !this.words.length);
    this.sort = {
      key: column.key, down: again ? !this.sort.down : column.first === "most", chosen: true,
    };
    this.head();
    this.refresh();
    this.draw(true);
    this.view.querySelector(`[data-column="${column.key}"] button`).focus();
  }

  // Chooses and sorts the items; keeps the active one active, where it is still there.
  refresh() {
    const kept = this.shown[this.active];
    const values = this.filters.values;
    const { found, exact, words } = searched(
      this.items().filter((item) => this.filters.passes(item, values)), values.q?.[0] ?? "");
    this.words = words;
    this.values = values;
    const column = this.columns.find((each) => each.key === this.sort.key);
    if (words.length && !this.sort.chosen) {
      found.sort((one, other) => one[1] - other[1] || (one[0].lower < other[0].lower ? -1 : 1));
    } else {
      const sign = this.sort.down ? -1 : 1;
      const order = column.order ?? ((item) => item.lower);
      const keys = new Map(found.map(([item]) => [item, order(item, values)]));
      // By name among equals, and what has no value last in either direction.
      found.sort(([one], [other]) => {
        const a = keys.get(one);
        const b = keys.get(other);
        if (a === b) return one.lower < other.lower ? -1 : 1;
        if (a === null || b === null) return a === null ? 1 : -1;
        return a < b ? -sign : sign;
      });
    }
    this.shown = found.map(([item]) => item);
    this.active = kept ? this.shown.findIndex((item) => item.name === kept.name) : -1;
    const all = this.items().length;
    const filtered = Object.keys(values).length > 0;
    this.output.textContent = !exact && this.shown.length
      ? `None has “${values.q[0]}” in its name; ${count(this.shown.length)} similar`
      : filtered ? `${count(this.shown.length)} of ${plural(all, ...this.what)}` : plural(all, ...this.what);
    this.clear.hidden = !filtered;
    this.nothing.hidden = this.shown.length > 0;
    this.nothing.textContent = `None of the ${this.what[1] ?? `${this.what[0]}s`} passes these filters.`;
    this.grid.setAttribute("aria-rowcount", this.shown.length + 1);
  }

  get rowHeight() {
    return parseFloat(getComputedStyle(this.grid).getPropertyValue("--row"));
  }

  // The box in which the rows scroll, with the top and bottom of what it shows: the grid, or a small window.
  get sight() {
    const { top, bottom } = this.grid.getBoundingClientRect();
    return getComputedStyle(this.grid).overflowY === "auto"
      ? { box: this.grid, top, bottom } : { box: document.documentElement, top: 0, bottom: innerHeight };
  }

  // Puts the rows in sight, and some around them, into the page; the first ones where it is printed.
  draw(anew = false, printed = 0) {
    if (this.view.hidden) return;
    const height = this.rowHeight;
    const top = this.rows.getBoundingClientRect().top;
    const sight = this.sight;
    const first = printed ? 0 : Math.max(0, Math.floor((sight.top - top) / height) - 8);
    const last = printed || Math.min(this.shown.length, Math.ceil((sight.bottom - top) / height) + 8);
    if (!anew && first >= this.range[0] && last <= this.range[1] && this.range[1] - last < 24) return;
    const range = [Math.max(0, first - 8), Math.min(this.shown.length, last + 8)];
    this.range = range;
    this.rows.style.height = `${(printed ? range[1] : this.shown.length) * height}px`;
    const drawn = [];
    for (let index = range[0]; index < range[1]; index++) drawn.push(this.row(index, height));
    this.rows.replaceChildren(...drawn);
    this.markActive();
  }

  row(index, height) {
    const item = this.shown[index];
    return h("div", {
      role: "row", class: "row", id: `${this.id}-${index}`, "data-index": index,
      "aria-rowindex": index + 2, style: `transform:translateY(${index * height}px)`,
    }, this.columns.map((column, place) => h("div", {
      role: "gridcell", "aria-colindex": place + 1, "data-column": column.key,
      class: column.number ? "number" : null,
    }, column.cell(item, this.words, this.values))));
  }

  markActive() {
    const old = this.rows.querySelector(".active");
    old?.classList.remove("active");
    old?.removeAttribute("aria-selected");
    const row = document.getElementById(`${this.id}-${this.active}`);
    row?.classList.add("active");
    row?.setAttribute("aria-selected", "true");
    if (row) this.grid.setAttribute("aria-activedescendant", row.id);
    else this.grid.removeAttribute("aria-activedescendant");
  }

  activate(index) {
    if (!this.shown.length) return;
    this.active = Math.max(0, Math.min(this.shown.length - 1, index));
    const height = this.rowHeight;
    const top = this.rows.getBoundingClientRect().top + this.active * height;
    const under = this.view.querySelector(".head").getBoundingClientRect().bottom;
    const { box, bottom } = this.sight;
    if (top < under) box.scrollBy(0, top - under);
    else if (top + height > bottom) box.scrollBy(0, top + height - bottom + 8);
    this.draw();
    this.markActive();
  }

  // Moves by `step` rows, and has the details follow where they are open; else Enter is the row's from now.
  move(step) {
    this.activate(this.active < 0 ? 0 : this.active + step);
    if (this.detail.hidden) this.grid.focus({ preventScroll: true });
    else if (this.shown.length) this.open(this.shown[this.active], { follow: true });
  }

  // The row of an item that somebody came for, in the middle of what is shown.
  show(item) {
    const index = this.shown.indexOf(item);
    if (index >= 0) {
      const top = this.rows.getBoundingClientRect().top + index * this.rowHeight;
      const sight = this.sight;
      if (top > sight.bottom - this.rowHeight) sight.box.scrollBy(0, top - (sight.top + sight.bottom) / 2);
      this.activate(index);
    }
    else {
      this.active = -1;
      this.markActive();
    }
  }
}
