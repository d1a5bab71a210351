// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package outcome is what one attempt of a task reports through the container's termination
// message: exit code, reason, the last lines of output and the results.
//
// The runner encodes it and the controller decodes it. The two do not trust each other: a task with
// an image of its own can write any bytes there, so decoding bounds and cleans again everything
// that encoding has bounded and cleaned. The package is pure: no I/O, no clock, no logger.
package outcome

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
)

// Bounds, in bytes of UTF-8 unless they count something. Every one of them holds for what Encode
// writes and for what Decode and ParseResults return, whatever they were given.
const (
	// MaxBytes is what the kubelet keeps of a container's termination message
	// (MaxContainerTerminationMessageLength). It keeps the end of a longer one, which would then
	// be no JSON any more. A pod with more than three containers has less: 12 KiB shared out evenly.
	MaxBytes = 4096
	// MaxMessageBytes bounds Outcome.Message.
	MaxMessageBytes = 1024
	// MaxResults bounds the number of results.
	MaxResults = 32
	// MaxKeyBytes bounds a result's key, so that it fits the name part of a label or annotation.
	MaxKeyBytes = 63
	// MaxValueBytes bounds a result's value after cleaning.
	MaxValueBytes = 256
	// MaxResultsBytes bounds the keys and values of all results together.
	MaxResultsBytes = 2048
	// MaxInputBytes is how much of a results file is looked at.
	MaxInputBytes = 64 << 10

	// minMessageBytes survives of a message when results want its room: a failure that says
	// nothing is worth less than its last result.
	minMessageBytes = 256
)

// Reasons, the same words in the outcome, the Node's record, events, metrics and the command line.
// Success has none.
const (
	// ReasonTaskFailed: the script ended with an exit code other than 0.
	ReasonTaskFailed = "TaskFailed"
	// ReasonVerifyFailed: the script succeeded, its check did not.
	ReasonVerifyFailed = "VerifyFailed"
	// ReasonSignaled: a signal that the runner did not send ended the script; exit code 128+n.
	ReasonSignaled = "Signaled"
	// ReasonTimedOut: the time limit of the attempt passed; exit code 124.
	ReasonTimedOut = "TimedOut"
	// ReasonDisrupted: the runner was told to stop (eviction, node shutdown, deleted pod).
	ReasonDisrupted = "Interrupted"
	// ReasonInterpreterNotFound: the node does not have the interpreter (127) or cannot run it (126).
	ReasonInterpreterNotFound = "InterpreterNotFound"
	// ReasonCommandNotFound: the node does not have the task's program (127) or cannot run it (126).
	ReasonCommandNotFound = "CommandNotFound"
	// ReasonNamespaceError: the runner could not enter the node's namespaces.
	ReasonNamespaceError = "NamespaceError"
	// ReasonBadConfiguration: the runner's own environment or flags make no sense.
	ReasonBadConfiguration = "BadConfiguration"
	// ReasonRunnerError: the node refused the runner something it needs (memory, processes, files).
	ReasonRunnerError = "RunnerError"
	// ReasonRebootFailed: the node was told to reboot and did not go down; exit code 1.
	ReasonRebootFailed = "RebootFailed"
)

var reasons = []string{
	ReasonTaskFailed, ReasonVerifyFailed, ReasonSignaled, ReasonTimedOut, ReasonDisrupted,
	ReasonInterpreterNotFound, ReasonCommandNotFound, ReasonNamespaceError, ReasonBadConfiguration, ReasonRunnerError,
	ReasonRebootFailed,
}

// The result by which a task asks for a reboot of its node, where the NodeJob leaves that to the task.
const (
	RebootKey   = "reboot"
	RebootValue = "true"
)

// RebootRequested says whether the results ask for a reboot. No bound takes such a request away: it is
// the first result that is kept. Otherwise the runner could see one, and leave the check for after the
// reboot, and the controller none, and count a success that nobody has checked.
func RebootRequested(results map[string]string) bool { return results[RebootKey] == RebootValue }

// Outcome is the end of one attempt.
type Outcome struct {
	// ExitCode is 0 to 255. A reader that also has the kubelet's exit code believes that one:
	// see WithExitCode.
	ExitCode int `json:"exitCode"`
	// Reason is one of the Reason constants, empty for success.
	Reason string `json:"reason,omitempty"`
	// Message is the end of the output, followed by what went wrong, if anything; several lines.
	Message string `json:"message,omitempty"`
	// Results are what the task wants known, by key.
	Results map[string]string `json:"results,omitempty"`
	// Truncated says that some results were left out or cut.
	Truncated bool `json:"truncated,omitempty"`
}

// Encode returns the outcome as one JSON object of at most MaxBytes, always valid. What does not
// fit goes in this order: the beginning of the message (down to 256 bytes), then results from the
// end of the order of their keys (RebootKey is the first), which sets Truncated.
func (o Outcome) Encode() []byte {
	o = o.bounded()
	b := o.marshal()
	if over := len(b) - MaxBytes; over > 0 && len(o.Message) > minMessageBytes {
		// Removing n bytes of text removes at least n bytes of JSON, so one cut is enough.
		o.Message = Clean(o.Message, max(minMessageBytes, len(o.Message)-over))
		b = o.marshal()
	}
	keys := sortedKeys(o.Results)
	for len(b) > MaxBytes && len(keys) > 0 {
		delete(o.Results, keys[len(keys)-1])
		keys, o.Truncated = keys[:len(keys)-1], true
		b = o.marshal()
	}
	return b
}

// Note appends a line to the message. The end of a message is what survives every cut, so a note
// about what went wrong stands last.
func (o *Outcome) Note(line string) {
	if o.Message = strings.TrimRight(o.Message, "\n"); o.Message != "" {
		o.Message += "\n"
	}
	o.Message = Clean(o.Message+line, MaxMessageBytes)
}

// WithExitCode returns the outcome with the exit code the kubelet saw, which no task can forge, and
// a reason that agrees with it: none for 0, ReasonTaskFailed where there was none for another code.
func (o Outcome) WithExitCode(code int) Outcome {
	o.ExitCode = boundedExitCode(code)
	switch {
	case o.ExitCode == 0:
		o.Reason = ""
	case o.Reason == "":
		o.Reason = ReasonTaskFailed
	}
	return o
}

// Decode reads a termination message. It is false when the text is no outcome: not one JSON object
// with at least one field of Outcome, a field of the wrong type, an exit code outside 0 to 255, or
// longer than MaxBytes. The caller then keeps the text itself, by Clean.
//
// Fields it does not know are ignored (a newer runner under an older controller), so is a reason it
// does not know; of a field given twice the later counts. Results that break a bound are left out
// or cut and Truncated is set.
func Decode(terminationMessage string) (Outcome, bool) {
	var o Outcome
	if len(terminationMessage) > MaxBytes {
		return Outcome{}, false
	}
	known := false
	err := walkObject([]byte(terminationMessage), func(key string, value json.RawMessage) error {
		if key == "results" {
			known = true
			return o.decodeResults(value)
		}
		field := o.field(key)
		if field == nil {
			return nil
		}
		known = true
		return json.Unmarshal(value, field)
	})
	if err != nil || !known || o.ExitCode != boundedExitCode(o.ExitCode) {
		return Outcome{}, false
	}
	return o.bounded(), true
}

// field returns where a scalar JSON field goes. The exact name is asked for: encoding/json would
// also take "EXITCODE", and two spellings of one field are two opinions about who wins.
func (o *Outcome) field(name string) any {
	switch name {
	case "exitCode":
		return &o.ExitCode
	case "reason":
		return &o.Reason
	case "message":
		return &o.Message
	case "truncated":
		return &o.Truncated
	}
	return nil
}

// decodeResults takes what ParseResults takes as JSON, so that {"cpus": 4} means the same from a
// task with an image of its own as from a script.
func (o *Outcome) decodeResults(value json.RawMessage) error {
	all := map[string]string{}
	if value[0] != '{' && string(value) != "null" {
		return errors.New("results: expected an object")
	}
	if value[0] == '{' && parseObject(value, false, all) != nil {
		o.Truncated = true
	}
	o.Results = all
	return nil
}

// bounded returns a copy within every bound except MaxBytes, which is one of the encoding.
func (o Outcome) bounded() Outcome {
	o.ExitCode = boundedExitCode(o.ExitCode)
	if !slices.Contains(reasons, o.Reason) {
		o.Reason = ""
	}
	o.Message = Clean(o.Message, MaxMessageBytes)
	results, left := boundedResults(o.Results)
	o.Results, o.Truncated = results, o.Truncated || left
	return o
}

// marshal never fails: the type has nothing that JSON cannot say. HTML escaping is off because it
// makes six bytes of each <, > and &.
func (o Outcome) marshal() []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(o); err != nil {
		return []byte(`{"exitCode":255,"reason":"` + ReasonRunnerError + `"}`)
	}
	return bytes.TrimRight(b.Bytes(), "\n")
}

// boundedExitCode makes 255 of what no Linux process can end with; never 0 of something else.
func boundedExitCode(code int) int {
	if code < 0 || code > 255 {
		return 255
	}
	return code
}
