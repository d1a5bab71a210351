// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/everynode/everynode/local/cluster"
	"github.com/everynode/everynode/test/install"
)

// recorded are the commands of the recording, in their order.
var recorded = []string{
	"kubectl apply -k config/samples",
	"kubectl wait nodejobs --all -n " + jobsNamespace + " --for=condition=Complete --timeout=3m",
	"kubectl get nodejobs -n " + jobsNamespace,
	"kubectl everynode explain max-map-count node-4 -n " + jobsNamespace,
	"kubectl everynode run --all --yes --rm --fold -n " + jobsNamespace + " -- sysctl vm.max_map_count",
}

// record runs commands on the demo's cluster and writes what they print to an SVG file.
func record(ctx context.Context, file string) error {
	c, err := running()
	if err != nil {
		return err
	}
	if c == nil {
		return errors.New("there is no demo cluster: run `make demo` first")
	}
	root, err := install.Root()
	if err != nil {
		return err
	}
	var r recording
	for _, command := range recorded {
		r.prompt(command)
		began := time.Now()
		out, err := output(ctx, c, root, command)
		if err != nil {
			return fmt.Errorf("%s: %w\n%s", command, err, out)
		}
		r.print(out, time.Since(began))
	}
	if err := os.WriteFile(file, r.svg(), 0o644); err != nil {
		return err
	}
	fmt.Printf("wrote %s: %d lines, %.0f s\n", file, len(r.lines), r.at.Seconds())
	return nil
}

// output is what a command prints on stdout and stderr, without colors.
func output(ctx context.Context, c *cluster.Cluster, root, command string) (string, error) {
	args := strings.Fields(command)
	cmd := exec.CommandContext(ctx, c.Kubectl(), args[1:]...)
	cmd.Dir = root
	cmd.Env = append(c.Environ(filepath.Join(root, "bin")), "NO_COLOR=1")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// recording is what appears on a terminal, and when.
type recording struct {
	lines []recordedLine
	at    time.Duration
}

type recordedLine struct {
	text   string
	prompt bool
	at     time.Duration
}

const (
	// pause is the time to read an output, typing the time to type a character.
	pause, typing = 1500 * time.Millisecond, 25 * time.Millisecond
	// longest bounds the time in which a command runs in the recording.
	longest = 2 * time.Second
	// columns is the width of the terminal. Longer lines are wrapped.
	columns = 110
)

// prompt types a command.
func (r *recording) prompt(command string) {
	if len(r.lines) > 0 {
		r.at += pause
		r.lines = append(r.lines, recordedLine{at: r.at})
	}
	r.lines = append(r.lines, recordedLine{text: "$ " + command, prompt: true, at: r.at})
	r.at += typing * time.Duration(len(command))
}

// print shows the output of a command that took this long.
func (r *recording) print(out string, took time.Duration) {
	r.at += min(took, longest)
	for line := range strings.Lines(out) {
		for _, part := range wrap(strings.TrimRight(line, " \r\n")) {
			r.lines = append(r.lines, recordedLine{text: part, at: r.at})
		}
	}
}

// wrap cuts a line into parts of at most columns characters, as a terminal does.
func wrap(line string) []string {
	runes := []rune(line)
	var parts []string
	for len(runes) > columns {
		parts, runes = append(parts, string(runes[:columns])), runes[columns:]
	}
	return append(parts, string(runes))
}

// svg draws the terminal. All lines are there from the beginning, and each gets bright when it was printed. A viewer that does not animate
// shows all of them bright.
func (r *recording) svg() []byte {
	const charWidth, lineHeight, margin = 7.8, 18, 16
	var b bytes.Buffer
	width, height := int(columns*charWidth)+2*margin, len(r.lines)*lineHeight+2*margin
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%[2]d" role="img" aria-label="A terminal recording of Everynode">
<style>
text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #d0d7de; white-space: pre; animation: show 0s both }
.p { fill: #7ee787 }
@keyframes show { from { opacity: .3 } to { opacity: 1 } }
</style>
<rect width="100%%" height="100%%" rx="8" fill="#0d1117"/>
`, width, height)
	for i, line := range r.lines {
		if line.text == "" {
			continue
		}
		class := ""
		if line.prompt {
			class = ` class="p"`
		}
		fmt.Fprintf(&b, `<text%s x="%d" y="%d" style="animation-delay:%.1fs">%s</text>`+"\n",
			class, margin, margin+(i+1)*lineHeight-5, line.at.Seconds(), xmlText.Replace(line.text))
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

var xmlText = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")
