// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
)

func nodeAt(version string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "node-uid", ResourceVersion: version}}
}

func TestMemoryOfNodes(t *testing.T) {
	tests := map[string]struct {
		remembered []string
		cached     string
		want       string
	}{
		"nothing is remembered":                       {cached: "10", want: "10"},
		"the cache is behind our write":               {remembered: []string{"11"}, cached: "10", want: "11"},
		"the cache has our write":                     {remembered: []string{"11"}, cached: "11", want: "11"},
		"the cache is ahead of our write":             {remembered: []string{"11"}, cached: "12", want: "12"},
		"versions are compared as numbers":            {remembered: []string{"100"}, cached: "99", want: "100"},
		"the later of two writes counts":              {remembered: []string{"11", "13"}, cached: "10", want: "13"},
		"responses in the wrong order":                {remembered: []string{"13", "11"}, cached: "10", want: "13"},
		"a version that is not a number is not newer": {remembered: []string{"x"}, cached: "10", want: "10"},
		"versions that do not fit into 64 bits": {
			remembered: []string{"100000000000000000001"},
			cached:     "100000000000000000000",
			want:       "100000000000000000001",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := newWrittenObjects()
			for _, version := range tt.remembered {
				m.rememberNode(nodeAt(version))
			}
			if got := m.node(nodeAt(tt.cached)).ResourceVersion; got != tt.want {
				t.Errorf("version %s, want %s", got, tt.want)
			}
			m.showNode(nodeAt(tt.cached))
			if got := len(m.nodes["n"]); tt.want == tt.cached && got != 0 {
				t.Errorf("%d versions are still remembered, though the cache has shown the node", got)
			}
		})
	}
}

// A watch may omit versions, but not their effects on passes that have seen them.
func TestMemoryReturnsOmittedVersions(t *testing.T) {
	tests := map[string]struct {
		shown      string
		remembered []string
		next       string
		want       []string
	}{
		"nothing is written":            {"10", nil, "12", nil},
		"a write":                       {"10", []string{"11"}, "11", nil},
		"a write before another change": {"10", []string{"11"}, "12", []string{"11"}},
		"two writes":                    {"10", []string{"11", "12"}, "12", []string{"11"}},
		"a write that the watch does not show yet": {"10", []string{"11", "13"}, "12", []string{"11"}},
		"a response that comes after the event":    {"11", []string{"11"}, "12", nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := newWrittenObjects()
			m.showNode(nodeAt(tt.shown))
			for _, version := range tt.remembered {
				m.rememberNode(nodeAt(version))
			}
			var got []string
			for _, node := range m.showNode(nodeAt(tt.next)) {
				got = append(got, node.ResourceVersion)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("omitted versions (-want +got):\n%s", diff)
			}
			if got := m.showNode(nodeAt("99")); len(tt.remembered) < 2 && len(got) > 0 {
				t.Errorf("versions are returned again: %v", got)
			}
		})
	}
}

func TestMemoryForgetsADeletedNode(t *testing.T) {
	m := newWrittenObjects()
	m.rememberNode(nodeAt("11"))
	m.forgetNode("n")
	if got := m.node(nodeAt("10")).ResourceVersion; got != "10" {
		t.Errorf("version %s, want the cached one", got)
	}
}

func TestMemoryOfNodeJobs(t *testing.T) {
	version := func(uid, version string) *v1alpha1.NodeJob {
		return &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job", UID: types.UID(uid), ResourceVersion: version}}
	}
	tests := map[string]struct{ remembered, cached, want *v1alpha1.NodeJob }{
		"the cache is behind our own status":                      {version("a", "11"), version("a", "10"), version("a", "11")},
		"the user has changed it later":                           {version("a", "11"), version("a", "12"), version("a", "12")},
		"it was deleted and recreated":                            {version("a", "11"), version("b", "13"), version("b", "13")},
		"it was recreated and the cache shows the deleted object": {version("b", "13"), version("a", "11"), version("b", "13")},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := newWrittenObjects()
			m.rememberJob(tt.remembered)
			if diff := cmp.Diff(tt.want, m.job(tt.cached)); diff != "" {
				t.Errorf("NodeJob (-want +got):\n%s", diff)
			}
			m.forgetJob(client.ObjectKeyFromObject(tt.remembered))
			if diff := cmp.Diff(tt.cached, m.job(tt.cached)); diff != "" {
				t.Errorf("after it was forgotten (-want +got):\n%s", diff)
			}
		})
	}
}

// TestMemoryOfPods lets one pod be written and be seen in different orders. The cache is what the
// informer shows; "" is a pod that it does not show.
func TestMemoryOfPods(t *testing.T) {
	version := func(v string) *corev1.Pod { return livePod(func(p *corev1.Pod) { p.ResourceVersion = v }) }
	made := func(v string) func(*writtenObjects) {
		return func(m *writtenObjects) { m.rememberPod(version(v), noon) }
	}
	stopped := func(m *writtenObjects) { m.rememberStopped("pod-uid", noon.Add(time.Second)) }
	released := func(m *writtenObjects) { m.rememberReleased("pod-uid", noon.Add(2*time.Second)) }
	gone := func(m *writtenObjects) { m.forgetPod("pod-uid") }
	type seen struct {
		Version  string
		Released bool
		Stopped  time.Duration
	}
	tests := map[string]struct {
		history []func(*writtenObjects)
		cached  string
		after   time.Duration
		want    []seen
		// wantDoubt: only the API server can tell whether it is still there.
		wantDoubt bool
	}{
		"nothing happened":           {},
		"a pod that the cache shows": {cached: "10", want: []seen{{Version: "10"}}},
		"one that we created and the cache does not show": {
			history: []func(*writtenObjects){made("10")},
			want:    []seen{{Version: "10"}},
		},
		"one that we created and the cache shows": {
			history: []func(*writtenObjects){made("10")},
			cached:  "10",
			want:    []seen{{Version: "10"}},
		},
		"the cache is ahead": {
			history: []func(*writtenObjects){made("10")},
			cached:  "12",
			want:    []seen{{Version: "12"}},
		},
		"the cache is behind": {
			history: []func(*writtenObjects){made("12")},
			cached:  "10",
			want:    []seen{{Version: "12"}},
		},
		"one that we deleted": {
			history: []func(*writtenObjects){stopped},
			cached:  "10",
			want:    []seen{{Version: "10", Stopped: time.Second}},
		},
		"created and deleted before the cache shows it": {
			history: []func(*writtenObjects){made("10"), stopped},
			want:    []seen{{Version: "10", Stopped: time.Second}},
		},
		"one without our finalizer that the cache shows": {
			history: []func(*writtenObjects){made("10"), released},
			cached:  "10",
			want:    []seen{{Version: "10", Released: true, Stopped: 2 * time.Second}},
		},
		"one without our finalizer that the cache no longer shows": {history: []func(*writtenObjects){made("10"), released}},
		"one that was deleted and then lost our finalizer": {
			history: []func(*writtenObjects){stopped, released},
			cached:  "11",
			want:    []seen{{Version: "11", Released: true, Stopped: time.Second}},
		},
		"one whose deletion the cache has observed": {history: []func(*writtenObjects){made("10"), stopped, released, gone}},
		"one that the cache should show by now": {
			history:   []func(*writtenObjects){made("10")},
			after:     doubtAfter + time.Second,
			want:      []seen{{Version: "10"}},
			wantDoubt: true,
		},
		"one that the API server has shown since": {
			history: []func(*writtenObjects){made("10"), func(m *writtenObjects) { m.rememberPod(version("10"), noon.Add(doubtAfter)) }},
			after:   doubtAfter + time.Second,
			want:    []seen{{Version: "10"}},
		},
		"no doubt about what the cache shows": {
			history: []func(*writtenObjects){made("10")},
			cached:  "10",
			after:   time.Hour,
			want:    []seen{{Version: "10"}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := newWrittenObjects()
			for _, happens := range tt.history {
				happens(m)
			}
			var cached []*corev1.Pod
			if tt.cached != "" {
				cached = append(cached, version(tt.cached))
			}
			pods, doubtful := m.podsOf("job-uid", cached, noon.Add(tt.after))
			var got []seen
			for _, p := range pods {
				s := seen{Version: p.ResourceVersion, Released: p.finalized}
				if !p.stopped.IsZero() {
					s.Stopped = p.stopped.Sub(noon)
				}
				got = append(got, s)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("pods (-want +got):\n%s", diff)
			}
			if (len(doubtful) > 0) != tt.wantDoubt {
				t.Errorf("doubtful are %d, want doubt: %v", len(doubtful), tt.wantDoubt)
			}
		})
	}
}

func TestMemoryKeepsPodsOfNodeJobsApart(t *testing.T) {
	m := newWrittenObjects()
	m.rememberPod(livePod(), noon)
	if pods, _ := m.podsOf("another-job-uid", nil, noon.Add(time.Hour)); len(pods) != 0 {
		t.Errorf("%d pods of another NodeJob", len(pods))
	}
}

// The cache may show the end of a pod before the answer to the write that ended it has arrived. What is
// remembered after that is forgotten by time alone.
func TestMemoryDoesNotGrow(t *testing.T) {
	m := newWrittenObjects()
	for i := range 1000 {
		uid := types.UID(fmt.Sprint("pod-", i))
		m.forgetPod(uid)
		m.rememberReleased(uid, noon)
	}
	m.podsOf("job-uid", nil, noon.Add(time.Second))
	if got := len(m.pods); got != 1000 {
		t.Errorf("%d pods are remembered a second later, want 1000: the cache may still show them", got)
	}
	m.podsOf("job-uid", nil, noon.Add(24*time.Hour))
	if got := len(m.pods); got != 0 {
		t.Errorf("%d pods are remembered a day later, want none", got)
	}
}

// TestAStatusThatAnotherClientWritesDoesNotCount : in the cache, such a status is empty.
func TestAStatusThatAnotherClientWritesDoesNotCount(t *testing.T) {
	version := func(version, sealed, revision string) *v1alpha1.NodeJob {
		job := &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job", UID: "a", ResourceVersion: version}}
		job.Status.ControllerState.Seal, job.Status.Revision = sealed, revision
		return job
	}
	m := newWrittenObjects()
	read := func(cached *v1alpha1.NodeJob, want string, wantMayDiffer bool) {
		t.Helper()
		if got := m.job(cached).Status.Revision; got != want {
			t.Errorf("version %s: revision %q, want %q", cached.ResourceVersion, got, want)
		}
		if got := m.statusMayDiffer("a"); got != wantMayDiffer {
			t.Errorf("version %s: statusMayDiffer() = %v, want %v", cached.ResourceVersion, got, wantMayDiffer)
		}
	}
	read(version("10", "", ""), "", false) // it is new
	m.rememberStatus(version("11", "s1", "rev1"))
	read(version("10", "", ""), "rev1", false) // the cache is behind
	read(version("12", "", ""), "rev1", true)  // another client has overwritten the status
	m.rememberStatus(version("13", "s1", "rev1"))
	read(version("13", "s1", "rev1"), "rev1", false)
	read(version("14", "s2", "rev2"), "rev2", false) // another manager has written it
	m.forgetStatus("a")
	read(version("15", "", ""), "", false)
}
