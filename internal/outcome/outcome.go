// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package outcome is what one attempt of a task reports in the container's termination message: exit code, reason, the
// last lines of output and the results.
//
// The runner encodes it and the controller decodes it. The controller does not trust it: a task with its own image can
// write any bytes there, so decoding repeats all limits and cleaning of encoding. The package is pure: no I/O, no
// clock, no logger.
package outcome

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
)

// Limits, in bytes of UTF-8 unless they count something. All of them apply to what Encode writes and to what Decode and
// ParseResults return, for any input.
const (
	// MaxBytes is how much the kubelet keeps of a container's termination message
	// (MaxContainerTerminationMessageLength). It keeps the end of a longer one, which is no longer valid JSON. In a pod
	// with more than three containers, each has less: an equal share of 12 KiB.
	MaxBytes = 4096
	// MaxMessageBytes limits Outcome.Message.
	MaxMessageBytes = 1024
	// MaxResults limits the number of results.
	MaxResults = 32
	// MaxKeyBytes limits a result's key, so that it fits the name part of a label or annotation.
	MaxKeyBytes = 63
	// MaxValueBytes limits a result's value after cleaning.
	MaxValueBytes = 256
	// MaxResultsBytes limits the keys and values of all results together.
	MaxResultsBytes = 2048
	// MaxInputBytes is how much of a results file is read.
	MaxInputBytes = 64 << 10

	// minMessageBytes of a message are kept if the results need its space: the message of a failure is more important
	// than its last result.
	minMessageBytes = 256
)

// Reasons: the same words are used in the outcome, the Node's record, events, metrics and the command line. A success
// of the task has none.
const (
	// ReasonTaskFailed: the script ended with an exit code other than 0.
	ReasonTaskFailed = "TaskFailed"
	// ReasonCheckFailed: the script succeeded, but its check did not.
	ReasonCheckFailed = "CheckFailed"
	// ReasonAlreadyDone: the check before the task answered yes, so the task did not run; exit code 0.
	ReasonAlreadyDone = "AlreadyDone"
	// ReasonCheckError: the check before the task itself failed, so it is unknown whether the task is needed, and the task did not run.
	ReasonCheckError = "CheckError"
	// ReasonImagesPulled: the pod has run nothing, and the images of the task are on the node; exit code 1, as of a check that answers no.
	ReasonImagesPulled = "ImagesPulled"
	// ReasonSignaled: a signal that the runner did not send ended the script; exit code 128+n.
	ReasonSignaled = "Signaled"
	// ReasonTimedOut: the timeout of the attempt passed; exit code 124.
	ReasonTimedOut = "TimedOut"
	// ReasonDisrupted: the runner was told to stop (eviction, node shutdown, deleted pod).
	ReasonDisrupted = "Interrupted"
	// ReasonFilesChanged: the files of the task are not those that the manager has read, so nothing was run; exit code 125.
	ReasonFilesChanged = "FilesChanged"
	// ReasonInterpreterNotFound: the node does not have the interpreter (127) or cannot execute it (126).
	ReasonInterpreterNotFound = "InterpreterNotFound"
	// ReasonCommandNotFound: the node does not have the task's program (127) or cannot execute it (126).
	ReasonCommandNotFound = "CommandNotFound"
	// ReasonNamespaceError: the runner could not enter the node's namespaces.
	ReasonNamespaceError = "NamespaceError"
	// ReasonBadConfiguration: the runner's own environment or flags are invalid.
	ReasonBadConfiguration = "BadConfiguration"
	// ReasonRunnerError: the runner did not get a resource of the node that it needs (memory, processes, files).
	ReasonRunnerError = "RunnerError"
	// ReasonRebootFailed: the node was told to reboot and did not go down; exit code 1.
	ReasonRebootFailed = "RebootFailed"
	// ReasonProbeFailed: a probe of the confirmation failed before the task, so the task was not started.
	ReasonProbeFailed = "ProbeFailed"
	// ReasonReverted: the node was not confirmed in time, so the rollback ran there, and succeeded.
	ReasonReverted = "Reverted"
	// ReasonRevertFailed: the same, and the rollback failed.
	ReasonRevertFailed = "RevertFailed"
)

var reasons = []string{
	ReasonTaskFailed, ReasonCheckFailed, ReasonAlreadyDone, ReasonCheckError, ReasonImagesPulled, ReasonSignaled, ReasonTimedOut, ReasonDisrupted, ReasonFilesChanged,
	ReasonInterpreterNotFound, ReasonCommandNotFound, ReasonNamespaceError, ReasonBadConfiguration, ReasonRunnerError,
	ReasonRebootFailed, ReasonProbeFailed, ReasonReverted, ReasonRevertFailed,
}

// The result by which a task requests a reboot of its node, if the NodeJob leaves the decision to the task.
const (
	RebootKey   = "reboot"
	RebootValue = "true"
)

// RebootRequested reports whether the results request a reboot. No limit removes such a request, because it is the
// first result that is kept. Otherwise the runner could see the request and skip the check, the controller could miss
// it, and a success would count that was never checked.
func RebootRequested(results map[string]string) bool { return results[RebootKey] == RebootValue }

// Outcome is the end of one attempt.
type Outcome struct {
	// ExitCode is 0 to 255. A reader that also has the kubelet's exit code uses that one: see WithExitCode.
	ExitCode int `json:"exitCode"`
	// Reason is one of the Reason constants, empty for a success of the task.
	Reason string `json:"reason,omitempty"`
	// Message is the end of the output, followed by what went wrong, if anything; several lines.
	Message string `json:"message,omitempty"`
	// Results are what the task reports, by key.
	Results map[string]string `json:"results,omitempty"`
	// Truncated is true if some results were omitted or truncated.
	Truncated bool `json:"truncated,omitempty"`
	// Archive is what became of the whole output; nil if it is not archived.
	Archive *Archive `json:"archive,omitempty"`
	// NotStarted is true if the attempt has not started the task.
	NotStarted bool `json:"notStarted,omitempty"`
	// RollbackExitCode is how the rollback ended that ran after the task in the same pod; nil if none did. It is 0 to 255.
	RollbackExitCode *int `json:"rollbackExitCode,omitempty"`
}

// Encode returns the outcome as one JSON object of at most MaxBytes, always valid. What does not fit is removed in this
// order: the beginning of the message (down to 256 bytes), then results from the end of the order of their keys
// (RebootKey is the first), which sets Truncated.
func (o Outcome) Encode() []byte {
	o = o.bounded()
	b := o.marshal()
	if over := len(b) - MaxBytes; over > 0 {
		// Removing n bytes of text removes at least n bytes of JSON, so one truncation is enough.
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

// Note appends a line to the message. The end of a message is never truncated, so a note about an error comes last.
func (o *Outcome) Note(line string) {
	if o.Message = strings.TrimRight(o.Message, "\n"); o.Message != "" {
		o.Message += "\n"
	}
	o.Message = Clean(o.Message+line, MaxMessageBytes)
}

// WithExitCode returns the outcome with the exit code from the kubelet, which no task can forge, and a reason that
// matches it: none or ReasonAlreadyDone for 0, and ReasonTaskFailed if there was none of a failure for another code.
func (o Outcome) WithExitCode(code int) Outcome {
	o.ExitCode = boundedExitCode(code)
	switch {
	case o.ExitCode == 0 && o.Reason == ReasonAlreadyDone:
	case o.ExitCode == 0:
		o.Reason = ""
	case o.Reason == "", o.Reason == ReasonAlreadyDone:
		o.Reason = ReasonTaskFailed
	}
	return o
}

// Decode reads a termination message. It returns false if the text is not an outcome: it is not one JSON object with at
// least one field of Outcome, a field has the wrong type, the exit code is not in 0 to 255, or it is longer than
// MaxBytes. The caller then uses the text itself, after Clean.
//
// Unknown fields are ignored (a newer runner with an older controller), and so is an unknown reason. If a field occurs
// twice, the later one counts. Results that exceed a limit are omitted or truncated, and Truncated is set.
func Decode(terminationMessage string) (Outcome, bool) {
	var o Outcome
	if len(terminationMessage) > MaxBytes {
		return Outcome{}, false
	}
	known := false
	err := walkObject([]byte(terminationMessage), func(key string, value json.RawMessage) error {
		switch key {
		case "results":
			known = true
			return o.decodeResults(value)
		case "archive":
			o.Archive = decodeArchive(value)
			return nil
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

// field returns the target of a scalar JSON field. The exact name is required: encoding/json would also accept
// "EXITCODE", and with two spellings of one field it would be unclear which one counts.
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
	case "notStarted":
		return &o.NotStarted
	case "rollbackExitCode":
		return &o.RollbackExitCode
	}
	return nil
}

// decodeResults accepts the same JSON as ParseResults, so that {"cpus": 4} has the same meaning from a task with its
// own image as from a script.
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

// bounded returns a copy within all limits except MaxBytes, which applies to the encoding.
func (o Outcome) bounded() Outcome {
	o.ExitCode = boundedExitCode(o.ExitCode)
	if !slices.Contains(reasons, o.Reason) {
		o.Reason = ""
	}
	o.Message = Clean(o.Message, MaxMessageBytes)
	results, left := boundedResults(o.Results)
	o.Results, o.Truncated = results, o.Truncated || left
	o.Archive = o.Archive.Bounded()
	if code := o.RollbackExitCode; code != nil {
		o.RollbackExitCode = new(boundedExitCode(*code))
	}
	return o
}

// marshal never fails, because JSON can represent all values of the type. HTML escaping is disabled because it uses six
// bytes for each <, > and &.
func (o Outcome) marshal() []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(o); err != nil {
		return []byte(`{"exitCode":255,"reason":"` + ReasonRunnerError + `"}`)
	}
	return bytes.TrimRight(b.Bytes(), "\n")
}

// boundedExitCode returns 255 for a code with which no Linux process can end, and never 0 for another code.
func boundedExitCode(code int) int {
	if code < 0 || code > 255 {
		return 255
	}
	return code
}
