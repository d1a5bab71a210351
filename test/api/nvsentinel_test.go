// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	gotemplate "text/template"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// repairs is what NVSentinel's module fault-remediation does with an action of docs/nvsentinel.md. It follows the documentation of that
// module ("Fault Remediation Configuration", "Plugin Custom Remediation") and its source in version 1.28.
type repairs struct {
	w      *world
	client client.Client
	action struct {
		APIGroup              string `json:"apiGroup"`
		Version               string `json:"version"`
		Kind                  string `json:"kind"`
		Scope                 string `json:"scope"`
		Namespace             string `json:"namespace"`
		CompleteConditionType string `json:"completeConditionType"`
		TemplateFileName      string `json:"templateFileName"`
		EquivalenceGroup      string `json:"equivalenceGroup"`
	}
	template *gotemplate.Template
	// rights are the other objects of the page.
	rights []*unstructured.Unstructured
}

const remediator = "system:serviceaccount:nvsentinel:fault-remediation"

// nvsentinel reads the page. The namespace of the test is in place of that of the page.
func (w *world) nvsentinel() *repairs {
	w.T.Helper()
	content, err := os.ReadFile("../../docs/nvsentinel.md")
	must(w.T, err)
	var blocks []string
	for _, b := range (page{file: "docs/nvsentinel.md", content: strings.ReplaceAll(string(content), "node-repair", w.Namespace)}).blocks() {
		if b.language == "yaml" {
			blocks = append(blocks, b.content)
		}
	}
	r := &repairs{w: w, client: w.as(remediator), rights: objectsIn(w.T, []byte(blocks[1]))}
	var values map[string]struct {
		Maintenance struct {
			Actions   map[string]runtime.RawExtension `json:"actions"`
			Templates map[string]string               `json:"templates"`
		} `json:"maintenance"`
	}
	must(w.T, yaml.UnmarshalStrict([]byte(blocks[0]), &values))
	module := values["fault-remediation"].Maintenance
	must(w.T, yaml.UnmarshalStrict(module.Actions["RESTART_BM"].Raw, &r.action))
	r.template = gotemplate.Must(gotemplate.New("").Option("missingkey=error").Parse(module.Templates[r.action.TemplateFileName]))
	// The role of the chart: lower case kind and "s".
	w.allow(remediator, true,
		rule(r.action.APIGroup, []string{"get", "list", "create", "update", "patch", "delete"}, strings.ToLower(r.action.Kind)+"s"),
		rule("", []string{"get", "list", "update", "patch"}, "nodes"))
	return r
}

// grant creates the role of the page and its binding. The namespace exists.
func (r *repairs) grant() {
	r.w.T.Helper()
	for _, o := range r.rights {
		switch o.GetKind() {
		case "Namespace":
			if got := o.GetLabels()[v1alpha1.EnabledLabel]; got != "true" {
				r.w.T.Errorf("the namespace of the page has the label %q", got)
			}
		case "ClusterRole":
			role := &rbacv1.ClusterRole{}
			must(r.w.T, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, role))
			r.w.makes(role)
		case "ClusterRoleBinding":
			binding := &rbacv1.ClusterRoleBinding{}
			must(r.w.T, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, binding))
			if binding.Subjects[0] != subject(remediator)[0] {
				r.w.T.Errorf("the page binds the role to %+v", binding.Subjects)
			}
			r.w.makes(binding)
		}
	}
}

// create renders the template for an event, makes the Node the owner, and creates the object.
func (r *repairs) create(node *corev1.Node, event string) (name string, err error) {
	r.w.T.Helper()
	var text bytes.Buffer
	must(r.w.T, r.template.Execute(&text, map[string]any{
		"NodeName": node.Name, "HealthEventID": event, "HealthEvent": map[string]any{"NodeName": node.Name},
		"RecommendedAction": 24, "RecommendedActionName": "RESTART_BM", "ImpactedEntityScopeValue": "",
		"ApiGroup": r.action.APIGroup, "Version": r.action.Version, "Kind": r.action.Kind, "Namespace": r.action.Namespace,
	}))
	o := &unstructured.Unstructured{}
	must(r.w.T, yaml.Unmarshal(text.Bytes(), &o.Object))
	o.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID, Controller: new(false), BlockOwnerDeletion: new(false),
	}})
	return o.GetName(), r.client.Create(r.w.Ctx, o)
}

// state is how the module reads an object that it has created.
func (r *repairs) state(name string) string {
	r.w.T.Helper()
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: r.action.APIGroup, Version: r.action.Version, Kind: r.action.Kind})
	err := r.client.Get(r.w.Ctx, types.NamespacedName{Namespace: r.action.Namespace, Name: name}, o)
	if apierrors.IsNotFound(err) {
		return "NotFound"
	}
	must(r.w.T, err)
	conditions, _, err := unstructured.NestedSlice(o.Object, "status", "conditions")
	must(r.w.T, err)
	for _, c := range conditions {
		condition := c.(map[string]any)
		if condition["type"] != r.action.CompleteConditionType {
			continue
		}
		switch condition["status"] {
		case "True":
			return "Succeeded"
		case "False":
			return "Failed"
		}
	}
	return "InProgress"
}

func (r *repairs) want(name, state string) {
	r.w.T.Helper()
	if got := r.state(name); got != state {
		r.w.T.Errorf("%s is read as %s, want %s", name, got, state)
	}
}

// becomes waits for a state, and for none but InProgress before.
func (r *repairs) becomes(name, state string) {
	r.w.T.Helper()
	r.w.Eventually(name+" is read as "+state, func() error {
		got := r.state(name)
		if got != state && got != "InProgress" {
			r.w.T.Fatalf("%s is read as %s", name, got)
		}
		if got != state {
			return fmt.Errorf("it is read as %s", got)
		}
		return nil
	})
}

// TestNVSentinelRepairsNodes has a node that is repaired, repaired again, and whose third repair fails.
func TestNVSentinelRepairsNodes(t *testing.T) {
	w := newWorld(t)
	w.rightsAreAsked()
	startManager(t, noFaults)
	r := w.nvsentinel()
	name := "ip-10-0-101-217.us-west-2.compute.internal.a-domain-that-makes-this-name-longer-than-a-label.example"
	node := w.node(name)
	node.Spec.Unschedulable = true // NVSentinel has cordoned and drained it, and tainted it
	node.Spec.Taints = []corev1.Taint{{Key: "nvidia.com/gpu-error", Effect: corev1.TaintEffectNoExecute}}
	must(t, admin.Update(w.Ctx, node))
	w.node("other")

	if _, err := r.create(
		node,
		"6926f3b1c0de4e5f6a7b8c00",
	); !apierrors.IsForbidden(err) ||
		!strings.Contains(err.Error(), "lacks the right") {
		t.Errorf("without the rights of the page: %v", err)
	}
	r.grant()
	var first string
	w.Eventually("the rights count", func() (err error) {
		first, err = r.create(node, "6926f3b1c0de4e5f6a7b8c01")
		return err
	})
	r.want(first, "InProgress")
	pod := w.podOf(name, task.Task)
	r.becomes(first, "InProgress")
	// The same event again.
	if _, err := r.create(node, "6926f3b1c0de4e5f6a7b8c01"); !apierrors.IsAlreadyExists(err) {
		t.Errorf("the same event again: %v", err)
	}
	w.repair(first, name, pod, "boot-2", 0)
	r.becomes(first, "Succeeded")

	// The same node again, with an event ID as PostgreSQL has them.
	second, err := r.create(node, "1b4e28ba-2fa1-11d2-883f-0016d3cca427")
	must(t, err)
	r.want(second, "InProgress")
	w.repair(second, name, w.podOf(name, task.Task), "boot-3", 0)
	r.becomes(second, "Succeeded")
	r.want(first, "Succeeded")

	// The check fails in the new boot, on both attempts.
	third, err := r.create(node, "6926f3b1c0de4e5f6a7b8c03")
	must(t, err)
	for _, boot := range []string{"boot-4", "boot-5"} {
		w.Within(time.Minute, 20*time.Millisecond, "an attempt starts after its backoff", func() error {
			r.want(third, "InProgress")
			for _, pod := range w.Pods() {
				if pod.Labels[v1alpha1.PhaseLabel] == string(task.Task) && pod.DeletionTimestamp.IsZero() &&
					pod.Status.Phase == corev1.PodPending {
					return nil
				}
			}
			return fmt.Errorf("there is no pod")
		})
		w.repair(third, name, w.podOf(name, task.Task), boot, 1)
	}
	r.becomes(third, "Failed")
	live := w.liveNode(name)
	if !live.Spec.Unschedulable || len(record.CordonedBy(live.Annotations)) > 0 {
		t.Errorf("the cordon of NVSentinel is not as it was: %v, %v", live.Spec.Unschedulable, record.CordonedBy(live.Annotations))
	}
	for _, pod := range w.Pods() {
		if pod.Spec.NodeName == "other" {
			t.Errorf("%s runs on another node", pod.Name)
		}
	}

	// What it has deleted, as after ttlSecondsAfterFinished.
	must(t, r.client.Delete(w.Ctx, &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: first}}))
	w.Eventually("the NodeJob is gone", func() error {
		if got := r.state(first); got != "NotFound" {
			return fmt.Errorf("it is read as %s", got)
		}
		return nil
	})
}

// repair plays a kubelet: the task ends, the node reboots, and the check ends with a code.
func (w *world) repair(job, node string, pod *corev1.Pod, boot string, code int32) {
	w.T.Helper()
	w.end(pod, 0, `{"exitCode":0}`)
	w.outcome(job, node, record.Rebooting)
	reboots := w.podOf(node, task.Reboot)
	w.reboots(node, boot)
	w.killed(reboots)
	w.end(w.podOf(node, task.Check), code, fmt.Sprintf(`{"exitCode":%d}`, code))
}
