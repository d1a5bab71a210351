// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodebudget/budget"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/record"
)

// Cluster is the view of a client that has no caches and writes nothing: lists, a moment old.
type Cluster struct {
	Nodes []plan.Node
	// Jobs are the NodeJobs of the cluster, or only those of the namespace if the client may not list others.
	Jobs []*v1alpha1.NodeJob
	// Budgets are the NodeDisruptionBudgets; none if the client may not list them.
	Budgets []*v1alpha1.NodeDisruptionBudget
	// ManagerNode is the node that the manager runs on; "" if it is not known, or if the manager runs outside of the cluster.
	ManagerNode string
	// AllowedNodes are the nodes that namespaces are limited to. Those without an entry are not limited, or cannot be read.
	AllowedNodes map[string]labels.Selector
	Now          time.Time
}

// Input returns what the plan of a NodeJob reads. pods are those with its name in their label. What prevents pods from
// starting is taken from the status that the manager wrote.
func (c Cluster) Input(job *v1alpha1.NodeJob, pods []corev1.Pod) plan.Input {
	in := plan.Input{Job: job, Revision: job.Status.Revision, Digest: job.Status.RevisionDigest, Obstacle: ToldObstacle(job), OwnNode: c.ManagerNode, Now: c.Now, AllowedNodes: c.AllowedNodes[job.Namespace]}
	if in.Obstacle != nil && slices.Contains(notAllowed, in.Obstacle.Reason) {
		in.NotAllowed = in.Obstacle
	}
	key := v1alpha1.RecordKey(job.Namespace, job.Name)
	in.Nodes = slices.Clone(c.Nodes)
	for i := range in.Nodes {
		in.Nodes[i].Published = record.ReadPublished(in.Nodes[i].Annotations)
		in.Nodes[i].On = record.Read(in.Nodes[i].Labels, in.Nodes[i].Annotations, key)
	}
	in.NodeProblems = ToldNodeProblems(job, in.Nodes, c.Now)
	var strangers []*corev1.Pod
	for i := range pods {
		if slices.ContainsFunc(pods[i].OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == job.UID }) {
			in.Pods = append(in.Pods, Pod(&pods[i]))
		} else {
			strangers = append(strangers, &pods[i])
		}
	}
	in.BusyNodes = BusyNodes(job, strangers)
	Peers(&in, c.Jobs, c.AllowedNodes, func(_ string, labels, annotations map[string]string, key string) record.NodeRecord {
		return record.Read(labels, annotations, key)
	})
	if len(c.Budgets) > 0 {
		Budgets(&in, budget.EffectsOf(c.Budgets, budget.ToldAnswers(c.Budgets, c.Now), 0, c.Now), ToldStances(c.Budgets, in.Nodes))
	}
	return in
}

// told are the obstacles that the manager detects and writes into the status. Those that the plan detects itself are
// not among them.
var told = []string{
	v1alpha1.ReasonConfigMapNotFound, v1alpha1.ReasonConfigMapNotLabeled, v1alpha1.ReasonInvalidScript, v1alpha1.ReasonPodForbidden,
	v1alpha1.ReasonServiceAccountNotFound, v1alpha1.ReasonPodInvalid, v1alpha1.ReasonPodNotCreated, v1alpha1.ReasonImageVolumesNotSupported,
	v1alpha1.ReasonSecretNotFound, v1alpha1.ReasonSecretForbidden, v1alpha1.ReasonNamespaceTerminating,
	v1alpha1.ReasonArchiveNotConfigured, v1alpha1.ReasonDependencyCycle, v1alpha1.ReasonDependencyNotFound, v1alpha1.ReasonNamespaceNotAllowed,
	v1alpha1.ReasonPoliciesMissing, v1alpha1.ReasonNotAuthorized, v1alpha1.ReasonInstallationTerminating, v1alpha1.ReasonNodeConditionsDisabled,
	v1alpha1.ReasonInvalidNamespaceNodes,
}

// notAllowed are those of told that are plan.Input.NotAllowed.
var notAllowed = []string{
	v1alpha1.ReasonNamespaceNotAllowed, v1alpha1.ReasonPoliciesMissing, v1alpha1.ReasonNotAuthorized, v1alpha1.ReasonInstallationTerminating,
	v1alpha1.ReasonInvalidNamespaceNodes,
}

// ToldObstacle returns what prevents pods from starting, according to the NodeJob's status; nil if the status contains
// nothing of that kind, or is older than the spec. A problem of single nodes is not an obstacle (ToldNodeProblems).
func ToldObstacle(job *v1alpha1.NodeJob) *hold.Why {
	if job.Status.ObservedGeneration != job.Generation {
		return nil
	}
	for _, kind := range []string{v1alpha1.ConditionStalled, v1alpha1.ConditionReconciling} {
		c := meta.FindStatusCondition(job.Status.Conditions, kind)
		ofNodes := c != nil && slices.ContainsFunc(job.Status.NodeProblems, func(p v1alpha1.NodeProblem) bool { return p.Reason == c.Reason })
		if c != nil && c.Status == metav1.ConditionTrue && slices.Contains(told, c.Reason) && !ofNodes {
			return &hold.Why{Reason: c.Reason, Message: c.Message}
		}
	}
	return nil
}
