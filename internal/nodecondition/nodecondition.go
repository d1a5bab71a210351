// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodecondition reads and writes the node conditions of KEP-5683, Node Lifecycle Conditions, by which tools say that a node
// is drained or maintained, and the conditions that NodeJobs publish. Source: the constants of k8s.io/api core/v1 as of Kubernetes
// 1.37, and the text of the KEP (alpha2). By the KEP, any authorized client may write them, the latest write counts, and a client ends
// a state by removing its condition or by setting it to False. It defines no owner, so this package does: a condition belongs to
// Everynode if its reason is Reason, and its message is the namespace and name of a NodeJob.
package nodecondition

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Reason is the reason of all conditions that Everynode writes. Their message is the namespace and name of the NodeJob, such as
// "node-setup/kernel".
const Reason = "NodeJob"

// announcements are the conditions that announce that a node will be drained or maintained, the most urgent one first. Drained and
// MaintenanceInProgress announce nothing: they say what has already happened.
var announcements = []corev1.NodeConditionType{corev1.NodeDrainInProgress, corev1.NodeMaintenancePlanned}

// written are the conditions that Everynode writes.
var written = []corev1.NodeConditionType{
	corev1.NodeMaintenancePlanned, corev1.NodeDrainInProgress, corev1.NodeDrained, corev1.NodeMaintenanceInProgress,
}

// Announced returns the condition by which another client announces that a node will be drained or maintained; "" if none does.
// Conditions of Everynode do not count, because no decision is read from them.
func Announced(conditions []corev1.NodeCondition) corev1.NodeConditionType {
	for _, kind := range announcements {
		if c := find(conditions, kind); c != nil && c.Status == corev1.ConditionTrue && !isOurs(c) {
			return kind
		}
	}
	return ""
}

// isOurs reports whether a condition looks like one that Everynode has written. Who may write the conditions of a node can imitate it.
// The policy in config/node-conditions requires the same of what the manager writes.
func isOurs(c *corev1.NodeCondition) bool {
	namespace, name, _ := strings.Cut(c.Message, "/")
	return c.Reason == Reason && len(validation.IsDNS1123Label(namespace)) == 0 && len(validation.IsDNS1123Subdomain(name)) == 0
}

// isPublished reports whether a condition looks like one of spec.publish of a NodeJob. Types without a domain, such as those of the
// kubelet, cannot be published, and neither can those of Kubernetes.
func isPublished(c *corev1.NodeCondition) bool {
	domain, _, has := strings.Cut(string(c.Type), "/")
	return has && isOurs(c) && !slices.ContainsFunc([]string{"kubernetes.io", "k8s.io", "everynode.dev"}, func(reserved string) bool {
		return domain == reserved || strings.HasSuffix(domain, "."+reserved)
	})
}

// maxMessage, in bytes, limits what Kept keeps of a message: more than a namespace and a name have.
const maxMessage = 512

// Kept returns the conditions that this package reads, with messages that are cut, so that a cache need not keep the others.
func Kept(conditions []corev1.NodeCondition) []corev1.NodeCondition {
	var kept []corev1.NodeCondition
	for i := range conditions {
		if c := conditions[i]; slices.Contains(written, c.Type) || isPublished(&c) {
			c.Message = c.Message[:min(len(c.Message), maxMessage)]
			kept = append(kept, c)
		}
	}
	return kept
}

// Same reports whether two conditions differ only in their times.
func Same(a, b corev1.NodeCondition) bool {
	return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message
}

func find(conditions []corev1.NodeCondition, kind corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range conditions {
		if conditions[i].Type == kind {
			return &conditions[i]
		}
	}
	return nil
}

// Stage is how far the disruption of a node by a NodeJob is.
type Stage struct {
	// Planned is true from the claim or the cordon until the task starts, and Draining while the pods of the node are evicted.
	Planned, Draining bool
	// Drained is true after the drain has ended, and InProgress from the first attempt until the run has ended.
	Drained, InProgress bool
}

func (s Stage) has(kind corev1.NodeConditionType) bool {
	return kind == corev1.NodeMaintenancePlanned && s.Planned || kind == corev1.NodeDrainInProgress && s.Draining ||
		kind == corev1.NodeDrained && s.Drained || kind == corev1.NodeMaintenanceInProgress && s.InProgress
}

// Disruption is what a NodeJob does on a node.
type Disruption struct {
	// NodeJob is its namespace and name, such as "node-setup/kernel".
	NodeJob string
	Stage
}

// Published is a condition that a NodeJob publishes on a node.
type Published struct {
	Type   corev1.NodeConditionType
	Status corev1.ConditionStatus
	// NodeJob is its namespace and name.
	NodeJob string
}

// Desired is what the conditions of a node should say.
type Desired struct {
	// Disruptions of the node, sorted by NodeJob.
	Disruptions []Disruption
	// Published are the conditions that NodeJobs publish on the node, sorted by NodeJob.
	Published []Published
	// Unknown reports whether it is not known yet what a NodeJob does: its conditions stay. nil if everything is known.
	Unknown func(nodeJob string) bool
}

// Patch returns the strategic merge patch of the status of a node that writes the conditions of Everynode which are missing, and
// removes those that are obsolete; nil if there is nothing to change. It does not change conditions of other clients, also while
// these are False. It fails if the node has changed since it was read.
func (d Desired) Patch(node *corev1.Node, now time.Time) []byte {
	var changes []any
	for _, kind := range d.types(node.Status.Conditions) {
		if change := d.change(kind, find(node.Status.Conditions, kind), metav1.NewTime(now)); change != nil {
			changes = append(changes, change)
		}
	}
	if changes == nil {
		return nil
	}
	b, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": node.UID, "resourceVersion": node.ResourceVersion}, "status": map[string]any{"conditions": changes},
	})
	if err != nil {
		panic(err) // strings and times always marshal
	}
	return b
}

// types are the types of the conditions that Everynode writes on a node, or has written.
func (d Desired) types(conditions []corev1.NodeCondition) []corev1.NodeConditionType {
	var published []corev1.NodeConditionType
	for i := range d.Published {
		published = append(published, d.Published[i].Type)
	}
	for i := range conditions {
		if isPublished(&conditions[i]) {
			published = append(published, conditions[i].Type)
		}
	}
	slices.Sort(published)
	return slices.Concat(written, slices.Compact(published))
}

// change is what the patch does with a condition; nil if it does not change it.
func (d Desired) change(kind corev1.NodeConditionType, current *corev1.NodeCondition, now metav1.Time) any {
	if current != nil && !isOurs(current) {
		return nil
	}
	switch want := d.want(kind, current); {
	case want == nil && current != nil:
		return map[string]string{"$patch": "delete", "type": string(kind)}
	case want != nil && (current == nil || current.Message != want.NodeJob || current.Status != want.Status):
		return corev1.NodeCondition{
			Type: kind, Status: want.Status, Reason: Reason, Message: want.NodeJob, LastHeartbeatTime: now, LastTransitionTime: now,
		}
	}
	return nil
}

// want is what a condition should say; nil if it should not exist. If several NodeJobs write it, the one that the condition names stays.
func (d Desired) want(kind corev1.NodeConditionType, current *corev1.NodeCondition) (want *Published) {
	if current != nil && d.Unknown != nil && d.Unknown(current.Message) {
		return &Published{kind, current.Status, current.Message}
	}
	candidates := d.Published
	for _, each := range d.Disruptions {
		if each.has(kind) {
			candidates = append(slices.Clip(candidates), Published{kind, corev1.ConditionTrue, each.NodeJob})
		}
	}
	for i := range candidates {
		if c := &candidates[i]; c.Type == kind && (want == nil || current != nil && current.Message == c.NodeJob) {
			want = c
		}
	}
	return want
}
