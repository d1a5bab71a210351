// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
)

// bombs is how many large objects of each kind there are. With 428, the API server needs some 6 GiB.
var bombs = flag.Int("bombs", 40, "how many objects of about a megabyte of each kind TestTheManagerSurvivesLargeObjects creates")

// patient is enough for the status of each object, which is a write of a megabyte for the API server.
const patient = 2 * time.Minute

// mostMemory is below the memory limit of config/manager, 512 MiB.
const mostMemory = 400 << 20

// TestTheManagerSurvivesLargeObjects has users create large objects of each kind that the manager watches, in a namespace that is allowed and
// in one that is not, while the manager runs and before it starts again. It serves another namespace, and its memory is bounded.
func TestTheManagerSurvivesLargeObjects(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the memory of a process is read from /proc")
	}
	b := &budgeted{removable: newRemovable(t)}
	b.installed()
	text := strings.Repeat("x", 1200<<10)
	for name, labels := range map[string]map[string]string{
		"tenants": {v1alpha1.EnabledLabel: v1alpha1.EnabledValue}, "closed": nil, "served": {v1alpha1.EnabledLabel: v1alpha1.EnabledValue},
	} {
		b.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
	}
	pods := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "a"}},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{"no": "where"},
			Containers:   []corev1.Container{{Name: "c", Image: "i", Args: []string{text}}},
		},
	}
	for i := range *bombs {
		for _, namespace := range []string{"tenants", "closed"} {
			of := metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint("large-", i)}
			selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}
			b.create(&appsv1.DaemonSet{ObjectMeta: of, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: pods}})
			annotated := of
			annotated.Annotations = map[string]string{"a": text[:200<<10]}
			b.create(&policyv1.PodDisruptionBudget{ObjectMeta: annotated, Spec: policyv1.PodDisruptionBudgetSpec{Selector: selector}})
			if namespace == "closed" && i >= 10 {
				continue // the manager reports 100 of those that it does not serve
			}
			job := &v1alpha1.NodeJob{ObjectMeta: of}
			job.Spec.Nodes.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"no": "node"}}
			job.Spec.Task.Template = pods.DeepCopy()
			job.Spec.Task.Template.Spec.NodeSelector = nil
			b.create(job)
			b.create(&v1alpha1.NodeGuard{ObjectMeta: of, Spec: v1alpha1.NodeGuardSpec{Target: v1alpha1.GuardTarget{DaemonSet: of.Name}}})
		}
	}
	for _, when := range []string{"first", "after a restart"} {
		stop, pid := b.startManagerProcess("--leader-elect=false")
		job := &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: "served", Name: "small-" + strings.Fields(when)[0]}}
		job.Spec.Nodes.Names, job.Spec.Task.Script = []string{"none"}, "true"
		b.create(job)
		b.Within(patient, time.Second, "the manager serves another namespace: "+when, func() error {
			if err := b.admin.Get(b.Ctx, client.ObjectKeyFromObject(job), job); err != nil || job.Status.Revision == "" {
				return fmt.Errorf("the status is %+v, %w", job.Status, err)
			}
			return nil
		})
		full := 0
		b.Within(patient, time.Second, "what has no room says so: "+when, func() error {
			var jobs v1alpha1.NodeJobList
			if err := b.admin.List(b.Ctx, &jobs, client.InNamespace("tenants")); err != nil {
				return err
			}
			full = 0
			reasons := map[string]int{}
			for i := range jobs.Items {
				if c := meta.FindStatusCondition(jobs.Items[i].Status.Conditions, v1alpha1.ConditionStalled); c != nil {
					reasons[c.Reason]++
				}
			}
			if full = reasons[v1alpha1.ReasonNamespaceFull]; full < min(*bombs-6, 80) {
				return fmt.Errorf("of %d NodeJobs, these are Stalled: %v", len(jobs.Items), reasons)
			}
			return nil
		})
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		must(t, err)
		peak, err := strconv.Atoi(regexp.MustCompile(`VmHWM:\s*(\d+) kB`).FindStringSubmatch(string(status))[1])
		must(t, err)
		t.Logf(
			"%s: the manager needs %d MiB at most, with %d objects of each kind in two namespaces; %d NodeJobs have no room",
			when,
			peak>>10,
			*bombs,
			full,
		)
		if peak<<10 > mostMemory {
			t.Errorf("%s: the manager needs %d MiB", when, peak>>10)
		}
		stop()
	}
}
