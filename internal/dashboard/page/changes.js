// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// What a user can change: buttons with a confirmation, or only the commands if the server makes no changes.

import { $, command, el, replace } from "./dom.js";
import { post, Refused } from "./store.js";

const unknown = "kubectl everynode dashboard does not respond, so it is not known whether the change was made. Check before you try again.";

export class Changes {
  opened = new Set();
  pending = false;

  /** done is called after a change. */
  constructor(state, done) {
    this.state = state;
    this.done = done;
    this.dialog = $("change");
    this.dialog.addEventListener("keydown", (event) => this.key(event));
    this.dialog.addEventListener("cancel", (event) => this.pending && event.preventDefault());
    this.dialog.addEventListener("close", () => this.closed());
  }

  /** controls returns what to show for what is possible, without commands that are shown already; null if nothing is left. */
  controls(offers, about, shown = []) {
    if (!this.state.cluster?.changes) offers = offers.filter((offer) => !shown.includes(offer.command));
    if (!offers.length) return null;
    if (this.state.cluster?.changes) {
      return el("div", { class: "changes", role: "group", "aria-label": "Changes" },
        offers.map((offer) => el("button", { type: "button", class: "quiet", "data-key": `change:${offer.command}`, onclick: () => this.ask(offer) }, offer.label)));
    }
    const toggled = (event) => this.opened[event.target.open ? "add" : "delete"](about);
    return el("details", { class: "commands", open: this.opened.has(about), ontoggle: toggled }, el("summary", { "data-key": `commands:${about}` }, shown.length ? "More commands" : "Commands"),
      el("dl", { class: "rows" }, offers.map((offer) => [el("dt", {}, offer.label), el("dd", {}, command(offer.command))])));
  }

  /** ask shows what a change does. */
  ask(offer) {
    this.offer = offer;
    this.confirm = el("button", { type: "button", class: "primary", onclick: () => this.make() }, offer.label);
    this.cancel = el("button", { type: "button", class: "quiet", autofocus: true, onclick: () => this.dialog.close() }, "Cancel");
    const fact = (name, ...value) => [el("dt", {}, name), el("dd", {}, value)];
    this.result = el("div", { class: "result" });
    replace(this.dialog,
      el("h2", { id: "change-title" }, `${offer.label}?`),
      el("dl", { class: "rows", id: "change-facts" },
        fact("NodeJob", `${offer.namespace}/${offer.name}`), offer.node ? fact("Node", offer.node) : null,
        this.state.cluster?.context ? fact("Cluster", this.state.cluster.context) : null,
        fact("Effect", offer.effect), fact("Command", el("span", { class: "command" }, offer.command))),
      this.result, el("div", { class: "buttons" }, this.cancel, this.confirm));
    this.dialog.showModal();
    this.cancel.focus();
  }

  /** make makes the change that was confirmed, once. */
  async make() {
    if (this.pending) return;
    const { verb, namespace, name, uid, node, nodeUID, to } = this.offer;
    this.pending = true;
    this.confirm.disabled = this.cancel.disabled = true;
    replace(this.result, el("p", { role: "status" }, "Sent …"));
    try {
      const { messages } = await post("change", { verb, namespace, name, uid, node, nodeUID, to });
      this.show("status", "good", "Done. ", messages);
    } catch (error) {
      this.show("alert", "bad", "Not done. ", error instanceof Refused ? error.message.split("\n") : [unknown]);
    }
    this.pending = false;
    this.confirm.remove();
    this.cancel.textContent = "Close";
    this.cancel.disabled = false;
    this.cancel.focus();
    this.done();
  }

  show(role, tone, head, said) {
    replace(this.result, el("div", { role }, said.map((line, i) => el("p", {}, i ? null : el("b", { class: `tone-${tone}` }, head), line))));
  }

  /** closed returns the focus to where it was, or to the heading of what was changed if the button is gone. */
  closed() {
    const key = `change:${this.offer.command}`;
    const button = [...document.querySelectorAll("[data-key]")].find((child) => child.dataset.key === key);
    (button ?? $(this.offer.node ? "node-name" : "job-name"))?.focus();
  }

  /** key keeps the focus in the dialog, and closes it unless a change is being made. */
  key(event) {
    if (event.key === "Escape") {
      event.preventDefault();
      event.stopPropagation();
      if (!this.pending) this.dialog.close();
    } else if (event.key === "Tab") {
      const buttons = [...this.dialog.querySelectorAll("button:enabled")];
      const at = buttons.indexOf(document.activeElement);
      event.preventDefault();
      buttons.at((at + (event.shiftKey ? -1 : 1)) % buttons.length)?.focus();
    }
  }
}
