// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// The log of a task while it grows.

import { el } from "./dom.js";
import { lines, Refused } from "./store.js";

// The end of the log that is kept. Lines are drawn at most ten times a second, so that much output does not freeze the page.
const mostLines = 5000;
const mostCharacters = 1 << 20;
const drawInterval = 100;

export class Log {
  constructor(namespace, pod, close) {
    this.parameters = { namespace, pod };
    this.heading = el("h3", { tabindex: "-1" }, `Log of ${pod}`);
    this.end = el("p", { class: "dim", role: "status" });
    this.cut = el("p", { class: "dim" });
    this.cut.hidden = true;
    this.text = el("pre", { class: "output log", tabindex: "0", "aria-label": "Log" });
    this.root = el("section", { class: "card" }, el("div", { class: "panel-head" }, this.heading, el("button", { type: "button", class: "quiet", onclick: close }, "Close the log")), this.cut, this.text, this.end);
    this.visibility = () => (document.hidden ? this.pause() : this.resume());
    document.addEventListener("visibilitychange", this.visibility);
    this.start();
  }

  /** start reads the end of the log, and then what follows. */
  start() {
    clearTimeout(this.timer);
    this.timer = undefined;
    this.rest = drawInterval;
    this.pending = []; // lines that are not drawn yet, and their characters
    this.waiting = 0;
    this.shown = 0;
    this.dropped = 0;
    this.text.replaceChildren();
    this.cut.hidden = true;
    this.paused = false;
    this.end.textContent = "live";
    const abort = new AbortController();
    this.abort = abort;
    lines("log", this.parameters, abort.signal, (line) => this.add(line))
      .catch((error) => {
        if (abort.signal.aborted) return;
        this.end.textContent = error instanceof Refused ? error.message : "The connection broke off. Close the log, and open it again.";
      });
  }

  add({ line, end }) {
    if (end) {
      this.ended = true;
      this.end.textContent = end;
      return;
    }
    this.pending.push(`${line}\n`);
    this.waiting += line.length + 1;
    if (this.pending.length > 2 * mostLines || this.waiting > 2 * mostCharacters) this.trim();
    this.timer ??= setTimeout(() => this.flush(), this.rest);
  }

  /** trim drops the oldest of the lines that are not drawn yet. */
  trim() {
    let first = 0;
    for (; first < this.pending.length - 1 && (this.pending.length - first > mostLines || this.waiting > mostCharacters); first++) this.waiting -= this.pending[first].length;
    this.pending.splice(0, first);
    this.dropped += first;
  }

  /** flush draws the lines that have come, and then rests for four times as long as that took. */
  flush() {
    const began = performance.now();
    this.timer = undefined;
    this.trim();
    const atEnd = this.text.scrollTop + this.text.clientHeight >= this.text.scrollHeight - 4;
    const nodes = this.text.childNodes;
    for (; nodes.length && (nodes.length + this.pending.length > mostLines || this.shown + this.waiting > mostCharacters); this.dropped++) {
      this.shown -= this.text.firstChild.length;
      this.text.firstChild.remove();
    }
    this.text.append(...this.pending.map((line) => document.createTextNode(line)));
    this.shown += this.waiting;
    this.pending = [];
    this.waiting = 0;
    this.cut.hidden = !this.dropped;
    if (this.dropped) this.cut.textContent = `The page keeps the last ${mostLines.toLocaleString("en")} lines, up to 1 MiB. ${this.dropped.toLocaleString("en")} earlier lines are not shown any more.`;
    if (atEnd) this.text.scrollTop = this.text.scrollHeight;
    this.rest = Math.max(drawInterval, 4 * (performance.now() - began));
  }

  /** pause gives the connection back: a browser allows only a few to one server, for all tabs together. */
  pause() {
    if (this.ended) return;
    this.paused = true;
    this.abort.abort();
    this.end.textContent = "paused while the tab is hidden";
  }

  resume() {
    if (this.paused) this.start();
  }

  stop() {
    document.removeEventListener("visibilitychange", this.visibility);
    clearTimeout(this.timer);
    this.abort.abort();
  }
}
