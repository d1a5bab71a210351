// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// upgradePlan has the fields of a Plan, from upgrade.cattle.io/v1.
type upgradePlan struct {
	Spec struct {
		Concurrency           int64                         `json:"concurrency,omitempty"`
		JobActiveDeadlineSecs *int64                        `json:"jobActiveDeadlineSecs,omitempty"`
		NodeSelector          *metav1.LabelSelector         `json:"nodeSelector,omitempty"`
		ServiceAccountName    string                        `json:"serviceAccountName,omitempty"`
		Channel               string                        `json:"channel,omitempty"`
		Version               string                        `json:"version,omitempty"`
		Secrets               []planSecret                  `json:"secrets,omitempty"`
		Tolerations           []corev1.Toleration           `json:"tolerations,omitempty"`
		Exclusive             bool                          `json:"exclusive,omitempty"`
		Window                map[string]any                `json:"window,omitempty"`
		Prepare               *planContainer                `json:"prepare,omitempty"`
		Upgrade               *planContainer                `json:"upgrade,omitempty"`
		Cordon                bool                          `json:"cordon,omitempty"`
		Drain                 *planDrain                    `json:"drain,omitempty"`
		ImagePullSecrets      []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`
		PostCompleteDelay     string                        `json:"postCompleteDelay,omitempty"`
		PriorityClassName     string                        `json:"priorityClassName,omitempty"`
		CustomNodeLabels      map[string]string             `json:"customNodeLabels,omitempty"`
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
	Timeout            *intstr.IntOrString   `json:"timeout,omitempty"`
	GracePeriod        *int32                `json:"gracePeriod,omitempty"`
	DeleteLocalData    *bool                 `json:"deleteLocalData,omitempty"`
	DeleteEmptydirData *bool                 `json:"deleteEmptydirData,omitempty"`
	IgnoreDaemonSets   *bool                 `json:"ignoreDaemonSets,omitempty"`
	Force              bool                  `json:"force,omitempty"`
	DisableEviction    bool                  `json:"disableEviction,omitempty"`
	SkipWait           int                   `json:"skipWaitForDeleteTimeout,omitempty"`
	PodSelector        *metav1.LabelSelector `json:"podSelector,omitempty"`
}

// hostRoot is where the controller mounts the root directory of the node.
const hostRoot = "/host"

// plan converts a Plan: to one NodeJob, and to another one for its prepare container.
func (c *converter) plan(source *unstructured.Unstructured) ([]*draft, error) {
	plan, found, err := into[upgradePlan](source)
	if err != nil {
		return nil, err
	}
	if plan.Spec.Upgrade == nil {
		return nil, errors.New("it has no spec.upgrade")
	}
	d, work := c.planDraft(source, plan, plan.Spec.Upgrade)
	d.maintain(plan)
	d.planLabels(source.GetName(), plan)
	d.planTodos(plan)
	drafts := []*draft{d}
	if prepare := c.prepare(source, plan, found); prepare != nil {
		drafts = []*draft{prepare, d}
		d.spec.set("dependsOn", []any{prepare.name}, "The container prepare is a NodeJob of its own. It runs before the node is cordoned and drained.")
	} else if spec := plan.Spec.Prepare; spec != nil {
		d.note("TODO: Resume this NodeJob when the one of the Plan %s is complete. The container prepare waited for this Plan: kubectl everynode status %[1]s%s --watch", spec.Args[1], inNamespace(d.namespace))
		d.drop("the container prepare with the image %s, which waited for the Plan %s", spec.Image, spec.Args[1])
	}
	d.nameFields(work, "", planRules(d.usesTemplate(), "spec.upgrade"), found)
	return drafts, nil
}

// prepare returns the NodeJob for the prepare container of a Plan; nil if it has none, or one that waits for another Plan, as
// those of the upgrade images of k3s and RKE2 do.
func (c *converter) prepare(source *unstructured.Unstructured, plan *upgradePlan, found *fields) *draft {
	const at = "spec.prepare"
	spec := plan.Spec.Prepare
	if spec == nil || len(spec.Args) == 2 && spec.Args[0] == "prepare" {
		return nil
	}
	d, work := c.planDraft(source, plan, spec)
	d.rename(source.GetName() + "-prepare")
	d.planLabels(source.GetName(), plan)
	d.nameFields(work, at, planRules(d.usesTemplate(), at), found)
	found.unknown = slices.DeleteFunc(found.unknown, func(path string) bool { return isWithin(path, at) })
	return d
}

// planDraft writes what the NodeJobs of a Plan have in common.
func (c *converter) planDraft(source *unstructured.Unstructured, plan *upgradePlan, container *planContainer) (*draft, *workload) {
	d := newDraft(c.options, source)
	d.setSelector(plan.Spec.NodeSelector)
	d.tolerate(plan.Spec.Tolerations)
	w := c.workload(planTemplate(plan, container), source)
	w.addStep(&w.template.Spec.Containers[0], false)
	d.setTask(w)
	d.account = plan.Spec.ServiceAccountName
	if deadline := plan.Spec.JobActiveDeadlineSecs; deadline != nil {
		d.timeout(deadline, "jobActiveDeadlineSecs")
	}
	d.concurrent(intstr.FromInt32(int32(min(plan.Spec.Concurrency, 1<<30))), "concurrency")
	if d.usesTemplate() && strings.HasSuffix(w.template.Spec.Containers[0].Image, ":TAG") {
		d.spec.in("task").todo("template", "write the version instead of TAG. There is no polling of a channel (%s): a GitOps tool changes the image.", plan.Spec.Channel)
	}
	changed := []any{}
	for _, secret := range plan.Spec.Secrets {
		if !secret.IgnoreUpdates && d.usesTemplate() {
			changed = append(changed, map[string]any{"kind": "Secret", "name": secret.Name})
		}
	}
	if len(changed) > 0 {
		d.spec.in("task").set("inputs", changed, "A change of the Secret is a new revision, which runs on all nodes again. The manager must be allowed to get the Secret (docs/reruns.md).")
	}
	return d, w
}

// planTemplate returns the pod that the controller creates for a container of a Plan.
func planTemplate(plan *upgradePlan, spec *planContainer) *corev1.PodTemplateSpec {
	version := tagOf(cmp.Or(plan.Spec.Version, plan.Status.LatestVersion))
	image := spec.Image
	if _, tag, _ := strings.Cut(path.Base(image), ":"); tag == "" && !strings.Contains(image, "@") {
		if version == "" {
			version = "TAG"
		}
		image += ":" + version
	}
	container := corev1.Container{
		Name: "upgrade", Image: image, Command: spec.Command, Args: spec.Args, EnvFrom: spec.EnvFrom, SecurityContext: spec.SecurityContext,
		VolumeMounts: []corev1.VolumeMount{{Name: "host-root", MountPath: hostRoot}},
	}
	container.Env = append(planVariables(plan, spec), spec.Env...)
	if container.SecurityContext == nil {
		container.SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
	}
	directory := corev1.HostPathDirectory
	pod := corev1.PodSpec{
		HostPID: true, HostIPC: true, HostNetwork: true, DNSPolicy: corev1.DNSClusterFirstWithHostNet,
		ServiceAccountName: plan.Spec.ServiceAccountName, ImagePullSecrets: plan.Spec.ImagePullSecrets, PriorityClassName: plan.Spec.PriorityClassName,
		Volumes: []corev1.Volume{{Name: "host-root", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/", Type: &directory}}}},
	}
	for _, secret := range plan.Spec.Secrets {
		name := "secret-" + secret.Name
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: secret.Path, ReadOnly: true})
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret.Name, DefaultMode: secret.DefaultMode}}})
	}
	for _, volume := range spec.Volumes {
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: volume.Name, MountPath: volume.Destination})
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: volume.Name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: volume.Source}}})
	}
	pod.Containers = []corev1.Container{container}
	return &corev1.PodTemplateSpec{Spec: pod}
}

// tagOf returns the tag of the image for a version.
func tagOf(version string) string { return strings.ReplaceAll(version, "+", "-") }

// planVariables returns the variables of the controller that the container uses. Those of an unknown program are all
// that the manifest determines.
func planVariables(plan *upgradePlan, spec *planContainer) []corev1.EnvVar {
	variables := []corev1.EnvVar{{Name: "SYSTEM_UPGRADE_NODE_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}}}
	if plan.Spec.Version != "" {
		variables = append(variables, corev1.EnvVar{Name: "SYSTEM_UPGRADE_PLAN_LATEST_VERSION", Value: plan.Spec.Version})
	}
	if len(spec.Command) == 0 {
		return variables
	}
	text := strings.Join(slices.Concat(spec.Command, spec.Args), "\n")
	return slices.DeleteFunc(variables, func(v corev1.EnvVar) bool { return !strings.Contains(text, v.Name) && isShell(spec.Command[0]) })
}

// maintain converts cordon and drain.
func (d *draft) maintain(plan *upgradePlan) {
	from := plan.Spec.Drain
	if from == nil && !plan.Spec.Cordon {
		return
	}
	m := d.spec.in("maintenance")
	if plan.Spec.Concurrency > 0 {
		m.set("maxUnavailable", min(plan.Spec.Concurrency, 1<<30))
	}
	if from == nil {
		m.set("cordon", true)
		return
	}
	from.convert(m.in("drain"))
	for _, todo := range from.todos() {
		m.todo("drain", "%s", todo)
	}
}

// convert writes the options of the drain.
func (from *planDrain) convert(drain *object) {
	drain.set("deleteEmptyDirData", isTrue(from.DeleteLocalData) && isTrue(from.DeleteEmptydirData))
	if from.Timeout != nil {
		drainTimeout(drain, from.Timeout)
	}
	if grace := from.GracePeriod; grace != nil && *grace >= 0 {
		drain.set("gracePeriodSeconds", min(max(*grace, 1), 86400))
	}
	if s := from.PodSelector; s != nil && len(s.MatchLabels)+len(s.MatchExpressions) > 0 {
		drain.set("podSelector", generic(s))
	}
}

// todos returns what a drain of a NodeJob does in another way.
func (from *planDrain) todos() []string {
	var notes []string
	for _, option := range []struct {
		isSet bool
		note  string
	}{
		{from.Force, "drain.force: pods without a controller block the drain. Delete them first."},
		{from.DisableEviction, "drain.disableEviction: pods are always evicted, so PodDisruptionBudgets apply."},
		{from.SkipWait > 0, "drain.skipWaitForDeleteTimeout: the drain waits for all pods. Lower gracePeriodSeconds instead."},
		{!isTrue(from.IgnoreDaemonSets), "drain.ignoreDaemonSets is false: pods of DaemonSets are never evicted, and do not block the drain."},
	} {
		if option.isSet {
			notes = append(notes, option.note)
		}
	}
	return notes
}

// isTrue returns the value of an option of the drain, which is true when omitted.
func isTrue(option *bool) bool { return option == nil || *option }

// drainTimeout converts a number of nanoseconds, or a duration such as 5m. Zero is no limit.
func drainTimeout(drain *object, value *intstr.IntOrString) {
	timeout := time.Duration(value.IntVal)
	if value.Type == intstr.String {
		parsed, err := time.ParseDuration(value.StrVal)
		if err != nil {
			drain.todo("timeoutSeconds", "drain.timeout %s is not a duration.", value.StrVal)
			return
		}
		timeout = parsed
	}
	const most = 604800
	seconds := int64(timeout / time.Second)
	if seconds < 1 || seconds > most {
		drain.set("timeoutSeconds", most, fmt.Sprintf("drain.timeout is %s. The drain has a limit of 1 to %d seconds.", value.String(), most))
		return
	}
	drain.set("timeoutSeconds", seconds)
}

// planLabels says which nodes the Plan has upgraded.
func (d *draft) planLabels(name string, plan *upgradePlan) {
	key := "plan.upgrade.cattle.io/" + name
	d.drop("the label %s: the NodeJob has the label %s.everynode.dev/%s and the record", key, d.namespace, d.name)
	if hash := plan.Status.LatestHash; hash != "" {
		d.assumeDone(map[string]any{"matchLabels": map[string]any{key: hash}})
		return
	}
	d.note("TODO: Nodes with any value of the label %s count as done, also with an earlier version of the Plan. The value for the current version is: kubectl get plans.upgrade.cattle.io %s%s -o jsonpath='{.status.latestHash}'", key, name, inNamespace(d.namespace))
	d.assumeDone(map[string]any{"matchExpressions": []any{map[string]any{"key": key, "operator": "Exists"}}})
}

// planTodos names the fields that have no equivalent.
func (d *draft) planTodos(plan *upgradePlan) {
	s := plan.Spec
	text := strings.Join(d.spec.in("task").lines(0), "\n")
	if s.Channel != "" && !strings.Contains(text, s.Channel) {
		d.spec.todo("task", "channel %s: there is no polling of a channel. A change of the task is a new revision.", s.Channel)
	}
	if s.Version != "" && !strings.Contains(text, s.Version) && !strings.Contains(text, tagOf(s.Version)) {
		d.drop("version %s: a change of the task is a new revision", s.Version)
	}
	if s.Exclusive {
		d.spec.todo("dependsOn", "exclusive: name the other exclusive Plans, if they must not run at the same time.")
	}
	if s.Window != nil {
		d.spec.todo("suspend", "window: a NodeJob has no time window. Call kubectl everynode resume and suspend at these times: %s", describeWindow(s.Window))
	}
	if s.PostCompleteDelay != "" {
		d.spec.todo("rollout", "postCompleteDelay %s: there is no wait between nodes. rollout.steps[].soakSeconds is a wait between steps.", s.PostCompleteDelay)
	}
	for _, key := range slices.Sorted(maps.Keys(s.CustomNodeLabels)) {
		d.spec.todo("publish", "customNodeLabels %s=%s: let the task report it as a result, and publish it.", key, s.CustomNodeLabels[key])
	}
	d.note("The system-upgrade-controller repeats a failed Job. The NodeJob stops after the first node on which every attempt has failed (rollout.maxFailures).")
}

func describeWindow(window map[string]any) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(window)) {
		parts = append(parts, fmt.Sprintf("%s %v", key, window[key]))
	}
	return strings.Join(parts, ", ")
}
