// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// The view of one node: an explanation for each NodeJob, what guards and budgets say, and logs.

import { $, el, loading, replace, rows } from "./dom.js";
import { shownState, stateOf, wordOf } from "./grid.js";
import { Log } from "./log.js";
import { get, Refused } from "./store.js";

const stateTones = { failed: "bad", noncompliant: "bad", drifted: "warn", running: "active", done: "good" };

export class NodeView {
  name = "";
  log = null;

  constructor(state, changes, close) {
    this.state = state;
    this.changes = changes;
    this.root = $("node");
    this.title = el("h2", { id: "node-name", tabindex: "-1" });
    this.marks = el("div", { class: "marks" });
    this.body = el("div", { class: "panel-body" });
    this.logs = el("div", { class: "logs" });
    this.root.append(el("div", { class: "panel-head" }, this.title, el("button", { type: "button", class: "quiet", "aria-label": "Close the node", onclick: close }, "Close")),
      this.marks, this.logs, this.body);
  }

  show(name, job) {
    this.job = job;
    if (name === this.name) return;
    this.name = name;
    this.closeLog();
    this.root.hidden = !name;
    document.body.classList.toggle("with-panel", Boolean(name));
    replace(this.body, loading());
    if (!name) return;
    this.title.textContent = name;
    this.drawMarks();
    this.title.focus();
    this.refresh();
  }

  async refresh() {
    const name = this.name;
    if (!name) return;
    this.drawMarks();
    try {
      const view = await get("node", { name });
      if (name === this.name) this.draw(view);
    } catch (error) {
      if (error instanceof Refused && error.status === 404 && name === this.name) replace(this.body, el("p", { class: "gone", role: "status" }, error.message));
    }
  }

  drawMarks() {
    const node = this.state.nodes.get(this.name);
    if (!node) return replace(this.marks);
    const mark = (text, tone) => el("span", { class: `badge tone-${tone}` }, text);
    const labels = Object.entries(node.labels ?? {}).sort(([a], [b]) => a.localeCompare(b));
    const open = this.marks.querySelector("details")?.open ?? false;
    const [state] = stateOf(node, this.job, this.state.jobs);
    replace(this.marks,
      mark(wordOf(state, this.job, this.state.jobs), stateTones[state] ?? "dim"),
      node.ready === "True" ? mark("Ready", "dim") : mark(node.ready === "False" ? "Not Ready" : "Ready unknown", "bad"),
      node.cordoned ? mark("Cordoned", "warn") : null,
      (node.held ?? []).map((guard) => mark(`Held by ${guard}`, "warn")),
      labels.length ? el("details", { class: "labels", open }, el("summary", { "data-key": "labels" }, `${labels.length} labels`), el("ul", {}, labels.map(([key, value]) => el("li", {}, `${key}=${value}`)))) : null);
  }

  draw(view) {
    const first = (job) => (`${job.namespace}/${job.name}` === this.job ? 0 : 1);
    const jobs = view.jobs.filter((job) => job.state !== "Excluded" || !first(job)).sort((a, b) => first(a) - first(b));
    const others = view.jobs.length - jobs.length;
    replace(this.body,
      view.guards.length ? el("section", { class: "card" }, el("h3", {}, "Guards"), rows(view.guards)) : null,
      jobs.map((job) => this.card(job)),
      view.budgets.length ? el("section", { class: "card" }, el("h3", {}, "Budgets"), rows(view.budgets)) : null,
      others ? el("p", { class: "dim" }, `${others} more ${others === 1 ? "NodeJob is" : "NodeJobs are"} not for this node.`) : null,
      view.jobs.length ? null : el("p", { class: "dim" }, "No NodeJob can be seen."));
  }

  card(job) {
    const commands = job.rows.flatMap((row) => row.spans.filter((span) => span.tone === "command").map((span) => span.text));
    const { audit } = this.state.jobs.get(`${job.namespace}/${job.name}`) ?? {};
    return el("section", { class: "card", "data-state": shownState(job.state, job.reason, audit) },
      el("h3", {}, job.run ? el("span", { class: "dim" }, "run ") : null, el("span", { class: "mark", "aria-hidden": "true" }), el("span", { class: "namespace" }, `${job.namespace}/`), job.name),
      el("p", { class: "sentence" }, job.sentence), rows(job.rows),
      this.changes.controls(job.offers, `${job.namespace}/${job.name}/${this.name}`, commands),
      job.pods.map((pod) => el("button", { type: "button", class: "quiet", "data-key": `log:${pod}`, onclick: () => this.openLog(job.namespace, pod) }, `Log of ${pod}`)));
  }

  openLog(namespace, pod) {
    this.closeLog();
    this.log = new Log(namespace, pod, () => this.closeLog());
    replace(this.logs, this.log.root);
    this.log.heading.focus();
  }

  closeLog() {
    this.log?.stop();
    this.log = null;
    replace(this.logs);
  }
}
