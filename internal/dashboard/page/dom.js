// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Elements are made here only. Text becomes a text node, never markup; the policy of the page forbids the rest.

export const $ = (id) => document.getElementById(id);

/** el returns an element with attributes, listeners (functions, such as onclick) and children (elements or text). */
export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

/** svg returns an element of a drawing. */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** replace replaces the children of an element, and keeps the focus on the child with the same data-key. */
export function replace(parent, ...children) {
  const focused = parent.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  parent.replaceChildren(...children.flat(Infinity).filter(Boolean));
  if (focused !== undefined) [...parent.querySelectorAll("[data-key]")].find((child) => child.dataset.key === focused)?.focus();
}

/** command draws a command, and a button that copies it. */
export function command(text) {
  const code = el("code", { class: "command" }, text);
  const copy = async (event) => {
    const button = event.target;
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch { // without the permission, the user copies what is selected
      getSelection().selectAllChildren(code);
      button.textContent = "Selected";
    }
  };
  return el("span", { class: "copyable" }, code, el("button", { type: "button", class: "quiet copy", "data-key": `copy:${text}`, "aria-label": `Copy ${text}`, onclick: copy }, "Copy"));
}

/** remedies draws commands, and what they do. */
export const remedies = (list) => el("ul", { class: "remedies", "aria-label": "Commands that help" },
  list.map((remedy) => el("li", {}, el("span", {}, `${remedy.purpose}: `), command(remedy.command))));

/** loading says that an answer is awaited. */
export const loading = () => el("p", { class: "dim", role: "status" }, "Loading…");

const units = [[86400, "d"], [3600, "h"], [60, "m"], [1, "s"]];

/** ago returns how long ago a time in seconds was, in its largest unit. */
export function ago(seconds) {
  const passed = Math.max(Math.round(Date.now() / 1000 - seconds), 0);
  const [size, unit] = units.find(([size]) => passed >= 2 * size) ?? [1, "s"];
  return `${Math.floor(passed / size)}${unit} ago`;
}

/** rows draws what the command line prints: labels with text, and the output of tasks. */
export function rows(list) {
  const block = el("dl", { class: "rows" });
  let output = null;
  for (const row of list) {
    const spans = row.spans.map((span) => (span.tone === "command" ? command(span.text) : el("span", { class: `tone-${span.tone}` }, span.text)));
    if (row.output) {
      output ??= el("pre", { class: "output", tabindex: "0", "aria-label": "Output" });
      if (!output.isConnected && !output.parentNode) lastValue(block).append(output);
      output.append(...spans, "\n");
      continue;
    }
    output = null;
    if (row.label) block.append(el("dt", {}, row.label), el("dd", {}, line(spans)));
    else if (spans.length) lastValue(block).append(line(spans));
  }
  return block;
}

/** line draws a line. A line that is a command can be copied as a whole. */
function line(spans) {
  const command = spans.map((span) => span.textContent).join("").trim().startsWith("kubectl ");
  return el("div", { class: command ? "line command" : "line" }, spans);
}

/** lastValue returns the value to which a line without a label belongs. */
function lastValue(block) {
  if (block.lastElementChild?.tagName !== "DD") block.append(el("dt", {}, ""), el("dd", {}));
  return block.lastElementChild;
}

/** bar draws the share of each state, of matched nodes or of those of a step. Each part that is not zero is visible. */
export function bar(counts, label) {
  const shares = { done: counts.done, running: counts.running, waiting: counts.waiting, expired: counts.expired ?? 0, failed: counts.failed };
  const sum = Object.values(shares).reduce((sum, count) => sum + count, 0);
  shares.drifted = Math.max((counts.matched ?? sum) - sum, 0);
  const parts = Object.keys(shares).filter((state) => shares[state] > 0).map((state) => {
    const part = el("span", { class: `part ${state}` });
    part.style.flexGrow = shares[state] / (sum + shares.drifted);
    return part;
  });
  return el("span", { class: "bar", role: "img", "aria-label": label }, parts);
}
