// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package record is what a Node stores for a NodeJob: a label that only exists if the node is done, and an annotation
// of the same key with the outcome of the last attempt and a short list of earlier ones.
//
// The record is the persistent state of a NodeJob on a node. It is deleted with its Node, so nothing has to collect it,
// and a user can read it, select nodes by it and remove it. The package is pure.
package record

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/outcome"
)

// MaxBytes limits an encoded record. All annotations of an object together may have 256 KiB, so a node has space for
// dozens of NodeJobs.
const MaxBytes = 6144

// Outcome is how the last attempt ended.
type Outcome string

const (
	// Succeeded : the node is done with the record's revision.
	Succeeded Outcome = "Succeeded"
	// Failed : the attempt counts against retry.limit.
	Failed Outcome = "Failed"
	// Disrupted : something else ended the attempt, or the check before the task itself failed, so it does not count.
	Disrupted Outcome = "Disrupted"
	// Needed : the check before the task answered no, or spec.expires.check was run first, and the task has not started yet.
	Needed Outcome = "Needed"
	// Rebooting : the task has succeeded, and the run continues: the node is being rebooted, and is checked after that.
	Rebooting Outcome = "Rebooting"
	// Expired : the task is no longer needed on the node (spec.expires), and nothing of it is left there. The node is done.
	Expired Outcome = "Expired"
)

// Answer is what a check has answered before the task, or on a node that is done, or that of spec.expires.
type Answer string

const (
	// AnswerYes : the node is as it should be, or the task has expired.
	AnswerYes Answer = "Yes"
	// AnswerNo : the node is not as it should be, or the task is needed.
	AnswerNo Answer = "No"
	// AnswerError : the check itself failed.
	AnswerError Answer = "Error"
	// AnswerNone : something else ended the check.
	AnswerNone Answer = "None"
)

// answers are all values of Record.CheckBefore, Asked.Answer and Expiry.Answer, except "".
var answers = []Answer{AnswerYes, AnswerNo, AnswerError, AnswerNone}

// Record is the content of the annotation.
type Record struct {
	// Revision that the last attempt ran.
	Revision string `json:"revision"`
	// Digest is the complete SHA-256 that the revision abbreviates, in hexadecimal digits; "" if it is unknown.
	Digest string `json:"digest,omitempty"`
	// Outcome of the last attempt: Succeeded, Failed, Disrupted; Rebooting while a run continues whose task has succeeded; Needed after
	// the check before the task has answered no, until the task has run; Expired.
	Outcome Outcome `json:"outcome"`
	// Attempts of this run that count: failures, and the success.
	Attempts int32 `json:"attempts"`
	// Disruptions in a row since the last attempt that counts.
	Disruptions int32 `json:"disruptions,omitempty"`
	// DisruptedSince is when the first of these disruptions was recorded.
	DisruptedSince time.Time `json:"disruptedSince,omitzero"`
	// StartedAt is when the last attempt started, in whole seconds.
	StartedAt time.Time `json:"startedAt,omitzero"`
	// FirstStartedAt is when the revision first started on this machine; zero if that is StartedAt. Steps with a number
	// of nodes keep their nodes by it.
	FirstStartedAt time.Time `json:"firstStartedAt,omitzero"`
	// FinishedAt is when the last attempt ended, in whole seconds. Like StartedAt, it is by the node's clock, and for
	// display only.
	FinishedAt time.Time `json:"finishedAt"`
	// RecordedAt is when the manager recorded the end, in whole seconds of the API server's clock, rounded up. Backoff,
	// schedules and time limits count from it.
	RecordedAt time.Time `json:"recordedAt,omitzero"`
	// ExitCode of the last attempt; nil if it did not end on its own.
	ExitCode *int32 `json:"exitCode,omitempty"`
	// CheckBefore is the answer of the check before the task, if the task has not run in the last attempt; "" otherwise.
	CheckBefore Answer `json:"checkBefore,omitempty"`
	// Reason in one word; "" for a success of the task.
	Reason string `json:"reason,omitempty"`
	// Message is the end of the output of the last attempt, or why it did not end on its own: at most 1024 bytes.
	Message string `json:"message,omitempty"`
	// Results that the task wrote.
	Results map[string]string `json:"results,omitempty"`
	// Truncated is true if results were omitted or truncated.
	Truncated bool `json:"truncated,omitempty"`
	// Archives say what became of the whole output of the last attempt and of its rollback; empty if it is not archived.
	Archives Archives `json:"archives,omitempty"`
	// Images are the digests of the images that the last attempt ran, by the names of its containers, as the kubelet reports them;
	// empty for a script. For display only.
	Images Images `json:"images,omitempty"`
	// BootID and MachineID of the node when the attempt ended.
	BootID    string `json:"bootID,omitempty"`
	MachineID string `json:"machineID,omitempty"`
	// Retry is the hash of the NodeJob's retry annotation at the time of the attempt; "" if there was none. Failures
	// with another value no longer count.
	Retry string `json:"retry,omitempty"`
	// Inputs is a hash of the values that the task had from the Node (task.env); "" if it had none.
	Inputs string `json:"inputs,omitempty"`
	// ChangedBy is the user who had last changed the spec of the NodeJob when the attempt started; "" if that is unknown. For
	// display only.
	ChangedBy string `json:"changedBy,omitempty"`
	// OutsideWindow is the NodeDisruptionBudget outside of whose window the attempt started (maintenance.ignoreWindowsOn); "" if it started in
	// all windows. For display only.
	OutsideWindow string `json:"outsideWindow,omitempty"`
	// RetryRequested is true after a user has requested a retry on this node. The failures on record no longer count.
	RetryRequested bool `json:"retryRequested,omitempty"`
	// RunsAlone is true if a user has requested a retry on this node before any other node starts: until the end of the run
	// is on record.
	RunsAlone bool `json:"runsAlone,omitempty"`
	// Rerun is true for a run on a node that was already done with this revision, for example after a reboot. The label
	// is that of the previous run.
	Rerun bool `json:"rerun,omitempty"`
	// Label is the label that the manager has set on the node with this record. A different label was set by the user.
	Label string `json:"label,omitempty"`
	// LabelRemoved is true if the node was seen without that label since: if it has the same value again, a user has set it.
	LabelRemoved bool `json:"labelRemoved,omitempty"`
	// Assumed is true if the revision has not succeeded on the node, which was set up before (spec.nodes.assumeDone, or
	// task.check.before): no attempt has ended there, or it runs now and was disrupted or reboots.
	Assumed bool `json:"assumed,omitempty"`
	// NeverStarted is true if the task was assumed to be done, or no attempt has started it on this machine: there is nothing to roll back.
	NeverStarted bool `json:"neverStarted,omitempty"`
	// NotStarted is true if no attempt of this run has started the task, so its failure rolls nothing back. What an earlier run has done
	// may be there: see NeverStarted.
	NotStarted bool `json:"notStarted,omitempty"`
	// Reboot is the progress of the reboot that belongs to the run; nil if there is none.
	Reboot *Reboot `json:"reboot,omitempty"`
	// RemovedLabels are the labels that the success has removed from the node, with their values.
	RemovedLabels map[string]string `json:"removedLabels,omitempty"`
	// Reverted is true if the node was not confirmed after the last attempt, and has run the rollback by itself (spec.confirm). The
	// attempt is not retried, because it would cut the node off again.
	Reverted bool `json:"reverted,omitempty"`
	// Expiry is what spec.expires.check has answered; nil if it has not run.
	Expiry *Expiry `json:"expiry,omitempty"`
	// Rollback is how the rollback ended; nil if none has ended.
	Rollback *Rollback `json:"rollback,omitempty"`
	// Cordoned is true after the node was cordoned for this failure. If a user uncordons it after that, it is not
	// cordoned again.
	Cordoned bool `json:"cordoned,omitempty"`
	// Drain is the progress of the drain of the failed node; nil if none has started.
	Drain *Drain `json:"drain,omitempty"`
	// Asked are the last answers to the questions that the node was asked since it was done; empty if there are none.
	Asked Answers `json:"asked,omitempty"`
	// Earlier are up to five attempts before the last one, the oldest first. For display only.
	Earlier Attempts `json:"earlier,omitempty"`
	// Previous are the results of the revision before this one; nil if there are none. For display only.
	Previous *Previous `json:"previous,omitempty"`
	// PodUID is the pod of the last attempt. It distinguishes a recorded pod from one that is not, even if both have
	// the same name because the user requested another run.
	PodUID types.UID `json:"podUID"`
}

// Rollback is how the last attempt of a rollback ended.
type Rollback struct {
	// Outcome of the last attempt.
	Outcome Outcome `json:"outcome"`
	// Attempts that count: failures, and the success.
	Attempts int32 `json:"attempts"`
	// Disruptions in a row since the last attempt that counts.
	Disruptions int32 `json:"disruptions,omitempty"`
	// StartedAt, FinishedAt and RecordedAt are those of the last attempt, as in the record.
	StartedAt  time.Time `json:"startedAt,omitzero"`
	FinishedAt time.Time `json:"finishedAt"`
	RecordedAt time.Time `json:"recordedAt,omitzero"`
	// ExitCode of the last attempt; nil if it did not end on its own.
	ExitCode *int32 `json:"exitCode,omitempty"`
	// Reason in one word; "" for a success.
	Reason string `json:"reason,omitempty"`
	// Message is the end of the output of the last attempt: at most 512 bytes.
	Message string `json:"message,omitempty"`
	// Retry has the same meaning as in the record.
	Retry string `json:"retry,omitempty"`
	// PodUID is the pod of the last attempt.
	PodUID types.UID `json:"podUID"`
}

// IsAssumed reports whether the node counts as done without a run.
func (r *Record) IsAssumed() bool { return r.Assumed && r.Outcome.Done() }

// IsExpired reports whether the node is done because the task is no longer needed there.
func (r *Record) IsExpired() bool { return r.Outcome == Expired }

// IsAlreadyDone reports whether the node is done because the check before the task answered yes.
func (r *Record) IsAlreadyDone() bool { return r.CheckBefore == AnswerYes && r.Outcome == Succeeded }

// IsAnswer reports whether the node is done because of an answer of the check alone: a yes before the task, or any in an audit.
func (r *Record) IsAnswer() bool { return r.CheckBefore != "" && r.Outcome == Succeeded }

// IsIdle reports whether no run of the task has begun that has not ended.
func (r *Record) IsIdle() bool { return r.Outcome.Done() || r.Outcome == Needed }

// onlyChecked reports whether nothing but the checks before the task has run with the revision.
func (r *Record) onlyChecked() bool {
	return (r.CheckBefore != "" || r.Outcome == Needed) && r.FirstStartedAt.IsZero()
}

// HasEndOf reports whether the record, which may be nil, says how a pod ended: that of the last attempt, of its rollback, of a question,
// or of the last check of spec.expires.
func (r *Record) HasEndOf(pod types.UID) bool {
	if r == nil {
		return false
	}
	_, asked := r.Asked.of(pod)
	return asked || r.PodUID == pod || r.Rollback != nil && r.Rollback.PodUID == pod || r.Expiry != nil && r.Expiry.PodUID == pod
}

// EndedAt returns when the last attempt ended, for decisions: by the API server's clock if known.
func (r *Record) EndedAt() time.Time { return firstTime(r.RecordedAt, r.FinishedAt) }

// BeganAt returns when the revision first started on the machine.
func (r *Record) BeganAt() time.Time { return firstTime(r.FirstStartedAt, r.StartedAt) }

// EndedAt has the same meaning as that of the record.
func (b *Rollback) EndedAt() time.Time { return firstTime(b.RecordedAt, b.FinishedAt) }

func firstTime(t, otherwise time.Time) time.Time {
	if t.IsZero() {
		return otherwise
	}
	return t
}

// Reboot is the progress of a reboot.
type Reboot struct {
	// StartedAt is when the task ended, in whole seconds. The deadline counts from it.
	StartedAt time.Time `json:"startedAt"`
	// FromBootID is the boot that the reboot ends.
	FromBootID string `json:"fromBootID"`
	// BackAt is when the node was first observed as Ready in another boot; zero before.
	BackAt time.Time `json:"backAt,omitzero"`
	// ReadySince is since when the node was Ready at that time, by its own clock. A different time shows that it was
	// not Ready in between.
	ReadySince time.Time `json:"readySince,omitzero"`
	// BootID is the boot in which it was observed as Ready. A different one shows that it has rebooted once more.
	BootID string `json:"bootID,omitempty"`
}

// Drain is the progress of the drain of a failed node.
type Drain struct {
	// StartedAt is when it started, in whole seconds. The deadline counts from it.
	StartedAt time.Time `json:"startedAt"`
	// FinishedAt is when it ended; zero while it is running.
	FinishedAt time.Time `json:"finishedAt,omitzero"`
	// Outcome is Drained, DrainTimedOut or DrainCancelled; "" while it is running.
	Outcome string `json:"outcome,omitempty"`
}

// drainOutcomes are all values of Drain.Outcome.
var drainOutcomes = []string{v1alpha1.ReasonDrained, v1alpha1.ReasonDrainTimedOut, v1alpha1.ReasonDrainCancelled}

// maxCount limits the counts of a record, so that adding one cannot overflow.
const maxCount = 1_000_000

// BoundID limits a boot ID or machine ID to 128 bytes, because a kubelet may report any length.
func BoundID(id string) string { return outcome.Clean(id, 128) }

// MaxRemoved limits Record.RemovedLabels, as the API limits removeLabels.
const MaxRemoved = 8

// boundedRemoved returns the labels of a record that are valid labels.
func boundedRemoved(removed map[string]string) map[string]string {
	bounded := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(removed)) {
		value := removed[key]
		if len(bounded) < MaxRemoved && len(validation.IsQualifiedName(key)) == 0 && len(validation.IsValidLabelValue(value)) == 0 {
			bounded[key] = value
		}
	}
	if len(bounded) == 0 {
		return nil
	}
	return bounded
}

// isDigest reports whether s is a SHA-256 in hexadecimal digits.
func isDigest(s string) bool {
	sum, err := hex.DecodeString(s)
	return err == nil && len(sum) == sha256.Size
}

// BoundInputs returns a hash of values as a record stores it.
func BoundInputs(hash string) string { return outcome.Clean(hash, 16) }

// maxRollbackMessage limits Rollback.Message, in bytes.
const maxRollbackMessage = 512

// bounded returns r with all fields limited. It does not share what it modifies.
func (r Record) bounded() Record {
	r.StartedAt, r.FinishedAt, r.RecordedAt = wholeSeconds(r.StartedAt), wholeSeconds(r.FinishedAt), wholeSeconds(r.RecordedAt)
	r.Label = outcome.Clean(r.Label, validation.LabelValueMaxLength)
	r.DisruptedSince, r.FirstStartedAt = wholeSeconds(r.DisruptedSince), wholeSeconds(r.FirstStartedAt)
	if !isDigest(r.Digest) {
		r.Digest = ""
	}
	if !slices.Contains(answers, r.CheckBefore) {
		r.CheckBefore = ""
	}
	r.Reason = outcome.Clean(r.Reason, 128)
	r.Message = outcome.Clean(r.Message, outcome.MaxMessageBytes)
	// What was read from a node is written back to it, and any client may have written it there.
	r.Retry, r.PodUID = outcome.Clean(r.Retry, 64), types.UID(outcome.Clean(string(r.PodUID), 64))
	r.BootID, r.MachineID = BoundID(r.BootID), BoundID(r.MachineID)
	r.ChangedBy = boundUser(r.ChangedBy)
	r.OutsideWindow = outcome.Clean(r.OutsideWindow, validation.DNS1123SubdomainMaxLength)
	r.Inputs = BoundInputs(r.Inputs)
	r.Attempts, r.Disruptions = min(r.Attempts, maxCount), min(r.Disruptions, maxCount)
	if r.Rollback != nil {
		b := *r.Rollback
		b.Attempts, b.Disruptions = min(b.Attempts, maxCount), min(b.Disruptions, maxCount)
		b.Retry, b.PodUID = outcome.Clean(b.Retry, 64), types.UID(outcome.Clean(string(b.PodUID), 64))
		b.StartedAt, b.FinishedAt, b.RecordedAt = wholeSeconds(b.StartedAt), wholeSeconds(b.FinishedAt), wholeSeconds(b.RecordedAt)
		b.Reason, b.Message = outcome.Clean(b.Reason, 128), outcome.Clean(b.Message, maxRollbackMessage)
		r.Rollback = &b
	}
	r.RemovedLabels, r.Expiry = boundedRemoved(r.RemovedLabels), r.Expiry.bounded()
	if r.Reboot != nil {
		b := *r.Reboot
		b.StartedAt, b.BackAt, b.ReadySince = wholeSeconds(b.StartedAt), wholeSeconds(b.BackAt), wholeSeconds(b.ReadySince)
		b.FromBootID, b.BootID = BoundID(b.FromBootID), BoundID(b.BootID)
		r.Reboot = &b
	}
	if r.Drain != nil {
		d := *r.Drain
		d.StartedAt, d.FinishedAt = wholeSeconds(d.StartedAt), wholeSeconds(d.FinishedAt)
		if !slices.Contains(drainOutcomes, d.Outcome) {
			d.Outcome = ""
		}
		r.Drain = &d
	}
	r.Earlier, r.Previous, r.Archives, r.Asked = r.Earlier.bounded(), r.Previous.bounded(), r.Archives.bounded(), r.Asked.bounded()
	r.Images = r.Images.bounded()
	return r
}

// Encode returns the annotation's value: JSON of at most MaxBytes, with escaped control characters. What does not fit
// is removed in this order: the messages of the earlier attempts, the earlier attempts from the oldest on, the results of
// the previous revision, the beginning of the message, the archives and images, the results. The outcome is never removed.
func Encode(r Record) string {
	r = r.bounded()
	steps := []func(){
		func() {},
		func() {
			for i := range r.Earlier {
				r.Earlier[i].Message = ""
			}
		},
	}
	for range r.Earlier {
		steps = append(steps, func() { r.Earlier = r.Earlier[1:] })
	}
	steps = append(steps,
		func() {
			if r.Previous != nil {
				r.Previous.Results, r.Previous.Truncated = nil, true // bounded has copied it
			}
		},
		func() {
			r.Message, r.Asked = outcome.Clean(r.Message, 256), r.Asked.withoutMessages()
			if r.Rollback != nil {
				r.Rollback.Message = outcome.Clean(r.Rollback.Message, 128)
			}
		},
		func() { r.Archives, r.Images = nil, nil },
		func() { r.Results, r.Truncated = nil, true },
	)
	for _, shorten := range steps {
		shorten()
		if encoded := marshal(r); len(encoded) <= MaxBytes {
			return encoded
		}
	}
	least := Record{
		Revision: r.Revision, Digest: r.Digest, Outcome: r.Outcome, Attempts: r.Attempts, Disruptions: r.Disruptions, DisruptedSince: r.DisruptedSince,
		FinishedAt: r.FinishedAt, RecordedAt: r.RecordedAt, Retry: r.Retry, Cordoned: r.Cordoned, Drain: r.Drain, PodUID: r.PodUID,
		Asked: r.Asked.withoutMessages(), CheckBefore: r.CheckBefore, FirstStartedAt: r.FirstStartedAt, Rerun: r.Rerun, Label: r.Label, LabelRemoved: r.LabelRemoved, Inputs: r.Inputs, ChangedBy: r.ChangedBy, OutsideWindow: r.OutsideWindow, Assumed: r.Assumed, RetryRequested: r.RetryRequested, RunsAlone: r.RunsAlone, NeverStarted: r.NeverStarted, NotStarted: r.NotStarted, Reboot: r.Reboot, RemovedLabels: r.RemovedLabels,
		Expiry: r.Expiry,
	}
	if b := r.Rollback; b != nil {
		least.Rollback = &Rollback{
			Outcome: b.Outcome, Attempts: b.Attempts, Disruptions: b.Disruptions,
			FinishedAt: b.FinishedAt, RecordedAt: b.RecordedAt, Retry: b.Retry, PodUID: b.PodUID,
		}
	}
	return marshal(least)
}

// marshal does not escape <, > and &. Escapes would take six times the space, so that fewer results fit, and would make
// them unreadable on the node.
func marshal(r Record) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(r); err != nil {
		panic(err) // only the times may fail to marshal, and wholeSeconds makes them valid
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// maxYear is far from the year 9999, the latest that JSON can represent, even after a deadline is added.
const maxYear = 2500

// wholeSeconds returns t as a record stores it. A node's clock, or a user, may write any year.
func wholeSeconds(t time.Time) time.Time {
	t = t.UTC().Truncate(time.Second)
	if t.Year() < 1970 || t.Year() > maxYear {
		return time.Time{}
	}
	return t
}

// ErrNoRecord is returned for a value that is not a record. A user may have written it.
var ErrNoRecord = errors.New("not a record")

// Decode reads an annotation's value. The error wraps ErrNoRecord.
func Decode(value string) (Record, error) {
	if len(value) > 4*MaxBytes {
		return Record{}, fmt.Errorf("%w: %d bytes", ErrNoRecord, len(value))
	}
	var r Record
	if err := json.Unmarshal([]byte(value), &r); err != nil {
		return Record{}, fmt.Errorf("%w: %w", ErrNoRecord, err)
	}
	if wrong := r.wrong(); wrong != "" {
		return Record{}, fmt.Errorf("%w: %s", ErrNoRecord, wrong)
	}
	return r.bounded(), nil
}

// wrong returns what no record of ours can contain; "" if there is nothing.
func (r *Record) wrong() string {
	b := r.Rollback
	switch {
	case !r.Outcome.fits(r.CheckBefore, r.Expiry):
		return fmt.Sprintf("outcome %q", outcome.Clean(string(r.Outcome), 32))
	case r.Revision == "" || len(validation.IsValidLabelValue(r.Revision)) > 0 || r.Attempts < 0 || r.Disruptions < 0:
		return fmt.Sprintf("revision %q, %d attempts", outcome.Clean(r.Revision, 32), r.Attempts)
	case r.Outcome == Rebooting && (r.Reboot == nil || r.Reboot.FromBootID == ""):
		return "a reboot from no boot"
	case b != nil && !b.valid():
		return fmt.Sprintf("rollback %q, %d attempts", outcome.Clean(string(b.Outcome), 32), b.Attempts)
	}
	return ""
}

func (b *Rollback) valid() bool {
	return b.Outcome.ended() && b.Attempts >= 0 && b.Disruptions >= 0
}

func (o Outcome) known() bool {
	return o == Succeeded || o == Failed || o == Disrupted || o == Rebooting || o == Needed || o == Expired
}

// fits reports whether a record may have the outcome beside the answers of its checks. In an audit, a node that has answered no is done.
func (o Outcome) fits(answer Answer, expiry *Expiry) bool {
	if o == Needed && answer == "" {
		return expiry != nil
	}
	return o.known() && ((o == Needed) == (answer == AnswerNo) || o == Succeeded && answer == AnswerNo)
}

// Done reports whether a record with the outcome makes the node done.
func (o Outcome) Done() bool { return o == Succeeded || o == Expired }

// NodeRecord is what a node stores under one key.
type NodeRecord struct {
	// Label is the revision that the node is done with; "" if there is no label. It exists because of our record of a
	// success, or because a user set it.
	Label string
	// Record is nil if there is no annotation, or none that the manager has written.
	Record *Record
	// Altered is true for an annotation that does not match its seal (SealKey): the manager did not write it, and it is
	// ignored.
	Altered bool
	// Sealed is true if there is a seal. A node cannot write one, so the manager has stored something there.
	Sealed bool
	// Present is true if there is anything under the key, readable or not.
	Present bool
}

// Read returns what the labels and annotations of a node contain under key. A record without its seal is ignored,
// because a node can write its own annotations.
func Read(labels, annotations map[string]string, key string) NodeRecord {
	label, labelled := labels[key]
	value, annotated := annotations[key]
	_, vouched := labels[SealKey(key)]
	on := NodeRecord{Label: label, Sealed: vouched, Present: labelled || annotated || vouched}
	if !annotated {
		return on
	}
	if !sealed(labels, key, value) {
		on.Altered = true
		return on
	}
	if r, err := Decode(value); err == nil {
		on.Record = &r
	}
	return on
}
