// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/kube"
	"github.com/everynode/everynode/internal/nodejob/task"
)

var options = task.Options{RunnerImage: "runner:1"}

func guardOf(name string) *v1alpha1.NodeGuard {
	return &v1alpha1.NodeGuard{ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: name, UID: "uid"}}
}

func TestNamesAreValidForAnyNodeName(t *testing.T) {
	longest := strings.Repeat("n", 63)
	node := strings.TrimSuffix(strings.Repeat(strings.Repeat("a", 61)+".", 5)[:253], ".")
	for _, name := range []string{BudgetName(longest), PodName(longest, "s", v1alpha1.GuardRoleCheck, node, 7), PodName(longest, "s", v1alpha1.GuardRoleCompanion, node, 0), BudgetName("a")} {
		if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
			t.Errorf("%s: %v", name, problems)
		}
	}
	for key, value := range MatchLabels(longest, node) {
		if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
			t.Errorf("%s=%s: %v", key, value, problems)
		}
	}
	for length, whole := range map[int]bool{46: true, 47: false} {
		if name := longest[:length]; strings.HasPrefix(BudgetName(name), name) != whole {
			t.Errorf("a NodeGuard with a name of %d characters has the budget %s", length, BudgetName(name))
		}
	}
	if a, b := longest[:62]+"a", longest[:62]+"b"; BudgetName(a) == BudgetName(b) {
		t.Error("two NodeGuards whose long names have the same beginning create objects of the same name")
	}
}

// A kubelet that knows the name of a pod in advance can create a pod of that name.
func TestNamesOfPodsCannotBeGuessed(t *testing.T) {
	names := map[string]string{}
	for says, name := range map[string]string{
		"the companion":              PodName("g", "salt", v1alpha1.GuardRoleCompanion, "n1", 0),
		"with another key":           PodName("g", "pepper", v1alpha1.GuardRoleCompanion, "n1", 0),
		"if the first name is taken": PodName("g", "salt", v1alpha1.GuardRoleCompanion, "n1", 1),
		"on another node":            PodName("g", "salt", v1alpha1.GuardRoleCompanion, "n2", 0),
		"the check":                  PodName("g", "salt", v1alpha1.GuardRoleCheck, "n1", 0),
		"the placeholder":            PodName("g", "salt", v1alpha1.GuardRolePlaceholder, "", 0),
	} {
		name = strings.TrimSuffix(strings.TrimSuffix(name, "-check"), "-guard")
		if other, twice := names[name]; twice {
			t.Errorf("%s and %s have the same name %s", says, other, name)
		}
		names[name] = says
	}
}

func TestNamesOfPodsTellTheirRole(t *testing.T) {
	for role, suffix := range map[string]string{v1alpha1.GuardRoleCompanion: "-guard", v1alpha1.GuardRoleCheck: "-check", v1alpha1.GuardRolePlaceholder: "-placeholder"} {
		if name := PodName("disks", "salt", role, "n1", 0); !strings.HasPrefix(name, "disks-") || !strings.HasSuffix(name, suffix) {
			t.Errorf("a pod with the role %s has the name %s", role, name)
		}
	}
}

func TestBudgetSelectsOnlyCompanions(t *testing.T) {
	g := guardOf("disks")
	template := Template(g, nil, options)
	selector, err := metav1.LabelSelectorAsSelector(NewBudget(g, BudgetState{}).Spec.Selector)
	if err != nil {
		t.Fatal(err)
	}
	g.Spec.Release.Check = &v1alpha1.ReleaseCheck{Script: "true"}
	for name, tt := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"a companion":                        {Companion(g, &template, "n1", "c"), true},
		"the companion of another node":      {Companion(g, &template, "n2", "c"), true},
		"the placeholder":                    {Placeholder(g, "p", options), true},
		"the companion of another NodeGuard": {Companion(guardOf("other"), &template, "n1", "c"), false},
		"a check":                            {Check(g, "n1", "c-check", "", options), false},
	} {
		if got := selector.Matches(labels.Set(tt.pod.Labels)); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// What was written is read back unchanged, and changes by other clients are detected.
func TestBudgetState(t *testing.T) {
	g := guardOf("disks")
	for _, state := range []BudgetState{
		{}, {MinAvailable: 7}, {MinAvailable: Locked, RequestedAt: map[string]time.Time{"a": t0.Add(123 * time.Millisecond), "b": t0}},
	} {
		b := NewBudget(g, state)
		got := ReadBudget(b)
		if diff := cmp.Diff(state, got.BudgetState); diff != "" || got.Drifted || got.Name != "disks-guard" || got.Owner != "uid" {
			t.Errorf("it is read as %+v (-want +got):\n%s", got, diff)
		}
	}
	if Locked < 100_000 {
		t.Errorf("a locked budget requires %d pods, which compromised nodes can create", Locked)
	}
	b := NewBudget(g, BudgetState{})
	b.Generation, b.Status.CurrentHealthy = 2, 3
	if got := ReadBudget(b); got.Processed || got.Healthy != 3 {
		t.Errorf("before the disruption controller has observed it: %+v", got)
	}
	b.Status.ObservedGeneration = 2
	if !ReadBudget(b).Processed {
		t.Error("the disruption controller has observed it")
	}
	for text, want := range map[string]int{"": 0, "x": 0, `{"a":"x"}`: 0, `{"a":"2026-03-01T12:00:00Z","b":1}`: 0, `{"a":"2026-03-01T12:00:00Z","b":"x"}`: 1} {
		b.Annotations[v1alpha1.RequestedAtAnnotation] = text
		if got := ReadBudget(b).RequestedAt; len(got) != want {
			t.Errorf("%q is read as %v", text, got)
		}
	}
	for name, change := range map[string]func(*policyv1.PodDisruptionBudgetSpec){
		"two numbers":    func(s *policyv1.PodDisruptionBudgetSpec) { s.MaxUnavailable = new(intstr.FromInt32(1)) },
		"neither number": func(s *policyv1.PodDisruptionBudgetSpec) { s.MinAvailable = nil },
		"an expression": func(s *policyv1.PodDisruptionBudgetSpec) {
			s.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "x", Operator: metav1.LabelSelectorOpExists}}
		},
		"no number": func(s *policyv1.PodDisruptionBudgetSpec) {
			s.MinAvailable, s.MaxUnavailable = nil, new(intstr.FromInt32(1))
		},
		"a percentage":     func(s *policyv1.PodDisruptionBudgetSpec) { s.MinAvailable = new(intstr.FromString("100%")) },
		"another policy":   func(s *policyv1.PodDisruptionBudgetSpec) { *s.UnhealthyPodEvictionPolicy = policyv1.AlwaysAllow },
		"no policy":        func(s *policyv1.PodDisruptionBudgetSpec) { s.UnhealthyPodEvictionPolicy = nil },
		"another selector": func(s *policyv1.PodDisruptionBudgetSpec) { s.Selector.MatchLabels["x"] = "y" },
		"no selector":      func(s *policyv1.PodDisruptionBudgetSpec) { s.Selector = nil },
	} {
		b := NewBudget(g, BudgetState{})
		change(&b.Spec)
		if got := ReadBudget(b); !got.Drifted || got.MinAvailable != 0 {
			t.Errorf("%s is not detected: %+v", name, got)
		}
		WriteBudget(b, "disks", BudgetState{})
		if ReadBudget(b).Drifted {
			t.Errorf("%s is not repaired", name)
		}
	}
}

// Labels and annotations of other clients stay, and only those that have a value are set.
func TestMetadataOfABudget(t *testing.T) {
	b := &policyv1.PodDisruptionBudget{}
	WriteBudget(b, "disks", BudgetState{RequestedAt: map[string]time.Time{"a": t0}})
	b.Labels["team"], b.Annotations["note"] = "storage", "theirs"
	WriteBudget(b, "disks", BudgetState{})
	wantLabels := map[string]string{"team": "storage", v1alpha1.NodeGuardLabel: "disks"}
	if diff := cmp.Diff(wantLabels, b.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(
		map[string]string{"note": "theirs", kube.DescriptionAnnotation: "holds nodes for NodeGuard disks: kubectl get nodeguards"},
		b.Annotations,
	); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
}

func TestOwnerOfAnObject(t *testing.T) {
	for want, change := range map[types.UID]func(*policyv1.PodDisruptionBudget){
		"uid": func(*policyv1.PodDisruptionBudget) {},
		"ref": func(b *policyv1.PodDisruptionBudget) { b.OwnerReferences[0].UID = "ref" },
		"noted": func(b *policyv1.PodDisruptionBudget) {
			b.OwnerReferences, b.Annotations[v1alpha1.NodeGuardUIDAnnotation] = nil, "noted"
		},
	} {
		b := NewBudget(guardOf("disks"), BudgetState{})
		change(b)
		if got := ReadBudget(b).Owner; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestPodOfACheck(t *testing.T) {
	for name, tt := range map[string]struct {
		check        v1alpha1.ReleaseCheck
		wantImage    string
		wantDeadline int64
	}{
		"a script":                   {v1alpha1.ReleaseCheck{Script: "true"}, options.RunnerImage, DefaultCheckTimeoutSeconds},
		"a container":                {v1alpha1.ReleaseCheck{Container: &v1alpha1.CheckContainer{Image: "i"}}, "i", DefaultCheckTimeoutSeconds},
		"a container with a timeout": {v1alpha1.ReleaseCheck{Container: &v1alpha1.CheckContainer{Image: "i"}, TimeoutSeconds: new(int32(7))}, "i", 7},
	} {
		g := guardOf("disks")
		g.Spec.Release.Check = &tt.check
		spec := Check(g, "n1", "c-check", "", options).Spec
		if image, deadline := spec.Containers[0].Image, *spec.ActiveDeadlineSeconds; image != tt.wantImage || deadline != tt.wantDeadline {
			t.Errorf("%s: image %s for %d s, want %s for %d s", name, image, deadline, tt.wantImage, tt.wantDeadline)
		}
	}
}

func TestATemplateDecidesWhetherClusterAutoscalerEvictsCompanions(t *testing.T) {
	for want, annotations := range map[string]map[string]string{"true": nil, "false": {SafeToEvictAnnotation: "false"}} {
		g := guardOf("disks")
		g.Spec.Template = &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}}
		if got := Template(g, nil, options).Annotations[SafeToEvictAnnotation]; got != want {
			t.Errorf("%v becomes %s", annotations, got)
		}
	}
}

func TestCompanionDefaultsFromTarget(t *testing.T) {
	target := &corev1.PodSpec{PriorityClassName: "high", Tolerations: []corev1.Toleration{{Key: "disks"}}}
	container := []corev1.Container{{Name: "c", Image: "i"}}
	tests := map[string]struct {
		template     *corev1.PodTemplateSpec
		wantPriority string
		wantKey      string
	}{
		"the built-in one": {nil, "high", "disks"},
		"a template":       {&corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: container}}, "high", "disks"},
		"a template with its own values": {&corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			Containers: container, PriorityClassName: "low", Tolerations: []corev1.Toleration{{Key: "mine"}},
		}}, "low", "mine"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			g := guardOf("disks")
			g.Spec.Template = tt.template
			before := g.DeepCopy()
			template := Template(g, target, options)
			if template.Spec.PriorityClassName != tt.wantPriority || template.Spec.Tolerations[0].Key != tt.wantKey {
				t.Errorf("priority %s, tolerations %v", template.Spec.PriorityClassName, template.Spec.Tolerations)
			}
			if *template.Spec.AutomountServiceAccountToken {
				t.Error("it has a token that was not requested")
			}
			pod := Companion(g, &template, "n1", "c")
			if ref := metav1.GetControllerOf(
				pod,
			); ref == nil || ref.UID != g.UID || pod.Spec.NodeName != "n1" ||
				pod.Annotations[SafeToEvictAnnotation] != "true" {
				t.Errorf("the companion is %+v", pod)
			}
			if diff := cmp.Diff(before, g); diff != "" {
				t.Errorf("the NodeGuard was changed: %s", diff)
			}
			other := Template(g, nil, options)
			if Revision(&template) == Revision(&other) && tt.wantPriority == "high" {
				t.Error("other tolerations of the target do not change the revision")
			}
		})
	}
}

// Karpenter does not wait for a pod that tolerates its taint. Taints for the scheduler do not affect a bound pod.
func TestCompanionTolerations(t *testing.T) {
	target := &corev1.PodSpec{Tolerations: []corev1.Toleration{
		{
			Key:    "a",
			Effect: corev1.TaintEffectNoSchedule,
		},
		{Key: "b", Effect: corev1.TaintEffectPreferNoSchedule},
		{Key: "c", Effect: corev1.TaintEffectNoExecute},
		{Operator: corev1.TolerationOpExists},
	}}
	got := map[string]corev1.TaintEffect{}
	for _, toleration := range Template(guardOf("disks"), target, options).Spec.Tolerations {
		got[toleration.Key] = toleration.Effect
	}
	if got["c"] != corev1.TaintEffectNoExecute || got[""] != corev1.TaintEffectNoExecute {
		t.Errorf("it is evicted where the target is not: %v", got)
	}
	for _, key := range []string{"a", "b"} {
		if _, tolerated := got[key]; tolerated {
			t.Errorf("it tolerates %s, which only affects the scheduler", key)
		}
	}
	if template := Template(
		guardOf("disks"),
		target,
		options,
	); kube.Untolerated(
		[]corev1.Taint{{Key: "karpenter.sh/disrupted", Effect: corev1.TaintEffectNoSchedule}},
		template.Spec.Tolerations,
	) == nil {
		t.Error("it tolerates the disruption taint of Karpenter")
	}
}

// A drain lists pods shortly after it has cordoned the node, and fails at a pod with an emptyDir, unless it is told to
// continue.
func TestDrainDoesNotFailAtCheck(t *testing.T) {
	for name, check := range map[string]*v1alpha1.ReleaseCheck{"a script": {Script: "true"}, "a container": {Container: &v1alpha1.CheckContainer{Image: "i"}}} {
		g := guardOf("disks")
		g.Spec.Release.Check = check
		pod := Check(g, "n1", "c-check", "", options)
		if len(pod.Spec.Volumes) > 0 || len(pod.Spec.Containers[0].VolumeMounts) > 0 {
			t.Errorf("%s has %+v", name, pod.Spec.Volumes)
		}
		if metav1.GetControllerOf(pod) == nil {
			t.Errorf("%s has no owner, so a drain fails at it, too", name)
		}
	}
}

// The manager reads its keys on pods as its own words.
func TestATemplateSetsNoKeysOfEverynode(t *testing.T) {
	g := guardOf("g")
	keys := map[string]string{
		"app":                           "a",
		v1alpha1.NodeJobLabel:           "x",
		v1alpha1.SealAnnotation:         "x",
		"ns." + v1alpha1.Group + "/job": "x",
		"not" + v1alpha1.Group + "/a":   "b",
	}
	g.Spec.Template = &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: keys, Annotations: keys}}
	template := Template(g, nil, task.Options{})
	pod := Companion(g, &template, "n1", "c")
	for what, got := range map[string]map[string]string{"labels": pod.Labels, "annotations": pod.Annotations} {
		for key, value := range keys {
			if foreign := key == "app" || strings.HasPrefix(key, "not"); (got[key] == value) != foreign {
				t.Errorf("%s: %s is %q", what, key, got[key])
			}
		}
	}
}
