// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"regexp"
	"slices"
	"strings"

	"github.com/everynode/everynode/api/v1alpha1"
)

// A script that reboots its node never succeeds: the reboot ends the attempt, which is repeated.

// rebootCommand matches a command that reboots the node.
var rebootCommand = regexp.MustCompile(`^(?:\S*/)?(?:systemctl\s+(?:-\S+\s+)*reboot|reboot|shutdown\s+(?:-\S*\s+)*-r|init\s+6)(?:\s+[^|&;]*)?$`)

const requestReboot = `echo "reboot=true" >> "$EVERYNODE_RESULTS"`

// requestReboot replaces commands that reboot the node by the request for a reboot.
func (s *step) requestReboot() {
	if argv := strings.Join(s.program.argv, " "); s.program.onNode && rebootCommand.MatchString(argv) {
		s.reboots, s.program.argv, s.program.script, s.program.shell = true, nil, requestReboot+"\n", "sh"
		return
	}
	lines := logicalLines(s.program.script)
	for i, l := range lines {
		if l.raw {
			continue
		}
		var b strings.Builder
		changed := false
		for _, c := range commands(l.text) {
			prefix := leading.FindString(c.text)
			if rest := c.text[len(prefix):]; rebootCommand.MatchString(strings.TrimSpace(rest)) {
				c.text, changed = prefix+requestReboot, true
			}
			b.WriteString(c.text + c.separator)
		}
		if changed {
			s.reboots, lines[i].text = true, b.String()
		}
	}
	if s.reboots {
		s.program.script = joinLines(lines)
	}
}

// setReboot lets Everynode reboot the node.
func (d *draft) setReboot(w *workload) {
	if !slices.ContainsFunc(w.steps, func(s *step) bool { return s.reboots }) {
		return
	}
	m := d.spec.in("maintenance")
	if d.usesTemplate() {
		m.todo("reboot", "the container reboots the node, which ends the attempt, so it is repeated. Let it report the result reboot=true instead (docs/runner.md), and set reboot.policy: IfRequested.")
		return
	}
	m.in("reboot").set("policy", string(v1alpha1.RebootIfRequested), "A script must not reboot its node itself: it requests the reboot.")
}
