// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

import { $, el, replace } from "./dom.js";

const stored = "everynode-theme";
const themes = ["auto", "light", "dark"];

/** theme makes the button that changes colors. Without a choice, the page has those of the system. */
export function theme() {
  const button = $("theme");
  const show = (name) => {
    document.documentElement.dataset.theme = name;
    replace(button, el("span", { class: "word" }, "Theme: "), name);
  };
  show(themes.includes(localStorage.getItem(stored)) ? localStorage.getItem(stored) : "auto");
  button.addEventListener("click", () => {
    const next = themes[(themes.indexOf(document.documentElement.dataset.theme) + 1) % themes.length];
    localStorage.setItem(stored, next);
    show(next);
  });
}
