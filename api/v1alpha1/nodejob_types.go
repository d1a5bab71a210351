// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeJob makes a task have run on every node that it selects, the present and the future ones:
// once per revision, recorded on each node.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=nodejobs,singular=nodejob,shortName=nj,categories=everynode
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.nodes.matched`,description="Matching nodes"
// +kubebuilder:printcolumn:name="Done",type=integer,JSONPath=`.status.nodes.done`
// +kubebuilder:printcolumn:name="Running",type=integer,JSONPath=`.status.nodes.running`
// +kubebuilder:printcolumn:name="Waiting",type=integer,JSONPath=`.status.nodes.waiting`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.nodes.failed`
// +kubebuilder:printcolumn:name="Step",type=string,JSONPath=`.status.rollout.step`,description="The step that the rollout has reached"
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Complete")].reason`
// +kubebuilder:printcolumn:name="Revision",type=string,JSONPath=`.status.revision`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="!has(self.spec.dependsOn) || !(self.metadata.name in self.spec.dependsOn)",message="spec.dependsOn names the NodeJob itself: take it out"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63",message="metadata.name must have at most 63 characters, because it becomes part of a label on each node: choose a shorter name"
type NodeJob struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata. The name has at most 63 characters.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec says which nodes, what to run there, how fast, and what to do when it goes wrong.
	// +required
	Spec NodeJobSpec `json:"spec,omitzero"`

	// status is the observed state. Its size does not depend on the size of the cluster. The observed generation -1 is that
	// of an object that the manager has not observed yet.
	// +optional
	// +kubebuilder:default:={"observedGeneration":-1}
	Status NodeJobStatus `json:"status,omitzero"`
}

// NodeJobList is a list of NodeJobs.
//
// +kubebuilder:object:root=true
type NodeJobList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`
	// items is the list of NodeJobs.
	Items []NodeJob `json:"items"`
}

// NodeJobSpec is what the user wants.
//
// +kubebuilder:validation:XValidation:rule="!has(self.gate) || !has(self.nodeNames)",message="gate is for nodes that join, and nodeNames for those that are there: use nodeSelector with a gate"
// +kubebuilder:validation:XValidation:rule="!has(self.gate) || !has(self.gate.onReboot) || !self.gate.onReboot || (has(self.rerun) && has(self.rerun.onReboot) && self.rerun.onReboot)",message="gate.onReboot closes the gate until the task has run again, which needs rerun.onReboot: set it to true, or leave gate.onReboot out"
// +kubebuilder:validation:XValidation:rule="!has(self.ttlSecondsAfterFinished) || !has(self.rerun) || !has(self.rerun.everySeconds) || self.rerun.everySeconds == 0",message="with ttlSecondsAfterFinished the NodeJob is gone after its first run: leave it out, or rerun.everySeconds"
// +kubebuilder:validation:XValidation:rule="!has(self.publish) || !has(self.removeLabels) || !self.publish.exists(p, has(p.label) && p.label in self.removeLabels)",message="a label in removeLabels is published as well: take it out of one of the two"
// +kubebuilder:validation:XValidation:rule="!has(self.verify) || !has(self.task.template)",message="verify works with task.script, task.scriptFrom and task.command only: with task.template, check the result in the template's own container and end it with another exit code than 0"
// +kubebuilder:validation:XValidation:rule="!has(self.task.template) || !has(self.task.template.spec) || !has(self.task.template.spec.os) || self.task.template.spec.os.name == 'linux' || (!has(self.rollback) && (!has(self.maintenance) || !has(self.maintenance.reboot) || self.maintenance.reboot == 'Never'))",message="rollback and maintenance.reboot work on Linux nodes only: with another task.template.spec.os, leave them out"
// +kubebuilder:validation:XValidation:rule="!has(self.deletionPolicy) || self.deletionPolicy != 'RollBack' || has(self.rollback)",message="deletionPolicy RollBack needs spec.rollback: write the script that undoes the task, or use Forget or Retain"
type NodeJobSpec struct {
	// nodeSelector selects nodes by their labels. Omitted: every node. An empty selector is rejected: it may be what
	// remains of a misspelled field.
	// +optional
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) && self.matchLabels.size() > 0) || (has(self.matchExpressions) && self.matchExpressions.size() > 0)",message="the selector is empty: write nodeSelector.matchLabels.KEY: VALUE, or omit nodeSelector for all nodes"
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`

	// nodeNames are names of nodes: of those that nodeSelector selects, only these. For a run on nodes that are
	// there now, and on no other that joins later. Omitted: all.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=20000
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	NodeNames []string `json:"nodeNames,omitempty"`

	// tolerations are the taints that do not exclude a node, as for a DaemonSet. Always
	// tolerated are those of a node that is not ready, unreachable, under pressure, without network
	// or cordoned.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// task is what runs on each node.
	// +required
	Task TaskSpec `json:"task,omitzero"`

	// verify runs after the task succeeded, in the same pod and within the same time limit. Another
	// exit code than 0 makes the attempt a failed one.
	// +optional
	Verify *VerifySpec `json:"verify,omitempty"`

	// rollback undoes the task on a node where every attempt failed, in a pod of its own; and, with
	// deletionPolicy RollBack, on every node when the NodeJob is deleted. It is no part of the revision.
	// +optional
	Rollback *RollbackSpec `json:"rollback,omitempty"`

	// retry says how often and when a failed attempt is repeated.
	// +optional
	// +kubebuilder:default={}
	Retry RetrySpec `json:"retry,omitzero"`

	// onFailure says what becomes of a node on which every attempt failed.
	// +optional
	// +kubebuilder:default={}
	OnFailure OnFailureSpec `json:"onFailure,omitzero"`

	// rollout says in which steps, how many nodes at once, and how many may fail.
	// +optional
	// +kubebuilder:default={}
	Rollout RolloutSpec `json:"rollout,omitzero"`

	// assumeDone names nodes that are already set up, for example by a DaemonSet that this NodeJob replaces: they count
	// as done without a run.
	// +optional
	AssumeDone *AssumeDoneSpec `json:"assumeDone,omitempty"`

	// publish puts results of the task on the node, in the same write that records the success. What is
	// no longer listed, or no longer reported, is taken off again.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.all(p, (!has(p.label) || self.exists_one(q, has(q.label) && q.label == p.label)) && (!has(p.annotation) || self.exists_one(q, has(q.annotation) && q.annotation == p.annotation)))",message="two results are published under the same key: give each a key of its own"
	Publish []Fact `json:"publish,omitempty"`

	// removeLabels are labels that a success takes off the node, such as one with which a node template
	// asks for the task: at most 8. The node stays one of the NodeJob's. Setting such a label again asks for another run.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.matches('^([^/]*[.])?(kubernetes[.]io|k8s[.]io|everynode[.]dev)/') || k.matches('^(node|kubelet)[.]kubernetes[.]io/'))",message="removeLabels must not name labels of kubernetes.io, k8s.io or everynode.dev, but for node.kubernetes.io/ and kubelet.kubernetes.io/: use a label with a prefix of your own"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('node.kubernetes.io/exclude-'))",message="removeLabels must not name labels that begin with node.kubernetes.io/exclude-, which keep nodes out of load balancers: remove them with kubectl label node"
	RemoveLabels []string `json:"removeLabels,omitempty"`

	// gate is a taint that keeps workloads off a node that joins until the task has succeeded there.
	// +optional
	Gate *GateSpec `json:"gate,omitempty"`

	// maintenance says what is done to the node around the task: cordon, drain, reboot.
	// +optional
	// +kubebuilder:default={}
	Maintenance MaintenanceSpec `json:"maintenance,omitzero"`

	// dependsOn are other NodeJobs of the namespace, at most 16. On a node that one of them is for, the task
	// starts when that one is done there.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	DependsOn []string `json:"dependsOn,omitempty"`

	// suspend keeps new attempts from starting, of rollbacks too, and pods from being evicted. What runs may
	// end, and is recorded. A deletion continues anyway.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// startingDeadlineSeconds is for how long after the creation of the NodeJob attempts may start: 1 to 31536000.
	// After that it is as if suspend were true: a node that becomes reachable later does not run the task. Omitted:
	// for ever.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=31536000
	StartingDeadlineSeconds *int32 `json:"startingDeadlineSeconds,omitempty"`

	// ttlSecondsAfterFinished is how long the NodeJob is kept after it has finished, that is, after nothing in it
	// continues automatically: 0 to 31536000. Then it is deleted, as deletionPolicy says. It has finished while its
	// condition Reconciling is False, also if it is suspended, awaits promotion or needs help. Omitted: for ever.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=31536000
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`

	// retainPodsSeconds is how long the pod of a node's last attempt is kept after its end, for its logs: 0, the
	// default, to 86400. By then it uses no CPU and no memory. It goes before that when the node runs again.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	RetainPodsSeconds int32 `json:"retainPodsSeconds,omitempty"`

	// rerun says what makes a node that is done run the task again.
	// +optional
	// +kubebuilder:default={}
	Rerun RerunSpec `json:"rerun,omitzero"`

	// deletionPolicy says what becomes of the nodes when the NodeJob is deleted. Forget (the default)
	// takes the records off them; Retain leaves the records, and a NodeJob that is made again under the
	// same name finds its nodes done; RollBack runs the rollback on every node that the task has run on,
	// within rollout.maxConcurrent, and then removes the records.
	// +optional
	// +kubebuilder:default=Forget
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`
}

// DeletionPolicy says what becomes of the records when a NodeJob is deleted.
//
// +kubebuilder:validation:Enum=Forget;Retain;RollBack
type DeletionPolicy string

const (
	// DeletionForget takes the records off the nodes.
	DeletionForget DeletionPolicy = "Forget"
	// DeletionRetain leaves the records on the nodes.
	DeletionRetain DeletionPolicy = "Retain"
	// DeletionRollBack undoes the task on the nodes, and takes the records off them.
	DeletionRollBack DeletionPolicy = "RollBack"
)
