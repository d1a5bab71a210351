// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// The nodes as a grid of cells. A cell is made once for each node and changed in place, so that 5,000 of them are cheap.

import { $, el, replace } from "./dom.js";

const states = ["failed", "noncompliant", "drifted", "running", "waiting", "done", "expired", "excluded", "none"]; // the most urgent first
const always = ["failed", "running", "waiting", "done"]; // states that are counted even if no node has them
const flags = { notready: "Not Ready", cordoned: "Cordoned", held: "Held by a guard", drifted: "Drifted", confirming: "Waits for confirmation", expired: "Expired" };
const words = { failed: "Failed", noncompliant: "Not compliant", running: "Running", waiting: "Waiting", excluded: "Excluded", none: "No task", ...flags };
const flagReasons = { Drifted: "drifted", Confirming: "confirming", Expired: "expired" };
const warnings = ["notready", "cordoned", "held", "drifted"]; // flags with a dot
const fewNodes = 60; // with fewer, each is a tile with words

const zoneLabels = ["topology.kubernetes.io/zone"];
const poolLabels = ["cloud.google.com/gke-nodepool", "eks.amazonaws.com/nodegroup", "kubernetes.azure.com/agentpool", "karpenter.sh/nodepool", "node.kubernetes.io/pool", "pool"];

const order = new Intl.Collator("en", { numeric: true }).compare;

/** shownState is the state that a node is shown with. A node is done only if the task is done there now, or if an audit found it compliant. */
export function shownState(state, reason, audit) {
  if (reason === "NotSelected") return "none";
  if (reason === "NonCompliant" || (reason === "Drifted" && audit)) return "noncompliant";
  return { Drifted: "drifted", Expired: "expired" }[reason] ?? state.toLowerCase();
}

/**
 * stateOf returns the state of a node under a NodeJob, or the most urgent one under all but runs: [state, reason, step, NodeJob, why].
 * A node that is not selected has the state none.
 */
export function stateOf(node, job, jobs) {
  let worst = ["none", "", "", "", ""];
  for (const [name, [state, reason, step, why]] of Object.entries(node.jobs ?? {})) {
    if (job ? name !== job : jobs.get(name)?.run) continue;
    const found = [shownState(state, reason, jobs.get(name)?.audit), reason, step, name, why];
    if (job || states.indexOf(found[0]) < states.indexOf(worst[0])) worst = found;
  }
  return worst;
}

/** wordOf is the word for a state under a NodeJob, or under all: then a node is done if all NodeJobs are done there. */
export function wordOf(state, job, jobs) {
  if (state === "none" && job) return "Not selected";
  if (state === "done") return !job ? "All done" : jobs.get(job)?.audit ? "Compliant" : "Done";
  return words[state];
}

/** spaced returns the words of a reason. */
const spaced = (reason) => reason.replace(/(?!^)[A-Z]/g, (letter) => ` ${letter}`).toLowerCase();

function flagsOf(node, job, jobs) {
  const marks = { notready: node.ready !== "True", cordoned: Boolean(node.cordoned), held: Boolean(node.held?.length) };
  for (const [name, [, reason]] of Object.entries(node.jobs ?? {})) {
    if (flagReasons[reason] && (job ? name === job : !jobs.get(name)?.run)) marks[flagReasons[reason]] = true;
  }
  return marks;
}

export class Grid {
  cells = new Map();
  groups = new Map();
  wanted = new Set();
  text = "";
  by = "";
  job = "";
  selected = "";
  focused = "";
  failed = 0; // nodes, whatever the search finds
  nonCompliant = 0;

  constructor(state, open) {
    this.state = state;
    this.root = $("nodes");
    this.root.addEventListener("click", (event) => this.nameAt(event) && open(this.nameAt(event)));
    this.root.addEventListener("keydown", (event) => this.key(event, open));
    this.root.addEventListener("focusin", (event) => this.nameAt(event) && this.rove(this.nameAt(event)));
    $("group").addEventListener("change", (event) => {
      this.by = event.target.value;
      this.draw();
    });
    $("search").addEventListener("input", (event) => {
      this.text = event.target.value.trim().toLowerCase();
      this.draw();
    });
  }

  nameAt(event) {
    return event.target.closest("[role=option]")?.dataset.key;
  }

  /** show selects the NodeJob whose states are shown; "" for all. */
  show(job) {
    this.job = job;
    this.draw();
  }

  select(name) {
    this.cells.get(this.selected)?.setAttribute("aria-selected", "false");
    this.selected = name;
    this.cells.get(name)?.setAttribute("aria-selected", "true");
  }

  focus(name) {
    this.cells.get(name)?.focus();
  }

  draw() {
    const counts = Object.fromEntries([...states, ...Object.keys(flags)].map((name) => [name, 0]));
    const groups = new Map();
    const shown = [];
    this.failed = this.nonCompliant = 0;
    this.options();
    for (const name of this.cells.keys()) if (!this.state.nodes.has(name)) this.cells.delete(name);
    for (const [name, node] of this.state.nodes) {
      const about = stateOf(node, this.job, this.state.jobs);
      if (about[0] === "failed") this.failed++;
      if (about[0] === "noncompliant") this.nonCompliant++;
      if (!this.found(name, node, about)) continue;
      if (!flags[about[0]]) counts[about[0]]++;
      if (this.job && about[0] === "none") {
        if (this.wanted.size ? this.wanted.has("none") : this.state.nodes.size < fewNodes) shown.push({ name, node, about, marks: {} });
        continue;
      }
      const marks = flagsOf(node, this.job, this.state.jobs);
      for (const flag of Object.keys(flags)) if (marks[flag]) counts[flag]++;
      if (this.wanted.size && !this.wanted.has(about[0]) && !Object.keys(flags).some((flag) => marks[flag] && this.wanted.has(flag))) continue;
      shown.push({ name, node, about, marks });
    }
    const tiles = shown.length < fewNodes;
    for (const { name, node, about, marks } of shown) {
      const cell = this.cell(name, about, marks, tiles);
      const group = this.groupOf(node, about);
      if (!groups.has(group)) groups.set(group, []);
      groups.get(group).push({ name, cell, rank: { failed: 0, noncompliant: 0, drifted: 1, none: 3 }[about[0]] ?? 2, state: about[0], drifted: marks.drifted });
    }
    this.legend(counts);
    this.place(groups, tiles);
    if (!this.cells.get(this.focused)?.isConnected) this.rove(this.root.querySelector("[role=option]")?.dataset.key ?? "");
  }

  found(name, node, about) {
    if (!this.text) return true;
    const has = (text) => text.toLowerCase().includes(this.text);
    return has(name) || has(about[1]) || has(about[3]) || has(about[4] ?? "") || has(spaced(about[1])) || Object.entries(node.labels ?? {}).some(([key, value]) => has(`${key}=${value}`));
  }

  groupOf(node, about) {
    const first = (labels) => labels.map((label) => node.labels?.[label]).find((value) => value !== undefined);
    switch (this.by) {
      case "": return "";
      case "state": return wordOf(about[0], this.job, this.state.jobs);
      case "step": return about[2] || "no step";
      case "zone": return first(zoneLabels) ?? "no zone";
      case "pool": return first(poolLabels) ?? "no pool";
    }
    return node.labels?.[this.by.slice("label:".length)] ?? "without this label";
  }

  cell(name, [state, reason, , job, why], marks, tile) {
    let cell = this.cells.get(name);
    if (!cell) {
      cell = el("div", { role: "option", class: "cell", tabindex: "-1", "data-key": name, "aria-selected": String(name === this.selected) });
      this.cells.set(name, cell);
    }
    const word = wordOf(state, this.job, this.state.jobs);
    const more = [!this.job && state !== "done" ? job : "", ...Object.keys(flags).filter((flag) => marks[flag] && flag !== state).map((flag) => flags[flag])].filter(Boolean);
    const reasoned = reason && !flagReasons[reason] && !["NotSelected", "Done"].includes(reason) ? (tile ? spaced(reason) : reason) : "";
    const because = [why, reasoned].find((text) => text && text.toLowerCase() !== word.toLowerCase()) ?? "";
    const label = `${name}: ${[word, because, ...more].filter(Boolean).join(", ")}`;
    if (cell.title === label && cell.dataset.state === state && cell.classList.contains("tile") === tile) return cell;
    cell.dataset.state = state;
    cell.classList.toggle("tile", tile);
    cell.classList.toggle("marked", !tile && warnings.some((flag) => marks[flag] && flag !== state));
    cell.title = label;
    if (tile) cell.removeAttribute("aria-label"); // its name is what it shows
    else cell.setAttribute("aria-label", label);
    cell.replaceChildren(...(tile ? [
      el("span", { class: "mark" }), el("span", { class: "tile-name" }, name),
      el("span", { class: "tile-state" }, [word, ...more].join(", ")), el("span", { class: "tile-why" }, because),
    ] : []));
    return cell;
  }

  place(groups, tiles) {
    const names = [...groups.keys()].sort((a, b) => this.urgency(groups.get(a)) - this.urgency(groups.get(b)) || order(a, b));
    const parts = names.map((name) => {
      const members = groups.get(name).sort((a, b) => a.rank - b.rank || order(a.name, b.name));
      const part = this.groups.get(name) ?? this.group(name);
      this.groups.set(name, part);
      const bad = ["failed", "noncompliant"].map((state) => [members.filter((member) => member.state === state).length, words[state].toLowerCase()]);
      const drifted = [members.filter((member) => member.drifted).length, "drifted"];
      part.title.textContent = name;
      part.count.textContent = [`${members.length} ${members.length === 1 ? "node" : "nodes"}`, ...[...bad, drifted].filter(([count]) => count).map(([count, word]) => `${count} ${word}`)].join(", ");
      part.head.hidden = name === "";
      const signature = members.map((member) => member.name).join("\n");
      if (signature !== part.signature) {
        part.signature = signature;
        replace(part.cells, members.map((member) => member.cell));
      }
      return part.root;
    });
    for (const name of this.groups.keys()) if (!groups.has(name)) this.groups.delete(name);
    const total = names.reduce((sum, name) => sum + groups.get(name).length, 0);
    this.root.dataset.size = tiles ? "tiles" : total > 1500 ? "small" : "medium";
    if (parts.length !== this.root.children.length || parts.some((part, i) => part !== this.root.children[i])) replace(this.root, parts);
    $("empty").hidden = total > 0;
    $("empty").textContent = !this.state.version ? "Loading the nodes…" : this.state.nodes.size === 0 ? "No nodes to show." : "No node matches the search and the filter.";
  }

  urgency(members) {
    return members.some((member) => !member.rank) ? 0 : 1;
  }

  group(name) {
    const title = el("span", { class: "name" });
    const count = el("span", { class: "count" });
    const head = el("div", { class: "group-head" }, title, count);
    const cells = el("div", { class: "cells", role: "presentation" });
    return { head, title, count, cells, signature: null, root: el("div", { class: "node-group", role: "group", "aria-label": name || "all nodes" }, head, cells) };
  }

  legend(counts) {
    const chip = (name, word) => el("button", {
      type: "button", class: "chip", "data-key": name, "data-state": name, "aria-pressed": String(this.wanted.has(name)),
      onclick: () => {
        if (!this.wanted.delete(name)) this.wanted.add(name);
        this.draw();
      },
    }, el("span", { class: "mark", "aria-hidden": "true" }), `${word} `, el("b", {}, String(counts[name])));
    const shown = states.filter((name) => !flags[name] && (always.includes(name) || counts[name] || this.wanted.has(name))).map((name) => chip(name, wordOf(name, this.job, this.state.jobs)));
    const marks = Object.keys(flags).filter((name) => counts[name] || this.wanted.has(name)).map((name) => chip(name, flags[name]));
    replace($("legend"), shown, marks);
  }

  /** options lists by what the nodes can be grouped: labels with more than one node for a value. */
  options() {
    const values = new Map();
    for (const node of this.state.nodes.values()) {
      for (const [key, value] of Object.entries(node.labels ?? {})) {
        if (!values.has(key)) values.set(key, new Set());
        if (values.get(key).size <= 200) values.get(key).add(value);
      }
    }
    const has = (labels) => labels.some((label) => values.has(label));
    const labels = [...values.keys()].filter((key) => values.get(key).size <= 200).sort();
    const wanted = [["", "nothing"], ["state", "state"], ["step", "step"], ...(has(zoneLabels) ? [["zone", "zone"]] : []), ...(has(poolLabels) ? [["pool", "pool"]] : []),
      ...labels.map((label) => [`label:${label}`, label])];
    const signature = JSON.stringify(wanted);
    if (signature === this.optionsSignature) return;
    if (this.optionsSignature === undefined && this.state.nodes.size >= fewNodes && has(zoneLabels)) this.by = "zone";
    if (this.state.nodes.size) this.optionsSignature = signature;
    replace($("group"), wanted.map(([value, word]) => el("option", { value, selected: value === this.by }, word)));
  }

  /** rove makes a cell the only one that the tabulator key reaches. */
  rove(name) {
    this.cells.get(this.focused)?.setAttribute("tabindex", "-1");
    this.focused = name;
    this.cells.get(name)?.setAttribute("tabindex", "0");
  }

  key(event, open) {
    const name = this.nameAt(event);
    if (!name || event.ctrlKey || event.metaKey || event.altKey) return;
    const all = [...this.root.querySelectorAll("[role=option]")];
    const at = all.indexOf(this.cells.get(name));
    const to = {
      ArrowRight: () => all[at + 1], ArrowLeft: () => all[at - 1], Home: () => all[0], End: () => all.at(-1),
      ArrowDown: () => this.beside(all, at, 1), ArrowUp: () => this.beside(all, at, -1),
    }[event.key];
    if (to) {
      event.preventDefault();
      to()?.focus();
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      open(name);
    }
  }

  /** beside returns the cell that is nearest in the row below or above. */
  beside(all, at, direction) {
    const here = all[at].getBoundingClientRect();
    let best;
    let row;
    for (let i = at + direction; all[i]; i += direction) {
      const there = all[i].getBoundingClientRect();
      if (Math.abs(there.top - here.top) < 2) continue;
      row ??= there.top;
      if (Math.abs(there.top - row) > 2) break;
      if (!best || Math.abs(there.left - here.left) < Math.abs(best.left - here.left)) best = { left: there.left, cell: all[i] };
    }
    return best?.cell;
  }
}
