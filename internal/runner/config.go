// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/everynode/everynode/internal/runner/contract"
	"github.com/everynode/everynode/internal/script"
)

// Defaults for the scripts.
const (
	defaultInterpreter = "/bin/sh"
	defaultPath        = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	defaultHome        = "/root"
	defaultShell       = "/bin/sh"
	defaultUser        = "root"
)

// Script is a text and its interpreter, or a command.
type Script struct {
	// Command is a program and its arguments, which are executed unchanged; nil for a text. A program without a slash
	// is looked up in the PATH on the node.
	Command []string

	Text string
	// Interpreter has at least one element. If the first one has no slash, it is looked up in the PATH on the node.
	Interpreter []string
}

// Config is one attempt.
type Config struct {
	Task Script
	// Check runs after Task succeeded; nil for none.
	Check *Script
	// CheckBefore is true if Check also runs before Task, which then runs only if the check exits with contract.CheckNo.
	CheckBefore bool
	// Timeout limits both scripts together, from the runner's start; 0 for no limit.
	Timeout time.Duration
	// Reboot is how the attempt takes part in a reboot. With RebootNow there are no scripts.
	Reboot contract.Reboot
	// BootID is the boot that RebootNow must end. In any other boot it does nothing.
	BootID string
	// NoOutput excludes the scripts' output from the outcome.
	NoOutput bool
	// Masked are the names of variables that must be masked, and Secrets their values.
	Masked, Secrets []string
	// Archive is where the whole output is stored; nil for nowhere.
	Archive *contract.Archive
	// Files are the files of the task; nil for none.
	Files *contract.Files
	// Confirm is set if the attempt waits for a confirmation after the scripts; nil if it does not.
	Confirm *Confirm
	// ManagerVersion is the version of the manager that started the runner; "" if it is unknown.
	ManagerVersion string
	// Environ is the environment of the scripts, without EnvResults.
	Environ []string
}

// ParseConfig reads the contract from an environment. All other variables are passed to the scripts.
func ParseConfig(environ []string) (Config, error) {
	own := map[string]string{}
	var c Config
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if contract.IsForRunner(name) {
			own[name] = value
			continue
		}
		c.Environ = append(c.Environ, entry)
	}
	var err error
	if err := c.parseOutput(own); err != nil {
		return c, err
	}
	c.Environ = withDefaults(c.Environ)
	c.ManagerVersion = own[contract.EnvVersion]
	if c.Files, err = parseFiles(own[contract.EnvMountedFiles]); err != nil {
		return c, err
	}
	if c.Timeout, err = parseTimeout(own[contract.EnvTimeout]); err != nil {
		return c, err
	}
	switch c.Reboot = contract.Reboot(own[contract.EnvReboot]); c.Reboot {
	case contract.RebootNow:
		err = c.parseBoot(own)
	case "", contract.RebootAlways, contract.RebootIfRequested:
		err = c.parseScripts(own)
	default:
		err = fmt.Errorf("%s is %q; give %s, %s or %s, or leave it out", contract.EnvReboot, c.Reboot,
			contract.RebootAlways, contract.RebootIfRequested, contract.RebootNow)
	}
	return c, err
}

// parseOutput reads what happens to the output.
func (c *Config) parseOutput(own map[string]string) (err error) {
	if c.Masked, err = parseMask(own[contract.EnvMask]); err != nil {
		return err
	}
	for _, name := range c.Masked {
		c.Secrets = append(c.Secrets, lookup(c.Environ, name))
	}
	switch own[contract.EnvOutput] {
	case contract.OutputNone:
		c.NoOutput = true
	case "", contract.OutputTail:
	default:
		// A value that may be meant to hide the output must not be ignored.
		return fmt.Errorf("%s is %q; give %s or %s, or leave it out", contract.EnvOutput, own[contract.EnvOutput],
			contract.OutputTail, contract.OutputNone)
	}
	c.Archive, err = parseArchive(own[contract.EnvArchive])
	return err
}

// parseMask reads a JSON array of names.
func parseMask(array string) (names []string, err error) {
	if array == "" {
		return nil, nil
	}
	if err := json.Unmarshal([]byte(array), &names); err != nil {
		return nil, fmt.Errorf("reading %s as a JSON array of strings: %w", contract.EnvMask, err)
	}
	return names, nil
}

// parseArchive reads a JSON object; nil for no text. Errors do not contain the URL, which has a signature.
func parseArchive(object string) (*contract.Archive, error) {
	if object == "" {
		return nil, nil
	}
	var a contract.Archive
	if json.Unmarshal([]byte(object), &a) != nil || a.URL == "" {
		return nil, fmt.Errorf("reading %s as a JSON object with a url: it is something else", contract.EnvArchive)
	}
	if a.MaxBytes < contract.MinArchiveBytes || a.MaxBytes > contract.MaxArchiveBytes ||
		a.Seconds < contract.MinUploadSeconds || a.Seconds > contract.MaxUploadSeconds {
		return nil, fmt.Errorf("%s has %d for maxBytes and %d for seconds; give %d to %d bytes and %d to %d seconds", contract.EnvArchive,
			a.MaxBytes, a.Seconds, contract.MinArchiveBytes, contract.MaxArchiveBytes,
			contract.MinUploadSeconds, contract.MaxUploadSeconds)
	}
	return &a, nil
}

// parseFiles reads a JSON object; nil for no text.
func parseFiles(object string) (*contract.Files, error) {
	if object == "" {
		return nil, nil
	}
	var f contract.Files
	if err := json.Unmarshal([]byte(object), &f); err != nil || f.Dir == "" {
		return nil, fmt.Errorf("reading %s as a JSON object with a dir: it is something else", contract.EnvMountedFiles)
	}
	return &f, nil
}

// parseBoot reads what RebootNow needs. Without the boot ID, a container that is started twice would reboot the node
// twice. If there were also a script, either the script or the reboot would silently be skipped.
func (c *Config) parseBoot(own map[string]string) error {
	if own[contract.EnvScript] != "" || own[contract.EnvCommand] != "" || own[contract.EnvCheck] != "" {
		return fmt.Errorf("%s=%s runs no script: leave %s, %s and %s out", contract.EnvReboot, contract.RebootNow,
			contract.EnvScript, contract.EnvCommand, contract.EnvCheck)
	}
	if c.BootID = strings.TrimSpace(own[contract.EnvBootID]); c.BootID == "" {
		return fmt.Errorf("%s is not set: %s=%s needs to know which boot it is to end", contract.EnvBootID,
			contract.EnvReboot, contract.RebootNow)
	}
	return nil
}

func (c *Config) parseScripts(own map[string]string) (err error) {
	switch {
	case own[contract.EnvScript] == "" && own[contract.EnvCommand] == "":
		return fmt.Errorf("neither %s nor %s is set", contract.EnvScript, contract.EnvCommand)
	case own[contract.EnvScript] != "" && own[contract.EnvCommand] != "":
		return fmt.Errorf("both %s and %s are set: leave one out", contract.EnvScript, contract.EnvCommand)
	case own[contract.EnvCommand] != "":
		c.Task, err = parseCommand(own[contract.EnvCommand])
	default:
		c.Task, err = parseScript(contract.EnvScript, own[contract.EnvScript], contract.EnvInterpreter, own[contract.EnvInterpreter])
	}
	if err != nil {
		return err
	}
	if own[contract.EnvCheck] != "" {
		check, err := parseScript(contract.EnvCheck, own[contract.EnvCheck], contract.EnvCheckInterpreter, own[contract.EnvCheckInterpreter])
		if err != nil {
			return err
		}
		c.Check = &check
	}
	if c.Confirm, err = parseConfirm(own, c.Reboot); err != nil {
		return err
	}
	return c.parseCheckBefore(own[contract.EnvCheckBefore])
}

// parseCheckBefore reads whether the check also runs before the task.
func (c *Config) parseCheckBefore(value string) error {
	switch {
	case value == "":
	case value != contract.CheckBefore:
		return fmt.Errorf("%s is %q; give %s, or leave it out", contract.EnvCheckBefore, value, contract.CheckBefore)
	case c.Check == nil:
		return fmt.Errorf("%s is set, and there is no check: set %s, or leave %s out", contract.EnvCheckBefore, contract.EnvCheck, contract.EnvCheckBefore)
	default:
		c.CheckBefore = true
	}
	return nil
}

func parseScript(name, text, interpreterName, interpreter string) (Script, error) {
	s := Script{Text: text, Interpreter: []string{defaultInterpreter}}
	if len(text) > contract.MaxScriptBytes {
		return s, fmt.Errorf("%s has %d bytes; at most %d are possible, so put the rest on the node or into an image", name,
			len(text), contract.MaxScriptBytes)
	}
	if problem := script.Problem(text); problem != "" {
		return s, fmt.Errorf("%s %s", name, problem)
	}
	if interpreter != "" {
		var err error
		s.Interpreter, err = parseArgv(interpreterName, interpreter, "interpreter")
		return s, err
	}
	program, argument, line := script.Interpreter(text)
	switch {
	case line > 0 && program == "":
		return s, fmt.Errorf("the #! line of %s names no interpreter", name)
	case argument != "":
		s.Interpreter = []string{program, argument}
	case line > 0:
		s.Interpreter = []string{program}
	}
	return s, nil
}

func parseCommand(command string) (Script, error) {
	if len(command) > contract.MaxScriptBytes {
		return Script{}, fmt.Errorf("%s has %d bytes; at most %d are possible, so put the rest on the node or into an image", contract.EnvCommand,
			len(command), contract.MaxScriptBytes)
	}
	argv, err := parseArgv(contract.EnvCommand, command, "program")
	return Script{Command: argv}, err
}

// parseArgv reads a JSON array with a program and its arguments.
func parseArgv(name, array, program string) (argv []string, err error) {
	if err := json.Unmarshal([]byte(array), &argv); err != nil {
		return nil, fmt.Errorf("reading %s as a JSON array of strings: %w", name, err)
	}
	if len(argv) == 0 || argv[0] == "" {
		return nil, fmt.Errorf("%s names no %s", name, program)
	}
	if slices.ContainsFunc(argv, func(arg string) bool { return strings.ContainsRune(arg, 0) }) {
		return nil, fmt.Errorf("%s contains a NUL", name)
	}
	return argv, nil
}

func parseTimeout(s string) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	seconds, err := strconv.ParseInt(s, 10, 32) // 32 bits keep the product far from overflow
	if err != nil || seconds < 1 {
		return 0, fmt.Errorf("%s is %q; give whole seconds, at least 1", contract.EnvTimeout, s)
	}
	return time.Duration(seconds) * time.Second, nil
}

// withDefaults sets for the scripts what a login of root on the host sets, except SHELL, which only the host knows: see rootShell.
// HOME=/ counts as unset: runc sets it for an image without /etc/passwd, and it is never intended.
func withDefaults(environ []string) []string {
	if lookup(environ, "HOME") == "/" {
		environ = with(environ, "HOME", defaultHome)
	}
	for _, d := range [][2]string{{"HOME", defaultHome}, {"PATH", defaultPath}, {"USER", defaultUser}, {"LOGNAME", defaultUser}} {
		if lookup(environ, d[0]) == "" {
			environ = with(environ, d[0], d[1])
		}
	}
	return environ
}

func lookup(environ []string, name string) (value string) {
	for _, entry := range environ {
		if n, v, _ := strings.Cut(entry, "="); n == name {
			value = v
		}
	}
	return value
}

// with returns the environment with one variable set exactly once.
func with(environ []string, name, value string) []string {
	environ = slices.DeleteFunc(slices.Clone(environ), func(entry string) bool {
		return strings.HasPrefix(entry, name+"=")
	})
	return append(environ, name+"="+value)
}
