// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// The view of all NodeDisruptionBudgets.

import { $, el, loading, replace, rows } from "./dom.js";
import { path } from "./jobs.js";
import { get } from "./store.js";

/** BudgetsView shows what each NodeDisruptionBudget allows, and which nodes use it or wait for it. */
export class BudgetsView {
  shown = false;

  constructor() {
    this.root = $("budgets");
  }

  show(shown) {
    if (shown === this.shown) return;
    this.shown = shown;
    this.root.hidden = !shown;
    replace(this.root, loading());
    if (shown) this.refresh();
  }

  async refresh() {
    if (!this.shown) return;
    const view = await get("budgets", {}).catch(() => null); // the connection says what is wrong
    if (view && this.shown) this.draw(view);
  }

  draw(view) {
    replace(this.root,
      el("div", { class: "job-head" }, el("h1", {}, "NodeDisruptionBudgets")),
      view.unreadable ? el("p", { class: "note", role: "status" }, view.unreadable) : null,
      view.budgets.length ? table("Overview of NodeDisruptionBudgets", ["Name", "Status", "Nodes", "Allowed", "Unavailable", "Waiting", "Window", "Expires"], view.budgets.map(summary)) : null,
      view.budgets.length || view.unreadable ? null : el("p", { class: "empty" }, "There is no NodeDisruptionBudget."),
      view.more ? el("p", { class: "dim" }, `${view.more} more: kubectl everynode budgets`) : null,
      view.budgets.map(card));
  }
}

const toned = (tone, text) => el("span", { class: `tone-${tone}` }, text);

const summary = (b) => [b.name, toned(b.tone, b.state), b.nodes, b.allowed, b.unavailable, b.waiting, b.window, b.expires];

/** card shows the rules of a budget, and its nodes. */
function card(budget) {
  const name = `Nodes of ${budget.name}`;
  const use = (n) => [el("a", { href: `#/node/${path(n.node)}`, "data-key": `${budget.name}/${n.node}` }, n.node), toned(n.tone, n.state), n.since, n.by, n.why ?? ""];
  return el("section", { class: "card", "aria-label": `NodeDisruptionBudget ${budget.name}` },
    el("h2", {}, budget.name, el("span", { class: `badge tone-${budget.tone}` }, budget.state)),
    rows(budget.rows),
    budget.uses.length ? table(name, ["Node", "State", "Since", "By", "Why"], budget.uses.map(use)) : null,
    (budget.notListed ?? []).map((said) => el("p", { class: "dim" }, said)));
}

/** table draws a table that scrolls by itself if it is too wide. */
const table = (name, head, lines) => el("div", { class: "scrolls", role: "region", "aria-label": name, tabindex: "0", "data-key": name },
  el("table", {}, el("thead", {}, el("tr", {}, head.map((text) => el("th", { scope: "col" }, text)))),
    el("tbody", {}, lines.map((cells) => el("tr", {}, cells.map((cell, i) => el(i ? "td" : "th", i ? {} : { scope: "row" }, cell)))))));
