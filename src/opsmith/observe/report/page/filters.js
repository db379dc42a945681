// What the controls of a listing ask for, and the same in the address: #/operators?route=fallback&tag=core.

class Filters {
  constructor(form, tests, changed) {
    this.form = form;
    this.tests = tests;
    this.controls = [...form.querySelectorAll("[data-filter]")];
    this.search = form.querySelector("input[type=search]");
    form.addEventListener("input", changed);
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("reset", () => setTimeout(changed));
  }

  // The chosen values: q a text, each other key a list that is not empty.
  get values() {
    const found = {};
    for (const control of this.controls) {
      const key = control.dataset.filter;
      const chosen = control.type === "checkbox" ? control.checked && control.value : control.value;
      if (chosen) (found[key] ??= []).push(chosen);
    }
    return found;
  }

  set values(wanted) {
    for (const control of this.controls) {
      const values = wanted[control.dataset.filter] ?? [];
      if (control.type === "checkbox") control.checked = values.includes(control.value);
      else control.value = values[0] ?? "";
    }
  }

  get query() {
    const query = new URLSearchParams();
    for (const [key, values] of Object.entries(this.values)) query.set(key, values.join(","));
    return query.toString();
  }

  set query(text) {
    const wanted = {};
    for (const [key, value] of new URLSearchParams(text)) {
      wanted[key] = key === "q" ? [value] : value.split(",");
    }
    this.values = wanted;
  }

  passes(item, values) {
    for (const key in values) {
      const test = this.tests[key];
      if (test && !values[key].some((value) => test(item, value, values))) return false;
    }
    return true;
  }
}
