// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package steer decides what a user changes to steer a NodeJob: promote, suspend, resume, retry, rerun, skip and abort. The command
// line and the dashboard apply these decisions (package apply), and the dashboard offers what they make possible.
//
// A decision depends only on its arguments and does not change them. The package is pure.
package steer

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

// Decision is what a command changes of a NodeJob.
type Decision struct {
	// Job is the NodeJob after the change; nil if there is nothing to change.
	Job *v1alpha1.NodeJob
	// Nothing is the reason why there is nothing to change.
	Nothing string
	// Did describes the change, and Then its effect; "" if that is obvious.
	Did, Then string
	// Commit is the change to make in Git instead.
	Commit string
}

// nothing is the decision to change nothing.
func nothing(reason string) Decision { return Decision{Nothing: reason} }

// NodeDecision is what a command changes of the metadata of a node.
type NodeDecision struct {
	// Labels and Annotations are the keys to set. A nil value removes the key.
	Labels, Annotations map[string]*string
	// Did describes the change.
	Did string
	// Nothing is the reason why there is nothing to change.
	Nothing string
}

// Patch returns the merge patch for the change, under the UID and the resource version of the node. It never sets the whole map
// to null, which would remove every label of the node.
func (d NodeDecision) Patch(node metav1.Object) ([]byte, error) {
	fields := map[string]any{"resourceVersion": node.GetResourceVersion(), "uid": node.GetUID()}
	if d.Labels != nil {
		fields["labels"] = d.Labels
	}
	if d.Annotations != nil {
		fields["annotations"] = d.Annotations
	}
	patch, err := json.Marshal(map[string]any{"metadata": fields})
	if err != nil {
		return nil, fmt.Errorf("encoding a patch: %w", err)
	}
	return patch, nil
}

// Cause is the kind of a refusal.
type Cause uint8

const (
	// Unsuitable means that the command cannot do this with the NodeJob.
	Unsuitable Cause = iota
	// UnknownStep means that the NodeJob does not have the step.
	UnknownStep
	// TooEarly means that the status does not have what the decision depends on.
	TooEarly
)

// Refusal is the error of a decision that is not possible.
type Refusal struct {
	Cause   Cause
	Message string
}

func (r *Refusal) Error() string { return r.Message }

func refuse(cause Cause, format string, args ...any) error {
	return &Refusal{cause, fmt.Sprintf(format, args...)}
}

// ManagedBy returns the name of the tool that applies the NodeJob, and may revert a change; "" if none is known. Sources: Argo CD,
// resource tracking; Flux, labels of the kustomize and helm controllers; Helm, the annotations of a release.
func ManagedBy(job *v1alpha1.NodeJob) string {
	l, a := job.Labels, job.Annotations
	switch {
	case a["argocd.argoproj.io/tracking-id"] != "":
		return "Argo CD"
	case l["kustomize.toolkit.fluxcd.io/name"] != "":
		return "Flux (Kustomization " + l["kustomize.toolkit.fluxcd.io/namespace"] + "/" + l["kustomize.toolkit.fluxcd.io/name"] + ")"
	case l["helm.toolkit.fluxcd.io/name"] != "":
		return "Flux (HelmRelease " + l["helm.toolkit.fluxcd.io/namespace"] + "/" + l["helm.toolkit.fluxcd.io/name"] + ")"
	case a["meta.helm.sh/release-name"] != "":
		return "Helm (release " + a["meta.helm.sh/release-name"] + ")"
	}
	return ""
}
