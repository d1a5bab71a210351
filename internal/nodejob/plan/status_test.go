// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/record"
)

// refused is an input in which the API server has just rejected a pod.
func refused(in Input) Input {
	in.Obstacle = &hold.Why{Reason: v1alpha1.ReasonPodForbidden, Message: "exceeded quota", Until: in.Now.Add(time.Second)}
	return in
}

// TestConditions shows the complete conditions, because users read them.
func TestConditions(t *testing.T) {
	var (
		done = func(name string) Node { return newNode(name, recorded(record.Succeeded)) }
		due  = func(name string) Node {
			return newNode(name, recorded(record.Succeeded, func(r *record.Record) { r.FinishedAt = ago(900) }))
		}
		failed  = func(name string) Node { return newNode(name, recorded(record.Failed, attempts(2))) }
		tainted = newNode("t", func(n *Node) { n.Taints = []corev1.Taint{busy} })
		suspend = func(j *v1alpha1.NodeJob) { j.Spec.Suspend = true }
		one     = func(j *v1alpha1.NodeJob) { j.Spec.Rollout.MaxConcurrent = new(intstr.FromInt32(1)) }
		pulling = func(name string) Pod {
			return newPod(newNode(name), func(p *Pod) {
				p.Phase, p.Started, p.Waiting = corev1.PodPending, time.Time{}, "ImagePullBackOff: image registry.example/x"
			})
		}
		silent = func(name string) Pod {
			return newPod(newNode(name), func(p *Pod) {
				p.Phase, p.Started, p.Created, p.Silent = corev1.PodPending, time.Time{}, now.Add(-slowStart), true
			})
		}
		reached = func(step string, soaking time.Time, changes ...func(*v1alpha1.NodeJob)) *v1alpha1.NodeJob {
			job := newJob(changes...)
			job.Status.Revision, job.Status.Rollout = rev, &v1alpha1.RolloutStatus{Step: step, SoakingSince: metav1.Time{Time: soaking}}
			return job
		}
		atRisk = func(job *v1alpha1.NodeJob) *v1alpha1.NodeJob {
			job.Status.ControllerState.Rollout.AtRisk = []v1alpha1.NodeAtRisk{{Node: "gone", UID: "gone-uid"}}
			return job
		}
		canary  = first(intstr.FromInt32(1))
		soaked  = v1alpha1.RolloutStep{Name: "first", Nodes: canary.Nodes, SoakSeconds: 60}
		missing = &hold.Why{
			Reason:  v1alpha1.ReasonConfigMapNotFound,
			Message: "spec.task.scriptFrom: ConfigMap ns/x does not exist. Create it",
		}
	)
	const promote = "step first has passed; 1 of 3 nodes are done. To continue with step rest: " +
		`kubectl -n ns patch nodejob job --type=merge -p '{"spec":{"rollout":{"promoteTo":"rest"}}}'`
	const retryAll = `Fix the task, or retry all failed nodes: kubectl -n ns annotate nodejob job everynode.dev/retry="$(date +%s)" --overwrite`
	const remedy = retryAll + "; " +
		"one node (other nodes start too): kubectl annotate node NAME ns.everynode.dev/job-; or skip a node: kubectl label node NAME ns.everynode.dev/job=rev --overwrite"
	const noNode = "no node matches spec.nodes.selector; the task runs as soon as one does"
	const tooTainted = "1 node is excluded by a taint that spec.nodes.tolerations does not tolerate (t: it has the taint dedicated=db:NoSchedule)"
	tests := map[string]struct {
		in   Input
		want []string
	}{
		"it runs": {see(newJob(one), []Node{done("a"), newNode("b"), newNode("c")}), []string{
			"Complete=Unknown InProgress: the same",
			"Reconciling=True InProgress: 1 of 3 nodes are done, 1 running; waiting: 1 WaitingForSlot (c)",
			"Stalled=False NotStalled: no action needed",
		}},
		"it waits for the first step": {see(newJob(inSteps(canary, rest)), []Node{newNode("b"), newNode("c")}), []string{
			"Complete=Unknown InProgress: the same",
			"Reconciling=True InProgress: 0 of 2 nodes are done, 1 running; waiting: 1 WaitingForStep (c)",
			"Stalled=False NotStalled: no action needed",
		}},
		"it soaks": {see(reached("first", ago(20), inSteps(soaked, rest)), []Node{done("a"), newNode("b"), newNode("c")}), []string{
			"Complete=Unknown Soaking: the same",
			"Reconciling=True Soaking: 1 of 3 nodes are done; waiting: 2 Soaking (b, …); step first soaks until 2026-03-01T12:00:40Z",
			"Stalled=False NotStalled: no action needed",
		}},
		"it waits for promotion": {
			see(reached("first", time.Time{}, inSteps(canary, rest), promotedTo("first")), []Node{done("a"), newNode("b"), newNode("c")}),
			[]string{
				"Complete=Unknown AwaitingPromotion: " + promote,
				"Reconciling=False AwaitingPromotion: " + promote,
				"Stalled=False NotStalled: no action needed",
			},
		},
		"it waits for promotion, and a node for itself": {
			see(
				reached("first", time.Time{}, inSteps(canary, rest), promotedTo("first")),
				[]Node{done("a"), newNode("b"), newNode("c", func(n *Node) { n.Ready = corev1.ConditionUnknown })},
			),
			[]string{
				"Complete=Unknown AwaitingPromotion: " + strings.Replace(promote, "done.", "done; also waiting: 1 NodeUnreachable (c).", 1),
				"Reconciling=False AwaitingPromotion: " + strings.Replace(
					promote,
					"done.",
					"done; also waiting: 1 NodeUnreachable (c).",
					1,
				),
				"Stalled=False NotStalled: no action needed",
			},
		},
		"nodes have an earlier revision": {
			see(newJob(one), []Node{newNode("a", labelled("old")), newNode("b", labelled("old")), done("c"), newNode("d")}),
			[]string{
				"Complete=Unknown InProgress: the same",
				"Reconciling=True InProgress: 1 of 4 nodes are done (2 have an earlier revision), 1 running; waiting: 2 WaitingForSlot (b, …)",
				"Stalled=False NotStalled: no action needed",
			},
		},
		"no node is in the step": {
			see(reached("b", time.Time{}, inSteps(poolB(0), rest)), []Node{newNode("b"), newNode("c")}),
			[]string{
				"Complete=False StepWithoutNodes: the same",
				"Reconciling=False StepWithoutNodes: 0 of 2 nodes are done; waiting: 2 StepWithoutNodes (b, …)",
				"Stalled=True StepWithoutNodes: step b of the rollout contains no node that is not in an earlier step, so no node shows that the task works there, and the later steps wait. " +
					"Correct the selector of the step, or remove the step",
			},
		},
		"no node is in the step while nodes of earlier steps rerun": {
			see(reached("b", time.Time{}, inSteps(canary, poolB(0), rest), periodSeconds(60)), []Node{due("a"), newNode("c")}),
			[]string{
				"Complete=False StepWithoutNodes: the same",
				"Reconciling=False StepWithoutNodes: 0 of 2 nodes are done, 1 running; waiting: 1 StepWithoutNodes (c)",
				"Stalled=True StepWithoutNodes: step b of the rollout contains no node that is not in an earlier step, so no node shows that the task works there, and the later steps wait. " +
					"Correct the selector of the step, or remove the step",
			},
		},
		"only a rerun is left, and its pod is rejected": {func() Input {
			in := see(newJob(periodSeconds(60)), []Node{due("a")})
			in.NodeProblems = map[types.UID]NodeProblem{
				"a-uid": {
					Why:   hold.Why{Reason: v1alpha1.ReasonPodNameTaken, Message: "pod x has the name", Until: now.Add(time.Second)},
					Since: ago(9),
				},
			}
			return in
		}(), []string{
			"Complete=False PodNameTaken: the same",
			"Reconciling=False PodNameTaken: 0 of 1 node is done; waiting: 1 PodNameTaken (a)",
			"Stalled=True PodNameTaken: 0 of 1 node is done; waiting: 1 PodNameTaken (a); a: pod x has the name",
		}},
		"a canary that failed its soak is reported when it is tainted for removal": {
			func() Input {
				job := reached("first", time.Time{}, inSteps(soaked, rest), periodSeconds(60))
				job.Status.Rollout.UnrecordedFailures = []v1alpha1.UnrecordedFailure{
					{Node: "a", UID: "a-uid", Reason: v1alpha1.ReasonNotReadyInSoak},
				}
				a := due("a")
				a.Taints = []corev1.Taint{busy}
				return see(job, []Node{a, newNode("b")})
			}(),
			[]string{
				"Complete=False MaxFailuresExceeded: the same",
				"Reconciling=False MaxFailuresExceeded: 0 of 1 node is done; waiting: 1 MaxFailuresExceeded (b)",
				"Stalled=True MaxFailuresExceeded: the rollout has stopped: 1 node failed, and rollout.maxFailures allows 0 (a: NotReadyInSoak: the node turned NotReady in the soak after the task). " + retryAll,
			},
		},
		"a failed node is reported while others rerun": {see(newJob(periodSeconds(60)), []Node{due("a"), failed("b")}), []string{
			"Complete=False NodesFailed: the same",
			"Reconciling=False NodesFailed: 0 of 2 nodes are done, 1 failed, 1 running",
			"Stalled=True NodesFailed: 1 node failed (b: TaskFailed, exit code 3: no space left). " + remedy,
		}},
		"too many nodes failed, and cannot be rolled back": {
			see(
				newJob(inSteps(canary, rest), withRollback),
				[]Node{newNode("a", recorded(record.Failed, attempts(2), undone(record.Failed, 2))), newNode("b")},
			),
			[]string{
				"Complete=False MaxFailuresExceeded: the same",
				"Reconciling=False MaxFailuresExceeded: 0 of 2 nodes are done, 1 failed; waiting: 1 MaxFailuresExceeded (b)",
				"Stalled=True MaxFailuresExceeded: the rollout has stopped: 1 node failed, and rollout.maxFailures allows 0 (a: TaskFailed, exit code 3: no space left). " + remedy,
				"RollbackFailed=True RollbackFailed: the rollback also failed on 1 node (a: TaskFailed: no way back). " +
					"Check the state of these nodes; the last lines of output are in the annotation ns.everynode.dev/job of each node",
			},
		},
		"too many nodes have unrecorded failures": {
			see(atRisk(reached("first", time.Time{}, inSteps(canary, rest))), []Node{newNode("b"), newNode("c")}),
			[]string{
				"Complete=False MaxFailuresExceeded: the same",
				"Reconciling=False MaxFailuresExceeded: 0 of 2 nodes are done; waiting: 2 MaxFailuresExceeded (b, …)",
				"Stalled=True MaxFailuresExceeded: the rollout has stopped: 1 node failed, and rollout.maxFailures allows 0 (gone: NotReadyNodeDeleted). " + retryAll,
			},
		},
		"no rollback failed": {
			see(newJob(withRollback), []Node{done("a")}),
			[]string{
				"Complete=True AllNodesDone: 1 of 1 node is done",
				"Reconciling=False AllNodesDone: 1 of 1 node is done",
				"Stalled=False NotStalled: no action needed",
				"RollbackFailed=False NoRollbackFailed: no rollback has failed",
			},
		},
		"the rollout continues after failures": {see(newJob(), []Node{done("a"), failed("b"), newNode("c")}), []string{
			"Complete=Unknown InProgress: the same",
			"Reconciling=True InProgress: 1 of 3 nodes are done, 1 failed, 1 running",
			"Stalled=False NotStalled: no action needed",
		}},
		"every node is done": {see(newJob(), []Node{done("a"), done("b"), tainted}), []string{
			"Complete=True AllNodesDone: 2 of 2 nodes are done; 1 node is excluded by a taint",
			"Reconciling=False AllNodesDone: 2 of 2 nodes are done",
			"Stalled=False NotStalled: no action needed",
		}},
		"every node is done, and it is suspended": {see(newJob(suspend), []Node{done("a")}), []string{
			"Complete=True AllNodesDone: 1 of 1 node is done",
			"Reconciling=False AllNodesDone: 1 of 1 node is done",
			"Stalled=False NotStalled: no action needed",
		}},
		"no node matches because of a taint": {see(newJob(), []Node{tainted}), []string{
			"Complete=Unknown NoMatchingNodes: " + tooTainted,
			"Reconciling=False NoMatchingNodes: " + tooTainted,
			"Stalled=False NotStalled: no action needed",
		}},
		"there are no nodes": {see(newJob(), nil), []string{
			"Complete=Unknown NoMatchingNodes: " + noNode,
			"Reconciling=False NoMatchingNodes: " + noNode,
			"Stalled=False NotStalled: no action needed",
		}},
		"nodes failed and nothing else is left": {see(newJob(), []Node{done("a"), failed("b")}), []string{
			"Complete=False NodesFailed: the same",
			"Reconciling=False NodesFailed: 1 of 2 nodes are done, 1 failed",
			"Stalled=True NodesFailed: 1 node failed (b: TaskFailed, exit code 3: no space left). " +
				"Fix the task, or retry all failed nodes: kubectl -n ns annotate nodejob job everynode.dev/retry=\"$(date +%s)\" --overwrite; one node (other nodes start too): kubectl annotate node NAME ns.everynode.dev/job-; or skip a node: kubectl label node NAME ns.everynode.dev/job=rev --overwrite",
		}},
		"three of the nodes that failed are named": {see(newJob(), []Node{failed("d"), failed("c"), failed("b"), failed("a")}), []string{
			"Complete=False NodesFailed: the same",
			"Reconciling=False NodesFailed: 0 of 4 nodes are done, 4 failed",
			"Stalled=True NodesFailed: 4 nodes failed (a: TaskFailed, exit code 3: no space left; " +
				"b: TaskFailed, exit code 3: no space left; c: TaskFailed, exit code 3: no space left). " +
				"Fix the task, or retry all failed nodes: kubectl -n ns annotate nodejob job everynode.dev/retry=\"$(date +%s)\" --overwrite; one node (other nodes start too): kubectl annotate node NAME ns.everynode.dev/job-; or skip a node: kubectl label node NAME ns.everynode.dev/job=rev --overwrite",
		}},
		"an unreachable node failed without a message": {
			see(newJob(), []Node{newNode("a", recorded(record.Failed, attempts(2), func(r *record.Record) {
				r.Reason, r.Message, r.ExitCode = v1alpha1.ReasonNodeUnreachable, "", nil
			}))}), []string{
				"Complete=False NodesFailed: the same",
				"Reconciling=False NodesFailed: 0 of 1 node is done, 1 failed",
				"Stalled=True NodesFailed: 1 node failed (a: NodeUnreachable). " +
					"Fix the task, or retry all failed nodes: kubectl -n ns annotate nodejob job everynode.dev/retry=\"$(date +%s)\" --overwrite; one node (other nodes start too): kubectl annotate node NAME ns.everynode.dev/job-; or skip a node: kubectl label node NAME ns.everynode.dev/job=rev --overwrite",
			},
		},
		"it is suspended": {see(newJob(suspend), []Node{done("a"), newNode("b")}), []string{
			"Complete=Unknown Suspended: spec.suspend keeps new attempts from starting; 1 of 2 nodes are done; waiting: 1 Suspended (b)",
			"Reconciling=False Suspended: spec.suspend keeps new attempts from starting; 1 of 2 nodes are done; waiting: 1 Suspended (b)",
			"Stalled=False NotStalled: no action needed",
		}},
		"pods do not start": {
			see(
				newJob(),
				[]Node{done("a"), newNode("b"), newNode("c"), newNode("d"), newNode("e")},
				pulling("e"),
				pulling("d"),
				pulling("c"),
				pulling("b"),
			),
			[]string{
				"Complete=Unknown PodNotStarting: the same",
				"Reconciling=True PodNotStarting: on 4 nodes the pod does not start (b: ImagePullBackOff: image registry.example/x; " +
					"c: ImagePullBackOff: image registry.example/x; d: ImagePullBackOff: image registry.example/x). " +
					"Check the image's name, that the node can pull it, and the Secrets, ConfigMaps and volumes that the pod names",
				"Stalled=False NotStalled: no action needed",
			},
		},
		"a referenced object is missing": {
			func() Input {
				in := see(newJob(), []Node{done("a"), newNode("b")})
				in.Obstacle = missing
				return in
			}(), []string{
				"Complete=False ConfigMapNotFound: the same",
				"Reconciling=False ConfigMapNotFound: 1 of 2 nodes are done; waiting: 1 ConfigMapNotFound (b)",
				"Stalled=True ConfigMapNotFound: " + missing.Message,
			},
		},
		"a pod does not start and reports no reason": {
			see(newJob(), []Node{newNode("a")}, newPod(newNode("a"), func(p *Pod) {
				p.Name, p.Phase, p.Started, p.Created = "job-x", corev1.PodPending, time.Time{}, now.Add(-slowStart)
			})),
			[]string{
				"Complete=Unknown PodNotStarting: the same",
				"Reconciling=True PodNotStarting: on 1 node the pod does not start (a: not started for 30 s: kubectl -n ns describe pod job-x says why). " +
					"Check the image's name, that the node can pull it, and the Secrets, ConfigMaps and volumes that the pod names",
				"Stalled=False NotStalled: no action needed",
			},
		},
		"an init container does not end": {
			see(newJob(), []Node{newNode("a")}, newPod(newNode("a"), func(p *Pod) {
				p.Name, p.Phase, p.Started, p.Created, p.Initializing = "job-x", corev1.PodPending, time.Time{}, now.Add(
					-slowStart,
				), "mesh-init"
			})),
			[]string{
				"Complete=Unknown PodNotStarting: the same",
				"Reconciling=True PodNotStarting: on 1 node the pod does not start (a: not started for 30 s: its init container mesh-init has not ended; its log: kubectl -n ns logs job-x -c mesh-init). " +
					"Check the image's name, that the node can pull it, and the Secrets, ConfigMaps and volumes that the pod names",
				"Stalled=False NotStalled: no action needed",
			},
		},
		"the kubelets are silent": {
			see(newJob(), []Node{newNode("a"), newNode("b")}, silent("b"), silent("a")),
			[]string{
				"Complete=Unknown PodNotStarting: the same",
				"Reconciling=True PodNotStarting: on 2 nodes the pod does not start (a: the kubelet has not reported on the pod for 30 s; " +
					"b: the kubelet has not reported on the pod for 30 s). Check that the kubelet runs, and reaches the API server: kubectl describe node a",
				"Stalled=False NotStalled: no action needed",
			},
		},
		"one kubelet is silent": {
			see(newJob(), []Node{newNode("a"), newNode("b")}, silent("a"), pulling("b")),
			[]string{
				"Complete=Unknown PodNotStarting: the same",
				"Reconciling=True PodNotStarting: on 2 nodes the pod does not start (a: the kubelet has not reported on the pod for 30 s; " +
					"b: ImagePullBackOff: image registry.example/x). Check the image's name, that the node can pull it, and the Secrets, ConfigMaps and volumes that the pod names",
				"Stalled=False NotStalled: no action needed",
			},
		},
		"a rejected pod while attempts run does not stall": {
			refused(see(newJob(), []Node{newNode("a"), newNode("b")}, newPod(newNode("a")))), []string{
				"Complete=Unknown PodForbidden: the same",
				"Reconciling=True PodForbidden: 0 of 2 nodes are done, 1 running; waiting: 1 PodForbidden (b); exceeded quota",
				"Stalled=False NotStalled: no action needed",
			},
		},
		"a rejected pod while nothing runs": {
			refused(see(newJob(), []Node{done("a"), newNode("b")})), []string{
				"Complete=False PodForbidden: the same",
				"Reconciling=False PodForbidden: 1 of 2 nodes are done; waiting: 1 PodForbidden (b)",
				"Stalled=True PodForbidden: exceeded quota",
			},
		},
		"a rejected pod that no node needs any more": {
			refused(see(newJob(), []Node{done("a")})), []string{
				"Complete=True AllNodesDone: 1 of 1 node is done",
				"Reconciling=False AllNodesDone: 1 of 1 node is done",
				"Stalled=False NotStalled: no action needed",
			},
		},
		"an unreachable node does not hide that others failed": {
			see(newJob(), []Node{failed("a"), newNode("b", func(n *Node) { n.Ready = corev1.ConditionUnknown })}), []string{
				"Complete=False NodesFailed: the same",
				"Reconciling=False NodesFailed: 0 of 2 nodes are done, 1 failed; waiting: 1 NodeUnreachable (b)",
				"Stalled=True NodesFailed: 1 node failed (a: TaskFailed, exit code 3: no space left). " +
					"Fix the task, or retry all failed nodes: kubectl -n ns annotate nodejob job everynode.dev/retry=\"$(date +%s)\" --overwrite; one node (other nodes start too): kubectl annotate node NAME ns.everynode.dev/job-; or skip a node: kubectl label node NAME ns.everynode.dev/job=rev --overwrite",
			},
		},
		"a node is disrupted repeatedly": {
			see(newJob(), []Node{newNode("a", recorded(record.Disrupted, func(r *record.Record) {
				r.Attempts, r.Disruptions, r.Message, r.FinishedAt = 0, manyDisruptions, "OutOfcpu: node is full", now
			}))}), []string{
				"Complete=False Disrupted: the same",
				"Reconciling=False Disrupted: 0 of 1 node is done; waiting: 1 BackingOff (a)",
				"Stalled=True Disrupted: attempts on 1 node were disrupted at least 5 times in a row (a: OutOfcpu: node is full). " +
					"They are repeated and do not count as failures; find out what ends them",
			},
		},
		"the selector is invalid": {
			see(newJob(func(j *v1alpha1.NodeJob) {
				j.Spec.Nodes.Selector = &metav1.LabelSelector{
					MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "pool", Operator: "Like"}},
				}
			}), []Node{newNode("a")}),
			[]string{
				"Complete=False InvalidSelector: the same",
				"Reconciling=False InvalidSelector: 0 of 0 nodes are done",
				`Stalled=True InvalidSelector: spec.nodes.selector cannot be used: "Like" is not a valid label selector operator. Correct it as for a Deployment's selector`,
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			status := Next(tt.in).Status
			var got []string
			complete := status.Conditions[0] // kubectl prints its message, so it is that of the condition that is True, if any is
			if i := slices.IndexFunc(
				status.Conditions[:3],
				func(c metav1.Condition) bool { return c.Status == metav1.ConditionTrue },
			); i > 0 &&
				complete.Message == status.Conditions[i].Message {
				status.Conditions[0].Message = "the same"
			}
			for _, c := range status.Conditions {
				got = append(got, fmt.Sprintf("%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message))
				if c.ObservedGeneration != 3 || !c.LastTransitionTime.Time.Equal(now) {
					t.Errorf("%s is of generation %d and %v", c.Type, c.ObservedGeneration, c.LastTransitionTime)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			if status.ObservedGeneration != 3 || status.Revision != rev {
				t.Errorf("status of generation %d and revision %q", status.ObservedGeneration, status.Revision)
			}
		})
	}
}

func TestCounts(t *testing.T) {
	nodes := []Node{
		newNode("done", recorded(record.Succeeded)),
		newNode("failed", recorded(record.Failed, attempts(2))),
		newNode("runs"), newNode("starts"),
		newNode("tainted", func(n *Node) { n.Taints = []corev1.Taint{busy} }),
		newNode("lost", func(n *Node) { n.Ready = corev1.ConditionUnknown }),
		newNode("backs off", recorded(record.Failed, func(r *record.Record) { r.FinishedAt = ago(1) })),
		newNode("tainted since it runs", func(n *Node) { n.Taints = []corev1.Taint{busy} }),
	}
	got := Next(see(newJob(), nodes, newPod(nodes[2]), newPod(nodes[7]))).Status.Nodes
	want := v1alpha1.NodeCounts{Total: 7, Done: 1, Running: 3, Waiting: 2, Failed: 1, Excluded: 1}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}

// An unchanged status is not written a second time, so the same state must give the same bytes.
func TestStatusIsStable(t *testing.T) {
	nodes := []Node{
		newNode("b", recorded(record.Failed)),
		newNode("c", recorded(record.Failed, attempts(2))),
		newNode("a", recorded(record.Disrupted)),
		newNode("d"),
	}
	pods := []Pod{newPod(nodes[3], func(p *Pod) { p.Waiting = "ImagePullBackOff: image x" })}
	job := newJob(func(j *v1alpha1.NodeJob) {
		j.Spec.Suspend = true
		j.Status.Conditions = []metav1.Condition{
			{Type: "SomebodyElses", Status: metav1.ConditionTrue, Reason: "Because", LastTransitionTime: metav1.NewTime(ago(500))},
		}
	})
	first := Next(see(job, nodes, pods...)).Status
	if first.Conditions[0].Type != "SomebodyElses" || len(first.Conditions) != 4 {
		t.Errorf("conditions %+v, want the condition of another tool first, and ours", first.Conditions)
	}

	later := job.DeepCopy()
	later.Status = first
	turned := see(later, []Node{nodes[3], nodes[2], nodes[1], nodes[0]}, pods...)
	turned.Now = now.Add(5 * time.Second)
	if diff := cmp.Diff(first, Next(turned).Status); diff != "" {
		t.Errorf("status of the same state, five seconds later (-first +second):\n%s", diff)
	}

	turned.Pods = nil // the attempt because of which it was Reconciling is over
	for _, c := range Next(turned).Status.Conditions {
		switch {
		case c.Type == v1alpha1.ConditionReconciling && !c.LastTransitionTime.Time.Equal(turned.Now):
			t.Errorf("Reconciling changed at %v, want now", c.LastTransitionTime)
		case c.Type == v1alpha1.ConditionComplete && !c.LastTransitionTime.Time.Equal(now):
			t.Errorf("Complete changed at %v, though it is Unknown as before", c.LastTransitionTime)
		}
	}
}

func TestFailures(t *testing.T) {
	failure := func(node string, retrying bool, attempts int32) v1alpha1.NodeFailure {
		return v1alpha1.NodeFailure{
			Node: node, Retrying: retrying, Attempts: attempts, ExitCode: new(int32(3)), Reason: "TaskFailed",
			Message: "line 1\nno space left", FinishedAt: metav1.NewTime(ago(60)),
		}
	}
	again := newNode("a-runs-again", recorded(record.Failed))
	disrupted := newNode("d-runs-again", recorded(record.Disrupted))
	nodes := []Node{
		newNode("z", recorded(record.Failed, attempts(2))), newNode("b", recorded(record.Failed, attempts(2))),
		newNode("c-waits", recorded(record.Failed)), newNode("e-disrupted", recorded(record.Disrupted)),
		newNode("done", recorded(record.Succeeded)), newNode("never"), again, disrupted,
		newNode("of-an-earlier-revision", recorded(record.Failed, func(r *record.Record) { r.Revision = "old" })),
		newNode("of-another-machine", recorded(record.Failed, func(r *record.Record) { r.MachineID = "gone" })),
		newNode("excluded", recorded(record.Failed), func(n *Node) { n.Taints = []corev1.Taint{busy} }),
	}
	want := []v1alpha1.NodeFailure{
		failure("b", false, 2), failure("z", false, 2), failure("a-runs-again", true, 1), failure("c-waits", true, 1),
		{Node: "d-runs-again", Retrying: true, Reason: "Disrupted", FinishedAt: metav1.NewTime(ago(60))},
		{Node: "e-disrupted", Retrying: true, Reason: "Disrupted", FinishedAt: metav1.NewTime(ago(60))},
	}
	second := func(p *Pod) { p.Attempt = 2 }
	if diff := cmp.Diff(want, Next(see(newJob(), nodes, newPod(again, second), newPod(disrupted))).Status.Failures); diff != "" {
		t.Errorf("failures (-want +got):\n%s", diff)
	}
}

// The status stays small in a cluster of 1,000 nodes with the maximum of content.
func TestStatusIsBounded(t *testing.T) {
	hostile := strings.Repeat("\x1b[31m\u202e<", 10_000)
	longest := strings.Repeat("n", 253)
	var nodes []Node
	var pods []Pod
	for i := range 1000 {
		node := newNode(
			fmt.Sprintf("%s%03d", longest[:250], i),
			recorded(record.Failed, func(r *record.Record) { r.Reason, r.Message = hostile, hostile }),
		)
		if i%2 == 0 {
			node.On.Record.Attempts = 2
		} else {
			pods = append(pods, newPod(node, func(p *Pod) { p.Attempt, p.Waiting = 2, hostile }))
		}
		nodes = append(nodes, node)
	}
	for name, in := range map[string]Input{
		"while pods do not start": see(newJob(), nodes, pods...),
		"when all nodes failed":   see(newJob(func(j *v1alpha1.NodeJob) { j.Spec.Retry.Limit = new(int32(0)) }), nodes),
	} {
		t.Run(name, func(t *testing.T) {
			status := Next(in).Status
			if len(status.Failures) != maxFailures {
				t.Errorf("%d failures, want %d", len(status.Failures), maxFailures)
			}
			var texts []string
			for _, f := range status.Failures {
				texts = append(texts, f.Reason, f.Message)
				if len(f.Reason) > 128 || len(f.Message) > maxFailureMessage {
					t.Errorf("reason of %d and message of %d bytes", len(f.Reason), len(f.Message))
				}
			}
			for _, c := range status.Conditions {
				texts = append(texts, c.Message)
				if len(c.Message) > 4096 {
					t.Errorf("the message of %s has %d bytes", c.Type, len(c.Message))
				}
			}
			for _, text := range texts {
				if !utf8.ValidString(text) || strings.ContainsAny(text, "\x1b\u202e") {
					t.Errorf("%q is not clean", text)
				}
			}
		})
	}
}
