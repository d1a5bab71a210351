// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"cmp"
	"errors"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
)

// upgradePlan has the fields of a Plan that a NodeJob has too, from upgrade.cattle.io/v1. fields.yaml says what becomes of the others.
type upgradePlan struct {
	Spec struct {
		Concurrency           int32                         `json:"concurrency,omitempty"`
		JobActiveDeadlineSecs *int64                        `json:"jobActiveDeadlineSecs,omitempty"`
		NodeSelector          *metav1.LabelSelector         `json:"nodeSelector,omitempty"`
		ServiceAccountName    string                        `json:"serviceAccountName,omitempty"`
		Version               string                        `json:"version,omitempty"`
		Secrets               []planSecret                  `json:"secrets,omitempty"`
		Tolerations           []corev1.Toleration           `json:"tolerations,omitempty"`
		Upgrade               *planContainer                `json:"upgrade,omitempty"`
		Cordon                bool                          `json:"cordon,omitempty"`
		Drain                 *planDrain                    `json:"drain,omitempty"`
		ImagePullSecrets      []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`
		PriorityClassName     string                        `json:"priorityClassName,omitempty"`
	} `json:"spec"`
	Status struct {
		LatestHash    string `json:"latestHash,omitempty"`
		LatestVersion string `json:"latestVersion,omitempty"`
	} `json:"status,omitzero"`
}

type planContainer struct {
	Image           string                  `json:"image"`
	Command         []string                `json:"command,omitempty"`
	Args            []string                `json:"args,omitempty"`
	Env             []corev1.EnvVar         `json:"envs,omitempty"`
	EnvFrom         []corev1.EnvFromSource  `json:"envFrom,omitempty"`
	SecurityContext *corev1.SecurityContext `json:"securityContext,omitempty"`
	Volumes         []struct {
		Name        string `json:"name"`
		Source      string `json:"source"`
		Destination string `json:"destination"`
	} `json:"volumes,omitempty"`
}

type planSecret struct {
	Name          string `json:"name"`
	Path          string `json:"path"`
	IgnoreUpdates bool   `json:"ignoreUpdates,omitempty"`
	DefaultMode   *int32 `json:"defaultMode,omitempty"`
}

type planDrain struct {
	GracePeriod        *int32                `json:"gracePeriod,omitempty"`
	DeleteLocalData    *bool                 `json:"deleteLocalData,omitempty"`
	DeleteEmptydirData *bool                 `json:"deleteEmptydirData,omitempty"`
	PodSelector        *metav1.LabelSelector `json:"podSelector,omitempty"`
}

// plan converts a Plan.
func (c *converter) plan(source *unstructured.Unstructured) error {
	plan, err := into[upgradePlan](c, source)
	if err != nil {
		return err
	}
	switch {
	case plan.Spec.Upgrade == nil || plan.Spec.Upgrade.Image == "":
		return errors.New("it has no spec.upgrade with an image")
	case plan.Spec.NodeSelector == nil:
		return errors.New("it has no spec.nodeSelector, so it runs on no node. For all nodes: nodeSelector: {}")
	}
	d := c.newDraft(source.GetName(), planTemplate(source.GetName(), plan), source)
	selector, key := plan.Spec.NodeSelector, "plan.upgrade.cattle.io/"+source.GetName()
	if !slices.ContainsFunc(selector.MatchExpressions, func(r metav1.LabelSelectorRequirement) bool { return r.Key == key }) {
		selector.MatchExpressions = append(selector.MatchExpressions,
			metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpNotIn, Values: []string{"disabled"}})
	}
	d.job.Spec.Nodes.Selector, d.job.Spec.Nodes.Tolerations = notEmpty(selector), plan.Spec.Tolerations
	d.readLabels()
	d.setTask()
	d.setInputs(plan)
	d.timeout(plan.Spec.JobActiveDeadlineSecs)
	d.maintain(plan)
	switch hash := plan.Status.LatestHash; {
	case d.job.Spec.Nodes.AssumeDone != nil:
	case hash != "":
		d.job.Spec.Nodes.AssumeDone = &v1alpha1.AssumeDoneSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{key: hash}}}
		d.note("nodes.assumeDone: nodes with this hash of the Plan are done, and do not run the task.")
	default:
		d.runsAgain()
		d.note("They count as done if you convert the Plan with its status: kubectl get plans.upgrade.cattle.io %s%s -o yaml",
			source.GetName(), d.inNamespace())
	}
	d.note("The pod of the task does not have the volume pod-info, with labels and annotations in /run/system-upgrade/pod.")
	if plan.Status.LatestHash == "" {
		d.note("SYSTEM_UPGRADE_PLAN_LATEST_HASH: the task has this variable only if you convert the Plan with its status.")
	}
	d.note("rollout.maxFailures: the NodeJob stops after the first node on which every attempt has failed. The controller repeats a Job.")
	d.nameFields()
	return nil
}

// setInputs converts what a change of which repeats a Plan.
func (d *draft) setInputs(plan *upgradePlan) {
	isTemplate := d.job.Spec.Task.Template != nil
	if image := d.template.Spec.Containers[0].Image; isTemplate && strings.HasSuffix(image, ":TAG") {
		d.todo("write the version instead of TAG in the image %s", image)
	}
	for _, secret := range plan.Spec.Secrets {
		if !secret.IgnoreUpdates {
			d.job.Spec.Task.Inputs = append(d.job.Spec.Task.Inputs, v1alpha1.ContentRef{Kind: "Secret", Name: secret.Name})
			d.note("task.inputs: a change of the Secret repeats the task. The manager must be allowed to get the Secret (docs/reruns.md).")
		} else if !isTemplate {
			d.drop("the Secret %s, which the script cannot read", secret.Name)
		}
	}
}

// planTemplate returns the pod that the controller creates for a Plan.
func planTemplate(name string, plan *upgradePlan) *corev1.PodTemplateSpec {
	spec := plan.Spec.Upgrade
	version := strings.ReplaceAll(cmp.Or(plan.Spec.Version, plan.Status.LatestVersion), "+", "-") // a tag
	container := corev1.Container{
		Name: "upgrade", Image: spec.Image, Command: spec.Command, Args: spec.Args, EnvFrom: spec.EnvFrom,
		SecurityContext: cmp.Or(spec.SecurityContext, &corev1.SecurityContext{Privileged: new(true)}),
		Env:             planVariables(name, version, plan.Status.LatestHash, spec),
	}
	if _, tag, _ := strings.Cut(path.Base(spec.Image), ":"); tag == "" && !strings.Contains(spec.Image, "@") {
		container.Image += ":" + cmp.Or(version, "TAG")
	}
	pod := corev1.PodSpec{
		HostPID: true, HostIPC: true, HostNetwork: true, DNSPolicy: corev1.DNSClusterFirstWithHostNet,
		ServiceAccountName: plan.Spec.ServiceAccountName, PriorityClassName: plan.Spec.PriorityClassName,
		ImagePullSecrets: plan.Spec.ImagePullSecrets,
	}
	mount := func(name, at string, source corev1.VolumeSource) {
		m := corev1.VolumeMount{Name: name, MountPath: at, ReadOnly: source.Secret != nil}
		container.VolumeMounts = append(container.VolumeMounts, m)
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: name, VolumeSource: source})
	}
	mount("host-root", "/host", corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/", Type: new(corev1.HostPathDirectory)}})
	for _, secret := range plan.Spec.Secrets {
		source, at := &corev1.SecretVolumeSource{SecretName: secret.Name, DefaultMode: secret.DefaultMode}, cmp.Or(secret.Path, secret.Name)
		if secret.IgnoreUpdates {
			source.Optional = new(true)
		}
		if !path.IsAbs(at) {
			at = path.Join("/run/system-upgrade/secrets", at)
		}
		mount("secret-"+secret.Name, at, corev1.VolumeSource{Secret: source})
	}
	for _, volume := range spec.Volumes {
		mount(volume.Name, volume.Destination, corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: volume.Source}})
	}
	pod.Containers = []corev1.Container{container}
	return &corev1.PodTemplateSpec{Spec: pod}
}

// planVariables returns the variables of a container of a Plan, with those that the controller sets.
func planVariables(name, version, hash string, spec *planContainer) []corev1.EnvVar {
	ofPod := func(path string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
	}
	env := []corev1.EnvVar{
		{Name: "SYSTEM_UPGRADE_NODE_NAME", ValueFrom: ofPod("spec.nodeName")},
		{Name: "SYSTEM_UPGRADE_PLAN_LATEST_VERSION", Value: version},
		{Name: "SYSTEM_UPGRADE_PLAN_NAME", Value: name},
		{Name: "SYSTEM_UPGRADE_POD_NAME", ValueFrom: ofPod("metadata.name")},
		{Name: "SYSTEM_UPGRADE_POD_UID", ValueFrom: ofPod("metadata.uid")},
		{Name: "SYSTEM_UPGRADE_PLAN_LATEST_HASH", Value: hash},
	}
	text := strings.Join(slices.Concat(spec.Command, spec.Args), " ")
	return append(slices.DeleteFunc(env, func(e corev1.EnvVar) bool {
		// A script that is shown does without those that only its own pod has.
		isUnused := strings.HasPrefix(e.Name, "SYSTEM_UPGRADE_POD") && len(spec.Command) > 0 && !strings.Contains(text, e.Name)
		return isUnused || e.Value == "" && e.ValueFrom == nil
	}), spec.Env...)
}

// maintain converts on how many nodes a Plan runs at once, and whether they are cordoned and drained.
func (d *draft) maintain(plan *upgradePlan) {
	atOnce, m := new(intstr.FromInt32(plan.Spec.Concurrency)), &d.job.Spec.Maintenance
	if d.job.Spec.Rollout.MaxConcurrent = atOnce; plan.Spec.Concurrency < 1 {
		d.todo("concurrency is %d, and rollout.maxConcurrent takes a number from 1", plan.Spec.Concurrency)
	} else if plan.Spec.Drain != nil || plan.Spec.Cordon {
		m.MaxUnavailable = atOnce
	}
	from := plan.Spec.Drain
	if m.Cordon = plan.Spec.Cordon && from == nil; from == nil {
		return
	}
	deletes := *cmp.Or(from.DeleteLocalData, new(true)) && *cmp.Or(from.DeleteEmptydirData, new(true))
	m.Drain = &v1alpha1.DrainSpec{DeleteEmptyDirData: deletes, PodSelector: notEmpty(from.PodSelector)}
	if grace := from.GracePeriod; grace != nil && *grace > 0 {
		m.Drain.GracePeriodSeconds = grace
	}
}
