package controller

import (
	"fmt"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/outcome"
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
	jobs map[types.UID]refusal
}

type refusal struct {
	generation int64
	wait       time.Duration
	obstacle   plan.Obstacle
}

func newRefusals() refusals { return refusals{jobs: map[types.UID]refusal{}} }

// obstacle is what was last found; nil when nothing was, or the NodeJob has changed since.
func (r *refusals) obstacle(job *v1alpha1.NodeJob) *plan.Obstacle {
	r.mu.Lock()
	defer r.mu.Unlock()
	known, ok := r.jobs[job.UID]
	if !ok || known.generation != job.Generation {
		return nil
	}
	return &known.obstacle
}

func (r *refusals) clear(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.jobs, uid)
}

// note keeps err if it means that no pod of this NodeJob can be made, whichever node it is for.
func (r *refusals) note(job *v1alpha1.NodeJob, err error, now time.Time) bool {
	reason, remedy := refusalOf(err)
	if reason == "" {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	wait := firstRefusalWait
	if known, ok := r.jobs[job.UID]; ok && known.generation == job.Generation {
		wait = min(2*known.wait, longestRefusalWait)
	}
	message := fmt.Sprintf("the API server refuses the task's pod in namespace %s: %s. %s",
		job.Namespace, beginning(withoutPodName(err)), fmt.Sprintf(remedy, job.Namespace))
	r.jobs[job.UID] = refusal{
		generation: job.Generation,
		wait:       wait,
		obstacle:   plan.Obstacle{Reason: reason, Message: message, RetryAt: now.Add(wait)},
	}
	return true
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

// beginning is what is shown of a refusal: the API server says first what is wrong, and then where.
// It is cut before it is cleaned, and again for what the escapes have added, of which each takes at
// most four times the room: Clean itself would keep the end.
func beginning(s string) string {
	return head(outcome.Clean(head(s, maxRefusalBytes), 4*maxRefusalBytes), maxRefusalBytes)
}

// head keeps the beginning of a text.
func head(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n-3], "") + "..."
}

func refusalOf(err error) (reason, remedy string) {
	switch {
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
