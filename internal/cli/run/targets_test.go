// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/testing/clitest"
)

// mixedCluster is a fake API server with two Linux nodes and two Windows nodes.
func mixedCluster(t *testing.T) http.Handler {
	t.Helper()
	list := corev1.NodeList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}}
	for name, os := range map[string]string{"linux-1": "linux", "linux-2": "", "win-1": "windows", "win-2": "windows"} {
		node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool": os}}}
		if strings.HasSuffix(name, "1") {
			node.Labels["node-restriction.kubernetes.io/team"] = "a"
		}
		if os != "" {
			node.Labels[corev1.LabelOSStable] = os
		}
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		list.Items = append(list.Items, node)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/api/v1/namespaces/limited" {
			clitest.Respond(w, corev1.Namespace{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
				ObjectMeta: metav1.ObjectMeta{
					Name:        "limited",
					Annotations: map[string]string{v1alpha1.NodesAnnotation: "node-restriction.kubernetes.io/team=a"},
				},
			})
			return
		}
		shown := list
		if r.URL.Query().Get("labelSelector") != "" {
			shown.Items = nil
			for _, node := range list.Items {
				if strings.HasSuffix(r.URL.Query().Get("labelSelector"), node.Labels[corev1.LabelOSStable]) &&
					node.Labels[corev1.LabelOSStable] != "" {
					shown.Items = append(shown.Items, node)
				}
			}
		}
		if err := json.NewEncoder(w).Encode(shown); err != nil {
			t.Error(err)
		}
	})
}

func TestRunLeavesOutNodesOfAnotherOperatingSystem(t *testing.T) {
	const notAllowed = "annotation everynode.dev/nodes of namespace limited limits its NodeJobs and NodeGuards to nodes with node-restriction.kubernetes.io/team=a. " +
		"An administrator can change the annotation, or the labels of the node"
	tests := map[string]struct {
		options   options
		wantNames string
		wantTold  string
		wantErr   string
	}{
		"all": {
			options: options{all: true}, wantNames: "linux-1 linux-2",
			wantTold: "2 nodes are not on Linux (label kubernetes.io/os): win-1, win-2",
		},
		"a selector that matches only such nodes": {
			options: options{selector: "pool=windows"},
			wantErr: "nothing was run: 2 nodes are not on Linux (label kubernetes.io/os): win-1, win-2",
		},
		"all, in a namespace that is limited to nodes": {
			options: options{
				all:       true,
				namespace: "limited",
			},
			wantNames: "linux-1",
			wantTold:  "left out: 2 nodes (linux-2, win-2): " + notAllowed + "\nleft out: 1 node is not on Linux (label kubernetes.io/os): win-1",
		},
		"a node by name that the namespace may not use": {
			options: options{nodes: []string{"linux-1", "linux-2"}, namespace: "limited"},
			wantErr: "nothing was run: linux-2 is not allowed: " + notAllowed,
		},
		"such a node by name": {
			options: options{nodes: []string{"linux-1", "win-2"}},
			wantErr: "commands and scripts run on Linux nodes only: leave out win-2 (label kubernetes.io/os)",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f, _, errs := clitest.NewFactory(t, mixedCluster(t))
			o := tt.options
			o.Factory, o.namespace, o.yes = f, cmp.Or(o.namespace, "ns"), true
			var err error
			if o.client, err = f.Client(); err != nil {
				t.Fatal(err)
			}
			found, err := o.targets(t.Context())
			if tt.wantErr != "" {
				if err == nil || err.Error() != tt.wantErr {
					t.Fatalf("error %v, want %q", err, tt.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(found.names, " "); got != tt.wantNames {
				t.Errorf("it runs on %q, want %q", got, tt.wantNames)
			}
			if err := o.confirm(t.Context(), found); err != nil || !strings.Contains(errs.String(), tt.wantTold) {
				t.Errorf("told %q, %v; want %q", errs.String(), err, tt.wantTold)
			}
		})
	}
}
