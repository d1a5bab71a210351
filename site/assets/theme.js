// Before the page is shown: the colors that the reader has chosen. Without a choice, those of the system.
try { const chosen = localStorage.getItem("theme"); if (chosen) document.documentElement.dataset.theme = chosen } catch { /* storage is off */ }
