// Search, the switch of colors, and the menu on narrow screens. The index of the search is a file of this site.
"use strict"

const input = document.getElementById("search")
const found = document.getElementById("found")
let index

// common are words that say nothing about a page.
const common = new Set(["a", "all", "an", "and", "how", "i", "in", "is", "my", "not", "of", "on", "or", "the", "to", "what", "why", "with"])

// otherNames are other names of what the pages write.
const otherNames = { adhoc: "ad hoc", christmas: "exceptdates", compliance: "audit", leftovers: "uninstall", motd: "file", outlier: "--fold", pdb: "poddisruptionbudget", quickstart: "try" }

// wordsOf returns the words of an input that say something, or all of them if none does.
function wordsOf(text) {
  const all = text.toLowerCase().split(/\s+/).filter(Boolean).map((word) => otherNames[word] ?? word)
  const telling = all.filter((word) => !common.has(word))
  return telling.length > 0 ? telling : all
}

// beginsOf returns an expression for each word, which matches where a word begins with it.
const beginsOf = (words) => words.map((word) => new RegExp((/^\w/.test(word) ? "\\b" : "") + word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "gi"))

// matches returns the best pages that have all words, or if none has, those with most of them, each with its best section. Guides are
// before references.
function matches(pages, begins) {
  const count = (text) => begins.filter((begin) => text.search(begin) >= 0).length
  return pages.map((page) => {
    const sections = page.sections.map((section) => {
      const heading = count(section.title)
      return { ...section, heading, there: count(section.title + " " + section.text) }
    })
    const section = [...sections].sort((a, b) => b.there - a.there || b.heading - a.heading)[0]
    const text = page.sections.map((section) => section.title + " " + section.text).join(" ")
    const often = [...text.matchAll(begins[0])].length
    const reference = page.url.includes("/reference/") ? 20 : 0
    return { page, section, there: count(page.title + " " + text), score: count(page.title) * 10 + section.there * 5 + section.heading * 5 + Math.log(often + 1) - reference }
  }).filter((match) => match.there > 0).sort((a, b) => b.there - a.there || b.score - a.score).slice(0, 8)
}

const excerptLength = 180

// excerpt returns the part of a text with most of the words, in pieces of which every second one is a word that was searched.
function excerpt(text, begins) {
  const at = begins.flatMap((begin, word) => [...text.matchAll(begin)].slice(0, 50).map((match) => ({ index: match.index, word })))
  const words = ({ index }) => new Set(at.filter((other) => other.index >= index && other.index < index + excerptLength - 40).map((other) => other.word)).size
  const first = at.map((match) => ({ index: match.index, words: words(match) })).sort((a, b) => b.words - a.words || a.index - b.index)[0]
  const from = first && first.index > 40 ? text.indexOf(" ", first.index - 40) + 1 : 0
  const part = text.slice(from, from + excerptLength).trim()
  const pieces = part.split(new RegExp("(" + begins.map((begin) => begin.source + "\\w*").join("|") + ")", "gi"))
  return [(from ? "… " : "") + pieces[0], ...pieces.slice(1), from + excerptLength < text.length ? " …" : ""]
}

function show(list, begins) {
  found.replaceChildren(...list.map(({ page, section }) => {
    const link = document.createElement("a")
    link.href = page.url + (section.id ? "#" + section.id : "")
    const title = document.createElement("strong")
    title.textContent = page.title + (section.id ? " › " + section.title : "")
    const text = document.createElement("span")
    text.append(...excerpt(section.text, begins).map((piece, i) => {
      if (i % 2 === 0) return piece
      const mark = document.createElement("mark")
      mark.textContent = piece
      return mark
    }))
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
    if (words.join() !== wordsOf(input.value).join()) return
    const begins = beginsOf(words)
    show(matches(pages, begins), begins)
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

for (const link of document.querySelectorAll("nav a")) if (link.pathname === location.pathname && !link.hash) link.setAttribute("aria-current", "page")
if (matchMedia("(max-width: 900px)").matches) document.querySelector("nav details").open = false
