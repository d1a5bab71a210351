// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package docs

import (
	"bytes"
	"encoding/json"
	"maps"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/manager/notify"
)

func init() {
	maps.Copy(examples, map[string]func(t *testing.T) string{
		"cloudevent": func(t *testing.T) string {
			return notification(t, notify.FormatCloudEvents, "https://clusters.example.com/production")
		},
		"slack": func(t *testing.T) string { return notification(t, notify.FormatSlack, "production") },
	})
}

// notification returns the body of the request for the rollout of docs/rollout.md that has stopped.
func notification(t *testing.T, format notify.Format, source string) string {
	t.Helper()
	c := sampleThatStopped(t)
	before := c.Job.DeepCopy()
	before.Status.Conditions = nil // it has not stopped yet
	before.UID = "7a1d0f0e-8f1c-4c7e-9d5b-0c4f6a1e2b3c"
	before.Annotations = map[string]string{v1alpha1.ChangedByAnnotation: "jane@example.com"}
	after := c.Job.Status
	n := notify.New(notify.Config{URL: "https://events.example.com"}, prometheus.NewRegistry())
	n.Now = func() time.Time { return c.Now }
	n.NodeJob(before, &after, 0)
	object := notify.Object{
		Kind:           notify.KindNodeJob,
		NamespacedName: types.NamespacedName{Namespace: before.Namespace, Name: before.Name},
		UID:            before.UID,
	}
	body, _, err := notify.Encode(format, source, object, &after.ControllerState.Notifications.Pending[0])
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := json.Indent(&b, body, "", "  "); err != nil {
		t.Fatal(err)
	}
	return b.String() + "\n"
}
