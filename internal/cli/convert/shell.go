// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"cmp"
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
	line   uint
	text   string
	offset uint
}

// reading is what a shell script shows: whether it ends. Scripts are never changed.
type reading struct {
	// invalid says that it is not a script of a POSIX shell or Bash.
	invalid bool
	// waits are commands that wait without end, and loops those that may repeat their work without end.
	waits, loops []finding
	// work reports whether it does something else.
	work bool
	// unknown is the first program that may not end; "" if all end.
	unknown string
	// commands are the words of all commands, also of those in scripts of the script.
	commands [][]string
}

// read reads a script.
func read(script string) reading { return readNested(script, 0) }

func readNested(script string, depth int) reading {
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(script), "")
	if err != nil || depth > 5 {
		return reading{invalid: true}
	}
	r := &reader{script: script, depth: depth, functions: map[string]bool{}}
	syntax.Walk(file, func(node syntax.Node) bool {
		if f, is := node.(*syntax.FuncDecl); is {
			r.functions[f.Name.Value] = true
		}
		return true
	})
	syntax.Walk(file, r.visit)
	return r.reading
}

// reader reads one script. loopEnd is where the last loop ends that may repeat its work without end.
type reader struct {
	reading

	script    string
	depth     int
	functions map[string]bool
	loopEnd   uint
}

func (r *reader) visit(node syntax.Node) bool {
	switch node := node.(type) {
	case *syntax.WhileClause:
		r.loop(node, !isReadLoop(node))
	case *syntax.ForClause:
		_, asInC := node.Loop.(*syntax.CStyleLoop)
		r.loop(node, asInC)
	case *syntax.CallExpr:
		if words := wordsOf(node); len(words) > 0 {
			r.call(words, r.find(node))
		}
	case *syntax.Redirect:
		r.work = r.work || node.Word.Lit() != "/dev/null" && node.Op != syntax.DplOut && node.Op != syntax.DplIn
	}
	return true
}

func (r *reader) find(node syntax.Node) finding {
	text, _, _ := strings.Cut(r.script[node.Pos().Offset():node.End().Offset()], "\n")
	return finding{node.Pos().Line(), text, node.Pos().Offset()}
}

func (r *reader) loop(node syntax.Node, isEndless bool) {
	if isEndless && node.Pos().Offset() >= r.loopEnd {
		r.loops, r.loopEnd = append(r.loops, r.find(node)), node.End().Offset()
	}
}

// call reads one command.
func (r *reader) call(words []string, at finding) {
	r.commands = append(r.commands, words)
	inner := unwrapped(words)
	switch name := path.Base(inner[0]); {
	case waits(inner):
		if at.offset >= r.loopEnd { // otherwise the loop is named
			r.waits = append(r.waits, at)
		}
	case isShell(name) && slices.IndexFunc(inner, isCommandFlag) > 0:
		r.nested(inner, at)
	case slices.Contains(idle, name):
		r.work = r.work || name == "trap" && !slices.Contains(harmless, inner[min(1, len(inner)-1)])
	default:
		r.work = true
		if !r.functions[name] && !ends(inner) {
			r.unknown = cmp.Or(r.unknown, programOf(inner))
		}
	}
}

// nested reads a script in a command of the script.
func (r *reader) nested(words []string, at finding) {
	inner := readNested(words[len(words)-1], r.depth+1)
	if inner.invalid {
		inner.unknown = words[0]
	}
	if len(inner.waits) > 0 {
		r.waits = append(r.waits, at)
	}
	if len(inner.loops) > 0 {
		r.loops = append(r.loops, at)
	}
	r.commands, r.work, r.unknown = append(r.commands, inner.commands...), true, cmp.Or(r.unknown, inner.unknown)
}

// programOf names the program of a command.
func programOf(words []string) string {
	if strings.Contains(words[0], "$") {
		return "what a variable names"
	}
	return words[0]
}

// isReadLoop reports whether a loop ends with its input.
func isReadLoop(loop *syntax.WhileClause) bool {
	if len(loop.Cond) != 1 || loop.Until {
		return false
	}
	call, is := loop.Cond[0].Cmd.(*syntax.CallExpr)
	return is && len(call.Args) > 0 && call.Args[0].Lit() == "read"
}

// idle are commands that are no work, because they only print, wait or set up the shell.
var idle = strings.Fields("echo printf date set trap wait true : [ test exit break continue return export sleep exec")

// harmless are arguments of trap that do no work.
var harmless = []string{"", "exit", "exit 0", "-", "trap"}

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
	case "kill":
		return slices.Contains(argv, "-STOP") || slices.Contains(argv, "-SIGSTOP")
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

// ending are programs that end by themselves, and wrappers are programs that run another one, with the options that have a value.
var (
	ending = strings.Fields(`apk apt apt-get awk basename blkid blockdev cat chattr chcon chgrp chmod chown chronyc cp curl cut dd depmod df dirname
		dnf dpkg ethtool false fallocate find firewall-cmd getent grep groupadd head hostname hostnamectl id install ip ip6tables iptables
		iptables-legacy iptables-nft iptables-restore kill kubectl ldconfig ln ls lsblk lsmod lsof mkdir mkfs mkfs.ext4 mkfs.xfs mknod mkswap
		modprobe mount mountpoint mv nft parted passwd pkill ps pwd read readlink rm rmdir rmmod rpm sed semanage seq service setenforce sgdisk
		sha256sum sort stat swapoff swapon sync sysctl systemctl tar tee timedatectl touch tr truncate tune2fs tuned-adm udevadm umount uname
		uniq unlink update-ca-certificates update-ca-trust update-grub useradd usermod wc wget xargs yum zypper unset shift cd local declare
		reboot shutdown poweroff halt rebootmgrctl`)
	wrappers = map[string]string{"nsenter": "t S G r w", "chroot": "", "sudo": "u g", "env": "u", "timeout": "k s", "command": "", "nohup": "", "time": "", "nice": "n", "ionice": "c n"}
	// lasting are arguments with which a program may not end.
	lasting = strings.Fields("monitor watch --watch --watch=true proxy port-forward attach logs dmon pmon daemon serve server -STOP -SIGSTOP --follow")
)

// ends reports whether a program surely ends.
func ends(words []string) bool {
	if path.Base(words[0]) == "kubectl" && slices.Contains(words, "-w") {
		return false
	}
	return slices.Contains(ending, path.Base(words[0])) && !slices.ContainsFunc(words[1:], func(word string) bool { return slices.Contains(lasting, word) })
}

// unwrapped returns the command that wrappers such as nsenter run.
func unwrapped(words []string) []string {
	for {
		name := path.Base(words[0])
		valued, is := wrappers[name]
		if !is {
			return words
		}
		rest := withoutOptions(words[1:], valued, name == "env")
		if (name == "chroot" || name == "timeout") && len(rest) > 0 {
			rest = rest[1:]
		}
		if len(rest) == 0 {
			return words
		}
		words = rest
	}
}

// withoutOptions removes the options of a wrapper. valued are the letters of those that have a value in the next word.
func withoutOptions(words []string, valued string, variables bool) []string {
	for len(words) > 0 && (strings.HasPrefix(words[0], "-") || variables && strings.Contains(words[0], "=")) {
		option := words[0]
		words = words[1:]
		if option == "--" {
			break
		}
		if len(option) == 2 && strings.Contains(valued, option[1:]) && len(words) > 0 {
			words = words[1:]
		}
	}
	return words
}

func isShell(program string) bool {
	return slices.Contains([]string{"sh", "bash", "dash", "ash", "ksh", "zsh"}, path.Base(program))
}

// rebootWord matches the names of programs, arguments and files that reboot or stop a machine.
var rebootWord = regexp.MustCompile(`(?i)(^|[^\w@])(reboot|rebootmgrctl|shutdown|poweroff|halt|kexec|telinit|init\s+[06]|sysrq-trigger|runlevel6|ctrl-alt-del|power\s+(cycle|reset|off)|` +
	`restart-computer|stop-computer|rpm-ostree\s.*\s-r|bootc\s.*--apply|kill\s+(-s\s+)?-?\S+\s+1)($|[^\w-])`)

// reboots returns the line of a text that may reboot the node.
func reboots(text string) (line string, found bool) {
	for line := range strings.SplitSeq(text, "\n") {
		if line = strings.TrimSpace(line); rebootWord.MatchString(line) && !strings.HasPrefix(line, "#") {
			return line, true
		}
	}
	return "", false
}
