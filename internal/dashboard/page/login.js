// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// The form with which a user logs in to a dashboard in the cluster.

import { $, el, replace } from "./dom.js";
import { post } from "./store.js";

export class Login {
  constructor() {
    this.dialog = $("login");
    this.dialog.addEventListener("cancel", (event) => event.preventDefault());
    this.dialog.addEventListener("keydown", (event) => event.key === "Escape" && event.preventDefault());
    $("log-out").addEventListener("click", () => this.leave());
  }

  /** show asks for a token. why is why that is necessary. */
  show(why) {
    if (this.dialog.open) return;
    const field = (name, label, attributes) => {
      const input = el("input", { id: `login-${name}`, name, autocomplete: "off", spellcheck: "false", ...attributes });
      return [input, el("label", { class: "field" }, el("span", {}, label), input)];
    };
    const [token, tokenField] = field("token", "Token", { type: "password", required: true });
    const [namespace, namespaceField] = field("namespace", "Namespace, if you may not read all", { type: "text" });
    this.token = token;
    this.namespace = namespace;
    this.button = el("button", { type: "submit", class: "primary" }, "Log in");
    this.result = el("div", { class: "result" });
    replace(this.dialog,
      el("h2", { id: "login-title" }, "Log in"),
      el("p", { id: "login-about" }, "The page shows what your token may read, and changes nothing. For a token of a service account: ",
        el("code", {}, "kubectl create token NAME -n NAMESPACE")),
      el("form", { onsubmit: (event) => this.send(event) }, tokenField, namespaceField, this.result, el("div", { class: "buttons" }, this.button)));
    this.say("status", why);
    this.dialog.showModal();
    token.focus();
  }

  say(role, text) {
    replace(this.result, el("p", { role }, text));
  }

  async send(event) {
    event.preventDefault();
    this.button.disabled = true;
    try {
      await post("login", { token: this.token.value.trim(), namespace: this.namespace.value.trim() });
      location.reload(); // nothing of an earlier session is left
    } catch (error) {
      this.button.disabled = false;
      this.say("alert", error.message);
      this.token.focus();
    }
  }

  async leave() {
    try {
      await post("logout", {});
    } finally {
      location.reload();
    }
  }
}
