// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// taskTakes is how long a played task runs, so that those of several nodes run at once.
const taskTakes = 150 * time.Millisecond

// kubelet plays the kubelets of a world, woken by watches, and checks for states that must never occur.
type kubelet struct {
	w *world
	// exits are the exit codes of the tasks that fail, by the role of their node.
	exits map[string]int32

	mu sync.Mutex
	// changed is closed, and another one made, whenever something was observed.
	changed chan struct{}
	job     *v1alpha1.NodeJob
	pods    map[types.UID]*corev1.Pod
	// starts counts the attempts that began, such as "task on n1".
	starts map[string]int
	// ended has those that ended with success, and that last failed.
	ended map[string]int32
	// nodes are as they were seen last, by their roles; successes counts how often one became done, reboots how often
	// it left a boot.
	nodes              map[string]*corev1.Node
	successes, reboots map[string]int
	// wrong are the errors that were found.
	wrong []string
}

// playKubelet plays until the test ends.
func (w *world) playKubelet(exits map[string]int32) *kubelet {
	w.T.Helper()
	k := &kubelet{
		w: w, exits: exits, changed: make(chan struct{}),
		pods: map[types.UID]*corev1.Pod{}, starts: map[string]int{}, ended: map[string]int32{},
		nodes: map[string]*corev1.Node{}, successes: map[string]int{}, reboots: map[string]int{},
	}
	ctx, cancel := context.WithCancel(w.Ctx)
	var playing sync.WaitGroup
	here := client.InNamespace(w.Namespace)
	playing.Go(func() {
		w.follow(
			ctx,
			&corev1.NodeList{},
			func(e watch.Event) { k.seeNode(e.Object.(*corev1.Node)) },
			client.MatchingLabels{"world": w.Namespace},
		)
	})
	playing.Go(func() {
		w.follow(ctx, &corev1.PodList{}, func(e watch.Event) { k.seePod(e.Type, e.Object.(*corev1.Pod), &playing) }, here)
	})
	playing.Go(func() {
		w.follow(ctx, &v1alpha1.NodeJobList{}, func(e watch.Event) { k.seeJob(e.Type, e.Object.(*v1alpha1.NodeJob)) }, here)
	})
	w.T.Cleanup(func() {
		cancel()
		playing.Wait()
	})
	return k
}

// follow sends the existing objects, and each change once. The API server closes the watch of a slow client, as on a
// busy machine. Then follow continues from the last change.
func (w *world) follow(ctx context.Context, list client.ObjectList, see func(watch.Event), opts ...client.ListOption) {
	follow(ctx, w.T, admin, list, see, opts...)
}

func follow(
	ctx context.Context,
	t *testing.T,
	c client.WithWatch,
	list client.ObjectList,
	see func(watch.Event),
	opts ...client.ListOption,
) {
	version := ""
	for ctx.Err() == nil {
		raw := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: version}}
		events, err := c.Watch(ctx, list, append([]client.ListOption{raw}, opts...)...)
		if err != nil {
			if ctx.Err() == nil {
				t.Errorf("watching %T: %v", list, err)
			}
			return
		}
		for e := range events.ResultChan() {
			o, ok := e.Object.(client.Object)
			if ok {
				version = o.GetResourceVersion()
				see(e)
				continue
			}
			if err := apierrors.FromObject(e.Object); apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
				t.Errorf("watching %T: %v", list, err)
				events.Stop()
				return
			}
		}
	}
}

// await waits until check, which is called under the lock, returns nil.
func (k *kubelet) await(t *testing.T, what string, check func() error) {
	t.Helper()
	timeout := time.After(4 * time.Minute)
	for {
		k.mu.Lock()
		err, changed := check(), k.changed
		k.mu.Unlock()
		if err == nil {
			return
		}
		select {
		case <-changed:
		case <-timeout:
			k.mu.Lock()
			defer k.mu.Unlock()
			t.Fatalf("waiting until %s: %v\nof all pods: %v\nand nodes: %s", what, err, k.noPod(), k.records())
		}
	}
}

// records are what the nodes carry; to be called under the lock.
func (k *kubelet) records() string {
	var b strings.Builder
	for name, node := range k.nodes {
		fmt.Fprintf(
			&b,
			"\n%s in boot %s: %s",
			name,
			node.Status.NodeInfo.BootID,
			node.Annotations[v1alpha1.RecordKey(k.w.Namespace, "plays")],
		)
	}
	return b.String()
}

func (k *kubelet) tell() {
	close(k.changed)
	k.changed = make(chan struct{})
}

func (k *kubelet) never(format string, args ...any) {
	k.wrong = append(k.wrong, fmt.Sprintf(format, args...))
}

func (k *kubelet) seePod(event watch.EventType, pod *corev1.Pod, playing *sync.WaitGroup) {
	k.mu.Lock()
	defer k.mu.Unlock()
	defer k.tell()
	_, known := k.pods[pod.UID]
	k.pods[pod.UID] = pod
	phase, ours := pod.Labels[v1alpha1.PhaseLabel]
	if event == watch.Deleted {
		delete(k.pods, pod.UID)
	} else if !pod.DeletionTimestamp.IsZero() && len(pod.Finalizers) == 0 {
		playing.Go(func() { k.remove(pod) })
	}
	if !ours {
		if _, undone := k.ended["rollback on "+role(pod.Spec.NodeName)]; !undone && !pod.DeletionTimestamp.IsZero() {
			k.never("pod %s is evicted before the rollback has ended", pod.Name)
		}
		return
	}
	if event == watch.Deleted && !over(pod) {
		k.never("pod %s is gone before it has ended", pod.Name)
	}
	if known || event == watch.Deleted {
		return
	}
	attempt := phase + " on " + role(pod.Spec.NodeName)
	k.starts[attempt]++
	k.checkLimits(pod)
	playing.Go(func() {
		time.Sleep(taskTakes)
		k.end(pod, attempt)
	})
}

// checkLimits checks the state at the creation of a pod.
func (k *kubelet) checkLimits(made *corev1.Pod) {
	var busy []string
	for _, pod := range k.pods {
		if node := role(pod.Spec.NodeName); pod.Labels[v1alpha1.PhaseLabel] != "" && !over(pod) && node != joinsLater {
			busy = append(busy, node)
		}
	}
	slices.Sort(busy)
	if len(slices.Compact(slices.Clone(busy))) < len(busy) {
		k.never("two pods run on one node: %v", busy)
	}
	if len(busy) > 2 {
		k.never("these nodes run at once: %v", busy)
	}
	if _, done := k.ended["task on "+canary]; !done && role(made.Spec.NodeName) != canary {
		k.never("%s starts before the canary has ended", role(made.Spec.NodeName))
	}
}

func over(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// seeNode checks that what belongs to a success comes and goes with it.
func (k *kubelet) seeNode(node *corev1.Node) {
	k.mu.Lock()
	defer k.mu.Unlock()
	name, key := role(node.Name), v1alpha1.RecordKey(k.w.Namespace, "plays")
	before := k.nodes[name]
	k.nodes[name] = node
	shown := shows(node, key)
	if strings.Contains(shown, "done") != (shown == "done label note owner record") {
		k.never("%s shows %q", name, shown)
	}
	if before != nil && before.Labels[key] != node.Labels[key] && node.Labels[key] != "" {
		k.successes[name]++
	}
}

// reboot simulates the runner: it reboots the node unless the node has rebooted already.
func (k *kubelet) reboot(pod *corev1.Pod) (code int32, err error) {
	var node corev1.Node
	if err := admin.Get(k.w.Ctx, client.ObjectKey{Name: pod.Spec.NodeName}, &node); err != nil {
		return 0, err
	}
	if node.Status.NodeInfo.BootID != envOf(pod, "EVERYNODE_BOOT_ID") {
		return 0, nil
	}
	k.mu.Lock()
	k.reboots[role(node.Name)]++
	k.mu.Unlock()
	patch := fmt.Sprintf(`{"status":{"nodeInfo":{"bootID":"after-%s"}}}`, node.Status.NodeInfo.BootID)
	return unknownExit, admin.Status().Patch(k.w.Ctx, &node, client.RawPatch(types.StrategicMergePatchType, []byte(patch)))
}

// unknownExit stands for the unobserved end of a container, as after a reboot.
const unknownExit = 255

// says is what a task that has succeeded reports.
func says(node string) string {
	if role(node) == asks {
		return strings.Replace(wholeResult, `"kernel"`, `"reboot":"true","kernel"`, 1)
	}
	return wholeResult
}

// end lets a task end.
func (k *kubelet) end(pod *corev1.Pod, attempt string) {
	code, message := int32(0), ""
	var err error
	switch pod.Labels[v1alpha1.PhaseLabel] {
	case string(task.Task):
		if code = k.exits[role(pod.Spec.NodeName)]; code == 0 {
			message = says(pod.Spec.NodeName)
		}
	case string(task.Reboot):
		code, err = k.reboot(pod)
	}
	k.mu.Lock()
	k.ended[attempt] = code // before any other goroutine can act on it
	k.mu.Unlock()
	told := tellEnd(k.w.Ctx, admin, pod, code, message)
	if pod.Labels[v1alpha1.PhaseLabel] == string(task.Reboot) {
		told = client.IgnoreNotFound(told) // what counts is the boot
	}
	if err = errors.Join(err, told); err != nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.never("ending the %s: %v", attempt, err)
	}
}

// tellEnd tells the API server how a pod has ended, by a patch, as kubelets do: a whole update of the status would bring
// back a finalizer that is off by now.
func tellEnd(ctx context.Context, c client.Client, pod *corev1.Pod, code int32, message string) error {
	live := pod.DeepCopy()
	setEnd(live, code, message)
	if code == unknownExit {
		live.Status.ContainerStatuses[0].State.Terminated.Reason = "Unknown"
	}
	status, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": live.Status})
	if err != nil {
		return err
	}
	return c.Status().Patch(ctx, live, client.RawPatch(types.MergePatchType, status))
}

// remove deletes a pod that still exists a moment after its deletion timestamp was set, as kubelets do. The API server
// deletes in two steps, and does not do the second one if its client ends between them.
func (k *kubelet) remove(pod *corev1.Pod) {
	time.Sleep(2 * taskTakes)
	k.mu.Lock()
	_, there := k.pods[pod.UID]
	k.mu.Unlock()
	if !there {
		return
	}
	if err := admin.Delete(k.w.Ctx, pod.DeepCopy(), client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.never("removing pod %s: %v", pod.Name, err)
	}
}

// seeJob checks that a status never reverts what it has reported.
func (k *kubelet) seeJob(event watch.EventType, job *v1alpha1.NodeJob) {
	k.mu.Lock()
	defer k.mu.Unlock()
	defer k.tell()
	before := k.job
	k.job = job
	if event == watch.Deleted {
		k.job = nil
	}
	n := job.Status.Nodes
	if n.Total != n.Done+n.Running+n.Waiting+n.Failed {
		k.never("the counts do not add up: %+v", n)
	}
	if before == nil || before.Status.Rollout == nil {
		return
	}
	was, is := before.Status.Rollout, job.Status.Rollout
	if is == nil || (was.Step == "all" && is.Step != "all") || (!was.StableAt.IsZero() && !is.StableAt.Equal(&was.StableAt)) {
		k.never("the rollout went back from %+v to %+v", was, is)
	}
}

// noPod is nil when no pod is left, or none of the name; to be called under the lock.
func (k *kubelet) noPod(names ...string) error {
	for _, pod := range k.pods {
		if len(names) == 0 || slices.Contains(names, pod.Name) {
			return fmt.Errorf(
				"pod %s (%s) is left, deleted %v, with finalizers %v",
				pod.Name,
				pod.Status.Phase,
				pod.DeletionTimestamp,
				pod.Finalizers,
			)
		}
	}
	return nil
}
