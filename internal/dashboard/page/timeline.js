// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// How many attempts have ended, and when.

import { el, svg } from "./dom.js";

const columns = 60;
const height = 44;
const kinds = ["Succeeded", "Failed", "Disrupted"];

export function timeline(ends, now) {
  const first = ends[0].at;
  const last = Math.max(ends.at(-1).at, first + columns);
  const buckets = Array.from({ length: columns }, () => ({ Succeeded: 0, Failed: 0, Disrupted: 0 }));
  const totals = { Succeeded: 0, Failed: 0, Disrupted: 0 };
  for (const end of ends) {
    const bucket = buckets[Math.min(columns - 1, Math.floor((end.at - first) / (last - first) * columns))];
    if (end.outcome in bucket) {
      bucket[end.outcome]++;
      totals[end.outcome]++;
    }
  }
  const most = Math.max(...buckets.map((bucket) => kinds.reduce((sum, kind) => sum + bucket[kind], 0)), 1);
  const drawing = svg("svg", { viewBox: `0 0 ${columns * 10} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" });
  buckets.forEach((bucket, i) => {
    let top = height;
    for (const kind of kinds) {
      if (!bucket[kind]) continue;
      const size = Math.max(bucket[kind] / most * (height - 2), 2);
      top -= size;
      drawing.append(svg("rect", { x: i * 10 + 1, y: top, width: 8, height: size, class: `end-${kind.toLowerCase()}` }));
    }
  });
  const said = kinds.filter((kind) => totals[kind]).map((kind) => `${totals[kind]} ${kind.toLowerCase()}`).join(", ");
  return el("figure", { class: "timeline" },
    el("figcaption", {}, el("b", {}, "Attempts"), ` ${said}`),
    drawing,
    el("div", { class: "axis" }, el("span", {}, clock(first, now)), el("span", {}, clock(last, now))));
}

function clock(seconds, now) {
  const at = new Date(seconds * 1000).toISOString();
  const today = new Date(now * 1000).toISOString().slice(0, 10);
  return `${at.slice(0, 10) === today ? "" : `${at.slice(0, 10)} `}${at.slice(11, 19)} UTC`;
}
