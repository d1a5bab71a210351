// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/observe"
	"github.com/everynode/everynode/internal/text"
	"github.com/everynode/everynode/internal/ui/cmdutil"
	"github.com/everynode/everynode/internal/ui/view"
)

// maxLabels limits the labels of a node by which the page groups nodes.
const maxLabels = 64

// maxExplained is the number of nodes up to which the state explains each node. In larger clusters it explains failed nodes, because
// what nodes wait for changes often.
const maxExplained = 200

// observed is what the user may read of the cluster, at one time.
type observed struct {
	observe.Cluster
	guards []*v1alpha1.NodeGuard
	// pods are the pods of NodeJobs, by the namespace and the name of the NodeJob.
	pods map[types.NamespacedName][]corev1.Pod
	// freezes are the freezes that select nodes.
	freezes []view.Freeze
	// budgetsUnreadable is why the user cannot see NodeDisruptionBudgets; "" if they can.
	budgetsUnreadable string
	// notes are what is missing, and why.
	notes []note
	// context is the name of the user's context, and flag the name if the user gave it as a flag.
	context, flag string
	// makes is true if the page makes changes.
	makes bool
}

// note is a part of the cluster that cannot be read, and why.
type note struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

// planOf returns the plan of a NodeJob, as explain computes it. The pods of drains are not included (cmdutil.PlanDrains).
func (o *observed) planOf(job *v1alpha1.NodeJob) (plan.Input, plan.Plan) {
	in := o.Input(job, o.pods[types.NamespacedName{Namespace: job.Namespace, Name: job.Name}])
	return in, plan.Next(in)
}

// jobState is a NodeJob in the page's state.
type jobState struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Tone      string `json:"tone"`
	// Headline is what the reason means, in words.
	Headline  string `json:"headline"`
	Reason    string `json:"reason"`
	Message   string `json:"message"`
	Revision  string `json:"revision"`
	Step      string `json:"step"`
	Suspended bool   `json:"suspended,omitempty"`
	// Run is true for a NodeJob of the command run. It does not count in the state of the nodes.
	Run bool `json:"run,omitempty"`
	// Matched, Running, Waiting and Failed count nodes as the status of the NodeJob does. Done are those on which the task is done now:
	// neither drifted nor expired.
	Matched int32 `json:"matched"`
	Done    int32 `json:"done"`
	Running int32 `json:"running"`
	Waiting int32 `json:"waiting"`
	Failed  int32 `json:"failed"`
	// Audit is true if Done are the nodes that are compliant, and Failed those that are not.
	Audit bool `json:"audit,omitempty"`
	// Drifted are nodes on which the check answers no, CheckErrors those on which it fails itself, and Expired those on which the task is
	// no longer needed. Drifted nodes that run the task again, and CheckErrors, are also in one of the other counts.
	Drifted     int32 `json:"drifted,omitempty"`
	CheckErrors int32 `json:"checkErrors,omitempty"`
	Expired     int32 `json:"expired,omitempty"`
	// Excluded are selected nodes on which the task does not run. They are in no other count.
	Excluded int32 `json:"excluded,omitempty"`
}

// nodeState is a node in the page's state.
type nodeState struct {
	Labels   map[string]string `json:"labels,omitempty"`
	Ready    string            `json:"ready"`
	Cordoned bool              `json:"cordoned,omitempty"`
	// Held are the NodeGuards that hold the node.
	Held []string `json:"held,omitempty"`
	// Jobs are state, reason, step and a sentence for each NodeJob that selects the node, and in small clusters for all others too.
	Jobs map[string][4]string `json:"jobs,omitempty"`
}

// clusterState is what the page's state says about the whole.
type clusterState struct {
	Context string `json:"context"`
	Notes   []note `json:"notes"`
	// Freezes are the freezes that select nodes, a sentence for each.
	Freezes []string `json:"freezes,omitempty"`
	// Changes is true if the page can make changes.
	Changes bool `json:"changes,omitempty"`
}

// values returns the state of the page.
func (o *observed) values() map[string]json.RawMessage {
	nodes := make([]nodeState, len(o.Nodes))
	index := make(map[string]int, len(o.Nodes))
	for i := range o.Nodes {
		nodes[i] = newNodeState(&o.Nodes[i])
		index[o.Nodes[i].Name] = i
	}
	for _, g := range o.guards {
		for k := range g.Status.Waiting {
			if i, ok := index[g.Status.Waiting[k].Node]; ok {
				nodes[i].Held = append(nodes[i].Held, g.Namespace+"/"+g.Name)
			}
		}
	}
	values := map[string]json.RawMessage{}
	for _, job := range o.Jobs {
		key := job.Namespace + "/" + job.Name
		values["job:"+key] = encode(newJobState(job, o.Now))
		if !cmdutil.NotObserved(job) {
			o.addStates(nodes, job, key)
		}
	}
	for i := range nodes {
		values["node:"+o.Nodes[i].Name] = encode(nodes[i])
	}
	values["budgets"] = encode(o.newBudgetsState())
	values["needs"] = encode(o.needs())
	values["cluster"] = encode(clusterState{
		Context: o.context, Notes: o.notes, Freezes: o.frozen(), Changes: o.makes,
	})
	return values
}

// frozen are the sentences of the freezes.
func (o *observed) frozen() []string {
	var sentences []string
	for _, f := range o.freezes {
		sentences = append(sentences, text.Safe(f.Sentence(o.Now)))
	}
	return sentences
}

// addStates adds the state of each node under a NodeJob.
func (o *observed) addStates(nodes []nodeState, job *v1alpha1.NodeJob, key string) {
	in, p := o.planOf(job)
	steps := make([]string, len(nodes))
	for _, step := range p.Steps {
		for _, i := range step.Nodes {
			steps[i] = step.Name
		}
	}
	small := len(nodes) <= maxExplained
	for i := range p.Nodes {
		s := &p.Nodes[i]
		if !small && !view.IsSelected(s) {
			continue
		}
		why := ""
		if slices.Contains([]string{v1alpha1.ReasonNonCompliant, v1alpha1.ReasonDrifted}, s.Reason) || hasWhy(s.State, small) {
			why = view.Explain{Job: job, Node: &in.Nodes[i], State: *s, Now: o.Now}.Why()
		}
		if nodes[i].Jobs == nil {
			nodes[i].Jobs = map[string][4]string{}
		}
		nodes[i].Jobs[key] = [4]string{string(s.State), s.Reason, steps[i], why}
	}
}

// hasWhy reports whether the page says why a node is in a state.
func hasWhy(s plan.State, small bool) bool { return s == plan.Failed || small && s != plan.Done }

func newNodeState(node *plan.Node) nodeState {
	s := nodeState{Labels: map[string]string{}, Ready: cmp.Or(string(node.Ready), "Unknown"), Cordoned: node.Unschedulable}
	for key, value := range node.Labels {
		if isForGroups(key) {
			s.Labels[key] = value
		}
	}
	if len(s.Labels) > maxLabels {
		keys := make([]string, 0, len(s.Labels))
		for key := range s.Labels {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		for _, key := range keys[maxLabels:] {
			delete(s.Labels, key)
		}
	}
	return s
}

// isForGroups reports whether nodes can usefully be grouped by a label: not if it has another value on each node, or is a
// mark of Everynode.
func isForGroups(key string) bool {
	prefix, _, _ := strings.Cut(key, "/")
	return key != corev1.LabelHostname && prefix != v1alpha1.Group && !strings.HasSuffix(prefix, "."+v1alpha1.Group) && !strings.HasSuffix(prefix, "node-restriction.kubernetes.io")
}

func newJobState(job *v1alpha1.NodeJob, now time.Time) jobState {
	tone, reason, message, _ := view.Situation(job)
	if need := view.NeedOf(job, now); need != nil {
		tone = need.Tone
		if reason == v1alpha1.ReasonAwaitingPromotion {
			message = need.Cause // the promotion is a remedy
		}
	}
	s := jobState{
		Namespace: job.Namespace, Name: job.Name, Tone: tones[tone], Headline: view.Headline(job, reason), Reason: reason, Message: text.Safe(message),
		Revision: job.Status.Revision, Suspended: job.Spec.Suspend,
		Run: cmdutil.IsRun(job),
	}
	if job.Status.Rollout != nil {
		s.Step = job.Status.Rollout.Step
	}
	n, _ := view.Judged(job)
	s.Matched, s.Done, s.Running, s.Waiting, s.Failed = n.Total, n.Done, n.Running, n.Waiting, n.Failed
	s.CheckErrors, s.Expired, s.Excluded = n.CheckErrors, n.Expired, n.Excluded
	if s.Audit = task.IsAudit(job); !s.Audit {
		s.Drifted = n.NonCompliant
	}
	return s
}

// tones are the names of the tones in the page.
var tones = [...]string{
	text.Plain: "plain", text.Good: "good", text.Bad: "bad", text.Warn: "warn", text.Active: "active", text.Dim: "dim", text.Strong: "strong",
}

// encode encodes a value that cannot fail to be encoded.
func encode(value any) json.RawMessage {
	encoded, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("encoding %T: %v", value, err))
	}
	return encoded
}

// find returns the NodeJob with this name; nil if there is none.
func (o *observed) find(namespace, name string) *v1alpha1.NodeJob {
	for _, job := range o.Jobs {
		if job.Namespace == namespace && job.Name == name {
			return job
		}
	}
	return nil
}

// seconds returns a time for the page; 0 if it is unknown.
func seconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}
