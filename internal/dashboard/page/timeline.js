// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// How many attempts have ended, and when.

import { el, svg } from "./dom.js";

const mostColumns = 60;
const fewColumns = 12; // for few attempts
const columnWidth = 36; // in pixels, at most
const height = 44;
const kinds = ["Succeeded", "Failed", "Disrupted"];
const sizes = [[1, "1 s"], [5, "5 s"], [15, "15 s"], [60, "1 min"], [300, "5 min"], [900, "15 min"], [3600, "1 h"], [21600, "6 h"], [86400, "1 day"], [604800, "1 week"]];

/** timeline draws a bar for each part of the time from the first to the last attempt. It is as wide as it needs to be. */
export function timeline(ends, now) {
  const columnsOf = (size) => Math.floor(ends.at(-1).at / size) - Math.floor(ends[0].at / size) + 1;
  const most = Math.min(Math.max(3 * ends.length, fewColumns), mostColumns);
  const [size, word] = sizes.find(([size]) => columnsOf(size) <= most) ?? sizes.at(-1);
  const first = Math.floor(ends[0].at / size) * size;
  const columns = columnsOf(size);
  const buckets = Array.from({ length: columns }, () => ({ Succeeded: 0, Failed: 0, Disrupted: 0 }));
  const totals = { Succeeded: 0, Failed: 0, Disrupted: 0 };
  for (const end of ends) {
    if (!(end.outcome in totals)) continue;
    buckets[Math.floor((end.at - first) / size)][end.outcome]++;
    totals[end.outcome]++;
  }
  const counted = (counts) => kinds.filter((kind) => counts[kind]).map((kind) => `${counts[kind]} ${kind.toLowerCase()}`).join(", ");
  const highest = Math.max(...buckets.map((bucket) => kinds.reduce((sum, kind) => sum + bucket[kind], 0)), 1);
  const drawing = svg("svg", { viewBox: `0 0 ${columns * 10} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" });
  buckets.forEach((bucket, i) => {
    if (!counted(bucket)) return;
    const column = svg("g", {}, svg("title", {}, `${clock(first + i * size, now)}: ${counted(bucket)}`));
    let top = height;
    for (const kind of kinds.filter((kind) => bucket[kind])) {
      const part = Math.max(bucket[kind] / highest * (height - 2), 2);
      top -= part;
      column.append(svg("rect", { x: i * 10 + 1, y: top, width: 8, height: part, class: `end-${kind.toLowerCase()}` }));
    }
    drawing.append(column);
  });
  const plot = el("div", { class: "plot" }, drawing,
    el("div", { class: "axis" }, el("span", {}, clock(ends[0].at, now)), columns > 1 ? el("span", {}, clock(ends.at(-1).at, now)) : null));
  plot.style.width = `${columns * columnWidth}px`;
  return el("figure", { class: "timeline" },
    el("figcaption", {}, el("b", {}, "Attempts"), ` ${counted(totals)}`, el("span", { class: "dim" }, `; each bar is ${word}, the highest has ${highest}`)), plot);
}

function clock(seconds, now) {
  const at = new Date(seconds * 1000).toISOString();
  const today = new Date(now * 1000).toISOString().slice(0, 10);
  return `${at.slice(0, 10) === today ? "" : `${at.slice(0, 10)} `}${at.slice(11, 19)} UTC`;
}
