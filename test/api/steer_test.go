// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

// told is what a verb of the command line printed, and how it ended.
type told struct {
	code     int
	out, err string
}

// kubeconfigOf is a file with the kubeconfig of a user who may do what a role allows, and no more; of an admin
// without a role.
func (w *world) kubeconfigOf(rules ...rbacv1.PolicyRule) string {
	w.T.Helper()
	name, groups := "user-"+w.Namespace, []string{"system:masters"}
	if len(rules) > 0 {
		groups = nil
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}},
		}
		must(w.T, admin.Create(w.Ctx, role))
		must(w.T, admin.Create(w.Ctx, binding))
	}
	user, err := env.AddUser(envtest.User{Name: name, Groups: groups}, nil)
	must(w.T, err)
	content, err := user.KubeConfig()
	must(w.T, err)
	path := filepath.Join(w.T.TempDir(), "kubeconfig")
	must(w.T, os.WriteFile(path, content, 0o600))
	return path
}

// everynode runs a verb of the command line in this process.
func (w *world) everynode(kubeconfig string, args ...string) told {
	w.T.Helper()
	var out, errs bytes.Buffer
	flags := []string{"--kubeconfig", kubeconfig, "-n", w.Namespace}
	code := cli.Run(
		w.Ctx,
		genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errs},
		append(args[:1:1], append(flags, args[1:]...)...),
	)
	plain := strings.NewReplacer(w.Namespace, "NAMESPACE")
	return told{code, plain.Replace(out.String()), plain.Replace(errs.String())}
}

// namesUser matches the line that names who has changed a NodeJob. Whether it is there depends on the policies that other tests
// have installed.
var namesUser = regexp.MustCompile(`(?m)^Spec {6}(last )?changed by .*\n`)

func wantTold(t *testing.T, what string, want, got told) {
	t.Helper()
	got.out = namesUser.ReplaceAllString(got.out, "")
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(told{})); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// threeSteps has a rollout stop at its first step.
func threeSteps(s *v1alpha1.NodeJobSpec) {
	s.Rollout.Steps = []v1alpha1.RolloutStep{
		{Name: "canary", Nodes: number(1)}, {Name: "quarter", Nodes: percent("25%")}, {Name: "all"},
	}
	s.Rollout.PromoteTo = "canary"
}

func TestRepeatedPromoteAdvancesOnlyOneStep(t *testing.T) {
	w := newWorld(t)
	config := w.kubeconfigOf()
	w.job("steps", threeSteps)
	const commit = "With GitOps, commit this instead: spec.rollout.promoteTo: "
	wantTold(
		t,
		"promote",
		told{0, "nodejob steps: promoted: spec.rollout.promoteTo canary -> quarter\n", commit + "quarter\n"},
		w.everynode(config, "promote", "steps"),
	)
	wantTold(
		t,
		"promote again",
		told{0, "nodejob steps: nothing to change: it may reach step quarter already, and is in step canary\n", ""},
		w.everynode(config, "promote", "steps"),
	)
	wantTold(
		t,
		"promote to a step that is not there",
		told{3, "", "error: there is no step nowhere; the steps are canary, quarter, all\n"},
		w.everynode(config, "promote", "steps", "--to", "nowhere"),
	)
	wantTold(
		t,
		"promote backwards",
		told{
			2,
			"",
			"error: it may already reach step quarter, and promote does not go back. To suspend it: kubectl everynode suspend steps -n NAMESPACE\n",
		},
		w.everynode(config, "promote", "steps", "--to", "canary"),
	)
	wantTold(t, "promote to the last step", told{
		0,
		"nodejob steps: promoted: spec.rollout.promoteTo quarter -> all\n",
		"The next revision runs all steps without a pause. To pause it, set promoteTo: quarter in the change that creates it.\n" + commit + "all\n",
	}, w.everynode(config, "promote", "steps", "--to", "all"))
	wantTold(
		t,
		"promote to the last step again",
		told{0, "nodejob steps: nothing to change: it may reach step all already, and is in step canary\n", ""},
		w.everynode(config, "promote", "steps", "--to", "all"),
	)
	if got := w.live("steps").Spec.Rollout.PromoteTo; got != "all" {
		t.Errorf("promoteTo is %s", got)
	}
}

func TestPauseAndResume(t *testing.T) {
	w := newWorld(t)
	config := w.kubeconfigOf()
	w.job("paused", func(s *v1alpha1.NodeJobSpec) { s.StartingDeadlineSeconds = new(int32(1)) })
	wantTold(
		t,
		"suspend",
		told{0, "nodejob paused: suspended: spec.suspend false -> true\n", "With GitOps, commit this instead: spec.suspend: true\n"},
		w.everynode(config, "suspend", "paused"),
	)
	wantTold(
		t,
		"suspend again",
		told{0, "nodejob paused: nothing to change: it is already suspended\n", ""},
		w.everynode(config, "suspend", "paused"),
	)
	w.Eventually("its starting deadline has passed", func() error {
		if time.Since(w.live("paused").CreationTimestamp.Time) < time.Second {
			return fmt.Errorf("it is not")
		}
		return nil
	})
	got := w.everynode(config, "resume", "paused")
	if got.code != 0 ||
		!strings.HasPrefix(got.out, "nodejob paused: resumed: spec.suspend true -> false, spec.startingDeadlineSeconds 1 -> 36") {
		t.Errorf("resume: %+v", got)
	}
	wantTold(
		t,
		"resume again",
		told{0, "nodejob paused: nothing to change: it is not suspended\n", ""},
		w.everynode(config, "resume", "paused"),
	)
	if live := w.live("paused"); live.Spec.Suspend || *live.Spec.StartingDeadlineSeconds < 3600 {
		t.Errorf("it is %+v", live.Spec)
	}
}

// TestTheToolThatManagesANodeJobIsNamed checks the warning that this tool may revert the change.
func TestTheToolThatManagesANodeJobIsNamed(t *testing.T) {
	w := newWorld(t)
	config := w.kubeconfigOf()
	job := w.draft("kept")
	job.Labels = map[string]string{"kustomize.toolkit.fluxcd.io/name": "nodes", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"}
	must(t, admin.Create(w.Ctx, job))
	wantTold(t, "suspend", told{
		0,
		"nodejob kept: suspended: spec.suspend false -> true\n",
		"note: this NodeJob is managed by Flux (Kustomization flux-system/nodes), which may revert the change. Commit: spec.suspend: true\n",
	}, w.everynode(config, "suspend", "kept"))
}

func TestNodesAreRetriedRerunAndSkipped(t *testing.T) {
	w := newWorld(t)
	config := w.kubeconfigOf()
	startManager(t, noFaults)
	for _, name := range []string{"steer-1", "steer-2", "steer-3"} {
		must(t, admin.Patch(w.Ctx, w.node(name), mergePatch(`{"metadata":{"annotations":{"test":"stays"}}}`)))
	}
	w.job("steered", func(s *v1alpha1.NodeJobSpec) {
		s.Retry.Limit = new(int32(0))
		s.Rollout.MaxConcurrent = percent("100%")
	})
	key := "NAMESPACE.everynode.dev/steered"
	w.end(w.podOn("steer-1"), 0, `{"exitCode":0}`)
	w.end(w.podOn("steer-2"), 3, `{"exitCode":3,"reason":"TaskFailed"}`)
	third := w.podOn("steer-3")
	w.Done("steered", "steer-1")
	w.Condition("steered", v1alpha1.ConditionReconciling, metav1.ConditionTrue, v1alpha1.ReasonInProgress)
	w.Eventually("the failure is in the status", func() error {
		if n := w.live("steered").Status.Nodes; n.Failed != 1 || n.Done != 1 {
			return fmt.Errorf("the counts are %+v", n)
		}
		return nil
	})
	onNodes := "With GitOps, commit nothing: the change is on the nodes.\n"
	wantTold(t, "retry on nodes", told{0, "node steer-1: nothing to change: it is done there; to run it again, use rerun\n" +
		"node steer-2: retry requested; other nodes wait until the run there has ended (--with-others: they do not wait)\n" +
		"node steer-3: nothing to change: no attempt has ended there\n", onNodes}, w.everynode(config, "retry", "steered", "steer-1", "steer-2", "steer-3"))
	w.end(w.podOn("steer-2"), 3, `{"exitCode":3,"reason":"TaskFailed"}`)
	w.Eventually("it has failed again", func() error {
		if on := w.On("steered", "steer-2"); on.Record == nil || on.Record.Outcome != record.Failed {
			return fmt.Errorf("it carries %+v", on)
		}
		return nil
	})
	revision := w.live("steered").Status.Revision
	got := w.everynode(config, "skip", "steered", "steer-2", "steer-9")
	if got.code != 3 || got.out != "node steer-2: counts as done without a run: label "+key+"="+revision+"\n" ||
		!strings.HasPrefix(got.err, "node steer-9: there is no node steer-9; there are steer-") {
		t.Errorf("skip: %+v", got)
	}
	wantTold(
		t,
		"skip again",
		told{0, "node steer-2: nothing to change: it counts as done with revision " + revision + " already\n", ""},
		w.everynode(config, "skip", "steered", "steer-2"),
	)
	got = w.everynode(config, "rerun", "steered")
	if got.code != 7 ||
		got.err != "error: the command needs a confirmation, and standard input is not a terminal. To confirm, give --yes. Run NAMESPACE/steered again on 2 nodes: steer-1, steer-2\n" {
		t.Errorf("rerun of all: %+v", got)
	}
	got = w.everynode(config, "rerun", "steered", "steer-1", "steer-3")
	if got.code != 0 ||
		got.out != "node steer-1: rerun requested: label "+key+" removed\nnode steer-3: nothing to change: it is not done there, and runs automatically\n" {
		t.Errorf("rerun: %+v", got)
	}
	w.end(w.podOn("steer-1"), 0, `{"exitCode":0}`)
	w.Done("steered", "steer-1")

	for _, name := range []string{"steer-1", "steer-2", "steer-3"} {
		var live corev1.Node
		must(t, admin.Get(w.Ctx, client.ObjectKey{Name: name}, &live))
		if live.Labels["world"] != w.Namespace || live.Annotations["test"] != "stays" {
			t.Errorf("%s has lost labels of other owners: %v %v", name, live.Labels, live.Annotations)
		}
	}
	wantTold(t, "abort", told{0, "nodejob steered: suspended: spec.suspend false -> true\nnode steer-3: the running attempt is ended\n",
		"With GitOps, commit this instead: spec.suspend: true\n"}, w.everynode(config, "abort", "steered"))
	w.Eventually("the pod is being deleted", func() error {
		var live corev1.Pod
		err := admin.Get(w.Ctx, client.ObjectKeyFromObject(third), &live)
		if err == nil && live.DeletionTimestamp.IsZero() {
			return fmt.Errorf("it is not")
		}
		return client.IgnoreNotFound(err)
	})
	got = w.everynode(config, "abort", "steered", "--rollback", "--yes")
	if got.code != 2 || !strings.Contains(got.err, "has no spec.rollback, so it cannot be rolled back") {
		t.Errorf("abort --rollback: %+v", got)
	}
}

func TestRetryOfAllThatFailed(t *testing.T) {
	w := newWorld(t)
	config := w.kubeconfigOf()
	startManager(t, noFaults)
	w.node("again-1")
	w.job("again", func(s *v1alpha1.NodeJobSpec) { s.Retry.Limit = new(int32(0)) })
	first := w.podOn("again-1")
	wantTold(
		t,
		"retry where nothing failed",
		told{0, "nodejob again: nothing to change: no node has failed\n", ""},
		w.everynode(config, "retry", "again"),
	)
	w.end(first, 3, `{"exitCode":3}`)
	w.Condition("again", v1alpha1.ConditionStalled, metav1.ConditionTrue, "")
	got := w.everynode(config, "retry", "again", "--failed")
	if got.code != 0 || !strings.HasPrefix(got.out, "nodejob again: retry requested on 1 node: annotation everynode.dev/retry=") {
		t.Errorf("retry: %+v", got)
	}
	w.end(w.podOn("again-1"), 0, `{"exitCode":0}`)
	w.Done("again", "again-1")
}

func TestAbortWithRollback(t *testing.T) {
	w := newWorld(t)
	config := w.kubeconfigOf()
	startManager(t, noFaults)
	w.node("undo-1")
	job := w.job("undo", func(s *v1alpha1.NodeJobSpec) {
		s.Rollback = &v1alpha1.RollbackSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "true"}}
	})
	w.end(w.podOn("undo-1"), 0, `{"exitCode":0}`)
	w.Done("undo", "undo-1")
	got := w.everynode(config, "abort", "undo", "--rollback", "--yes")
	if got.code != 0 ||
		got.out != "nodejob undo: aborted: spec.suspend true, spec.deletionPolicy Forget -> Rollback\nnodejob undo: is being rolled back, and is deleted afterwards\n" {
		t.Errorf("abort --rollback: %+v", got)
	}
	pod := w.podOn("undo-1")
	if pod.Labels[v1alpha1.PhaseLabel] != "rollback" {
		t.Errorf("the pod is for the %s", pod.Labels[v1alpha1.PhaseLabel])
	}
	got = w.everynode(config, "skip", "undo", "undo-1")
	if got.code != 2 || !strings.HasPrefix(got.err, "error: NodeJob NAMESPACE/undo is being deleted, so its task does not run again.") {
		t.Errorf("skip of one that is being deleted: %+v", got)
	}
	wantText(
		t,
		w.everynode(config, "explain", "undo", "undo-1").out,
		"NAMESPACE/undo is being deleted (deletionPolicy Rollback); on undo-1: ",
	)
	wantTold(
		t,
		"abort --rollback again",
		told{0, "nodejob undo: nothing to change: it is being rolled back already\n", ""},
		w.everynode(config, "abort", "undo", "--rollback"),
	)
	w.end(pod, 0, `{"exitCode":0}`)
	w.gone(job)
}

// TestACommandRetriesAfterAConcurrentChange checks a command against concurrent status writes. It must neither fail
// nor overwrite them.
func TestACommandRetriesAfterAConcurrentChange(t *testing.T) {
	w := newWorld(t)
	config := w.kubeconfigOf()
	w.job("busy", threeSteps)
	stop := make(chan struct{})
	var writing sync.WaitGroup
	writing.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond): // ten times as often as the manager
			}
			patch := mergePatch(fmt.Sprintf(`{"metadata":{"annotations":{"test":"%d"}}}`, n))
			if err := admin.Patch(w.Ctx, w.draft("busy"), patch); err != nil {
				t.Error(err)
			}
		}
	})
	for range 10 {
		for _, verb := range []string{"suspend", "resume"} {
			if got := w.everynode(config, verb, "busy"); got.code != 0 || strings.Contains(got.out, "nothing to change") {
				t.Errorf("%s: %+v", verb, got)
			}
		}
	}
	close(stop)
	writing.Wait()
}

func TestCommandsReportMissingInput(t *testing.T) {
	w := newWorld(t)
	viewer := w.kubeconfigOf(
		rbacv1.PolicyRule{APIGroups: []string{v1alpha1.Group}, Resources: []string{"nodejobs"}, Verbs: []string{"get", "list", "watch"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "list", "watch"}})
	w.job("seen", threeSteps)
	w.node("seen-1")
	for _, args := range [][]string{{"promote", "seen"}, {"suspend", "seen"}} {
		got := w.everynode(viewer, args...)
		if got.code != cmdutil.ExitForbidden || !strings.Contains(got.err, "may not patch nodejobs.everynode.dev in namespace NAMESPACE") {
			t.Errorf("%v: %+v", args, got)
		}
	}
	got := w.everynode(viewer, "run", "seen-1", "--", "true")
	if got.code != cmdutil.ExitForbidden || !strings.Contains(got.err, "may not create nodejobs.everynode.dev in namespace NAMESPACE") {
		t.Errorf("run: %+v", got)
	}
	if live := w.live("seen"); live.Spec.Suspend || live.Spec.Rollout.PromoteTo != "canary" {
		t.Errorf("something was changed: %+v", live.Spec)
	}
	for _, verb := range [][]string{{"promote", "no"}, {"suspend", "no"}, {"resume", "no"}, {"retry", "no"}, {"retry", "no", "seen-1"}, {"rerun", "no", "seen-1"}, {"skip", "no", "seen-1"}, {"abort", "no"}, {"abort", "no", "--rollback"}} {
		if got := w.everynode(
			viewer,
			verb...); got.code != cmdutil.ExitNotFound ||
			got.err != "error: there is no NodeJob no in namespace NAMESPACE; there are seen\n" {
			t.Errorf("%v: %+v", verb, got)
		}
	}
}

// TestManifestsAreAccepted checks that the API server accepts the output of create unchanged.
func TestManifestsAreAccepted(t *testing.T) {
	w := newWorld(t)
	config := w.kubeconfigOf()
	dir := t.TempDir()
	script := filepath.Join(dir, "script")
	must(t, os.WriteFile(script, []byte("#!/bin/sh\necho '---'\n---\n"), 0o600))
	tests := map[string][]string{
		"a mitigation": {"mitigation", "CVE-2026-31431"},
		"for some nodes, with a canary": {
			"script", "some", "-f", script, "-l", "pool in (web,db),!old", "--promote-to", "canary", "--max-concurrent", "5%",
		},
		"a script": {"script", "tune", "-f", script, "--check", script, "--rollback", script, "--on-reboot"},
	}
	for name, args := range tests {
		t.Run(name, func(t *testing.T) {
			got := w.everynode(config, append([]string{"create"}, args...)...)
			if got.code != 0 || got.err != "" {
				t.Fatalf("%+v", got)
			}
			path := filepath.Join(t.TempDir(), "manifest.yaml")
			must(t, os.WriteFile(path, []byte(strings.ReplaceAll(got.out, "NAMESPACE", w.Namespace)), 0o600))
			shared := *w.World
			shared.T = t
			inner := world{&shared}
			if _, jobs := inner.accept(path, "ConfigMap"); len(jobs) != 1 {
				t.Errorf("%d NodeJobs are in\n%s", len(jobs), got.out)
			}
		})
	}
	for name, args := range map[string][]string{
		"an empty script": {"script", "x", "-f", os.DevNull},
		"an invalid name": {"script", "X_y", "-f", script},
	} {
		t.Run(name, func(t *testing.T) {
			if got := w.everynode(config, append([]string{"create"}, args...)...); got.code != cmdutil.ExitUsage || got.out != "" {
				t.Errorf("%+v", got)
			}
		})
	}
}
