// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/testing/clitest"
)

// managerServer is a planServer with a manager.
type managerServer struct {
	planServer
	pods []corev1.Pod
	// holder has the lease; "" if the lease cannot be read. hidden is true if the pods cannot be listed.
	holder string
	hidden bool
}

func (s *managerServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasSuffix(r.URL.Path, "/deployments/everynode-manager"):
		d := appsv1.Deployment{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}}
		d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "manager"}}
		clitest.Respond(w, d)
	case r.URL.Path == "/api/v1/namespaces/everynode-system/pods" && s.hidden, strings.Contains(r.URL.Path, "/leases/") && s.holder == "":
		clitest.RespondError(w, http.StatusForbidden, metav1.StatusReasonForbidden, "no")
	case r.URL.Path == "/api/v1/namespaces/everynode-system/pods":
		if got := r.URL.Query().Get("labelSelector"); got != "app=manager" {
			s.t.Errorf("lists pods with %q", got)
		}
		clitest.Respond(w, corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: s.pods})
	case strings.HasSuffix(r.URL.Path, "/namespaces/everynode-system/leases/everynode-manager"):
		clitest.Respond(w, coordinationv1.Lease{
			TypeMeta: metav1.TypeMeta{
				APIVersion: "coordination.k8s.io/v1",
				Kind:       "Lease",
			},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: &s.holder},
		})
	default:
		s.planServer.ServeHTTP(w, r)
	}
}

// managerPod is a pod of the manager on a node. Its owner is of this kind.
func managerPod(name, node, owner string) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "everynode-system", Name: name, OwnerReferences: []metav1.OwnerReference{
		{Kind: owner, Name: "x", Controller: new(true)},
	}}}
	p.Spec.NodeName, p.Status.Phase = node, corev1.PodRunning
	return p
}

// TestThePlanKnowsTheNodeOfTheManager checks that the node of the manager is no canary of a NodeJob that disrupts nodes, and that the plan
// says so if it does not know the node.
func TestThePlanKnowsTheNodeOfTheManager(t *testing.T) {
	a, b, mirror := managerPod("a", "n1", "ReplicaSet"), managerPod("b", "n2", "ReplicaSet"), managerPod("mirror", "n2", "Node")
	const unknown = "the manager's node comes last, and its name is not known to this plan"
	for name, tt := range map[string]struct {
		server managerServer
		canary string
		said   bool
		quiet  bool // the NodeJob disrupts no node
	}{
		"one pod, and a mirror pod of another node": {managerServer{pods: []corev1.Pod{a, mirror}}, "n2", false, false},
		"two pods, of which the first leads":        {managerServer{pods: []corev1.Pod{a, b}, holder: "a"}, "n2", false, false},
		"two pods, of which the second leads":       {managerServer{pods: []corev1.Pod{a, b}, holder: "b"}, "n1", false, false},
		"two pods, and the lease cannot be read":    {managerServer{pods: []corev1.Pod{a, b}}, "n1", true, false},
		"pods cannot be listed":                     {managerServer{hidden: true}, "n1", true, false},
		"a NodeJob that disrupts no node":           {managerServer{hidden: true}, "n1", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			server := &tt.server
			server.t = t
			for _, node := range []string{"n1", "n2"} {
				n := readyNode(node)
				n.UID, n.CreationTimestamp = types.UID(node), metav1.NewTime(time.Now().Add(-time.Hour))
				server.nodes = append(server.nodes, n)
			}
			job := v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "x"}}
			job.APIVersion, job.Kind, job.Spec.Task.Script = v1alpha1.GroupVersion.String(), "NodeJob", "true"
			job.Spec.Maintenance.Cordon = !tt.quiet
			file, err := json.Marshal(job)
			if err != nil {
				t.Fatal(err)
			}
			f, out, errs := clitest.NewFactory(t, server)
			f.In = strings.NewReader(string(file))
			if code := command(t, f, "plan", "-f", "-", "-n", "ns"); code != 0 {
				t.Fatalf("exit code %d: %s", code, errs)
			}
			if got := strings.Contains(strings.Join(strings.Fields(out.String()), " "), unknown); got != tt.said {
				t.Errorf("says that it does not know the node: %t, want %t:\n%s", got, tt.said, out)
			}
			if first := tt.canary + " (starts first)"; !strings.Contains(out.String(), first) {
				t.Errorf("does not say %q:\n%s", first, out)
			}
		})
	}
}
