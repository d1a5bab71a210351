// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	xterm "golang.org/x/term"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/term"
	"github.com/everynode/everynode/internal/cli/text"
	"github.com/everynode/everynode/internal/record"
	"github.com/everynode/everynode/internal/task"
)

// job returns the NodeJob of a run. It runs once, only on these nodes, without retries, and is then deleted.
func (o *runOptions) job(nodes []string) *v1alpha1.NodeJob {
	no := false
	seconds := func(d time.Duration) *int32 { return new(int32(d / time.Second)) }
	steps := []v1alpha1.RolloutStep{{Name: "all"}}
	if o.canary {
		steps = []v1alpha1.RolloutStep{{Name: "canary", Nodes: new(intstr.FromInt32(1))}, {Name: "all"}}
	}
	job := &v1alpha1.NodeJob{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.namespace, Name: o.name,
			Labels: map[string]string{"app.kubernetes.io/created-by": "kubectl-everynode-run"},
		},
		Spec: v1alpha1.NodeJobSpec{
			NodeNames: nodes,
			// The user chose the nodes explicitly, so their taints do not exclude them.
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Task:        v1alpha1.TaskSpec{Script: o.script, Command: o.command, TimeoutSeconds: seconds(o.timeout)},
			Retry:       v1alpha1.RetrySpec{Limit: new(int32(0))},
			Rollout:     v1alpha1.RolloutSpec{MaxConcurrent: &o.concurrent, MaxFailures: &o.failures, Steps: steps},
			// A machine that is recreated in the meantime is a different machine.
			Rerun:                   v1alpha1.RerunSpec{OnReplace: &no},
			StartingDeadlineSeconds: seconds(o.startingDeadline),
			TTLSecondsAfterFinished: seconds(o.ttl),
			RetainPodsSeconds:       *seconds(runKeepPods),
			DeletionPolicy:          v1alpha1.DeletionForget,
		},
	}
	if o.name == "" {
		job.GenerateName = "run-"
	}
	return job
}

// targets are the nodes of a run.
type targets struct {
	// names are the nodes on which the command runs.
	names []string
	// away maps nodes that cannot run anything now to the reason.
	away map[string]string
	// otherOS maps nodes on which no command can run to their operating systems.
	otherOS map[string]string
	// recorded are the nodes in names that have the record of a NodeJob with the name of the run.
	recorded []string
}

// targets finds the selected nodes.
func (o *runOptions) targets(ctx context.Context) (targets, error) {
	found := targets{away: map[string]string{}, otherOS: map[string]string{}}
	selector, err := labels.Parse(o.selector)
	if err != nil {
		return found, Failf(ExitUsage, "-l %s is no selector: %w", o.selector, err)
	}
	var all []string
	key := v1alpha1.RecordKey(o.namespace, o.name)
	var page corev1.NodeList
	err = eachPage(ctx, o.client, &page, func() {
		for i := range page.Items {
			node := &page.Items[i]
			all = append(all, node.Name)
			if len(o.nodes) > 0 && !slices.Contains(o.nodes, node.Name) {
				continue
			}
			if !task.FitsOS(corev1.Linux, node.Labels) {
				found.otherOS[node.Name] = node.Labels[corev1.LabelOSStable]
				continue
			}
			if why := away(node); why != "" {
				found.away[node.Name] = why
				continue
			}
			found.names = append(found.names, node.Name)
			if o.name != "" && record.Read(node.Labels, node.Annotations, key).Present {
				found.recorded = append(found.recorded, node.Name)
			}
		}
	}, client.MatchingLabelsSelector{Selector: selector})
	if err != nil {
		return found, err
	}
	slices.Sort(found.names)
	slices.Sort(found.recorded)
	if err := o.checkTargets(found, all); err != nil {
		return found, err
	}
	return found, o.checkRecorded(ctx, found.recorded)
}

// checkRecorded rejects a name for which nodes have records. The records of a deleted NodeJob would be taken for those
// of the run.
func (o *runOptions) checkRecorded(ctx context.Context, nodes []string) error {
	if len(nodes) == 0 {
		return nil
	}
	err := o.client.Get(ctx, client.ObjectKey{Namespace: o.namespace, Name: o.name}, &v1alpha1.NodeJob{})
	if err == nil {
		return Failf(ExitUsage, "there is a NodeJob %s in namespace %s already: give another --name, or none", o.name, o.namespace)
	}
	key := v1alpha1.RecordKey(o.namespace, o.name)
	return Failf(ExitUsage, "%s still %s the record of an earlier NodeJob %s/%s, as deletionPolicy Retain leaves it (label and annotation %s): %s. It would be taken for that of this run. Give another --name, or none; or remove the records: kubectl label nodes --all %[5]s- %[7]s- && kubectl annotate nodes --all %[5]s-",
		countNodes(len(nodes)), carries(len(nodes)), o.namespace, o.name, key, list(nodes), record.SealKey(key))
}

func carries(n int) string {
	if n == 1 {
		return "carries"
	}
	return "carry"
}

// away returns the reason why a node cannot run anything now; "" if it can.
func away(node *corev1.Node) string {
	if !node.DeletionTimestamp.IsZero() {
		return "it is being deleted"
	}
	ready := task.ReadyCondition(node)
	if ready == nil {
		return "it has not reported its state yet"
	}
	if ready.Status == corev1.ConditionUnknown {
		return "it has been unreachable since " + ready.LastTransitionTime.UTC().Format("2006-01-02 15:04 UTC")
	}
	return ""
}

// checkTargets returns an error for an invalid selection.
func (o *runOptions) checkTargets(found targets, all []string) error {
	var unknown []string
	for _, name := range o.nodes {
		if !slices.Contains(all, name) {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(all)
	if len(unknown) > 0 {
		return Failf(ExitNotFound, "there is no node %s; there are %s", list(unknown), list(nearest(unknown[0], all)))
	}
	return o.checkFound(found)
}

// checkFound returns an error if the command cannot run on any of the nodes that were found.
func (o *runOptions) checkFound(found targets) error {
	switch {
	case len(o.nodes) > 0 && len(found.otherOS) > 0:
		return Failf(ExitUsage, "commands and scripts run on Linux nodes only: leave out %s (label %s)", list(sortedKeys(found.otherOS)), corev1.LabelOSStable)
	case len(found.names)+len(found.away) == 0 && len(found.otherOS) > 0:
		return Failf(ExitNotFound, "nothing was run: %s", found.describeOtherOS())
	case len(found.names)+len(found.away) == 0 && o.selector != "":
		return Failf(ExitNotFound, "no node has the labels -l %s: kubectl get nodes --show-labels shows what there is", o.selector)
	case len(found.names)+len(found.away) == 0:
		return Failf(ExitNotFound, "the cluster has no nodes")
	case len(found.names) == 0:
		return Failf(ExitNodesFailed, "nothing was run: %s", describeAway(found.away))
	}
	return nil
}

// describeOtherOS returns how many nodes are excluded because no command runs on their operating system, and names a
// few.
func (t targets) describeOtherOS() string {
	is := "is"
	if len(t.otherOS) > 1 {
		is = "are"
	}
	return fmt.Sprintf("%s %s not on Linux (label %s): %s", countNodes(len(t.otherOS)), is, corev1.LabelOSStable, list(sortedKeys(t.otherOS)))
}

func describeAway(away map[string]string) string {
	var parts []string
	for _, name := range sortedKeys(away) {
		parts = append(parts, name+": "+away[name])
	}
	if len(parts) > maxNear {
		return strings.Join(parts[:maxNear], "; ") + fmt.Sprintf("; and %d more", len(parts)-maxNear)
	}
	return strings.Join(parts, "; ")
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// confirm asks for confirmation if more than one node is affected.
func (o *runOptions) confirm(ctx context.Context, found targets) error {
	atOnce, err := intstr.GetScaledValueFromIntOrPercent(&o.concurrent, len(found.names), false)
	if err != nil {
		return Failf(ExitUsage, "--max-concurrent %s: %w", o.maxConcurrent, err)
	}
	question := fmt.Sprintf("Run %s as root on %s, %d at once: %s", o.what(), countNodes(len(found.names)), min(max(atOnce, 1), len(found.names)), list(found.names))
	if len(found.otherOS) > 0 {
		o.Tell(text.Toned(text.Warn, "left out: ").With(found.describeOtherOS()))
	}
	if len(found.away) > 0 {
		o.Tell(text.Toned(text.Warn, "left out: ").With(describeAway(found.away)))
	}
	if o.yes || len(found.names) == 1 {
		return nil
	}
	return o.ask(ctx, question, "--yes")
}

func countNodes(n int) string {
	if n == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", n)
}

// ask asks the user at the terminal. Without a terminal, it returns an error that names the flag that confirms.
func (f *Factory) ask(ctx context.Context, question, flag string) error {
	in, ok := f.In.(*os.File)
	if !ok || !xterm.IsTerminal(int(in.Fd())) {
		return Failf(ExitDeclined, "the command needs a confirmation, and standard input is not a terminal. To confirm, give %s. %s", flag, question)
	}
	o := term.Of(f.ErrOut, f.Getenv).Options()
	o.Width = 0 // a question is never cut
	_, _ = f.ErrOut.Write([]byte(text.Of(question+".").Render(o) + "\n" + text.Toned(text.Strong, "Go on? [y/N]").Render(o) + " "))
	answers := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(in).ReadString('\n') // no answer means no
		answers <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case answer := <-answers:
		if answer == "y" || answer == "yes" {
			return nil
		}
	case <-ctx.Done():
	}
	return Failf(ExitDeclined, "nothing was done")
}
