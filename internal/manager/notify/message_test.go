// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
)

var (
	exampleJob     = Object{KindNodeJob, types.NamespacedName{Namespace: "ns", Name: "job"}, "uid"}
	exampleStopped = v1alpha1.Notification{
		Type:       v1alpha1.NotificationStopped,
		Time:       metav1.NewTime(noon),
		Generation: 3,
		Revision:   "rev",
		Step:       "canary",
		Reason:     "MaxFailuresExceeded",
		Message:    "the rollout has stopped: <!channel> & more",
		Nodes:      &v1alpha1.NodeCounts{Total: 3, Failed: 1, Waiting: 2},
		ChangedBy:  "jane",
	}
	exampleHeld = v1alpha1.Notification{
		Type:       v1alpha1.NotificationDrainHeld,
		Time:       metav1.NewTime(noon),
		Generation: 1,
		Node:       "node-1",
		Reason:     "CheckFailed",
		Message:    "NodeGuard ns/guard holds node node-1",
	}
)

func TestCloudEvents(t *testing.T) {
	guard := Object{KindNodeGuard, types.NamespacedName{Namespace: "ns", Name: "guard"}, "uid"}
	for name, tt := range map[string]struct {
		object Object
		n      *v1alpha1.Notification
		want   string
	}{
		"of a NodeJob": {exampleJob, &exampleStopped, `{
  "specversion": "1.0",
  "id": "uid/Stopped/rev/canary/1782907200",
  "source": "/everynode",
  "type": "dev.everynode.nodejob.stopped",
  "subject": "nodejob/ns/job",
  "time": "2026-07-01T12:00:00Z",
  "datacontenttype": "application/json",
  "data": {
    "kind": "NodeJob",
    "namespace": "ns",
    "name": "job",
    "uid": "uid",
    "generation": 3,
    "revision": "rev",
    "step": "canary",
    "reason": "MaxFailuresExceeded",
    "message": "the rollout has stopped: \u003c!channel\u003e \u0026 more",
    "nodes": {
      "total": 3,
      "done": 0,
      "running": 0,
      "waiting": 2,
      "failed": 1,
      "rollbackPending": 0,
      "rolledBack": 0,
      "rollbackFailed": 0,
      "excluded": 0,
      "nonCompliant": 0,
      "checkErrors": 0
    },
    "changedBy": "jane"
  }
}`},
		"of a NodeGuard": {guard, &exampleHeld, `{
  "specversion": "1.0",
  "id": "uid/DrainHeld//node-1/1782907200",
  "source": "/everynode",
  "type": "dev.everynode.nodeguard.drainheld",
  "subject": "nodeguard/ns/guard",
  "time": "2026-07-01T12:00:00Z",
  "datacontenttype": "application/json",
  "data": {
    "kind": "NodeGuard",
    "namespace": "ns",
    "name": "guard",
    "uid": "uid",
    "generation": 1,
    "node": "node-1",
    "reason": "CheckFailed",
    "message": "NodeGuard ns/guard holds node node-1"
  }
}`},
	} {
		t.Run(name, func(t *testing.T) {
			body, contentType, err := Encode(FormatCloudEvents, DefaultSource, tt.object, tt.n)
			if err != nil || contentType != "application/cloudevents+json; charset=utf-8" {
				t.Fatalf("%v, the content type is %s", err, contentType)
			}
			var indented bytes.Buffer
			if err := json.Indent(&indented, body, "", "  "); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, indented.String()); diff != "" {
				t.Errorf("the event (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMessagesOfSlack(t *testing.T) {
	for source, want := range map[string]string{
		DefaultSource:             "NodeJob ns/job has stopped (MaxFailuresExceeded): the rollout has stopped: &lt;!channel&gt; &amp; more",
		"https://prod.example/<a": "[https://prod.example/&lt;a] NodeJob ns/job has stopped (MaxFailuresExceeded): the rollout has stopped: &lt;!channel&gt; &amp; more",
	} {
		body, contentType, err := Encode(FormatSlack, source, exampleJob, &exampleStopped)
		if err != nil || contentType != "application/json; charset=utf-8" {
			t.Fatalf("%v, the content type is %s", err, contentType)
		}
		var got map[string]string
		if err := json.Unmarshal(body, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]string{"text": want}, got); diff != "" {
			t.Errorf("the message (-want +got):\n%s", diff)
		}
	}
}

func TestEachTypeHasAHeadlineInSlack(t *testing.T) {
	for _, kind := range []v1alpha1.NotificationType{
		v1alpha1.NotificationStarted, v1alpha1.NotificationStepCompleted, v1alpha1.NotificationAwaitingPromotion, v1alpha1.NotificationStopped,
		v1alpha1.NotificationRollbackFailed, v1alpha1.NotificationComplete, v1alpha1.NotificationDrainHeld,
		v1alpha1.NotificationFrozen, v1alpha1.NotificationThawed, v1alpha1.NotificationExceeded, v1alpha1.NotificationStalled,
	} {
		if text := slackText(
			DefaultSource,
			exampleJob,
			&v1alpha1.Notification{Type: kind, Reason: "R"},
		); !strings.HasPrefix(text, "NodeJob ns/job "+headlines[kind]+" (R)") ||
			headlines[kind] == "" {
			t.Errorf("%s: %q", kind, text)
		}
	}
}

func TestATextInSlackMentionsNobody(t *testing.T) {
	text := slackText(
		DefaultSource,
		exampleJob,
		&v1alpha1.Notification{Type: v1alpha1.NotificationStopped, Message: "@channel @all <!here> jane@example.com"},
	)
	if want := ": @\u200bchannel @\u200ball &lt;!here&gt; jane@\u200bexample.com"; !strings.HasSuffix(text, want) {
		t.Errorf("the text is %q, want the end %q", text, want)
	}
}
