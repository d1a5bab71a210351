// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package released_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/local/cluster"
	"github.com/everynode/everynode/test/install"
	"github.com/everynode/everynode/test/publish"
)

// user runs commands in a terminal, with the plugin of one release.
type user struct {
	t      *testing.T
	ctx    context.Context
	plugin publish.Release
}

func newUser(t *testing.T) *user {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	t.Cleanup(cancel)
	u := &user{t: t, ctx: ctx, plugin: site.old}
	t.Cleanup(u.reset)
	return u
}

// reset prints what is useful for debugging if the test has failed, and removes everything that the test may have left.
func (u *user) reset() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	u.ctx = ctx
	if u.t.Failed() {
		u.tell()
	}
	u.kubectl("everynode uninstall --yes")
	u.helm("uninstall everynode --ignore-not-found")
	u.kubectl("delete namespace node-setup " + install.Namespace + " --ignore-not-found --timeout=120s")
	for _, node := range []string{"node-1", "node-2"} {
		u.sh(node, "rm -f /var/tmp/*")
	}
	if strings.Contains(u.kubectl("get nodes -o name"), "node/node-3") {
		u.must("", site.cluster.Remove(u.ctx, "node-3"))
	}
}

func (u *user) command(stdin, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(u.ctx, name, args...)
	cmd.Env = append(
		site.cluster.Environ(u.plugin.Bin),
		"HELM_CACHE_HOME="+site.dir,
		"HELM_CONFIG_HOME="+site.dir,
		"HELM_DATA_HOME="+site.dir,
	)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out), err
}

// kubectl runs a command, whose arguments have no spaces, and fails the test if the command fails.
func (u *user) kubectl(args string) string {
	u.t.Helper()
	return u.must(u.command("", site.cluster.Kubectl(), strings.Fields(args)...))
}

// apply applies a manifest, again if the API server has not read the schemas of new CRDs yet:
// docs/troubleshooting.md#a-nodejob-is-refused-after-the-installation.
func (u *user) apply(manifest string) {
	u.t.Helper()
	u.eventually("the manifest is applied", func() error {
		_, err := u.command(manifest, site.cluster.Kubectl(), "apply", "-f", "-")
		if err != nil && !strings.Contains(err.Error(), "There can be a delay between when CustomResourceDefinitions are created") {
			u.t.Fatal(err)
		}
		return err
	})
}

func (u *user) helm(args string) string {
	u.t.Helper()
	return u.must(u.command("", *helm, append([]string{"--namespace", install.Namespace}, strings.Fields(args)...)...))
}

func (u *user) must(out string, err error) string {
	u.t.Helper()
	if err != nil {
		u.t.Fatal(err)
	}
	return out
}

func (u *user) eventually(what string, check func() error) {
	u.t.Helper()
	deadline := time.Now().Add(150 * time.Second)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) || u.ctx.Err() != nil {
			u.t.Fatalf("waiting until %s: %v", what, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// tell prints what is useful for debugging, the most useful last.
func (u *user) tell() {
	for _, args := range []string{
		"-n " + install.Namespace + " logs deployment/" + install.Deployment + " --tail=20",
		"-n " + install.Namespace + " get events", "-n node-setup get events", "get nodes", "get pods -A -o wide", "-n node-setup get nodejobs -o wide",
	} {
		out, err := u.command("", site.cluster.Kubectl(), strings.Fields(args)...)
		u.t.Logf("kubectl %s\n%s%v", args, out, err)
	}
}

// sh runs a script on a node.
func (u *user) sh(node, script string) string {
	u.t.Helper()
	stdout, _, err := site.cluster.Exec(u.ctx, node, "/bin/sh", "-c", script)
	return strings.TrimSpace(u.must(stdout, err))
}

// installed waits until the manager of a release leads, and checks that the command finds no other version.
func (u *user) installed(r publish.Release) {
	u.t.Helper()
	u.kubectl("-n " + install.Namespace + " rollout status deployment " + install.Deployment + " --timeout=150s")
	u.eventually("the manager of "+r.Version+" leads", func() error {
		holder := u.kubectl(
			"-n " + install.Namespace + " get lease " + install.Deployment + " --ignore-not-found -o jsonpath={.spec.holderIdentity}",
		)
		image := u.kubectl(
			"-n " + install.Namespace + " get pods --ignore-not-found --field-selector=metadata.name=" + holder + " -o jsonpath={.items[*].spec.containers[0].image}",
		)
		if holder == "" || !strings.Contains(image, ":"+r.Version+"@") {
			return fmt.Errorf("%q leads, with the image %q", holder, image)
		}
		return nil
	})
	u.plugin = r
	u.eventually("all versions are "+r.Version, func() error {
		out, err := u.command("", site.cluster.Kubectl(), "everynode", "version")
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if err == nil &&
			(len(lines) != 3 || slices.ContainsFunc(lines, func(line string) bool { return strings.Fields(line)[1] != r.Version })) {
			err = errors.New(out)
		}
		return err
	})
}

// states are NodeJobs that stay in a state until the file everynode-go is on the nodes.
var states = []struct {
	name string
	// reason is that of the condition Complete, and file a file that its script has written on a node.
	reason, node, file string
	spec               string
}{
	{"is-done", "AllNodesDone", "node-2", "is-done", `
  nodes: {selector: {matchLabels: {kubernetes.io/os: linux}}}
  rollout: {maxConcurrent: 100%, steps: [{name: all}]}
  task: {script: "echo ran >> /var/tmp/is-done"}`},
	{"reboots", "InProgress", "node-2", "reboots-checks", `
  nodes:
    selector: {matchLabels: {kubernetes.io/hostname: node-2}}
  task: {script: "echo ran >> /var/tmp/reboots; echo reboot=true >> $EVERYNODE_RESULTS", check: {script: "echo ran >> /var/tmp/reboots-checks; while ! [ -e /var/tmp/everynode-go ]; do sleep 0.2; done"}}
  maintenance: {reboot: {policy: IfRequested}}`},
	{"runs", "InProgress", "node-1", "runs", `
  nodes:
    selector: {matchLabels: {kubernetes.io/hostname: node-1}}
  task: {script: "echo ran >> /var/tmp/runs; while ! [ -e /var/tmp/everynode-go ]; do sleep 0.2; done"}`},
	{"soaks", "Soaking", "node-1", "soaks", `
  nodes: {selector: {matchLabels: {kubernetes.io/os: linux}}}
  rollout: {steps: [{name: canary, selector: {matchLabels: {kubernetes.io/hostname: node-1}}, soakSeconds: 3600}, {name: all}]}
  task: {script: "echo ran >> /var/tmp/soaks"}`},
	{"waits", "AwaitingPromotion", "node-1", "waits", `
  nodes: {selector: {matchLabels: {kubernetes.io/os: linux}}}
  rollout: {promoteTo: canary, steps: [{name: canary, selector: {matchLabels: {kubernetes.io/hostname: node-1}}}, {name: all}]}
  task: {script: "echo ran >> /var/tmp/waits"}`},
	{"has-failed", "MaxFailuresExceeded", "node-1", "has-failed", `
  nodes:
    selector: {matchLabels: {kubernetes.io/hostname: node-1}}
  retry: {limit: 0}
  task: {script: "echo ran >> /var/tmp/has-failed; exit 3"}`},
	{"gated", "InProgress", "node-3", "gated", `
  nodes:
    selector: {matchLabels: {kubernetes.io/hostname: node-3}}
  gate: {key: example.com/not-set-up}
  task: {script: "echo ran >> /var/tmp/gated; while ! [ -e /var/tmp/everynode-go ]; do sleep 0.2; done"}`},
}

// begin brings a NodeJob into each state. node-3 joins with the taint of a gate.
func (u *user) begin() {
	u.t.Helper()
	u.kubectl("create namespace node-setup")
	u.kubectl("label namespace node-setup pod-security.kubernetes.io/enforce=privileged everynode.dev/enabled=true")
	u.kubectl("label namespace default everynode.dev/enabled=true --overwrite") // for run
	for _, s := range states {
		u.apply(
			"apiVersion: everynode.dev/v1alpha1\nkind: NodeJob\nmetadata: {name: " + s.name + ", namespace: node-setup}\nspec:" + s.spec,
		)
		if s.name == "gated" {
			u.must("", site.cluster.JoinReady(u.ctx, cluster.NodeOptions{
				Name: "node-3", Taints: []corev1.Taint{{Key: "example.com/not-set-up", Effect: corev1.TaintEffectNoSchedule}},
			}))
			u.must("", site.registry.Trust(u.ctx, "node-3"))
		}
		u.eventually(s.name+" is in its state", func() error {
			if out, _, err := site.cluster.Exec(u.ctx, s.node, "cat", "/var/tmp/"+s.file); err != nil || out == "" {
				return fmt.Errorf("its script has not run on %s: %w", s.node, err)
			}
			got, err := u.command("", site.cluster.Kubectl(), "-n", "node-setup", "get", "nodejob", s.name, "-o",
				`jsonpath={.status.conditions[?(@.type=="Complete")].reason}`)
			if err == nil && got != s.reason {
				err = fmt.Errorf("the reason is %s, want %s", got, s.reason)
			}
			return err
		})
	}
	u.settle()
}

// settle waits until is-done is done on node-3 as well, and only the pods of running tasks are left.
func (u *user) settle() {
	u.t.Helper()
	u.kubectl("-n node-setup wait --for=jsonpath={.status.nodes.done}=3 --timeout=120s nodejob/is-done")
	u.eventually("only the pods of running tasks are left", func() error {
		if pods := u.kubectl("-n node-setup get pods -o name"); strings.Count(pods, "\n") != 3 {
			return errors.New(pods)
		}
		return nil
	})
}

// state is what an upgrade must not change: of each node what the NodeJobs have written there, of each pod of a task its
// UID, and of each NodeJob its status.
func (u *user) state() map[string]string {
	u.t.Helper()
	var nodes corev1.NodeList
	var pods corev1.PodList
	var jobs v1alpha1.NodeJobList
	for list, args := range map[any]string{&nodes: "get nodes -o json", &pods: "-n node-setup get pods -o json", &jobs: "-n node-setup get nodejobs -o json"} {
		u.must("", json.Unmarshal([]byte(u.kubectl(args)), list))
	}
	state := map[string]string{}
	for _, node := range nodes.Items {
		for _, written := range []map[string]string{node.Labels, node.Annotations} {
			for key, value := range written {
				if strings.Contains(key, "node-setup.everynode.dev") {
					state[node.Name+" "+key] = value
				}
			}
		}
		state[node.Name+" taints"] = fmt.Sprint(node.Spec.Taints)
	}
	for _, pod := range pods.Items {
		state["pod "+pod.Name] = string(pod.UID)
	}
	for _, job := range jobs.Items {
		for i := range job.Status.Conditions {
			job.Status.Conditions[i].Message = "" // it may say how long something takes
		}
		content, err := json.Marshal(job.Status)
		state["nodejob "+job.Name] = u.must(string(content), err)
	}
	return state
}

// wantState waits until the manager that leads has run a task, and checks that nothing else has changed.
func (u *user) wantState(before map[string]string) {
	u.t.Helper()
	u.eventually("the manager that has just started runs a task", func() error {
		_, err := u.command("", site.cluster.Kubectl(), "everynode", "run", "node-1", "--yes", "--", "true")
		return err
	})
	if diff := cmp.Diff(before, u.state()); diff != "" {
		u.t.Errorf("the other version has changed (-before +after):\n%s", diff)
	}
}

// finish lets all tasks end, and checks that each has run once.
func (u *user) finish() {
	u.t.Helper()
	for _, node := range []string{"node-1", "node-2", "node-3"} {
		u.sh(node, "touch /var/tmp/everynode-go")
	}
	for _, name := range []string{"is-done", "reboots", "runs", "gated"} {
		u.kubectl("-n node-setup wait --for=condition=Complete --timeout=120s nodejob/" + name)
	}
	once := func(node, file string) {
		if got := u.sh(node, "cat /var/tmp/"+file); got != "ran" {
			u.t.Errorf("%s has run on %s: %q", file, node, got)
		}
	}
	for _, s := range states {
		once(s.node, s.name)
	}
	once("node-1", "is-done")
	once("node-3", "is-done")
	once("node-2", "reboots-checks")
	if taints := u.kubectl("get node node-3 -o jsonpath={.spec.taints}"); taints != "" {
		u.t.Errorf("the gate of node-3 is closed: %s", taints)
	}
}

// uninstall removes Everynode with the command, and checks that nothing is left on nodes, or in the cluster outside of
// namespaces.
func (u *user) uninstall() {
	u.t.Helper()
	said := u.kubectl("everynode uninstall --yes")
	if u.t.Log(said); strings.Contains(said, "does not end") {
		u.t.Error("the command has waited for a pod that is not of the manager")
	}
	if left := u.kubectl("get nodes -o yaml"); strings.Contains(left, "everynode.dev") {
		u.t.Errorf("left on nodes is\n%s", left)
	}
	kinds := "crds,clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings"
	if site.policies {
		kinds += ",mutatingadmissionpolicies,mutatingadmissionpolicybindings"
	}
	if left := u.kubectl("get " + kinds + " -o name"); strings.Contains(left, "everynode") {
		u.t.Errorf("left is\n%s", left)
	}
}

// uninstallWithNamespace also checks that the namespace is removed, which has the label of config/default.
func (u *user) uninstallWithNamespace() {
	u.t.Helper()
	u.uninstall()
	if left := u.kubectl("get namespace " + install.Namespace + " --ignore-not-found -o name"); left != "" {
		u.t.Errorf("left is %s", left)
	}
}
