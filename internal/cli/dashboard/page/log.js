// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// The log of a task while it grows.

import { el } from "./dom.js";
import { lines } from "./store.js";

const most = 2000;

export class Log {
  pending = [];
  count = 0;

  constructor(namespace, pod, close) {
    this.heading = el("h3", { tabindex: "-1" }, `Log of ${pod}`);
    this.end = el("p", { class: "dim", role: "status" }, "live");
    this.text = el("pre", { class: "output log", tabindex: "0", "aria-label": "Log" });
    this.root = el("section", { class: "card" }, el("div", { class: "panel-head" }, this.heading, el("button", { type: "button", class: "quiet", onclick: close }, "Close the log")), this.text, this.end);
    this.abort = new AbortController();
    lines("log", { namespace, pod }, this.abort.signal, (line) => this.add(line))
      .catch((error) => {
        if (!this.abort.signal.aborted) this.end.textContent = error.message;
      });
  }

  add({ line, end }) {
    if (end) {
      this.end.textContent = end;
      return;
    }
    this.pending.push(line);
    if (this.pending.length > most) this.pending.splice(0, this.pending.length - most);
    this.frame ??= requestAnimationFrame(() => this.flush());
  }

  flush() {
    this.frame = undefined;
    const atEnd = this.text.scrollTop + this.text.clientHeight >= this.text.scrollHeight - 4;
    this.text.append(...this.pending.map((line) => document.createTextNode(`${line}\n`)));
    this.count += this.pending.length;
    this.pending = [];
    for (; this.count > most; this.count--) this.text.firstChild.remove();
    if (atEnd) this.text.scrollTop = this.text.scrollHeight;
  }

  stop() {
    this.abort.abort();
  }
}
