// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// No field of a source is lost without a comment. A template is the pod as it was, so the list is short. A test sets each field.

// into decodes an object into its type, and returns the paths of fields that the type does not have.
func into[T any](source *unstructured.Unstructured) (typed *T, unknown []string, err error) {
	typed = new(T)
	err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(source.Object, typed, true)
	if strict, ok := runtime.AsStrictDecodingError(err); ok {
		for _, err := range strict.Errors() {
			if path := strings.Trim(strings.TrimPrefix(err.Error(), "unknown field "), `"`); strings.HasPrefix(path, "spec.") {
				unknown = append(unknown, path)
			}
		}
		return typed, unknown, nil
	}
	if err != nil {
		// This error does not name the field, and that of encoding/json does.
		if body, failed := json.Marshal(source.Object); failed == nil {
			if named := json.Unmarshal(body, new(T)); named != nil {
				err = named
			}
		}
		text := err.Error()
		if m := wrongType.FindStringSubmatch(text); m != nil {
			text = fmt.Sprintf("%s is a %s, and must be %s", m[2], m[1], m[3])
		}
		return nil, nil, fmt.Errorf("reading its fields: %s. If it is a template, replace the placeholders first", text)
	}
	return typed, nil, nil
}

// wrongType matches an error of encoding/json.
var wrongType = regexp.MustCompile(`cannot unmarshal (\w+) into Go (?:struct )?field \w*\.?([\w.]+) of type (\S+)`)

// field is a field that a NodeJob does not have.
type field struct {
	// path is that of the field. * is each item of a list.
	path string
	// value is the value that changes nothing; nil if there is none.
	value any
	// instead is what to do instead. gone says that the field is not needed, and instead is why.
	instead string
	gone    bool
}

const pod = "spec.template.spec."

// ofAll are fields of all kinds.
var ofAll = []field{
	{path: "metadata.labels", gone: true, instead: "unless another tool needs them"},
	{path: "metadata.annotations", gone: true, instead: "unless another tool needs them"},
	{path: "metadata.ownerReferences", instead: "the owner may create the object again, so change the owner"},
	{path: pod + "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution", gone: true, instead: "the task runs on all nodes that are selected"},
	{path: pod + "affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution", gone: true, instead: "the task runs on all nodes that are selected"},
	{path: pod + "affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution", gone: true, instead: "the task runs on all nodes that are selected"},
	{path: pod + "topologySpreadConstraints", gone: true, instead: "the task runs on all nodes that are selected"},
	{path: pod + "schedulerName", value: "default-scheduler", gone: true, instead: "Everynode chooses the node of each pod"},
	{path: pod + "terminationGracePeriodSeconds", value: 30, gone: true, instead: "a task ends by itself"},
	{path: pod + "restartPolicy", gone: true, value: "Always", instead: "retry repeats a failed attempt"},
	{path: pod + "ephemeralContainers", instead: "no pod can be created with them"},
	{path: pod + "containers.*.ports", gone: true, instead: "a task is not a server"},
	{path: pod + "containers.*.livenessProbe", gone: true, instead: "a task is not a server"},
	{path: pod + "containers.*.readinessProbe", gone: true, instead: "a task is not a server"},
	{path: pod + "containers.*.startupProbe", gone: true, instead: "a task is not a server"},
	{path: pod + "containers.*.terminationMessagePath", value: "/dev/termination-log", instead: "the record has the end of the output"},
	{path: pod + "containers.*.terminationMessagePolicy", value: "File", gone: true, instead: "the record has the end of the output"},
	{path: pod + "containers.*.lifecycle.postStart", instead: "add it to the task"},
	{path: pod + "containers.*.lifecycle.preStop", instead: "spec.rollback with deletionPolicy Rollback runs a script on each node when the NodeJob is deleted"},
	{path: pod + "containers.*.lifecycle.stopSignal", instead: "a task ends by itself"},
}

// ofKinds are fields of some kinds.
var ofKinds = map[string][]field{
	"DaemonSet": {
		{path: pod + "nodeName", instead: "nodes.names selects nodes by their names"},
		{path: pod + "activeDeadlineSeconds", instead: "task.timeoutSeconds limits an attempt"},
		{path: "spec.updateStrategy.rollingUpdate.maxSurge", value: 0, instead: "a node has one pod of the task at a time"},
		{path: "spec.minReadySeconds", value: 0, instead: "rollout.steps[].soakSeconds waits between steps"},
		{path: "spec.revisionHistoryLimit", value: 10, gone: true, instead: "the record has the earlier attempts"},
	},
	"Job": {
		{path: "spec.parallelism", value: 1, instead: "a NodeJob runs the task once on each node"},
		{path: "spec.completions", value: 1, instead: "a NodeJob runs the task once on each node"},
		{path: "spec.completionMode", value: "NonIndexed", instead: "a NodeJob runs the task once on each node"},
		{path: "spec.podFailurePolicy", instead: "a failed attempt is repeated up to retry.limit"},
		{path: "spec.successPolicy", instead: "a node is done when its task has succeeded"},
		{path: "spec.backoffLimitPerIndex", instead: "a NodeJob runs the task once on each node"},
		{path: "spec.maxFailedIndexes", instead: "a NodeJob runs the task once on each node"},
		{path: "spec.podReplacementPolicy", value: "TerminatingOrFailed", instead: "an attempt begins when the one before it has ended"},
		{path: "spec.scheduling", instead: "a NodeJob runs on each node, so its pods are not scheduled together"},
		{path: "spec.managedBy", value: "kubernetes.io/job-controller", instead: "the manager of Everynode runs the NodeJob"},
	},
	"BroadcastJob": {{path: pod + "nodeName", instead: "nodes.names selects nodes by their names"}},
}

// ofScripts are fields of pods that a script does not have.
var ofScripts = []field{
	{path: pod + "priorityClassName", gone: true, instead: "the pods of scripts have the class of the installation, system-node-critical by default"},
	{path: "spec.template.metadata.annotations", gone: true, instead: "the pods of scripts have their own"},
	{path: "spec.template.metadata.labels", gone: true, instead: "the pods of scripts have their own"},
}

// nameFields says which fields of the sources the NodeJob does not have. unknown are those that their kind does not have.
func (d *draft) nameFields(unknown []string) {
	list := slices.Concat(ofAll, ofKinds[d.kind()])
	if d.job.Spec.Task.Template == nil {
		list = append(list, ofScripts...)
	}
	var lost []string
	for _, f := range list {
		for _, source := range d.sources {
			for _, path := range pathsOf(source.Object, f) {
				if f.gone {
					d.drop("%s: %s", path, f.instead)
				} else if line := path + " (" + f.instead + ")"; !slices.Contains(lost, line) {
					lost = append(lost, line)
				}
			}
		}
	}
	for _, path := range unknown {
		lost = append(lost, path+" (unknown)")
	}
	if len(lost) > 0 {
		names := make([]string, len(lost))
		for i, line := range lost {
			names[i], _, _ = strings.Cut(line, " (")
		}
		d.todo("not converted: %s\nCheck whether the task needs them:\n- %s", strings.Join(names, ", "), strings.Join(lost, "\n- "))
	}
}

// pathsOf returns the paths at which an object has a field with another value than the one that changes nothing.
func pathsOf(object map[string]any, f field) []string {
	before, after, isList := strings.Cut(f.path, ".*.")
	if !isList {
		value, found, _ := unstructured.NestedFieldNoCopy(object, strings.Split(f.path, ".")...)
		if !found || value == nil || fmt.Sprint(value) == fmt.Sprint(f.value) || isEmpty(value) {
			return nil
		}
		return []string{f.path}
	}
	var paths []string
	for _, list := range []string{before, strings.TrimSuffix(before, "containers") + "initContainers"} {
		items, _, _ := unstructured.NestedSlice(object, strings.Split(list, ".")...)
		for _, item := range items {
			fields, _ := item.(map[string]any)
			f.path = after
			for range pathsOf(fields, f) {
				paths = append(paths, fmt.Sprintf("%s[%v].%s", list, fields["name"], after))
			}
		}
	}
	return paths
}

// byKubernetes are labels and annotations that Kubernetes and kubectl set.
var byKubernetes = []string{
	corev1.LastAppliedConfigAnnotation, "deprecated.daemonset.template.generation", "kubectl.kubernetes.io/restartedAt",
	"controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "batch.kubernetes.io/job-tracking",
}

// isEmpty reports whether a value has nothing that a user has set.
func isEmpty(value any) bool {
	switch value := value.(type) {
	case map[string]any:
		return !slices.ContainsFunc(slices.Collect(maps.Keys(value)), func(key string) bool { return !slices.Contains(byKubernetes, key) })
	case []any:
		return len(value) == 0
	}
	return false
}
