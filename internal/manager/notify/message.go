// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/outcome"
)

// Kinds of objects.
const (
	KindNodeJob   = "NodeJob"
	KindNodeGuard = "NodeGuard"

	KindNodeDisruptionBudget = "NodeDisruptionBudget"
)

// Object is what a notification is about.
type Object struct {
	Kind string
	types.NamespacedName
	UID types.UID
}

// path is the name of the object, after its namespace if it has one.
func (o Object) path() string {
	if o.Namespace == "" {
		return o.Name
	}
	return o.Namespace + "/" + o.Name
}

// id identifies a notification. It is the same each time that the notification is sent, also by another manager.
func id(o Object, n *v1alpha1.Notification) string {
	return strings.Join([]string{string(o.UID), string(n.Type), n.Revision, n.Step + n.Node, strconv.FormatInt(n.Time.Unix(), 10)}, "/")
}

// Limits of the texts of a notification, in bytes. The API has the same limits, in characters.
const (
	// maxMessageBytes limits the message.
	maxMessageBytes = 1000
	// maxNameBytes limits the other texts: names of Kubernetes have at most 253 bytes.
	maxNameBytes = 253
)

// bounded returns the last of the notifications in a status, with texts that are clean and limited. Each text is shown
// to people, and a status is not only written by the manager.
func bounded(pending []v1alpha1.Notification) []v1alpha1.Notification {
	var valid []v1alpha1.Notification
	for _, n := range pending[max(0, len(pending)-maxPending):] {
		if headlines[n.Type] == "" {
			continue
		}
		n.Message = outcome.CleanHead(n.Message, maxMessageBytes)
		for _, text := range []*string{&n.Revision, &n.Step, &n.Node, &n.Reason, &n.ChangedBy} {
			*text = outcome.CleanHead(*text, maxNameBytes)
		}
		valid = append(valid, n)
	}
	return valid
}

// Format is what is sent to the URL.
type Format string

const (
	// FormatCloudEvents sends a CloudEvent in structured JSON mode.
	FormatCloudEvents Format = "cloudevents"
	// FormatSlack sends a text to an incoming webhook of Slack, or of a service that accepts the same.
	FormatSlack Format = "slack"
)

// event is a CloudEvent. Source: https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md
type event struct {
	SpecVersion     string    `json:"specversion"`
	ID              string    `json:"id"`
	Source          string    `json:"source"`
	Type            string    `json:"type"`
	Subject         string    `json:"subject"`
	Time            time.Time `json:"time"`
	DataContentType string    `json:"datacontenttype"`
	Data            data      `json:"data"`
}

// data is what a CloudEvent contains. docs/notifications.md describes the fields.
type data struct {
	Kind       string               `json:"kind"`
	Namespace  string               `json:"namespace,omitempty"`
	Name       string               `json:"name"`
	UID        types.UID            `json:"uid"`
	Generation int64                `json:"generation"`
	Revision   string               `json:"revision,omitempty"`
	Step       string               `json:"step,omitempty"`
	Node       string               `json:"node,omitempty"`
	Reason     string               `json:"reason"`
	Message    string               `json:"message"`
	Nodes      *v1alpha1.NodeCounts `json:"nodes,omitempty"`
	ChangedBy  string               `json:"changedBy,omitempty"`
}

// Encode returns the body of a request, and its content type.
func Encode(format Format, source string, o Object, n *v1alpha1.Notification) (body []byte, contentType string, err error) {
	var message any
	switch format {
	case FormatSlack:
		contentType, message = "application/json; charset=utf-8", map[string]string{"text": slackText(source, o, n)}
	case FormatCloudEvents:
		contentType, message = "application/cloudevents+json; charset=utf-8", cloudEvent(source, o, n)
	default:
		return nil, "", fmt.Errorf("unknown format %q", format)
	}
	body, err = json.Marshal(message)
	return body, contentType, err
}

func cloudEvent(source string, o Object, n *v1alpha1.Notification) event {
	kind := strings.ToLower(o.Kind)
	return event{
		SpecVersion: "1.0", ID: id(o, n), Source: source,
		Type:    "dev.everynode." + kind + "." + strings.ToLower(string(n.Type)),
		Subject: kind + "/" + o.path(), Time: n.Time.UTC(), DataContentType: "application/json",
		Data: data{
			Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, UID: o.UID, Generation: n.Generation, Revision: n.Revision, Step: n.Step, Node: n.Node,
			Reason: n.Reason, Message: n.Message, Nodes: n.Nodes, ChangedBy: n.ChangedBy,
		},
	}
}

// headlines are the beginnings of messages in Slack, after the name of the object.
var headlines = map[v1alpha1.NotificationType]string{
	v1alpha1.NotificationStarted:           "has started",
	v1alpha1.NotificationStepCompleted:     "has completed a step",
	v1alpha1.NotificationAwaitingPromotion: "waits for promotion",
	v1alpha1.NotificationStopped:           "has stopped",
	v1alpha1.NotificationRollbackFailed:    "has a failed rollback",
	v1alpha1.NotificationComplete:          "is complete",
	v1alpha1.NotificationDrainHeld:         "has held a node for too long",
	v1alpha1.NotificationFrozen:            "has begun a freeze",
	v1alpha1.NotificationThawed:            "has ended its freeze",
	v1alpha1.NotificationExceeded:          "is exceeded",
	v1alpha1.NotificationStalled:           "is Stalled",
}

// slackEscapes are the characters that begin links, mentions and entities in messages of Slack. Without them, the output of
// a task cannot notify a whole channel. Source: https://api.slack.com/reference/surfaces/formatting#escaping
// Mattermost and Rocket.Chat also accept mentions in plain text, such as @channel, @all and @here: a space without width ends
// them.
var slackEscapes = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "@", "@\u200b")

func slackText(source string, o Object, n *v1alpha1.Notification) string {
	text := fmt.Sprintf("%s %s %s (%s): %s", o.Kind, o.path(), headlines[n.Type], n.Reason, n.Message)
	if source != DefaultSource {
		text = "[" + source + "] " + text
	}
	return slackEscapes.Replace(text)
}
