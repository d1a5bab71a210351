// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"math"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// finding is a command of a script, with its line.
type finding struct {
	line uint
	text string
}

// reading is what a shell script shows: whether it ends. Scripts are never changed.
type reading struct {
	// invalid says that it is not a script of a POSIX shell or Bash.
	invalid bool
	// waits are commands that wait without end, and loops that repeat their work without end.
	waits, loops []finding
	// work reports whether it does something else.
	work bool
	// last is the program of the last command, if that is not known to end.
	last string
}

// read reads a script.
func read(script string) reading {
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(script), "")
	if err != nil {
		return reading{invalid: true}
	}
	var r reading
	var loopEnd uint
	find := func(node syntax.Node) finding {
		text, _, _ := strings.Cut(script[node.Pos().Offset():node.End().Offset()], "\n")
		return finding{node.Pos().Line(), text}
	}
	syntax.Walk(file, func(node syntax.Node) bool {
		switch node := node.(type) {
		case *syntax.WhileClause, *syntax.ForClause:
			if isEndless(node) && node.Pos().Offset() >= loopEnd {
				r.loops, loopEnd = append(r.loops, find(node)), node.End().Offset()
			}
		case *syntax.CallExpr:
			words := wordsOf(node)
			if waits(words) {
				if r.last = ""; node.Pos().Offset() >= loopEnd { // otherwise the loop is named
					r.waits = append(r.waits, find(node))
				}
			} else if len(words) > 0 && !slices.Contains(idle, words[0]) {
				r.work, r.last = true, lastOf(words)
			}
		case *syntax.Redirect:
			r.work = r.work || node.Word.Lit() != "/dev/null" && node.Op != syntax.DplOut && node.Op != syntax.DplIn
		}
		return true
	})
	return r
}

// idle are commands that are no work, because they only print, wait or set up the shell.
var idle = strings.Fields("echo printf date set trap wait true : [ test exit break continue return export sleep exec $")

// wordsOf returns the words of a command, without exec. What is not literal is "$".
func wordsOf(call *syntax.CallExpr) []string {
	words := make([]string, len(call.Args))
	for i, word := range call.Args {
		words[i] = literal(word.Parts)
	}
	if len(words) > 1 && words[0] == "exec" {
		return words[1:]
	}
	return words
}

func literal(parts []syntax.WordPart) string {
	var b strings.Builder
	for _, part := range parts {
		switch part := part.(type) {
		case *syntax.Lit:
			b.WriteString(part.Value)
		case *syntax.SglQuoted:
			b.WriteString(part.Value)
		case *syntax.DblQuoted:
			b.WriteString(literal(part.Parts))
		default:
			b.WriteString("$")
		}
	}
	return b.String()
}

// waits reports whether a command waits without end: at least 10 minutes, which is the default time limit of a task.
func waits(argv []string) bool {
	if len(argv) == 0 {
		return false
	}
	switch path.Base(argv[0]) {
	case "pause":
		return len(argv) == 1
	case "tail":
		return slices.ContainsFunc(argv[1:], func(arg string) bool { return strings.HasPrefix(arg, "-") && strings.ContainsAny(arg, "fF") })
	case "sleep":
		total := 0.0
		for _, arg := range argv[1:] {
			total += seconds(arg)
		}
		return total >= 600
	}
	return false
}

// seconds returns how long a sleep takes. What is no number, such as infinity or a variable, is a wait without end.
func seconds(arg string) float64 {
	unit := 1.0
	if i := len(arg) - 1; i > 0 && strings.IndexByte("smhd", arg[i]) >= 0 {
		arg, unit = arg[:i], map[byte]float64{'s': 1, 'm': 60, 'h': 3600, 'd': 86400}[arg[i]]
	}
	value, err := strconv.ParseFloat(arg, 64)
	if err != nil {
		return math.Inf(1)
	}
	return value * unit
}

// isEndless reports whether the condition of a loop is always met. A command in its body may end it.
func isEndless(node syntax.Node) bool {
	if loop, is := node.(*syntax.ForClause); is {
		style, is := loop.Loop.(*syntax.CStyleLoop)
		return is && style.Cond == nil
	}
	loop := node.(*syntax.WhileClause)
	if len(loop.Cond) != 1 {
		return false
	}
	switch condition := loop.Cond[0].Cmd.(type) {
	case *syntax.TestClause, *syntax.ArithmCmd:
		return slices.Contains([]string{"[[1]]", "[[true]]", "((1))"}, strings.Join(strings.Fields(printed(condition)), ""))
	case *syntax.CallExpr:
		words := wordsOf(condition)
		if len(words) == 0 || loop.Until {
			return len(words) > 0 && words[0] == "false"
		}
		return slices.Contains([]string{"true", "/bin/true", ":", "sleep"}, words[0]) || slices.Contains([]string{"[ 1 ]", "[ true ]", "test 1"}, strings.Join(words, " "))
	}
	return false
}

func printed(node syntax.Node) string {
	var b strings.Builder
	_ = syntax.NewPrinter().Print(&b, node)
	return b.String()
}

// ending are programs that end by themselves, and wrappers are programs that run another one.
var (
	ending = strings.Fields(`apk apt apt-get awk basename blkid blockdev cat chattr chcon chgrp chmod chown chronyc cp crictl ctr curl cut dd depmod
		df dnf dpkg ethtool false fallocate find firewall-cmd getent grep groupadd hostname hostnamectl install ip ip6tables iptables
		iptables-legacy iptables-nft iptables-restore kill kubectl ldconfig ln ls lsblk lsmod lsof mkdir mkfs mkfs.ext4 mkfs.xfs mknod mkswap
		modprobe mount mountpoint mv nft nvidia-smi parted passwd pkill ps readlink rm rmdir rmmod rpm sed semanage service setenforce sgdisk
		sha256sum sort stat swapoff swapon sync sysctl systemctl tar tee timedatectl touch tr truncate tune2fs tuned-adm udevadm umount uname
		unlink update-ca-certificates update-ca-trust update-grub useradd usermod wget xargs yum zypper unset shift cd read local declare`)
	wrappers = strings.Fields("nsenter chroot sudo env timeout command nohup time nice ionice flock sh bash")
)

// lastOf returns the program of a command that is not known to end.
func lastOf(words []string) string {
	switch name := path.Base(words[0]); {
	case slices.Contains(ending, name):
		return ""
	case slices.Contains(wrappers, name):
		for i, word := range words[1:] {
			if slices.Contains(ending, path.Base(word)) {
				return ""
			} else if isShell(word) || word == "-c" && isShell(name) && i+2 < len(words) {
				return read(words[len(words)-1]).last
			}
		}
	}
	return words[0]
}

func isShell(program string) bool {
	return slices.Contains([]string{"sh", "bash", "dash", "ash", "ksh", "zsh"}, path.Base(program))
}

// rebootWord matches the names of programs, arguments and files that reboot or stop a machine, and rebootCommand those that are whole
// words.
var (
	rebootWord    = regexp.MustCompile(`(?i)\b(reboot|rebootmgrctl|shutdown|poweroff|halt|kexec|telinit|init\s+[06]|sysrq-trigger|runlevel6|ctrl-alt-del|power\s+(cycle|reset))\b`)
	rebootCommand = regexp.MustCompile(`(?i)(^|[\s;&|("'/-])(reboot|rebootmgrctl|shutdown|poweroff|halt|kexec|telinit|init\s+[06]|sysrq-trigger)($|[\s;&|)"'])`)
)

// reboots returns the line of a text that may reboot the node.
func reboots(text string) (line string, found bool) {
	for _, expression := range []*regexp.Regexp{rebootCommand, rebootWord} {
		for line := range strings.SplitSeq(text, "\n") {
			if line = strings.TrimSpace(line); expression.MatchString(line) && !strings.HasPrefix(line, "#") {
				return line, true
			}
		}
	}
	return "", false
}
