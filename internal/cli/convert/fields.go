// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/json"
)

// No field of a source is lost without a comment. A template is the pod as it was, so the list is short. A test sets each field.

// wrongType matches an error of encoding/json.
var wrongType = regexp.MustCompile(`cannot unmarshal (\w+) into Go (?:struct )?field \w*\.?([\w.]+) of type (\S+)`)

// into decodes an object into its type, and returns the paths of fields that the type does not have.
func into[T any](source *unstructured.Unstructured) (typed *T, unknown []string, err error) {
	typed = new(T)
	body, err := source.MarshalJSON()
	if err != nil {
		return nil, nil, fmt.Errorf("reading its fields: %w", err)
	}
	strict, err := json.UnmarshalStrict(body, typed)
	if err != nil {
		text := err.Error()
		if m := wrongType.FindStringSubmatch(text); m != nil {
			text = fmt.Sprintf("%s is a %s, and must be %s", m[2], m[1], m[3])
		}
		return nil, nil, fmt.Errorf("reading its fields: %s. If it is a template, replace the placeholders first", text)
	}
	for _, err := range strict {
		if path := strings.Trim(strings.TrimPrefix(err.Error(), "unknown field "), `"`); strings.HasPrefix(path, "spec.") {
			unknown = append(unknown, path)
		}
	}
	return typed, unknown, nil
}

// fields are fields that a NodeJob does not have.
type fields struct {
	// paths are separated by spaces, and begin in the object, or with . in the pod. * is each item of a list.
	paths string
	// value is the value that changes nothing; nil if there is none.
	value any
	// gone says that the fields are not needed, and instead is why; otherwise it is what to do instead.
	gone    bool
	instead string
}

const (
	gone = true
	todo = false
)

// ofKinds are the fields of the kinds. Those of "" are of all kinds, and of "script" those of pods that a script does not have.
var ofKinds = map[string][]fields{
	"": {
		{"metadata.labels metadata.annotations", nil, gone, "unless another tool needs them"},
		{"metadata.ownerReferences", nil, todo, "the owner may create the object again, so change the owner"},
		{".affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution .affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution " +
			".affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution .topologySpreadConstraints", nil, gone, "the task runs on all nodes that are selected"},
		{".schedulerName", "default-scheduler", gone, "Everynode chooses the node of each pod"},
		{".terminationGracePeriodSeconds", 30, gone, "a task ends by itself"},
		{".restartPolicy", "Always", gone, "retry repeats a failed attempt"},
		{".ephemeralContainers", nil, todo, "no pod can be created with them"},
		{".containers.*.ports .containers.*.livenessProbe .containers.*.readinessProbe .containers.*.startupProbe", nil, gone, "a task is not a server"},
		{".containers.*.terminationMessagePath", "/dev/termination-log", todo, "the record has the end of the output"},
		{".containers.*.terminationMessagePolicy", "File", gone, "the record has the end of the output"},
		{".containers.*.lifecycle.postStart", nil, todo, "add it to the task"},
		{".containers.*.lifecycle.preStop", nil, todo, "spec.rollback with deletionPolicy Rollback runs a script on each node when the NodeJob is deleted"},
		{".containers.*.lifecycle.stopSignal", nil, todo, "a task ends by itself"},
	},
	"script": {
		{".priorityClassName", nil, gone, "the pods of scripts have the class of the installation, system-node-critical by default"},
		{"spec.template.metadata.annotations spec.template.metadata.labels", nil, gone, "the pods of scripts have their own"},
	},
	"DaemonSet": {
		{".nodeName", nil, todo, "nodes.names selects nodes by their names"},
		{"spec.updateStrategy.rollingUpdate.maxSurge", 0, todo, "a node has one pod of the task at a time"},
		{"spec.minReadySeconds", 0, todo, "rollout.steps[].soakSeconds waits between steps"},
		{"spec.revisionHistoryLimit", 10, gone, "the record has the earlier attempts"},
	},
	"Job": {
		{"spec.parallelism spec.completions", 1, todo, "a NodeJob runs the task once on each node"},
		{"spec.completionMode", "NonIndexed", todo, "a NodeJob runs the task once on each node"},
		{"spec.podFailurePolicy", nil, todo, "a failed attempt is repeated up to retry.limit"},
		{"spec.successPolicy", nil, todo, "a node is done when its task has succeeded"},
		{"spec.backoffLimitPerIndex spec.maxFailedIndexes", nil, todo, "a NodeJob runs the task once on each node"},
		{"spec.podReplacementPolicy", "TerminatingOrFailed", todo, "an attempt begins when the one before it has ended"},
		{"spec.scheduling", nil, todo, "a NodeJob runs on each node, so its pods are not scheduled together"},
		{"spec.managedBy", "kubernetes.io/job-controller", todo, "the manager of Everynode runs the NodeJob"},
	},
	"BroadcastJob": {{".nodeName", nil, todo, "nodes.names selects nodes by their names"}},
}

// nameFields says which fields of the sources the NodeJob does not have. unknown are those that their kind does not have.
func (d *draft) nameFields(unknown []string) {
	list := slices.Concat(ofKinds[""], ofKinds[d.kind()])
	if d.job.Spec.Task.Template == nil {
		list = append(list, ofKinds["script"]...)
	}
	var names, lost []string
	lose := func(path, instead string) {
		if !slices.Contains(names, path) {
			names, lost = append(names, path), append(lost, path+" ("+instead+")")
		}
	}
	for _, f := range list {
		for _, path := range d.pathsOf(f) {
			if f.gone {
				d.drop("%s: %s", path, f.instead)
			} else {
				lose(path, f.instead)
			}
		}
	}
	for _, path := range unknown {
		lose(path, "unknown")
	}
	if len(lost) > 0 {
		d.todo("not converted: %s\nCheck whether the task needs them:\n- %s", strings.Join(names, ", "), strings.Join(lost, "\n- "))
	}
}

// pathsOf returns the paths at which the sources have one of the fields with another value than the one that changes nothing.
func (d *draft) pathsOf(f fields) []string {
	var found []string
	for path := range strings.FieldsSeq(f.paths) {
		if strings.HasPrefix(path, ".") {
			path = "spec.template.spec" + path
		}
		list, field, isList := strings.Cut(path, "containers.*.")
		for _, source := range d.sources {
			if !isList {
				found = append(found, f.in(source.Object, path, path)...)
				continue
			}
			for _, list := range []string{list + "containers", list + "initContainers"} {
				items, _, _ := unstructured.NestedSlice(source.Object, strings.Split(list, ".")...)
				for _, item := range items {
					container, _ := item.(map[string]any)
					found = append(found, f.in(container, field, fmt.Sprintf("%s[%v].%s", list, container["name"], field))...)
				}
			}
		}
	}
	return found
}

// in returns the name of a field if an object has it with another value than the one that changes nothing.
func (f fields) in(object map[string]any, path, name string) []string {
	value, found, _ := unstructured.NestedFieldNoCopy(object, strings.Split(path, ".")...)
	if !found || value == nil || fmt.Sprint(value) == fmt.Sprint(f.value) || isEmpty(value) {
		return nil
	}
	return []string{name}
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
		for key := range value {
			if !slices.Contains(byKubernetes, key) {
				return false
			}
		}
		return true
	case []any:
		return len(value) == 0
	}
	return false
}
