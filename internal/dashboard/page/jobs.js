// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// The list of NodeJobs, and the view of one.

import { $, bar, el, loading, remedies, replace, rows } from "./dom.js";
import { get, Refused } from "./store.js";
import { timeline } from "./timeline.js";

const urgency = { bad: 0, warn: 1, active: 2, plain: 3, good: 4 };

/** matches reports whether a search finds a NodeJob. */
const matches = ([key, job], text) => `${key} ${job.headline} ${job.reason} ${job.message}`.toLowerCase().includes(text);

/** drawJobs draws the list, problems first, and the runs apart. selected is the key of a NodeJob, "" for all, or "budgets". */
export function drawJobs(state, selected, text) {
  const sorted = [...state.jobs].sort(([a, x], [b, y]) => (urgency[x.tone] ?? 3) - (urgency[y.tone] ?? 3) || a.localeCompare(b));
  const jobs = sorted.filter(([, job]) => !job.run);
  const runs = sorted.filter(([, job]) => job.run);
  const found = (list) => list.filter((entry) => matches(entry, text));
  const item = (href, current, ...children) => el("li", {}, el("a", { href, "data-key": href, "aria-current": current ? "page" : false }, children));
  const all = item("#/", !selected, el("span", { class: "job-name" }, "All NodeJobs"), el("span", { class: "job-line" }, `${jobs.length} in the cluster`));
  const { count, waiting } = state.budgets ?? { count: 0 };
  const budgets = count || selected === "budgets" ? item("#/budgets", selected === "budgets", el("span", { class: "job-name" }, "Budgets"),
    el("span", { class: "job-line" }, `${count} in the cluster`, waiting ? el("span", { class: "tone-warn" }, `${waiting} waiting`) : null)) : null;
  const line = ([key, job]) => item(`#/job/${path(job.namespace, job.name)}`, key === selected,
    el("span", { class: "job-name" }, el("span", { class: "namespace" }, `${job.namespace}/`), job.name),
    bar(job, doneOf(job)),
    el("span", { class: "job-line" }, el("span", { class: `tone-${job.tone}`, title: job.reason }, job.headline), about(job), el("span", {}, `${job.done}/${job.matched}`)));
  const none = text && jobs.length + runs.length && !found(sorted).length;
  replace($("jobs"), all, budgets, found(jobs).map(line), none ? el("li", { class: "dim none" }, "No NodeJob matches the search.") : null);
  $("runs-title").hidden = !found(runs).length;
  replace($("runs"), found(runs).map(line));
}

/** about is what checks have found: nodes that have drifted since they were done, whose check fails itself, or that no longer need the task, and nodes that are excluded. */
const about = (job) => [[job.drifted, "drifted", "warn"], [job.checkErrors, "not checked", "warn"], [job.expired, "expired", "plain"], [job.excluded, "excluded", "plain"]]
  .filter(([count]) => count).map(([count, word, tone]) => el("span", { class: `tone-${tone}` }, `${count} ${word}`));

/** doneOf says how many nodes are done, or compliant in an audit. */
const doneOf = (job) => `${job.done} of ${job.matched} ${job.audit ? "compliant" : "done"}`;

export const path = (...names) => names.map(encodeURIComponent).join("/");

/** JobView shows one NodeJob. */
export class JobView {
  key = "";

  constructor(state, changes) {
    this.state = state;
    this.changes = changes;
    this.root = $("job");
    this.status = $("job-status");
  }

  show(key) {
    if (key === this.key) return;
    this.key = key;
    this.root.hidden = !key;
    this.status.hidden = true;
    replace(this.root, key ? [...this.head(...key.split("/")), loading()] : null);
    replace(this.status);
    this.refresh();
  }

  async refresh() {
    const key = this.key;
    if (!key) return;
    const [namespace, name] = key.split("/");
    try {
      const view = await get("job", { namespace, name });
      if (key === this.key) this.draw(namespace, name, view);
    } catch (error) {
      if (error instanceof Refused && error.status === 404 && key === this.key) this.gone(namespace, name, error.message);
    }
  }

  gone(namespace, name, message) {
    this.status.hidden = true;
    replace(this.root, title(namespace, name), el("p", { class: "gone", role: "status" }, message, ". ", el("a", { href: "#/" }, "Show all NodeJobs")));
  }

  /** head is what the state of the page says of the NodeJob. */
  head(namespace, name) {
    const job = this.state.jobs.get(this.key);
    if (!job) return [title(namespace, name)];
    return [
      title(namespace, name, el("span", { class: `badge tone-${job.tone}` }, job.headline), el("span", { class: "reason" }, job.reason), el("span", { class: "big" }, doneOf(job)), about(job)),
      job.message ? el("p", { class: "sentence" }, job.message) : null,
    ];
  }

  draw(namespace, name, view) {
    replace(this.root,
      this.head(namespace, name),
      view.need ? remedies(view.need.remedies) : null,
      this.changes.controls(view.offers, this.key, view.need ? view.need.remedies.map((remedy) => remedy.command) : []),
      view.steps.length ? el("ol", { class: "steps", "aria-label": "Steps" }, view.steps.map(step)) : null,
      view.ends.length ? timeline(view.ends, view.now) : null);
    this.status.hidden = false;
    replace(this.status, el("h2", {}, "Details"), rows(view.rows));
  }
}

const title = (namespace, name, ...more) => el("div", { class: "job-head" }, el("h2", { id: "job-name", tabindex: "-1", "data-key": "job-name" }, el("span", { class: "namespace" }, `${namespace}/`), name), more);

const step = (step) => el("li", { class: "step" }, el("span", { class: "step-name" }, step.name), bar(step, step.counts),
  el("span", { class: "step-line" }, step.counts), el("span", { class: `step-state tone-${step.tone}` }, step.state));
