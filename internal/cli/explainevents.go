package cli

import (
	"cmp"
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/view"
	"github.com/everynode/everynode/internal/plan"
)

// attemptReasons are those of events that tell how an attempt ended.
var attemptReasons = []string{v1alpha1.ReasonAttemptFailed, v1alpha1.ReasonRetriesExhausted, v1alpha1.ReasonDisrupted, v1alpha1.ReasonRollbackFailed}

// attemptEvents are what the cluster keeps of attempts of a NodeJob on a node, the oldest first.
func attemptEvents(ctx context.Context, c client.Reader, job *v1alpha1.NodeJob, node *plan.Node) ([]view.Event, error) {
	var told []view.Event
	var page corev1.EventList
	err := eachPage(ctx, c, &page, func() {
		for i := range page.Items {
			e := &page.Items[i]
			if e.Related != nil && e.Related.Kind == "Node" && e.Related.UID == node.UID && slices.Contains(attemptReasons, e.Reason) {
				told = append(told, toldBy(e, job, node.Name))
			}
		}
		page = corev1.EventList{}
	}, client.InNamespace(job.Namespace), client.MatchingFields{"involvedObject.uid": string(job.UID)})
	slices.SortStableFunc(told, func(a, b view.Event) int { return a.At.Compare(b.At) })
	return told, err
}

// toldBy is an event without what its reader knows: the manager's names which NodeJob and which node it is about.
func toldBy(e *corev1.Event, job *v1alpha1.NodeJob, node string) view.Event {
	at := e.EventTime.Time
	if at.IsZero() {
		at = cmp.Or(e.FirstTimestamp, e.LastTimestamp).Time
	}
	note := strings.TrimPrefix(e.Message, "NodeJob "+job.Namespace+"/"+job.Name+" on ")
	told := view.Event{At: at, Until: at, Count: 1, Rollback: e.Action == "Rollback", Note: strings.TrimPrefix(note, "node "+node+": ")}
	if e.Series != nil {
		told.Count, told.Until = e.Series.Count, e.Series.LastObservedTime.Time
	}
	return told
}
