// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"math/rand"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/seal"
)

// A tenant is a hostile user with all permissions in the namespace of the NodeJob, and with no right to what a NodeJob does to
// nodes. No admission policy is installed in these histories, so the API server accepts what it writes: any status of the
// NodeJob, any metadata of pods, and pods of its own. It does not have the key of the installation.

// tenant is what a history knows about it.
type tenant struct {
	// key is the key of the installation.
	key seal.Key
	// plot decides what the tenant does, so that histories without it do not change; nil if there is none.
	plot *rand.Rand
	// shown is the status that the API server stores instead of the manager's; nil if it stores that of the manager.
	shown *v1alpha1.NodeJobStatus
	// forged are the pods that the tenant has created.
	forged map[string]*simPod
}

// newTenant has a tenant in a quarter of the histories.
func newTenant(seed int64) tenant {
	t := tenant{key: seal.Key{7}, forged: map[string]*simPod{}}
	if plot := rand.New(rand.NewSource(seed + 1<<45)); plot.Intn(4) == 0 && !slices.Contains(kept, seed) {
		t.plot = plot
	}
	return t
}

// intrude is what the tenant does between two passes.
func (h *history) intrude() {
	if h.plot == nil || h.plot.Intn(3) > 0 {
		return
	}
	switch h.plot.Intn(6) {
	case 0, 1:
		h.forgeStatus()
	case 2:
		h.forgePod()
	case 3:
		h.changePod()
	case 4:
		h.editTemplate()
	case 5:
		h.deletePod("is deleted by the tenant")
	}
}

// forgeStatus writes a status that skips steps, or hides failures.
func (h *history) forgeStatus() {
	status := h.job.Status.DeepCopy()
	past := metav1.NewTime(h.now.Add(-time.Hour).Truncate(time.Second))
	if status.Rollout == nil {
		status.Rollout = &v1alpha1.RolloutStatus{Step: "canary", StepStartedAt: past}
	}
	switch h.plot.Intn(6) {
	case 0:
		status.Rollout.StableAt = past
	case 1:
		status.Rollout.Step, status.Rollout.StepStartedAt = "all", past
	case 2:
		status.Rollout.SoakingSince, status.Rollout.SoakedAt = past, past
	case 3:
		status.Rollout.UnrecordedFailures, status.ControllerState.Rollout.AtRisk = nil, nil
		for _, name := range sortedKeys(h.nodes) {
			status.Rollout.UnrecordedFailures = append(
				status.Rollout.UnrecordedFailures,
				v1alpha1.UnrecordedFailure{Node: name, UID: h.nodes[name].UID},
			)
		}
	case 4:
		status.Drains = nil
		for _, name := range sortedKeys(h.nodes) {
			status.Drains = append(status.Drains, v1alpha1.NodeDrain{Node: name})
		}
	case 5:
		status = &v1alpha1.NodeJobStatus{}
	}
	status.Revision = h.rev
	if h.plot.Intn(2) == 0 { // otherwise it has the seal of another status
		status.ControllerState.Seal = seal.Key{}.NodeJob(&v1alpha1.NodeJob{ObjectMeta: h.job.ObjectMeta, Status: *status})
	}
	h.say("the tenant writes a status: %+v", status.Rollout)
	h.shown = status
}

// readStatus is how a manager reads the status: one without a valid seal counts as none, and a manager that knows the last one
// continues with it.
func (h *history) readStatus(another bool) {
	if h.shown == nil {
		return
	}
	job := h.job.DeepCopy()
	job.Status = *h.shown.DeepCopy()
	switch {
	case h.key.OpenNodeJob(job):
		h.break_("tenant", "a status that the tenant has written has a valid seal")
	case another:
		h.say("the status is lost")
		h.job = job
		h.forgiven()
		clear(h.before)
	}
}

// forgePod creates a pod that looks like an attempt of the NodeJob, with an outcome.
func (h *history) forgePod() {
	node := h.pick()
	if node == nil {
		return
	}
	attempt := task.Attempt{
		Phase:     []task.Phase{task.Task, task.Task, task.Rollback, task.Reboot}[h.plot.Intn(4)],
		Revision:  h.rev,
		Number:    1 + h.plot.Int31n(3),
		NodeName:  node.Name,
		NodeUID:   node.UID,
		MachineID: node.MachineID,
		BootID:    node.BootID,
		Retry:     task.RetryToken(h.job),
	}
	job := h.job.DeepCopy()
	if job.Spec.Rollback == nil {
		job.Spec.Rollback = &v1alpha1.RollbackSpec{}
	}
	raw := task.Pod(job, task.Source{}, attempt, task.Options{Key: seal.Key{byte(h.plot.Intn(2))}})
	raw.UID, raw.CreationTimestamp = h.nextUID("forged"), metav1.NewTime(h.now)
	if h.plot.Intn(2) == 0 {
		raw.Annotations[v1alpha1.RebootAnnotation] = string(v1alpha1.RebootAlways)
	}
	pod := &simPod{Pod: metadataOf(raw), raw: raw}
	pod.Created, pod.Finalized = h.now, h.plot.Intn(2) == 0
	pod.Phase = []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed, corev1.PodRunning}[h.plot.Intn(3)]
	pod.Exit = &Exit{Code: int32(h.plot.Intn(2)), Finished: h.now, Reported: true}
	h.say("the tenant creates pod %s on %s: %s", raw.Name, node.Name, pod.Phase)
	h.forged[raw.Name] = pod
}

// changePod changes the metadata of a pod whose outcome is not on record. A pod that is retained for its logs and then changed
// stays until its NodeJob is deleted.
func (h *history) changePod() {
	names := slices.DeleteFunc(h.podNames(), func(name string) bool { return !h.pods[name].Finalized })
	if len(names) == 0 {
		return
	}
	pod := h.pods[names[h.plot.Intn(len(names))]]
	raw := pod.raw.DeepCopy()
	switch h.plot.Intn(4) {
	case 0:
		raw.Annotations[v1alpha1.RebootAnnotation] = string(v1alpha1.RebootAlways)
	case 1:
		raw.Annotations[v1alpha1.AttemptAnnotation] = strconv.Itoa(1 + h.plot.Intn(9))
	case 2:
		raw.Labels[v1alpha1.RevisionLabel] = []string{"rev1", "rev2", "rev3"}[h.plot.Intn(3)]
	case 3:
		raw.Annotations[v1alpha1.ChangedByAnnotation] = "another user"
	}
	h.say("the tenant changes the metadata of pod %s", raw.Name)
	said := metadataOf(raw)
	pod.raw, pod.Reboot, pod.Attempt, pod.Revision, pod.ChangedBy = raw, said.Reboot, said.Attempt, said.Revision, said.ChangedBy
}

// editTemplate puts keys that the manager uses into the metadata of the task's template. The tenant may create pods in the
// namespace, so it may edit the template.
func (h *history) editTemplate() {
	template := h.job.Spec.Task.Template
	if template == nil || template.Annotations != nil {
		return
	}
	h.job = h.job.DeepCopy()
	h.job.Spec.Task.Template.Annotations = map[string]string{
		v1alpha1.RebootAnnotation: string(
			v1alpha1.RebootAlways,
		),
		v1alpha1.RecordedAnnotation:  "true",
		v1alpha1.RetryAnnotation:     "x",
		v1alpha1.ChangedByAnnotation: "another user",
	}
	h.job.Spec.Task.Template.Labels = map[string]string{v1alpha1.PhaseLabel: string(task.Rollback)}
	h.say("the tenant puts annotations of Everynode into the template")
}

// isMade reports whether a manager takes a pod for one that it has created. Without a tenant, all pods are: to check a seal takes
// time.
func (h *history) isMade(pod *simPod) bool { return h.plot == nil || h.key.MadePod(pod.raw) }

// removeOthers is what the manager does with pods that have its finalizer and no valid seal: it deletes them.
func (h *history) removeOthers() {
	for _, name := range h.podNames() {
		if pod := h.pods[name]; pod.tampered && !h.isMade(pod) && pod.Finalized {
			h.say("pod %s, which was changed by another client, is deleted", name)
			h.removeOther(pod)
		}
	}
	maps.DeleteFunc(h.forged, func(_ string, pod *simPod) bool { return !h.isMade(pod) && pod.Finalized })
}

func (h *history) removeOther(pod *simPod) {
	if pod.Finalized = false; pod.DeleteRequested.IsZero() {
		pod.DeleteRequested = h.now
	}
	h.forgetRun(pod)
}

// deleteChangedPods is the tenant who deletes the pods that it has changed while the manager retained them. Otherwise, they stay
// until their NodeJob is deleted, or another pod needs the name.
func (h *history) deleteChangedPods() {
	for _, name := range h.podNames() {
		if pod := h.pods[name]; !h.isMade(pod) {
			h.removeOther(pod)
		}
	}
}

// forgetRun has the run of a pod that is removed count as not begun: its outcome is not recorded, and an earlier success stays on
// record.
func (h *history) forgetRun(pod *simPod) {
	node := h.nodes[pod.NodeName]
	if node == nil || pod.Runs != task.Task {
		return
	}
	if rec := node.On.Record; rec != nil && rec.Outcome == record.Succeeded && rec.MachineID == node.MachineID {
		h.claimed[string(node.UID)+"/"+rec.Revision] = true
	}
}

// checkTenant checks that the plan does nothing because of what the tenant has written: what is not in the spec, and what no pod
// that the manager has created has done.
func (h *history) checkTenant(p Plan) {
	for _, action := range p.Actions {
		var pod types.UID
		switch a := action.(type) {
		case Record:
			pod = a.Pod.UID
			if a.Record.Outcome == record.Rebooting && a.Pod.Runs == task.Task && !h.wantsReboot() {
				h.break_("tenant", "%s is to reboot, and the spec does not ask for it", a.Node)
			}
			if a.Record.ChangedBy != "" {
				h.break_("tenant", "the record on %s names %s as the author", a.Node, a.Record.ChangedBy)
			}
		case Start:
			if a.Attempt.Phase == task.Reboot && !h.wantsReboot() {
				h.break_("tenant", "%s is rebooted, and the spec does not ask for it", a.Attempt.NodeName)
			}
		case Stop:
			pod = a.Pod.UID
		case FinalizePod:
			pod = a.Pod.UID
		case RetainPod:
			pod = a.Pod.UID
		}
		if pod != "" && h.made[pod] == nil {
			h.break_("tenant", "%T is for pod %s, which the manager has not created", action, pod)
		}
	}
}

// wantsReboot reports whether the spec asks for reboots.
func (h *history) wantsReboot() bool {
	policy := h.job.Spec.Maintenance.Reboot.Policy
	return policy == v1alpha1.RebootAlways || policy == v1alpha1.RebootIfRequested
}

// metadataOf is what a pod says about itself in its metadata.
func metadataOf(pod *corev1.Pod) Pod {
	attempt, err := strconv.Atoi(pod.Annotations[v1alpha1.AttemptAnnotation])
	if err != nil {
		attempt = 1
	}
	return Pod{
		Name:         pod.Name,
		UID:          pod.UID,
		NodeName:     pod.Spec.NodeName,
		NodeUID:      types.UID(pod.Annotations[v1alpha1.NodeUIDAnnotation]),
		Machine:      pod.Annotations[v1alpha1.MachineAnnotation],
		ChecksBefore: pod.Annotations[v1alpha1.CheckBeforeAnnotation] == "true",
		Runs:         task.PhaseOf(pod.Labels[v1alpha1.PhaseLabel]),
		Disrupts:     pod.Annotations[v1alpha1.DisruptsAnnotation] == "true",
		Reboot:       v1alpha1.RebootPolicy(pod.Annotations[v1alpha1.RebootAnnotation]),
		Revision:     pod.Labels[v1alpha1.RevisionLabel],
		Attempt:      int32(attempt),
		Retry:        pod.Annotations[v1alpha1.RetryAnnotation],
		ChangedBy:    record.ChangedBy(pod.Annotations),
		Inputs:       pod.Annotations[v1alpha1.InputsAnnotation],
		Recorded:     pod.Annotations[v1alpha1.RecordedAnnotation] != "",
	}
}
