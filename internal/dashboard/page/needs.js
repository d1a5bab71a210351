// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// What needs a user, at the top of the first page.

import { $, ago, command, el, replace } from "./dom.js";
import { path } from "./jobs.js";

const count = (n, noun) => (n ? [`${n} ${noun}${n === 1 ? "" : "s"}`] : []);

/** drawNeeds lists what needs a user and is found by the search, or says that nothing does. */
export function drawNeeds(state, shown, text) {
  const { needs } = state;
  const list = (needs?.list ?? []).filter((need) => Object.values(need).join(" ").toLowerCase().includes(text) || `${need.namespace}/${need.name}`.includes(text));
  $("needs").hidden = !shown || !needs || (text !== "" && !list.length);
  if ($("needs").hidden) return;
  const ages = list.map((need) => (need.since ? ago(need.since) : ""));
  const said = JSON.stringify([needs, list, ages, state.cluster?.notes]);
  if (said === drawNeeds.said) return; // what a user has selected stays selected
  drawNeeds.said = said;
  const total = needs.jobs + needs.budgets;
  if (!total) return replace($("needs"), el("p", { class: "calm" }, calm(state)));
  const what = [...count(needs.jobs, "NodeJob"), ...count(needs.budgets, "NodeDisruptionBudget")].join(" and ");
  replace($("needs"), el("h2", {}, `${what} ${total === 1 ? "needs" : "need"} you`),
    el("ul", { class: "needs" }, list.map((need, i) => item(need, ages[i]))),
    total > needs.list.length ? el("p", { class: "dim" }, `${total - needs.list.length} more: kubectl everynode list -A`) : null);
}

/** calm says no more than what the user may read. */
const calm = (state) => (state.cluster?.notes.length ? "Nothing of what can be shown needs you." : "Nothing needs you: no NodeJob is stalled or paused, and no node has failed, drifted, or is not compliant.");

function item(need, age) {
  const job = `#/job/${path(need.namespace ?? "", need.name)}`;
  const node = need.node ? [el("a", { href: `${job}/node/${path(need.node)}`, "data-key": `need:${need.namespace}/${need.name}/${need.node}` }, need.node), need.more ? ` and ${need.more} more` : ""] : [];
  const name = need.namespace ? [el("span", { class: "namespace" }, `${need.namespace}/`), need.name] : ["NodeDisruptionBudget ", need.name];
  const [remedy] = need.remedies;
  return el("li", { class: `need tone-${need.tone}-line` },
    el("p", { class: "need-head" },
      el("a", { class: "need-name", href: need.namespace ? job : "#/budgets", "data-key": `need:${need.namespace}/${need.name}` }, name),
      el("span", { class: `headline tone-${need.tone}` }, need.headline), el("span", {}, node), el("span", { class: "reason" }, need.reason),
      age ? el("time", { datetime: new Date(need.since * 1000).toISOString(), title: new Date(need.since * 1000).toISOString(), class: "dim" }, age) : null),
    el("p", { class: "cause" }, need.cause),
    el("p", { class: "remedy" }, el("span", { class: "dim" }, `${remedy.purpose}: `), command(remedy.command)));
}
