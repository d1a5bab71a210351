// Search, the switch of colors, and the menu on narrow screens. The index of the search is a file of this site.
"use strict"

const input = document.getElementById("search")
const found = document.getElementById("found")
let index

// common are words that say nothing about a page.
const common = new Set(["a", "all", "an", "and", "how", "i", "in", "is", "my", "not", "of", "on", "or", "the", "to", "what", "why", "with"])

// otherNames are other names of what the pages write.
const otherNames = { adhoc: "ad hoc", leftovers: "uninstall", motd: "file", outlier: "--fold", pdb: "poddisruptionbudget", quickstart: "try" }

// wordsOf returns the words of an input that say something, or all of them if none does.
function wordsOf(text) {
  const all = text.toLowerCase().split(/\s+/).filter(Boolean).map((word) => otherNames[word] ?? word)
  const telling = all.filter((word) => !common.has(word))
  return telling.length > 0 ? telling : all
}

// matches returns the best pages that have all words, or if none has, those with most of them, and the heading that has most.
function matches(pages, words) {
  const begins = words.map((word) => new RegExp((/^\w/.test(word) ? "\\b" : "") + word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "i"))
  const count = (text) => begins.filter((begin) => begin.test(text)).length
  return pages.map((page) => {
    const title = count(page.title)
    const heading = page.headings.map((h) => ({ ...h, count: count(h.title) })).sort((a, b) => b.count - a.count)[0]
    const there = count(page.title + " " + page.text)
    const often = page.text.toLowerCase().split(words[0]).length
    return { page, there, heading: heading?.count ? heading : undefined, score: title * 10 + (heading?.count ?? 0) * 5 + Math.log(often) }
  }).filter((match) => match.there > 0).sort((a, b) => b.there - a.there || b.score - a.score).slice(0, 8)
}

function show(list) {
  found.replaceChildren(...list.map(({ page, heading }) => {
    const link = document.createElement("a")
    link.href = page.url + (heading ? "#" + heading.id : "")
    const title = document.createElement("strong")
    title.textContent = page.title + (heading ? " › " + heading.title : "")
    const text = document.createElement("span")
    text.textContent = page.description
    link.append(title, text)
    return link
  }))
  if (list.length === 0) found.textContent = "No page matches."
  found.hidden = false
}

async function search() {
  const words = wordsOf(input.value)
  found.hidden = words.length === 0
  if (found.hidden) return
  try {
    index ??= fetch(document.body.dataset.search).then((answer) => answer.ok ? answer.json() : Promise.reject(new Error(answer.status)))
    const pages = await index
    if (words.join() === wordsOf(input.value).join()) show(matches(pages, words))
  } catch (error) {
    index = undefined
    found.textContent = "The index of the search cannot be read (" + error.message + "). Type again to retry."
  }
}

input.addEventListener("input", search)
addEventListener("keydown", (event) => {
  if (event.key === "Escape") { found.hidden = true }
  if (event.key === "/" && !/^(INPUT|TEXTAREA)$/.test(document.activeElement.tagName)) { event.preventDefault(); input.focus() }
})
addEventListener("click", (event) => { if (!event.target.closest(".search")) found.hidden = true })

document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches
  root.dataset.theme = dark ? "light" : "dark"
  try { localStorage.setItem("theme", root.dataset.theme) } catch { /* storage is off: the choice is for this page */ }
})

for (const link of document.querySelectorAll("nav a")) if (link.pathname === location.pathname) link.setAttribute("aria-current", "page")
if (matchMedia("(max-width: 900px)").matches) document.querySelector("nav details").open = false
