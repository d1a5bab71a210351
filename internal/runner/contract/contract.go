// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package contract is what the manager, the runner and everynode-upload must agree on: the manager writes it into the pod of an
// attempt, and the runner reads it there. docs/runner.md explains the variables to users. The package is pure.
package contract

import (
	"bytes"
	"encoding/json"
)

// Variables that tell the runner what to do. It does not pass them on to the scripts.
const (
	// EnvScript and EnvCheck have the text of a script, and EnvInterpreter and EnvCheckInterpreter the program that executes it,
	// with its arguments, as a JSON array. Without an interpreter, the #! line of the text counts.
	EnvScript           = "EVERYNODE_SCRIPT"
	EnvInterpreter      = "EVERYNODE_INTERPRETER"
	EnvCheck            = "EVERYNODE_CHECK"
	EnvCheckInterpreter = "EVERYNODE_CHECK_INTERPRETER"
	// EnvCheckBefore is CheckBefore if the check also runs before the task, and decides whether the task runs.
	EnvCheckBefore = "EVERYNODE_CHECK_BEFORE"
	// EnvCommand has a program and its arguments as a JSON array, instead of EnvScript.
	EnvCommand = "EVERYNODE_COMMAND"
	// EnvTimeout has whole seconds.
	EnvTimeout = "EVERYNODE_TIMEOUT"
	// EnvReboot has a Reboot. With RebootNow, EnvBootID has the ID of the boot that it ends.
	EnvReboot = "EVERYNODE_REBOOT"
	EnvBootID = "EVERYNODE_BOOT_ID"
	// EnvOutput is OutputTail or OutputNone.
	EnvOutput = "EVERYNODE_OUTPUT"
	// EnvMask has the names of the variables whose values are masked in the output, as a JSON array.
	EnvMask = "EVERYNODE_MASK"
	// EnvArchive has an Archive as a JSON object.
	EnvArchive = "EVERYNODE_ARCHIVE"
	// EnvMountedFiles has a Files as a JSON object: where the container of the runner has the files of the task.
	EnvMountedFiles = "EVERYNODE_MOUNTED_FILES"
	// EnvConfirm has a Confirm as a JSON object. EnvRollback has the text of the rollback that runs without a confirmation, and
	// EnvRollbackInterpreter the program that executes it.
	EnvConfirm             = "EVERYNODE_CONFIRM"
	EnvRollback            = "EVERYNODE_ROLLBACK"
	EnvRollbackInterpreter = "EVERYNODE_ROLLBACK_INTERPRETER"
	// EnvVersion has the version of the manager.
	EnvVersion = "EVERYNODE_VERSION"
)

// IsForRunner reports whether the variable is not passed on to the scripts. EnvResults and EnvFiles are among them: the runner sets
// them to its own values.
func IsForRunner(name string) bool {
	switch name {
	case EnvScript, EnvInterpreter, EnvCheck, EnvCheckInterpreter, EnvCheckBefore, EnvCommand, EnvTimeout, EnvReboot, EnvBootID, EnvOutput, EnvMask,
		EnvArchive, EnvMountedFiles, EnvVersion, EnvResults, EnvFiles, EnvConfirm, EnvRollback, EnvRollbackInterpreter:
		return true
	}
	return false
}

// Variables for the scripts.
const (
	// EnvResults is set by the runner: the path of the file for the results of a script.
	EnvResults = "EVERYNODE_RESULTS"
	// EnvFiles is set by the runner if the task has files: the path of the folder that contains their folders.
	EnvFiles = "EVERYNODE_FILES"

	// EnvNodeJob has the namespace and the name of the NodeJob, as NAMESPACE/NAME.
	EnvNodeJob  = "EVERYNODE_NODEJOB"
	EnvNodeName = "EVERYNODE_NODE_NAME"
	EnvRevision = "EVERYNODE_REVISION"
	EnvAttempt  = "EVERYNODE_ATTEMPT"

	// EnvRollbackFor has the reason of a rollback. EnvFailedExitCode and EnvFailedReason have the end of the attempt before it.
	EnvRollbackFor    = "EVERYNODE_ROLLBACK_FOR"
	EnvFailedExitCode = "EVERYNODE_FAILED_EXIT_CODE"
	EnvFailedReason   = "EVERYNODE_FAILED_REASON"
	// EnvRunResults has the results of the attempt before a rollback or a check, as a JSON object. For each of them, there is also a
	// variable whose name begins with EnvResultPrefix.
	EnvRunResults   = "EVERYNODE_RUN_RESULTS"
	EnvResultPrefix = "EVERYNODE_RESULT_"
)

// Flags of the runner.
const (
	// FlagRunDir names the folder by which the containers of a pod know that the task has run.
	FlagRunDir = "run-dir"
	// FlagWait makes the runner do nothing until it is told to stop.
	FlagWait = "wait"
	// FlagConfirming makes the runner wait until the task of its pod waits for a confirmation. It is the readiness probe of the pod.
	FlagConfirming = "confirming"
	// FlagPulled makes the runner end at once with the exit code of a check that answers no: the images of its pod are on the node, so the task
	// can run.
	FlagPulled = "pulled"
	// FlagKeep names a folder on the node. The runner waits until no other runner has its lock, and reverts the node if there is no
	// decision. FlagCgroupOf is the process whose control group it joins before.
	FlagKeep     = "keep"
	FlagCgroupOf = "cgroup-of"
)

// KeepDir is the folder on the node for what reverts it while it is not confirmed.
const KeepDir = "/var/lib/everynode/confirm"

// MaxScriptBytes limits a script, and a command as JSON, as the API limits an inline script. Linux allows 128 KiB for an environment
// variable. A variable has exactly the content that the revision was computed from, which a mounted ConfigMap could not guarantee.
const MaxScriptBytes = 64 << 10

// CheckBefore is the value of EnvCheckBefore.
const CheckBefore = "true"

// Answers of checks, as exit codes. For spec.expires.check, with which something ends, any other code means that the check itself has
// failed. For task.check, AnswersNo decides.
const (
	CheckYes = 0
	CheckNo  = 1
	// CheckUnknown is what task.check ends with if it cannot say: EX_TEMPFAIL of sysexits.h.
	CheckUnknown = 75

	// firstSignal is the least exit code that shells use for a program that a signal has ended.
	firstSignal = 128
)

// ResultInEffect is the result with which a task says, with the value "no", that it has ended well without an effect on the node.
const ResultInEffect = "in-effect"

// AnswersNo reports whether task.check says no with an exit code. Programs have different ones for it: grep and cmp end with 2 if a file is
// missing, mountpoint with 32, command -v with 127, and systemctl is-active with 3.
func AnswersNo(code int) bool { return code != CheckYes && code != CheckUnknown && code < firstSignal }

// Values of EnvOutput.
const (
	OutputTail = "Tail"
	OutputNone = "None"
)

// Reboot is how a pod takes part in a reboot of its node; "" for not at all.
type Reboot string

const (
	// RebootAlways means that the node is rebooted after this pod, and checked after the reboot.
	RebootAlways Reboot = "Always"
	// RebootIfRequested means the same, but only if the results of the task request it (outcome.RebootRequested).
	RebootIfRequested Reboot = "IfRequested"
	// RebootNow means that this pod runs no script, but reboots the node.
	RebootNow Reboot = "Now"
)

// Archive is where the whole output of an attempt is stored, and how.
type Archive struct {
	// URL takes the output in a PUT request.
	URL string `json:"url"`
	// CA are certificates in PEM format that sign the one of the server; "" for those that Mozilla trusts.
	CA string `json:"ca,omitempty"`
	// MaxBytes limits what is stored. It is at least MinArchiveBytes and at most MaxArchiveBytes.
	MaxBytes int64 `json:"maxBytes"`
	// Seconds limit the upload. They are at least MinUploadSeconds and at most MaxUploadSeconds.
	Seconds int64 `json:"seconds"`
}

// Limits of an Archive.
const (
	MinArchiveBytes  = 4 << 10
	MaxArchiveBytes  = 1 << 30
	MinUploadSeconds = 1
	MaxUploadSeconds = 60
)

// JSON returns the value of a variable as JSON without HTML escapes, which would take six bytes for one. value consists of
// strings and numbers.
func JSON(value any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		panic(err) // strings and numbers always marshal
	}
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}
