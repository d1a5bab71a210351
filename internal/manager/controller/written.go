// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/manager/loop"
)

// writtenObjects holds what we have written until the cache shows it.
//
// The cache is behind our own writes. Pod names are deterministic, so a second create does no harm. But the count of
// running nodes must include those that were just started, a node whose success was just recorded must not look like
// one that never ran, and a step must not start twice. It need not survive a restart: a new leader starts with a
// consistent list (warmUp).
type writtenObjects struct {
	mu   sync.Mutex
	jobs loop.WrittenObjects[*v1alpha1.NodeJob]
	// statuses are the last ones with a valid seal, by the UID of the NodeJob. A status that another client writes does not
	// replace them.
	statuses map[types.UID]*knownStatus
	// nodes are the versions that passes may have seen since the last event of a node, the oldest first, and shown is that of the event,
	// both by the name of the node.
	nodes map[string][]*corev1.Node
	shown map[string]*corev1.Node
	pods  map[types.UID]*writtenPod
}

type knownStatus struct {
	v1alpha1.NodeJobStatus
	// mayDiffer is true while the API server stores a status that another client has written, or may store one that we have tried to
	// write.
	mayDiffer bool
}

type writtenPod struct {
	// pod is the newest version that we know; nil if only a deletion is remembered.
	pod *corev1.Pod
	// seen is when it was last known to exist, or last written.
	seen time.Time
	// finalized is true after nothing of ours keeps the pod in the API.
	finalized bool
	// gone is true after the cache has shown the deletion of a pod that we have released.
	gone bool
	// retained is true after we have retained the pod for its logs.
	retained bool
	// recordedOn is the UID of the Node on which we have recorded its outcome.
	recordedOn types.UID
	// stopped is when we deleted it.
	stopped time.Time
	// waiting is why it did not start, when it was last observed. A pod that has ended no longer contains this.
	waiting string
}

func newWrittenObjects() *writtenObjects {
	return &writtenObjects{
		jobs: loop.WrittenObjects[*v1alpha1.NodeJob]{}, statuses: map[types.UID]*knownStatus{},
		nodes: map[string][]*corev1.Node{}, shown: map[string]*corev1.Node{}, pods: map[types.UID]*writtenPod{},
	}
}

// rememberNode stores a version of a node that was written, or read from the API server.
func (m *writtenObjects) rememberNode(node *corev1.Node) {
	m.mu.Lock()
	defer m.mu.Unlock()
	newest := newestOf(m.nodes[node.Name])
	if newest == nil {
		newest = m.shown[node.Name]
	}
	if newest == nil || loop.Newer(node, newest) {
		m.nodes[node.Name] = append(m.nodes[node.Name], node)
	}
}

// node returns the newest known version of a cached node.
func (m *writtenObjects) node(cached *corev1.Node) *corev1.Node {
	m.mu.Lock()
	defer m.mu.Unlock()
	if newest := newestOf(m.nodes[cached.Name]); newest != nil && loop.Newer(newest, cached) {
		return newest
	}
	return cached
}

// showNode is called for each event of a node. It returns the earlier versions that passes may have seen since the event before, the
// oldest first: the watch may omit them.
func (m *writtenObjects) showNode(node *corev1.Node) (seen []*corev1.Node) {
	m.mu.Lock()
	defer m.mu.Unlock()
	left := slices.DeleteFunc(m.nodes[node.Name], func(v *corev1.Node) bool {
		if loop.Newer(node, v) {
			seen = append(seen, v)
		}
		return !loop.Newer(v, node)
	})
	if m.nodes[node.Name] = left; len(left) == 0 {
		delete(m.nodes, node.Name)
	}
	m.shown[node.Name] = node
	return seen
}

func (m *writtenObjects) forgetNode(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.nodes, name)
	delete(m.shown, name)
}

// newestOf returns the last version; nil if there is none.
func newestOf(versions []*corev1.Node) *corev1.Node {
	if len(versions) == 0 {
		return nil
	}
	return versions[len(versions)-1]
}

// rememberJob stores a NodeJob, because the progress of its rollout is in its status, which we write.
func (m *writtenObjects) rememberJob(job *v1alpha1.NodeJob) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.jobs.Remember(job)
}

// rememberStatus stores a NodeJob whose status was written.
func (m *writtenObjects) rememberStatus(job *v1alpha1.NodeJob) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.jobs.Remember(job)
	m.statuses[job.UID] = &knownStatus{NodeJobStatus: job.Status}
}

// job returns the newest known version of a cached NodeJob. If another client has overwritten its status, the last known one
// counts.
func (m *writtenObjects) job(cached *v1alpha1.NodeJob) *v1alpha1.NodeJob {
	m.mu.Lock()
	defer m.mu.Unlock()
	newest := m.jobs.Of(cached)
	known := m.statuses[newest.UID]
	switch {
	case newest.Status.ControllerState.Seal == "" && known != nil:
		known.mayDiffer = true
		job := *newest
		job.Status = known.NodeJobStatus
		return &job
	case newest.Status.ControllerState.Seal != "" && (known == nil || known.ControllerState.Seal != newest.Status.ControllerState.Seal):
		m.statuses[newest.UID] = &knownStatus{NodeJobStatus: newest.Status}
	}
	return newest
}

// doubtStatus notes that a write of the status has failed, although it may be stored: the next pass writes it in any case. The predicate of
// the watch ignores our own writes.
func (m *writtenObjects) doubtStatus(job *v1alpha1.NodeJob) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.statuses[job.UID]
	if known == nil {
		known = &knownStatus{NodeJobStatus: job.Status}
		m.statuses[job.UID] = known
	}
	known.mayDiffer = true
}

// statusMayDiffer reports whether the API server may store another status of a NodeJob than the last one that we know.
func (m *writtenObjects) statusMayDiffer(uid types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.statuses[uid]
	return known != nil && known.mayDiffer
}

// knowsJob reports whether a NodeJob is remembered that the cache may not show yet.
func (m *writtenObjects) knowsJob(name client.ObjectKey) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.jobs[name]
	return ok
}

func (m *writtenObjects) forgetJob(name client.ObjectKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.jobs, name)
}

// forgetStatus forgets the status of a NodeJob that was deleted.
func (m *writtenObjects) forgetStatus(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.statuses, uid)
}

func (m *writtenObjects) rememberPod(pod *corev1.Pod, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.podEntry(pod.UID)
	known.seen = now
	if known.pod == nil || loop.Newer(pod, known.pod) {
		known.pod = pod
	}
}

func (m *writtenObjects) rememberStopped(uid types.UID, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.podEntry(uid)
	known.stopped, known.seen = now, now
}

func (m *writtenObjects) rememberReleased(uid types.UID, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.podEntry(uid)
	known.pod, known.finalized, known.seen = nil, true, now
	if known.stopped.IsZero() {
		known.stopped = now
	}
}

// rememberRecorded stores that the outcome of a pod is recorded on the Node with that UID.
func (m *writtenObjects) rememberRecorded(uid, node types.UID, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.podEntry(uid)
	known.recordedOn, known.seen = node, now
}

// waiting returns why a pod does not or did not start, given its current status.
func (m *writtenObjects) waiting(uid types.UID, says string, now time.Time) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if says != "" {
		known := m.podEntry(uid)
		known.waiting, known.seen = says, now
		return says
	}
	if known, ok := m.pods[uid]; ok {
		return known.waiting
	}
	return ""
}

func (m *writtenObjects) podEntry(uid types.UID) *writtenPod {
	known, ok := m.pods[uid]
	if !ok {
		known = &writtenPod{}
		m.pods[uid] = known
	}
	return known
}

// rememberKept records that a pod is retained for its logs, because its end is recorded.
func (m *writtenObjects) rememberKept(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.podEntry(uid).retained = true
}

// wasRetained reports whether we have retained a pod for its logs.
func (m *writtenObjects) wasRetained(uid types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	known, ok := m.pods[uid]
	return ok && known.retained
}

// wasFinalized reports whether we have released a pod.
func (m *writtenObjects) wasFinalized(uid types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	known, ok := m.pods[uid]
	return ok && known.finalized
}

// forgetPod is called when the cache shows that the pod is deleted, and nothing about it is needed any more, except that we
// have released it: the plan of a pass that has begun before may contain it.
func (m *writtenObjects) forgetPod(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if known, ok := m.pods[uid]; ok && known.finalized {
		known.gone = true
		return
	}
	delete(m.pods, uid)
}

// seenPod is a pod with what we remember about it.
type seenPod struct {
	*corev1.Pod
	finalized bool
	stopped   time.Time
	// recordedOn is the UID of the Node on which we have recorded its outcome.
	recordedOn types.UID
	// unseen is true if the cache does not show it.
	unseen bool
}

// podsOf merges the cached pods of an owner with the remembered ones. doubtful are pods that the cache should show by
// now but does not: only the API server knows whether they still exist.
func (m *writtenObjects) podsOf(owner types.UID, cached []*corev1.Pod, now time.Time) (pods []seenPod, doubtful []*corev1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dropOld(now)
	inCache := make(map[types.UID]bool, len(cached))
	pods = make([]seenPod, 0, len(cached))
	for _, pod := range cached {
		inCache[pod.UID] = true
		seen := seenPod{Pod: pod}
		if known, ok := m.pods[pod.UID]; ok {
			if known.pod != nil && loop.Newer(known.pod, pod) {
				seen.Pod = known.pod
			} else {
				known.pod = nil
			}
			seen.finalized, seen.stopped, seen.recordedOn = known.finalized, known.stopped, known.recordedOn
		}
		pods = append(pods, seen)
	}
	for uid, known := range m.pods {
		if inCache[uid] || known.pod == nil || !ownedBy(known.pod, owner) {
			continue
		}
		pods = append(pods, seenPod{Pod: known.pod, stopped: known.stopped, recordedOn: known.recordedOn, unseen: true})
		if now.Sub(known.seen) > doubtAfter {
			doubtful = append(doubtful, known.pod)
		}
	}
	return pods, doubtful
}

// dropOld deletes old deletions. The caller must hold the lock.
func (m *writtenObjects) dropOld(now time.Time) {
	maps.DeleteFunc(m.pods, func(_ types.UID, known *writtenPod) bool {
		after := forgetAfter
		if known.gone {
			after = forgetGoneAfter
		}
		return known.pod == nil && now.Sub(known.seen) > after
	})
}

// doubtAfter is how long the cache may take to show a pod that we created. It is far longer than normal, unless the pod
// was created and deleted while a watch was interrupted.
const doubtAfter = 15 * time.Second

// forgetAfter is when a deletion need not be remembered any more, because the cache has shown it long ago. Most are
// forgotten when the cache shows the deletion, but that may come before the response to the write that we remember.
const forgetAfter = time.Hour

// forgetGoneAfter is longer than a pass takes.
const forgetGoneAfter = time.Minute

func ownedBy(pod *corev1.Pod, uid types.UID) bool {
	for i := range pod.OwnerReferences {
		if pod.OwnerReferences[i].UID == uid {
			return true
		}
	}
	return false
}
