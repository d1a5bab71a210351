// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package nodecondition

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// condition is written as TYPE=STATUS REASON MESSAGE.
func condition(text string) corev1.NodeCondition {
	words := strings.SplitN(text, " ", 3)
	kind, status, _ := strings.Cut(words[0], "=")
	return corev1.NodeCondition{
		Type: corev1.NodeConditionType(kind), Status: corev1.ConditionStatus(status), Reason: words[1], Message: words[2],
		LastTransitionTime: metav1.NewTime(time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)),
	}
}

func conditions(texts ...string) (all []corev1.NodeCondition) {
	for _, text := range texts {
		all = append(all, condition(text))
	}
	return all
}

func TestAnnounced(t *testing.T) {
	for name, tt := range map[string]struct {
		conditions []string
		want       corev1.NodeConditionType
	}{
		"none":                         {nil, ""},
		"maintenance is planned":       {[]string{"Ready=True r m", "MaintenancePlanned=True AdminRequested m"}, "MaintenancePlanned"},
		"a drain":                      {[]string{"DrainInProgress=True KubectlDrainStarted m"}, "DrainInProgress"},
		"both":                         {[]string{"MaintenancePlanned=True a m", "DrainInProgress=True b m"}, "DrainInProgress"},
		"a drain that has ended":       {[]string{"DrainInProgress=False KubectlDrainCompleted m", "Drained=True KubectlDrainCompleted m"}, ""},
		"an unknown state":             {[]string{"DrainInProgress=Unknown a m"}, ""},
		"maintenance":                  {[]string{"MaintenanceInProgress=True AdminRequested m"}, ""},
		"its own":                      {[]string{"MaintenancePlanned=True NodeJob ns/a", "DrainInProgress=True NodeJob ns/a"}, ""},
		"its own, and that of another": {[]string{"MaintenancePlanned=True AdminRequested m", "DrainInProgress=True NodeJob ns/a"}, "MaintenancePlanned"},
		"another with its reason":      {[]string{"DrainInProgress=True NodeJob node is drained for the NodeJob ns/a"}, "DrainInProgress"},
		"another without a message":    {[]string{"DrainInProgress=True NodeJob "}, "DrainInProgress"},
	} {
		if got := Announced(conditions(tt.conditions...)); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

func TestKept(t *testing.T) {
	long := strings.Repeat("x", 2*maxMessage)
	got := Kept(
		conditions(
			"Ready=True r m",
			"Drained=True a "+long,
			"example.com/Kernel=True NodeJob ns/a",
			"example.com/Disk=True NodeJob a disk",
		),
	)
	if len(got) != 2 || got[1].Type != "example.com/Kernel" || got[0].Type != "Drained" || len(got[0].Message) != maxMessage {
		t.Errorf("kept %v", got)
	}
}

func TestPatch(t *testing.T) {
	draining := Stage{Planned: true, Draining: true}
	working := Stage{Drained: true, InProgress: true}
	ready := "Ready=True KubeletReady m"
	for name, tt := range map[string]struct {
		is      []string
		by      []Disruption
		unknown string
		want    []string // nil: no write
	}{
		"nothing":            {is: []string{ready}},
		"a drain":            {[]string{ready}, []Disruption{{"ns/a", draining}}, "", []string{ready, "DrainInProgress=True NodeJob ns/a", "MaintenancePlanned=True NodeJob ns/a"}},
		"a drain, unchanged": {is: []string{"MaintenancePlanned=True NodeJob ns/a", "DrainInProgress=True NodeJob ns/a"}, by: []Disruption{{"ns/a", draining}}},
		"the next stage": {
			[]string{"MaintenancePlanned=True NodeJob ns/a", ready, "DrainInProgress=True NodeJob ns/a"}, []Disruption{{"ns/a", working}},
			"", []string{"Drained=True NodeJob ns/a", "MaintenanceInProgress=True NodeJob ns/a", ready},
		},
		"the end":                        {[]string{"Drained=True NodeJob ns/a", ready}, nil, "", []string{ready}},
		"conditions of another":          {is: []string{"MaintenancePlanned=True AdminRequested m", "DrainInProgress=False KubectlDrainCompleted m"}, by: []Disruption{{"ns/a", draining}}},
		"one of another":                 {[]string{"MaintenancePlanned=True AdminRequested ns/a"}, []Disruption{{"ns/a", draining}}, "", []string{"DrainInProgress=True NodeJob ns/a", "MaintenancePlanned=True AdminRequested ns/a"}},
		"one of another stays":           {is: []string{"MaintenancePlanned=True AdminRequested ns/a"}},
		"one of another with its reason": {is: []string{"MaintenancePlanned=True NodeJob the job ns/a"}, by: []Disruption{{"ns/a", Stage{Planned: true}}}},
		"a message that is too long":     {is: []string{"MaintenancePlanned=True NodeJob ns/" + strings.Repeat("a", 254)}},
		"two NodeJobs":                   {nil, []Disruption{{"ns/a", Stage{Planned: true}}, {"ns/b", working}}, "", []string{"Drained=True NodeJob ns/b", "MaintenanceInProgress=True NodeJob ns/b", "MaintenancePlanned=True NodeJob ns/a"}},
		"two for one condition":          {nil, []Disruption{{"ns/a", Stage{Planned: true}}, {"ns/b", Stage{Planned: true}}}, "", []string{"MaintenancePlanned=True NodeJob ns/a"}},
		"the one that it names":          {is: []string{"MaintenancePlanned=True NodeJob ns/b"}, by: []Disruption{{"ns/a", Stage{Planned: true}}, {"ns/b", Stage{Planned: true}}}},
		"a NodeJob that is gone":         {[]string{"MaintenancePlanned=True NodeJob ns/b"}, []Disruption{{"ns/a", Stage{Planned: true}}}, "", []string{"MaintenancePlanned=True NodeJob ns/a"}},
		"a NodeJob that is silent":       {is: []string{"MaintenanceInProgress=True NodeJob ns/b"}, unknown: "ns/b"},
		"another that is silent":         {[]string{"MaintenanceInProgress=True NodeJob ns/b"}, nil, "ns/c", []string{}},
		"a status that was changed": {
			[]string{"MaintenancePlanned=False NodeJob ns/a"}, []Disruption{{"ns/a", Stage{Planned: true}}}, "", []string{"MaintenancePlanned=True NodeJob ns/a"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{
					Name:            "n",
					UID:             "uid",
					ResourceVersion: "7",
				},
				Status: corev1.NodeStatus{Conditions: conditions(tt.is...)},
			}
			patch := Desired{
				tt.by,
				nil,
				func(job string) bool { return job == tt.unknown },
			}.Patch(
				node,
				time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC),
			)
			if (patch == nil) != (tt.want == nil) {
				t.Fatalf("the patch is %s", patch)
			}
			if patch != nil {
				checkPatch(t, node, patch, tt.want)
			}
		})
	}
}

func TestPublished(t *testing.T) {
	const ready, kernel = "Ready=True KubeletReady m", "example.com/Kernel"
	for name, tt := range map[string]struct {
		is        []string
		by        []Disruption
		published []Published
		unknown   string
		want      []string // nil: no write
	}{
		"a published condition": {
			is: []string{ready}, published: []Published{{kernel, "True", "ns/a"}}, want: []string{ready, "example.com/Kernel=True NodeJob ns/a"},
		},
		"another status": {
			is: []string{"example.com/Kernel=True NodeJob ns/a"}, published: []Published{{kernel, "False", "ns/a"}},
			want: []string{"example.com/Kernel=False NodeJob ns/a"},
		},
		"a published condition that is right": {is: []string{"example.com/Kernel=Unknown NodeJob ns/a"}, published: []Published{{kernel, "Unknown", "ns/a"}}},
		"no longer published":                 {is: []string{ready, "example.com/Kernel=True NodeJob ns/a"}, want: []string{ready}},
		"published by a silent NodeJob":       {is: []string{"example.com/Kernel=False NodeJob ns/a"}, unknown: "ns/a"},
		"published by another client": {
			is: []string{"example.com/Kernel=False Checked ns/a"}, published: []Published{{kernel, "True", "ns/a"}},
		},
		"another type with its reason":      {is: []string{"Ready=False NodeJob ns/a", "node.kubernetes.io/X=True NodeJob ns/a"}},
		"two NodeJobs publish it":           {want: []string{"example.com/Kernel=True NodeJob ns/a"}, published: []Published{{kernel, "True", "ns/a"}, {kernel, "False", "ns/b"}}},
		"the publishing one that it names":  {is: []string{"example.com/Kernel=False NodeJob ns/b"}, published: []Published{{kernel, "True", "ns/a"}, {kernel, "False", "ns/b"}}},
		"a disruption beside it is no type": {is: []string{"example.com/Kernel=True NodeJob ns/a"}, by: []Disruption{{"ns/a", Stage{}}}, published: []Published{{kernel, "True", "ns/a"}}},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "uid", ResourceVersion: "7"}}
			node.Status.Conditions = conditions(tt.is...)
			desired := Desired{tt.by, tt.published, func(job string) bool { return job == tt.unknown }}
			patch := desired.Patch(node, time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC))
			if (patch == nil) != (tt.want == nil) {
				t.Fatalf("the patch is %s", patch)
			}
			if patch != nil {
				checkPatch(t, node, patch, tt.want)
			}
		})
	}
}

// checkPatch applies a patch as the API server does.
func checkPatch(t *testing.T, node *corev1.Node, patch []byte, want []string) {
	t.Helper()
	if s := string(patch); !strings.Contains(s, `"resourceVersion":"7"`) || !strings.Contains(s, `"uid":"uid"`) {
		t.Errorf("the patch is not for this version: %s", s)
	}
	before, err := json.Marshal(node)
	if err != nil {
		t.Fatal(err)
	}
	after, err := strategicpatch.StrategicMergePatch(before, patch, corev1.Node{})
	if err != nil {
		t.Fatal(err)
	}
	var got corev1.Node
	if err := json.Unmarshal(after, &got); err != nil {
		t.Fatal(err)
	}
	texts := []string{}
	for _, c := range got.Status.Conditions {
		texts = append(texts, string(c.Type)+"="+string(c.Status)+" "+c.Reason+" "+c.Message)
	}
	slices.Sort(texts)
	sorted := append([]string{}, want...)
	slices.Sort(sorted)
	if diff := cmp.Diff(sorted, texts); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
}
