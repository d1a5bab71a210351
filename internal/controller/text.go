package controller

import (
	"strings"

	"github.com/everynode/everynode/internal/outcome"
)

// cleanHead makes somebody else's text fit to be shown, and keeps its beginning: messages of the API
// server and of a kubelet say first what is wrong, and then where. outcome.Clean keeps the end, which
// is right for what a task prints.
func cleanHead(s string, n int) string {
	// An escape takes at most four times the room of what it stands for.
	return head(outcome.Clean(head(s, n), 4*n), n)
}

// head keeps the beginning of a text.
func head(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n-3], "") + "..."
}
