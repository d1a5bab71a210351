// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/internal/cli/manifest"
)

// leaf is a field without fields, with a value that is not its default.
type leaf struct {
	path  []string
	value any
}

// leaves returns the fields of a type. Lists have one item.
func leaves(t reflect.Type, path []string) []leaf {
	at := func(keys ...string) []string { return slices.Concat(path, keys) }
	switch t {
	case reflect.TypeFor[resource.Quantity]():
		return []leaf{{path, "7"}}
	case reflect.TypeFor[intstr.IntOrString]():
		return []leaf{{path, int64(7)}}
	case reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.MicroTime](), reflect.TypeFor[metav1.FieldsV1]():
		return nil
	}
	switch t.Kind() {
	case reflect.Pointer:
		if t.Elem().Kind() == reflect.Bool {
			return []leaf{{path, true}, {path, false}}
		}
		return leaves(t.Elem(), path)
	case reflect.Struct:
		var found []leaf
		for field := range t.Fields() {
			name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
			switch {
			case name == "" && (options == "inline" || field.Anonymous):
				found = append(found, leaves(field.Type, path)...)
			case name != "" && name != "-":
				found = append(found, leaves(field.Type, at(name))...)
			}
		}
		return found
	case reflect.Slice:
		return leaves(t.Elem(), at("[]"))
	case reflect.Map:
		if t.Elem().Kind() == reflect.Interface {
			return []leaf{{at("key"), "x"}}
		}
		return leaves(t.Elem(), at("key"))
	case reflect.Bool:
		return []leaf{{path, true}}
	case reflect.String:
		return []leaf{{path, "x"}}
	default:
		return []leaf{{path, int64(7)}}
	}
}

// put sets a field of an object. It uses the first item of a list, or adds one.
func put(value any, path []string, to any) any {
	if len(path) == 0 {
		return to
	}
	if path[0] == "[]" {
		list, _ := value.([]any)
		if len(list) == 0 {
			list = []any{nil}
		}
		return append([]any{put(list[0], path[1:], to)}, list[1:]...)
	}
	object, _ := value.(map[string]any)
	if object == nil {
		object = map[string]any{}
	}
	object[path[0]] = put(object[path[0]], path[1:], to)
	return object
}

// outcomeOf returns all that the user sees.
func outcomeOf(object *unstructured.Unstructured) string {
	result := Convert([]*unstructured.Unstructured{object.DeepCopy()}, "")
	return fmt.Sprintf("%s\n%v\n%v", result.YAML, result.Todos, result.Refused)
}

const (
	mounted    = `volumeMounts: [{name: v, mountPath: /v}]`
	scriptPod  = `{hostPID: true, hostNetwork: true, containers: [{name: c, image: i, securityContext: {privileged: true}, command: [nsenter, -t, "1", -m, --, sh, -c, "touch /x; sleep 5"], ` + mounted + `}], volumes: [{name: v, hostPath: {path: /v}}]`
	programPod = `{initContainers: [{name: i, image: i, command: [/program], ` + mounted + `}], containers: [{name: c, image: pause}], volumes: [{name: v}]`
)

// listed are the fields of a kind that are only in fields.yaml.
var listed = map[string]reflect.Type{
	"BroadcastJob": reflect.TypeFor[struct {
		CompletionPolicy struct {
			TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished"`
		} `json:"completionPolicy"`
		Paused bool `json:"paused"`
	}](),
	"Plan": reflect.TypeFor[struct {
		Channel           string            `json:"channel"`
		Exclusive         bool              `json:"exclusive"`
		Window            map[string]any    `json:"window"`
		PostCompleteDelay string            `json:"postCompleteDelay"`
		CustomNodeLabels  map[string]string `json:"customNodeLabels"`
		Drain             struct {
			Timeout          *intstr.IntOrString `json:"timeout"`
			IgnoreDaemonSets *bool               `json:"ignoreDaemonSets"`
			Force            bool                `json:"force"`
			DisableEviction  bool                `json:"disableEviction"`
			SkipWait         int                 `json:"skipWaitForDeleteTimeout"`
		} `json:"drain"`
	}](),
}

// sources are objects in which each field is set: their tasks are scripts, or templates.
var sources = map[string]struct {
	spec     reflect.Type
	manifest string
}{
	"DaemonSet, script": {
		reflect.TypeFor[appsv1.DaemonSetSpec](),
		"apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: d}\nspec: {template: {spec: " + scriptPod + "}}}",
	},
	"DaemonSet, template": {
		reflect.TypeFor[appsv1.DaemonSetSpec](),
		"apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: d}\nspec: {template: {spec: " + programPod + "}}}",
	},
	"Job, script": {
		reflect.TypeFor[batchv1.JobSpec](),
		"apiVersion: batch/v1\nkind: Job\nmetadata: {name: d}\nspec: {template: {spec: " + scriptPod + ", nodeName: node-1}}}",
	},
	"Job, template": {
		reflect.TypeFor[batchv1.JobSpec](),
		"apiVersion: batch/v1\nkind: Job\nmetadata: {name: d}\nspec: {template: {spec: " + programPod + ", nodeName: node-1}}}",
	},
	"BroadcastJob, script": {
		reflect.TypeOf(broadcastJob{}.Spec),
		"apiVersion: apps.kruise.io/v1beta1\nkind: BroadcastJob\nmetadata: {name: d}\nspec: {template: {spec: " + scriptPod + "}}}",
	},
	"BroadcastJob, template": {
		reflect.TypeOf(broadcastJob{}.Spec),
		"apiVersion: apps.kruise.io/v1beta1\nkind: BroadcastJob\nmetadata: {name: d}\nspec: {template: {spec: " + programPod + "}}}",
	},
	"Plan, script": {reflect.TypeOf(upgradePlan{}.Spec), "apiVersion: upgrade.cattle.io/v1\nkind: Plan\nmetadata: {name: d}\n" +
		"spec: {nodeSelector: {}, prepare: {image: i, securityContext: {privileged: true}, command: [chroot, /host, sh, -c, prepare]}, upgrade: {image: i, command: [chroot, /host, sh, -c, work]}}"},
	"Plan, template": {reflect.TypeOf(upgradePlan{}.Spec), "apiVersion: upgrade.cattle.io/v1\nkind: Plan\nmetadata: {name: d}\n" +
		"spec: {nodeSelector: {}, prepare: {image: i, command: [/prepare]}, upgrade: {image: i, command: [/program]}}"},
}

// silent are fields that may be left out without a comment, by the name of the source or a part of it.
var silent = map[string][]string{
	"": {
		"metadata.generateName",
		"metadata.generation",
		"metadata.managedFields",
		"metadata.resourceVersion",
		"metadata.selfLink",
		"metadata.uid",
		"metadata.deletionGracePeriodSeconds",
		"metadata.finalizers",
		// Kubernetes ignores these.
		"spec.template.metadata.name",
		"spec.template.metadata.namespace",
		"spec.template.metadata.generateName",
		"spec.template.metadata.uid",
		"spec.template.metadata.resourceVersion",
		"spec.template.metadata.generation",
		"spec.template.metadata.selfLink",
		"spec.template.metadata.managedFields",
		"spec.template.metadata.ownerReferences",
		"spec.template.metadata.deletionGracePeriodSeconds",
		"spec.template.metadata.finalizers",
	},
	"DaemonSet": {"spec.selector"},
	"Job":       {"spec.selector", "spec.manualSelector", "spec.suspend false"},
	"script": {
		// A comment says that the image and the settings of the pod are not needed, because a script runs as root on the node.
		"spec.template.spec.containers.[].imagePullPolicy",
		"spec.template.spec.containers.[].volumeMounts",
		"spec.template.spec.containers.[].securityContext",
		"spec.template.spec.volumes",
		"spec.template.spec.imagePullSecrets",
		"spec.template.spec.dnsPolicy",
		"spec.template.spec.automountServiceAccountToken",
		"spec.template.spec.enableServiceLinks",
		"spec.template.spec.hostPID true",
		"spec.template.spec.hostNetwork",
		"spec.template.spec.hostIPC",
		"spec.upgrade.volumes",
		"spec.upgrade.securityContext",
		"spec.imagePullSecrets",
		"spec.priorityClassName",
	},
	// The container of a Plan is privileged by default.
	"Plan": {"spec.upgrade.securityContext.privileged true"},
	// The only container waits. A comment names it.
	"DaemonSet, template": {
		"spec.template.spec.containers.[].env",
		"spec.template.spec.containers.[].envFrom",
		"spec.template.spec.containers.[].imagePullPolicy",

		"spec.template.spec.containers.[].resources",
		"spec.template.spec.containers.[].securityContext",
		"spec.template.spec.containers.[].stdin",
		"spec.template.spec.containers.[].stdinOnce",
		"spec.template.spec.containers.[].tty",
		"spec.template.spec.containers.[].volumeDevices",
		"spec.template.spec.containers.[].volumeMounts",
		"spec.template.spec.containers.[].workingDir",
		"spec.template.spec.containers.[].resizePolicy",
		"spec.template.spec.containers.[].restartPolicyRules",
	},
}

// mayBeSilent reports whether a field may be left out without a comment, and notes in used all reasons.
func mayBeSilent(source, field string, used map[string]bool) (may bool) {
	for part, paths := range silent {
		for _, path := range paths {
			if rest, ok := strings.CutPrefix(
				field,
				path,
			); ok && strings.Contains(source, part) &&
				(rest == "" || rest[0] == '.' || rest[0] == ' ') {
				used[part+" "+path], may = true, true
			}
		}
	}
	return may
}

// isRepeated reports whether a field is like many others: the code for pods is the same for all kinds, and it does not
// distinguish the fields of a volume.
func isRepeated(source string, path []string) bool {
	const shallow = 8
	joined := strings.Join(path, ".")
	return !strings.HasPrefix(source, "DaemonSet") && strings.HasPrefix(joined, "spec.template.spec.") && len(path) > 4 ||
		len(path) > shallow &&
			(strings.Contains(joined, ".volumes.") || strings.Contains(joined, "ephemeral") || strings.Contains(joined, ".podA"))
}

// TestNoFieldIsDroppedSilently sets each field of each kind, and requires another output: another NodeJob, a comment, or an
// error.
func TestNoFieldIsDroppedSilently(t *testing.T) {
	used := map[string]bool{}
	for name, source := range sources {
		t.Run(name, func(t *testing.T) {
			objects, err := manifest.Decode([]byte(source.manifest))
			if err != nil {
				t.Fatal(err)
			}
			without := outcomeOf(objects[0])
			if !strings.Contains(without, "kind: NodeJob") ||
				strings.Contains(without, "template:") != strings.HasSuffix(name, "template") {
				t.Fatalf("it has another kind of task:\n%s", without)
			}
			fields := slices.Concat(
				leaves(source.spec, []string{"spec"}),
				leaves(reflect.TypeFor[metav1.ObjectMeta](), []string{"metadata"}),
			)
			kind, _, _ := strings.Cut(name, ",")
			if more := listed[kind]; more != nil {
				fields = append(fields, leaves(more, []string{"spec"})...)
			}
			if len(fields) < 80 {
				t.Errorf("only %d fields were found", len(fields))
			}
			for _, field := range fields {
				if isRepeated(name, field.path) {
					continue
				}
				object := objects[0].DeepCopy()
				put(object.Object, field.path, field.value)
				set := fmt.Sprint(strings.Join(field.path, "."), " ", field.value)
				if outcomeOf(object) == without && !mayBeSilent(name, set, used) {
					t.Errorf("%s is dropped without a comment", set)
				}
			}
		})
	}
	for part, paths := range silent {
		for _, path := range paths {
			if !t.Failed() && !used[part+" "+path] {
				t.Errorf("%s is not left out by %q", path, part)
			}
		}
	}
}
