// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/cmdutil"
	"github.com/everynode/everynode/internal/cli/view"
	"github.com/everynode/everynode/internal/plan"
	"github.com/everynode/everynode/internal/record"
)

// attemptReasons are the reasons of events that report how an attempt ended.
var attemptReasons = []string{v1alpha1.ReasonAttemptFailed, v1alpha1.ReasonRetriesExhausted, v1alpha1.ReasonDisrupted, v1alpha1.ReasonRollbackFailed}

// attemptEvents returns the events in the cluster about attempts of a NodeJob on a node, the oldest first.
func attemptEvents(ctx context.Context, c client.Reader, job *v1alpha1.NodeJob, node *plan.Node) ([]view.Event, error) {
	var told []view.Event
	var page corev1.EventList
	err := cmdutil.EachPage(ctx, c, &page, func() {
		for i := range page.Items {
			e := &page.Items[i]
			ended, ok := record.ParseEnded(e.Message)
			if ok && e.Related != nil && e.Related.Kind == "Node" && e.Related.UID == node.UID && slices.Contains(attemptReasons, e.Reason) {
				told = append(told, toldBy(e, ended))
			}
		}
		page = corev1.EventList{}
	}, client.InNamespace(job.Namespace), client.MatchingFields{"involvedObject.uid": string(job.UID)})
	slices.SortStableFunc(told, func(a, b view.Event) int { return a.At.Compare(b.At) })
	return told, err
}

func toldBy(e *corev1.Event, ended record.Ended) view.Event {
	at := e.EventTime.Time
	if at.IsZero() {
		at = cmp.Or(e.FirstTimestamp, e.LastTimestamp).Time
	}
	told := view.Event{At: at, Until: at, Count: 1, Ended: ended}
	if e.Series != nil {
		told.Count, told.Until = e.Series.Count, e.Series.LastObservedTime.Time
	}
	return told
}
