// Search, the switch of colors, and the menu on narrow screens. The index of the search is a file of this site.
"use strict"

const input = document.getElementById("search")
const found = document.getElementById("found")
let index

// matches returns the best pages that have all words, with the heading that has most of them.
function matches(pages, words) {
  const count = (text) => words.filter((word) => text.toLowerCase().includes(word)).length
  return pages.map((page) => {
    const title = count(page.title)
    const heading = page.headings.map((h) => ({ ...h, count: count(h.title) })).sort((a, b) => b.count - a.count)[0]
    const all = count(page.title + " " + page.text) === words.length
    const often = page.text.toLowerCase().split(words[0]).length
    return { page, heading: heading?.count ? heading : undefined, score: all ? title * 10 + (heading?.count ?? 0) * 5 + Math.log(often) : 0 }
  }).filter((match) => match.score > 0).sort((a, b) => b.score - a.score).slice(0, 8)
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
  const words = input.value.toLowerCase().split(/\s+/).filter(Boolean)
  found.hidden = words.length === 0
  if (found.hidden) return
  try {
    index ??= fetch(document.body.dataset.search).then((answer) => answer.ok ? answer.json() : Promise.reject(new Error(answer.status)))
    const pages = await index
    if (words.join() === input.value.toLowerCase().split(/\s+/).filter(Boolean).join()) show(matches(pages, words))
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
