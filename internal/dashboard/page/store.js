// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// The state that the server sends, and the connection to the server.

const stored = "everynode-token";

/** takeToken takes the token out of the address, so that it is neither in the history nor in a copied address. */
export function takeToken() {
  const match = location.hash.match(/^#token=([A-Za-z0-9]+)$/);
  if (match) {
    sessionStorage.setItem(stored, match[1]);
    history.replaceState(null, "", "#/");
  }
}

const headers = () => ({ Authorization: `Bearer ${sessionStorage.getItem(stored) ?? ""}` });

/** Refused is an answer that is an error. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

const options = { credentials: "omit", cache: "no-store" };

async function accepted(response) {
  if (!response.ok) {
    const answer = await response.json().catch(() => ({}));
    throw new Refused(response.status, answer.error ?? `the server answered ${response.status}`);
  }
  return response;
}

const request = async (path, parameters, signal) =>
  accepted(await fetch(`/api/${path}?${new URLSearchParams(parameters)}`, { ...options, headers: headers(), signal }));

const patience = 45_000; // the server gives a change up after 30 s

/** post requests a change. */
export async function post(path, value) {
  const response = await fetch(`/api/${path}`, {
    ...options, method: "POST", headers: { ...headers(), "Content-Type": "application/json" }, body: JSON.stringify(value), signal: AbortSignal.timeout(patience),
  });
  return (await accepted(response)).json();
}

export const get = async (path, parameters, signal) => (await request(path, parameters, signal)).json();

const mostWork = 12; // in ms

/** lines calls each for each line of an answer that does not end, and alive after each part of it. */
export async function lines(path, parameters, signal, each, alive = () => {}) {
  const response = await request(path, parameters, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let began = performance.now();
  for (let rest = ""; ;) {
    const { done, value } = await reader.read();
    if (done) return;
    alive();
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    for (const part of parts) each(JSON.parse(part));
    if (performance.now() - began < mostWork) continue;
    await new Promise((resolve) => setTimeout(resolve)); // much that has already come must not block the page
    began = performance.now();
  }
}

/** State is what the server knows of the cluster. listen is called after changes, with the keys that changed. */
export class State {
  cluster = null;
  budgets = null;
  needs = null;
  nodes = new Map();
  jobs = new Map();
  version = 0;

  constructor(listen) {
    this.listen = listen;
  }

  apply(change) {
    const changed = new Set();
    if (change.reset) {
      this.nodes.clear();
      this.jobs.clear();
    }
    for (const [key, value] of Object.entries(change.set ?? {})) {
      changed.add(key);
      this.put(key, value);
    }
    for (const key of change.gone ?? []) {
      changed.add(key);
      this.put(key, undefined);
    }
    this.version = change.version;
    if (changed.size || change.reset) this.listen(changed, Boolean(change.reset));
  }

  put(key, value) {
    const kind = key.slice(0, key.indexOf(":"));
    const name = key.slice(kind.length + 1);
    if (key === "cluster") this.cluster = value;
    else if (key === "budgets") this.budgets = value;
    else if (key === "needs") this.needs = value;
    else if (kind === "node" || kind === "job") {
      const all = kind === "node" ? this.nodes : this.jobs;
      if (value === undefined) all.delete(name);
      else all.set(name, value);
    }
  }
}

const silence = 40_000; // the server is heard every 15 s
const longestPause = 10_000;

/**
 * connect keeps the state up to date while the page is visible. Browsers allow few connections to one server, so hidden
 * tabs have none. tell is called with the state of the connection.
 */
export function connect(state, tell) {
  let current = null;
  let pause = 500;
  let timer;
  const start = () => {
    clearTimeout(timer);
    if (current || document.hidden) return;
    const abort = new AbortController();
    current = abort;
    let watchdog;
    const alive = () => {
      clearTimeout(watchdog);
      watchdog = setTimeout(() => abort.abort(), silence);
      pause = 500;
      tell("live");
    };
    lines("stream", { since: state.version }, abort.signal, (change) => state.apply(change), alive)
      .catch((error) => error)
      .then((error) => {
        clearTimeout(watchdog);
        if (current === abort) current = null;
        if (document.hidden) return;
        if (error instanceof Refused && error.status === 401) return tell("refused", error.message);
        tell("lost", error instanceof Refused ? error.message : "");
        timer = setTimeout(start, pause);
        pause = Math.min(pause * 2, longestPause);
      });
  };
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) return start();
    current?.abort();
    current = null;
    tell("paused");
  });
  start();
}
