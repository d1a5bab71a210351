package controller

import (
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/plan"
)

const (
	firstRefusalWait = time.Second
	// longestRefusalWait bounds how long a NodeJob takes to notice that its namespace was mended.
	longestRefusalWait = 15 * time.Second
	maxRefusalBytes    = 512
)

// refusals remembers which NodeJobs' pods the API server refuses. It is lost with the process, and
// found out again by one try.
type refusals struct {
	mu   sync.Mutex
	jobs map[client.ObjectKey]refusal
}

type refusal struct {
	uid        types.UID
	generation int64
	wait       time.Duration
	obstacle   plan.Obstacle
}

// isOf is true when the refusal is of the NodeJob as it is now: a change of its spec may have mended it.
func (r *refusal) isOf(job *v1alpha1.NodeJob) bool {
	return r.uid == job.UID && r.generation == job.Generation
}

func newRefusals() refusals { return refusals{jobs: map[client.ObjectKey]refusal{}} }

// obstacle is what was last found; nil when nothing was, or the NodeJob has changed since.
func (r *refusals) obstacle(job *v1alpha1.NodeJob) *plan.Obstacle {
	r.mu.Lock()
	defer r.mu.Unlock()
	known, ok := r.jobs[client.ObjectKeyFromObject(job)]
	if !ok || !known.isOf(job) {
		return nil
	}
	return &known.obstacle
}

func (r *refusals) clear(name client.ObjectKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.jobs, name)
}

// soon lets the next try come at once: something has changed that may have made room.
func (r *refusals) soon(name client.ObjectKey, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known, ok := r.jobs[name]; ok && known.obstacle.RetryAt.After(now) {
		known.wait, known.obstacle.RetryAt = 0, now
		r.jobs[name] = known
	}
}

// isRefusal is true when err means that no pod of this NodeJob can be made, whichever node it is for.
func isRefusal(err error) bool {
	reason, _ := refusalOf(err)
	return reason != ""
}

// note keeps a refusal.
func (r *refusals) note(job *v1alpha1.NodeJob, err error, now time.Time) {
	reason, remedy := refusalOf(err)
	r.mu.Lock()
	defer r.mu.Unlock()
	wait := firstRefusalWait
	if known, ok := r.jobs[client.ObjectKeyFromObject(job)]; ok && known.isOf(job) {
		wait = max(min(2*known.wait, longestRefusalWait), firstRefusalWait)
	}
	message := fmt.Sprintf("the API server refuses the task's pod in namespace %s: %s. %s",
		job.Namespace, cleanHead(withoutPodName(err), maxRefusalBytes), fmt.Sprintf(remedy, job.Namespace))
	r.jobs[client.ObjectKeyFromObject(job)] = refusal{
		uid:        job.UID,
		generation: job.Generation,
		wait:       wait,
		obstacle:   plan.Obstacle{Reason: reason, Message: message, RetryAt: now.Add(wait)},
	}
}

// withoutPodName drops `pods "name" is forbidden: `, which differs from node to node: the message
// must be stable.
func withoutPodName(err error) string {
	text := err.Error()
	for _, verb := range []string{"is forbidden: ", "is invalid: "} {
		if _, after, found := strings.Cut(text, verb); found {
			return after
		}
	}
	return text
}

func refusalOf(err error) (reason, remedy string) {
	switch {
	case apierrors.IsInternalError(err):
		return v1alpha1.ReasonPodNotCreated,
			"Nothing is wrong with the NodeJob: see what answers for pods in namespace %s, such as an admission webhook that is away. It goes on by itself"
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return v1alpha1.ReasonNamespaceTerminating,
			"Namespace %s is being deleted, and the NodeJob with it: nothing more can run"
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "violates PodSecurity"):
		return v1alpha1.ReasonPodForbidden,
			"A task is root on its node: keep NodeJobs in a namespace of their own and allow it there with: kubectl label namespace %s pod-security.kubernetes.io/enforce=privileged --overwrite"
	case apierrors.IsForbidden(err):
		return v1alpha1.ReasonPodForbidden,
			"Allow the pod in namespace %s (quota, limits, admission policies), or move the NodeJob to a namespace that does"
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return v1alpha1.ReasonPodInvalid, "Correct spec.task of the NodeJob in namespace %s"
	}
	return "", ""
}
