package plan

import (
	"flag"
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/outcome"
	"github.com/everynode/everynode/internal/record"
	"github.com/everynode/everynode/internal/task"
)

var (
	histories = flag.Int("histories", 3000, "how many random histories to play")
	seed      = flag.Int64("seed", 0, "play only the history of this seed, and print its story")
)

// TestRandomHistories plays seeded histories of a cluster in which everything goes wrong, and checks
// the rules (docs/rules.md) after every step. When the faults end, so must the work.
//
// To see one: go test ./internal/plan -run TestRandomHistories -seed N -v
func TestRandomHistories(t *testing.T) {
	if *seed != 0 {
		h := play(*seed)
		t.Log(h.story())
		if h.broken != "" {
			t.Fatal(h.broken)
		}
		return
	}
	for s := int64(1); s <= int64(*histories); s++ {
		if h := play(s); h.broken != "" {
			t.Fatalf("seed %d: %s\n%s", s, h.broken, h.story())
		}
	}
}

// history is a cluster as it really is; the plan sees it through an Input.
type history struct {
	rng    *rand.Rand
	now    time.Time
	job    *v1alpha1.NodeJob
	rev    string
	nodes  map[string]*Node
	pods   map[string]*simPod
	uid    int
	lines  []string
	broken string
	// obstacle of the moment.
	obstacle *Obstacle
	// succeeded says on which (node UID, machine, revision) a task has run to its end and nobody
	// asked for more.
	succeeded map[string]bool
	// claimed are (node UID, revision) of labels that somebody left on a node without the record.
	claimed map[string]bool
	// failures counts real failures of (node UID, machine, revision) since somebody last asked.
	failures map[string]int32
	faults   bool
	last     Plan
}

type simPod struct {
	Pod
	// willSucceed is what the task does when it is left alone.
	willSucceed bool
	// ran is true once the task itself ran to its end.
	ran bool
}

const (
	steps     = 60
	nodeCount = 6
)

func play(seed int64) *history {
	h := &history{
		rng:       rand.New(rand.NewSource(seed)),
		now:       time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		rev:       "rev1",
		nodes:     map[string]*Node{},
		pods:      map[string]*simPod{},
		succeeded: map[string]bool{},
		claimed:   map[string]bool{},
		failures:  map[string]int32{},
		faults:    true,
	}
	limit := intstr.FromInt32(1 + h.rng.Int31n(3))
	if h.rng.Intn(3) == 0 {
		limit = intstr.FromString("40%")
	}
	retries, backoff := h.rng.Int31n(3), int32(5)
	timeout := int32(60)
	h.job = &v1alpha1.NodeJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job", UID: "job-uid", Generation: 1},
		Spec: v1alpha1.NodeJobSpec{
			NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "a"}},
			Task:         v1alpha1.TaskSpec{Script: "true", TimeoutSeconds: &timeout},
			Retry:        v1alpha1.RetrySpec{Limit: &retries, BackoffSeconds: &backoff},
			Rollout:      v1alpha1.RolloutSpec{MaxConcurrent: &limit, MaxFailures: new(intstr.FromString("100%"))},
		},
	}
	for i := range nodeCount {
		h.addNode(fmt.Sprintf("n%d", i))
	}
	for range steps {
		h.event()
		if h.pass(); h.broken != "" {
			return h
		}
	}
	h.settle()
	return h
}

func (h *history) say(format string, args ...any) {
	h.lines = append(h.lines, h.now.Format("15:04:05 ")+fmt.Sprintf(format, args...))
}

func (h *history) story() string { return strings.Join(h.lines, "\n") }

func (h *history) break_(rule, format string, args ...any) {
	if h.broken == "" {
		h.broken = rule + ": " + fmt.Sprintf(format, args...)
		h.say("BROKEN %s", h.broken)
	}
}

func (h *history) nextUID(prefix string) types.UID {
	h.uid++
	return types.UID(fmt.Sprintf("%s-%d", prefix, h.uid))
}

func (h *history) addNode(name string) {
	h.nodes[name] = &Node{
		Name: name, UID: h.nextUID("node"), Labels: map[string]string{"pool": "a"},
		Ready: corev1.ConditionTrue, BootID: string(h.nextUID("boot")), MachineID: string(h.nextUID("machine")),
	}
}

func (h *history) pick() *Node {
	if len(h.nodes) == 0 {
		return nil
	}
	names := h.names()
	return h.nodes[names[h.rng.Intn(len(names))]]
}

func (h *history) names() []string {
	var names []string
	for name := range h.nodes {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (h *history) podNames() []string {
	var names []string
	for name := range h.pods {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// run is what a success or a failure is counted under.
func run(node *Node, rev string) string {
	return string(node.UID) + "/" + node.MachineID + "/" + rev
}

// ask forgets what a node did: somebody wants it to run again.
func (h *history) ask(node *Node) {
	h.forgetRuns(func(k string) bool { return strings.HasPrefix(k, string(node.UID)+"/") })
}

func (h *history) forgetRuns(which func(key string) bool) {
	maps.DeleteFunc(h.succeeded, func(k string, _ bool) bool { return which(k) })
	maps.DeleteFunc(h.failures, func(k string, _ int32) bool { return which(k) })
}

// event lets one thing happen to the cluster.
func (h *history) event() {
	h.now = h.now.Add(time.Duration(1+h.rng.Intn(8)) * time.Second)
	node := h.pick()
	if node == nil {
		h.addNode("n0")
		return
	}
	switch what := h.rng.Intn(26); what {
	case 0:
		h.say("%s is lost", node.Name)
		node.Ready = corev1.ConditionUnknown
	case 1, 2:
		h.say("%s is heard from again", node.Name)
		node.Ready = corev1.ConditionTrue
	case 3:
		h.reboot(node)
	case 4:
		h.say("%s is deleted", node.Name)
		delete(h.nodes, node.Name)
	case 5:
		h.say("%s is made anew on another machine", node.Name)
		h.addNode(node.Name)
	case 6:
		h.say("%s is made anew on the same machine and boot", node.Name)
		machine, boot := node.MachineID, node.BootID
		h.addNode(node.Name)
		h.nodes[node.Name].MachineID, h.nodes[node.Name].BootID = machine, boot
	case 7:
		if node.On.Label != "" {
			h.say("the label is taken off %s", node.Name)
			node.On.Label = ""
			h.ask(node)
		}
	case 8:
		h.say("the annotation is taken off %s", node.Name)
		node.On.Record = nil
		if node.On.Label == "" {
			h.ask(node)
		} else {
			h.claimed[string(node.UID)+"/"+node.On.Label] = true
		}
	case 9:
		if len(node.Taints) > 0 {
			node.Taints = nil
			h.say("%s loses its taint", node.Name)
		} else {
			node.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}}
			h.say("%s is tainted", node.Name)
		}
	case 10:
		node.Labels = map[string]string{"pool": []string{"a", "b"}[h.rng.Intn(2)]}
		h.say("%s is in pool %s", node.Name, node.Labels["pool"])
	case 11:
		h.rev = []string{"rev1", "rev2", "rev3"}[h.rng.Intn(3)]
		h.job.Generation++
		h.say("the revision is %s", h.rev)
	case 12:
		h.job.Spec.Suspend = !h.job.Spec.Suspend
		h.say("suspend is %v", h.job.Spec.Suspend)
	case 13:
		if h.obstacle == nil {
			h.obstacle = &Obstacle{Reason: v1alpha1.ReasonConfigMapNotFound, Message: "ConfigMap ns/x does not exist"}
		} else {
			h.obstacle = nil
		}
		h.say("obstacle: %v", h.obstacle != nil)
	case 14:
		h.deletePod("is deleted by hand")
	case 15:
		h.disrupt()
	case 16:
		h.addNode(fmt.Sprintf("n%d", h.rng.Intn(2*nodeCount)))
		h.say("a node joins")
	case 17:
		h.say("%s is re-imaged", node.Name)
		node.MachineID, node.BootID = string(h.nextUID("machine")), string(h.nextUID("boot"))
		h.killPods(node, "the machine is gone")
	case 18:
		h.now = h.now.Add(100 * time.Second)
		h.say("a long time passes")
	default:
		h.kubelets()
	}
}

func (h *history) reboot(node *Node) {
	h.say("%s reboots", node.Name)
	node.BootID = string(h.nextUID("boot"))
	h.killPods(node, "rebooted")
}

func (h *history) killPods(node *Node, why string) {
	for _, name := range h.podNames() {
		if pod := h.pods[name]; pod.NodeName == node.Name && !pod.ended() {
			// What a kubelet says of a container that it lost differs.
			h.end(pod, corev1.PodFailed, []*Exit{
				{Code: 255, Finished: h.now, Reason: "Error"}, {Code: 137, Lost: true}, nil,
			}[h.rng.Intn(3)], why)
		}
	}
}

// deletePod is somebody else's deletion: a running pod is stopped by its kubelet later.
func (h *history) deletePod(why string) {
	for _, name := range h.podNames() {
		if pod := h.pods[name]; pod.DeleteRequested.IsZero() {
			h.say("pod %s %s", name, why)
			pod.DeleteRequested = h.now
			return
		}
	}
}

func (h *history) disrupt() {
	for _, name := range h.podNames() {
		if pod := h.pods[name]; !pod.ended() {
			pod.Disrupted, pod.DisruptedReason = h.now, "EvictionByEvictionAPI"
			h.end(pod, corev1.PodFailed, &Exit{Code: 143, Finished: h.now, Reported: true, Reason: outcome.ReasonInterrupted}, "is evicted")
			return
		}
	}
}

func (h *history) end(pod *simPod, phase corev1.PodPhase, exit *Exit, why string) {
	h.say("pod %s on %s ends %s (%s)", pod.Name, pod.NodeName, phase, why)
	pod.Phase, pod.Exit = phase, exit
}

// kubelets do what kubelets do, on the nodes that are alive.
func (h *history) kubelets() {
	for _, name := range h.podNames() {
		pod := h.pods[name]
		node := h.nodes[pod.NodeName]
		switch {
		case node == nil:
			// Pod garbage collection.
			if pod.DeleteRequested.IsZero() {
				pod.DeleteRequested = h.now
			}
			pod.Phase = corev1.PodFailed
		case node.lost():
			continue
		case !pod.ended() && !pod.DeleteRequested.IsZero():
			h.end(pod, corev1.PodFailed, &Exit{Code: 143, Finished: h.now, Reported: true, Reason: outcome.ReasonInterrupted}, "stopped by its kubelet")
		case !pod.ended() && h.rng.Intn(3) > 0:
			pod.Started, pod.ran = h.now, true
			pod.Exit = &Exit{Finished: h.now, Reported: true}
			pod.Phase = corev1.PodSucceeded
			if !pod.willSucceed {
				pod.Phase, pod.Exit.Code, pod.Exit.Reason = corev1.PodFailed, 3, outcome.ReasonTaskFailed
			}
			h.say("pod %s on %s ends %s", name, pod.NodeName, pod.Phase)
		}
	}
	h.collect()
}

// collect removes pods from the API that nothing holds any more.
func (h *history) collect() {
	for _, name := range h.podNames() {
		pod := h.pods[name]
		node := h.nodes[pod.NodeName]
		if !pod.DeleteRequested.IsZero() && !pod.Finalized && (pod.ended() || node == nil) {
			delete(h.pods, name)
		}
	}
}

func (h *history) input() Input {
	in := Input{Job: h.job, Revision: h.rev, Obstacle: h.obstacle, Now: h.now}
	for _, name := range h.names() {
		in.Nodes = append(in.Nodes, *h.nodes[name])
	}
	for _, name := range h.podNames() {
		in.Pods = append(in.Pods, h.pods[name].Pod)
	}
	return in
}

// pass is one reconcile: the plan, the rules, and its actions, of which some may fail.
func (h *history) pass() {
	if h.faults && h.rng.Intn(8) == 0 {
		h.say("the manager is away")
		return
	}
	in := h.input()
	p := Next(in)
	h.last = p
	h.checkPlan(in, p)
	for _, action := range p.Actions {
		if h.faults && h.rng.Intn(6) == 0 {
			h.say("%T fails", action)
			continue
		}
		h.do(action)
	}
	h.job.Status = p.Status
	h.collect()
}

func (h *history) do(action Action) {
	switch a := action.(type) {
	case Start:
		h.start(a)
	case Record:
		h.record(a)
	case Stop:
		h.say("pod %s is stopped (%s)", a.Pod.Name, a.Reason)
		if pod := h.pods[a.Pod.Name]; pod.DeleteRequested.IsZero() {
			pod.DeleteRequested = h.now
		}
	case Release:
		h.release(a.Pod)
	default:
		h.break_("closed set of actions", "%T was not expected", action)
	}
}

func (h *history) start(a Start) {
	node := h.nodes[a.Attempt.NodeName]
	name := task.PodName(h.job, a.Attempt)
	if h.pods[name] != nil {
		h.break_("rule 1", "pod %s is made a second time", name)
		return
	}
	key := run(node, a.Attempt.Revision)
	if h.succeeded[key] {
		h.break_("exactly once", "%s runs %s again after a success", node.Name, a.Attempt.Revision)
	}
	if h.failures[key] > *h.job.Spec.Retry.Limit {
		h.break_("rule 6", "%s is tried again after %d failures", node.Name, h.failures[key])
	}
	h.say("attempt %d of %s starts on %s", a.Attempt.Number, a.Attempt.Revision, node.Name)
	h.pods[name] = &simPod{willSucceed: h.rng.Intn(3) > 0 || !h.faults, Pod: Pod{
		Name: name, UID: h.nextUID("pod"), NodeName: node.Name, NodeUID: node.UID,
		Machine: task.Machine(a.Attempt.MachineID, a.Attempt.BootID), Runs: a.Attempt.Phase,
		Revision: a.Attempt.Revision, Attempt: a.Attempt.Number, Created: h.now, Finalized: true, Phase: corev1.PodPending,
	}}
}

func (h *history) record(a Record) {
	node := h.nodes[a.Node]
	pod := h.pods[a.Pod.Name]
	decoded, err := record.Decode(record.Encode(a.Record))
	if err != nil {
		h.break_("record", "%v", err)
		return
	}
	if task.MachineID(pod.Machine) != node.MachineID {
		h.break_("truth", "%s is recorded on %s, which is another machine", pod.Name, node.Name)
	}
	key := run(node, a.Record.Revision)
	h.say("recorded on %s: %s, attempts %d (%s)", a.Node, decoded.Outcome, decoded.Attempts, decoded.Reason)
	// A node remembers its last revision only: going back to an earlier one is new work.
	h.forgetRuns(func(k string) bool { return strings.HasPrefix(k, string(node.UID)+"/") && k != key })
	switch decoded.Outcome {
	case record.Succeeded:
		if !pod.ran || !pod.willSucceed {
			h.break_("truth", "a success is recorded for %s, which had none", pod.Name)
		}
		h.succeeded[key] = true
		delete(h.failures, key)
		node.On.Label = decoded.Revision
	case record.Failed:
		h.failures[key]++
		overdue := !h.now.Before(pod.Created.Add(task.Timeout(h.job, pod.Runs)))
		if ranToFailure := pod.ran && !pod.willSucceed; !ranToFailure && !overdue {
			h.break_("rule 6", "a failure is recorded for %s, which neither failed nor took too long", pod.Name)
		}
	case record.Disrupted:
		if pod.ran && pod.DeleteRequested.IsZero() && pod.Disrupted.IsZero() {
			h.break_("truth", "a disruption is recorded for %s, which ran to its end", pod.Name)
		}
	}
	if a.DropLabel {
		node.On.Label = ""
	}
	node.On.Record, node.On.Present = &decoded, true
	if !h.faults || h.rng.Intn(6) > 0 {
		h.release(a.Pod)
	}
}

func (h *history) release(pod Pod) {
	node := h.nodes[pod.NodeName]
	recorded := node != nil && node.On.Record != nil && node.On.Record.PodUID == pod.UID
	if node != nil && sameMachine(h.job, &pod, node) && !recorded {
		h.break_("rule 2", "pod %s is released before it is recorded", pod.Name)
	}
	live := h.pods[pod.Name]
	live.Finalized = false
	if live.DeleteRequested.IsZero() {
		live.DeleteRequested = h.now
	}
}

// settle ends all faults. Then the rollout must finish, or be stalled with a reason, in bounded time.
func (h *history) settle() {
	h.say("all faults end")
	h.faults = false
	h.obstacle = nil
	h.job.Spec.Suspend = false
	for _, node := range h.nodes {
		node.Ready = corev1.ConditionTrue
		node.Taints = nil
	}
	for range 400 {
		h.now = h.now.Add(5 * time.Second)
		h.kubelets()
		if h.pass(); h.broken != "" {
			return
		}
		if len(h.last.Actions) == 0 && len(h.pods) == 0 && (isTrue(h.last.Status, v1alpha1.ConditionComplete) ||
			isTrue(h.last.Status, v1alpha1.ConditionStalled) || h.last.Status.Nodes.Matched == 0) {
			return
		}
	}
	h.break_("liveness", "it never ends: %+v, pods %v", h.last.Nodes, h.podNames())
}
