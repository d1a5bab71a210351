// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

import { BudgetsView } from "./budgets.js";
import { Changes } from "./changes.js";
import { $, el, replace } from "./dom.js";
import { Grid } from "./grid.js";
import { drawJobs, JobView, path } from "./jobs.js";
import { drawNeeds } from "./needs.js";
import { NodeView } from "./node.js";
import { connect, State, takeToken } from "./store.js";
import { theme } from "./theme.js";

const refreshInterval = 5000; // ages and times change without an event
const leastRefresh = 800;
const restFactor = 9;

let job = "";
let node = "";
let budgets = false;

takeToken();
theme();
const state = new State(changed);
const grid = new Grid(state, (name) => { location.hash = hash(job, name); });
const changes = new Changes(state, refresh);
const jobView = new JobView(state, changes);
const nodeView = new NodeView(state, changes, closeNode);
const budgetsView = new BudgetsView();

function hash(job, node) {
  return `#/${job ? `job/${path(...job.split("/"))}` : ""}${job && node ? "/" : ""}${node ? `node/${path(node)}` : ""}`;
}

/** route shows what the address names: #/, #/budgets, #/job/NAMESPACE/NAME, #/node/NAME, or the last two. */
function route() {
  const names = location.hash.split("/").slice(1).map(decoded);
  job = names[0] === "job" && names[2] ? `${names[1]}/${names[2]}` : "";
  budgets = names[0] === "budgets";
  const rest = job ? names.slice(3) : names;
  node = rest[0] === "node" ? rest[1] ?? "" : "";
  $("title").textContent = job ? "Nodes of this NodeJob" : "Nodes";
  $("fleet").hidden = $("skip").hidden = budgets;
  budgetsView.show(budgets);
  jobView.show(job);
  grid.show(job);
  grid.select(node);
  nodeView.show(node, job);
  drawLists();
}

/** drawLists draws what the address and the search select, other than nodes. */
function drawLists() {
  document.title = title();
  drawJobs(state, budgets ? "budgets" : job, grid.text);
  drawNeeds(state, !budgets && !job, grid.text);
}

function decoded(name) {
  try {
    return decodeURIComponent(name);
  } catch {
    return "";
  }
}

function closeNode() {
  const last = node;
  location.hash = hash(job, "");
  route();
  grid.focus(last);
}

let refreshing = false;
let stale = false;
/** refresh reads again what is open. The server computes that, so it rests for nine times as long as the answer took. */
async function refresh() {
  stale = true;
  if (refreshing) return;
  refreshing = true;
  while (stale) {
    stale = false;
    const began = performance.now();
    await Promise.all([jobView.refresh(), budgetsView.refresh(), nodeView.refresh()]);
    const rest = Math.max(leastRefresh, restFactor * (performance.now() - began));
    await new Promise((resolve) => setTimeout(resolve, rest));
  }
  refreshing = false;
}

function changed(keys, reset) {
  $("context").textContent = state.cluster?.context ?? "";
  drawFreezes();
  drawNotes();
  grid.draw();
  drawLists();
  grid.select(node);
  if (reset) performance.mark("nodes");
  if (reset || keys.has(`job:${job}`) || keys.has("budgets") || keys.has(`node:${node}`)) refresh();
}

/** title counts the nodes that have failed or are not compliant, as the page does. */
function title() {
  const counts = [[grid.failed, "failed"], [grid.nonCompliant, "not compliant"]].filter(([count]) => count).map(([count, word]) => `${count} ${word}`);
  return `${counts.length ? `(${counts.join(", ")}) ` : ""}Everynode${state.cluster?.context ? `: ${state.cluster.context}` : ""}`;
}

function drawFreezes() {
  const freezes = state.cluster?.freezes ?? [];
  const said = JSON.stringify(freezes);
  if (said === drawFreezes.said) return;
  drawFreezes.said = said;
  $("freezes").hidden = !freezes.length;
  replace($("freezes"), freezes.map((sentence) => el("p", { class: "freeze" }, el("a", { href: "#/budgets" }, sentence))));
}

function drawNotes() {
  const notes = state.cluster?.notes ?? [];
  const said = JSON.stringify(notes);
  if (said === drawNotes.said) return;
  drawNotes.said = said;
  replace($("notes"), notes.map((note) => el("p", { class: "note", role: "status" }, el("b", {}, `Not all ${note.what} can be shown. `), note.why)));
}

const connections = { live: "live", lost: "connection lost, retrying", paused: "paused", refused: "not allowed" };
function tell(how, why) {
  const at = $("connection");
  if (at.dataset.how === how && at.title === (why ?? "")) return;
  at.dataset.how = how;
  at.title = why ?? "";
  at.textContent = connections[how] + (how === "lost" && why ? `: ${why}` : "");
  if (how === "refused") replace($("notes"), el("p", { class: "note bad", role: "alert" }, el("b", {}, "This page cannot read the cluster. "), why));
}

document.addEventListener("keydown", (event) => {
  if ($("change").open) return;
  const typing = event.target.matches("input, select, textarea");
  if (event.key === "/" && !typing) {
    event.preventDefault();
    $("search").focus();
  } else if (event.key === "Escape" && node && !typing) {
    closeNode();
  } else if (event.key === "Escape" && event.target === $("search")) {
    $("search").value = "";
    $("search").dispatchEvent(new Event("input"));
  }
});
$("skip").addEventListener("click", (event) => {
  event.preventDefault();
  grid.focus(grid.focused);
});
addEventListener("hashchange", () => {
  takeToken();
  route();
});
$("search").addEventListener("input", drawLists);
setInterval(() => {
  if (document.hidden) return;
  drawNeeds(state, !budgets && !job, grid.text);
  refresh();
}, refreshInterval);
route();
connect(state, tell);
