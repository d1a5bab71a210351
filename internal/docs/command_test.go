// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package docs

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli"
	"github.com/everynode/everynode/internal/cli/console"
	"github.com/everynode/everynode/internal/testing/clitest"
	"github.com/everynode/everynode/internal/testing/plantest"
)

// apiServer is a stand-in for an API server, with the objects that the commands read.
type apiServer struct {
	t       *testing.T
	now     time.Time
	jobs    []v1alpha1.NodeJob
	nodes   []corev1.Node
	pods    []corev1.Pod
	budgets []policyv1.PodDisruptionBudget
	// columns is the width of the terminal.
	columns uint16
}

// serve returns an API server with the objects of simulated clusters. Their nodes have different names, unless only one
// of the clusters is of interest.
func serve(t *testing.T, clusters ...*plantest.Cluster) *apiServer {
	s := &apiServer{t: t, columns: 80}
	for _, c := range clusters {
		s.now = c.Now
		s.jobs = append(s.jobs, *c.Job)
		for _, name := range slices.Sorted(maps.Keys(c.Nodes)) {
			s.nodes = append(s.nodes, *c.Nodes[name])
		}
		for _, name := range slices.Sorted(maps.Keys(c.Pods)) {
			s.pods = append(s.pods, *c.Pods[name])
		}
	}
	return s
}

// ServeHTTP implements http.Handler.
func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	list := func(kind string, items any) {
		version := "v1"
		if parts := strings.Split(r.URL.Path, "/"); parts[1] == "apis" {
			version = parts[2] + "/" + parts[3]
		}
		s.answer(w, http.StatusOK, map[string]any{"kind": kind, "apiVersion": version, "metadata": map[string]any{}, "items": items})
	}
	path := r.URL.Path
	switch name := path[strings.LastIndexByte(path, '/')+1:]; {
	case r.Method == http.MethodPost:
		var body map[string]any
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil || r.URL.Query().Get("dryRun") != "All" {
			s.t.Errorf("%s %s: %v", r.Method, r.URL, err)
		}
		s.answer(w, http.StatusCreated, body)
	case path == "/api/v1/namespaces/node-setup":
		s.answer(w, http.StatusOK, corev1.Namespace{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.EnabledLabel: v1alpha1.EnabledValue}},
		})
	case name == "nodejobs":
		list("NodeJobList", s.jobs)
	case name == "nodeguards":
		list("NodeGuardList", []v1alpha1.NodeGuard{})
	case name == "nodedisruptionbudgets":
		list("NodeDisruptionBudgetList", []v1alpha1.NodeDisruptionBudget{})
	case name == "nodes":
		list("NodeList", s.nodes)
	case name == "pods":
		list("PodList", s.podsFor(r))
	case name == "poddisruptionbudgets":
		list("PodDisruptionBudgetList", s.budgets)
	case strings.HasSuffix(path, "/deployments/everynode-manager"): // the manager runs outside of the cluster
		s.answer(w, http.StatusNotFound, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
			Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound})
	case strings.HasSuffix(path, "/nodejobs/"+name):
		if i := slices.IndexFunc(s.jobs, func(j v1alpha1.NodeJob) bool { return j.Name == name }); i >= 0 {
			s.answer(w, http.StatusOK, s.jobs[i])
			return
		}
		s.answer(w, http.StatusNotFound, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
			Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound,
			Details: &metav1.StatusDetails{Name: name, Group: v1alpha1.Group, Kind: "nodejobs"}})
	default:
		s.t.Errorf("%s %s was not expected", r.Method, r.URL)
	}
}

func (s *apiServer) answer(w http.ResponseWriter, code int, object any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(object); err != nil {
		s.t.Error(err)
	}
}

// podsFor returns the pods that the selectors of a request select.
func (s *apiServer) podsFor(r *http.Request) []corev1.Pod {
	selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		s.t.Error(err)
		return nil
	}
	node, onNode := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "spec.nodeName=")
	found := []corev1.Pod{}
	for i := range s.pods {
		if pod := s.pods[i]; selector.Matches(labels.Set(pod.Labels)) && (!onNode || pod.Spec.NodeName == node) {
			found = append(found, pod)
		}
	}
	return found
}

// run returns a command and what it prints on a terminal.
func (s *apiServer) run(args ...string) string {
	s.t.Helper()
	server := httptest.NewServer(s)
	defer server.Close()
	config := filepath.Join(s.t.TempDir(), "kubeconfig")
	content := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: %q}}],
contexts: [{name: c, context: {cluster: c, user: u, namespace: default}}], users: [{name: u, user: {token: t}}]}`, server.URL)
	if err := os.WriteFile(config, []byte(content), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return "$ kubectl everynode " + strings.Join(args, " ") + "\n" + clitest.OnTerminal(s.t, s.columns, func(terminal *os.File) {
		f := console.NewFactory(genericiooptions.IOStreams{In: strings.NewReader(""), Out: terminal, ErrOut: terminal})
		*f.Config.KubeConfig = config
		f.Now = func() time.Time { return s.now }
		f.Getenv = func(name string) string { return map[string]string{"NO_COLOR": "1", "LANG": "C.UTF-8"}[name] }
		command := cli.NewCommand(f)
		command.SetArgs(args)
		if err := command.ExecuteContext(s.t.Context()); err != nil {
			s.t.Errorf("%q: %v", args, err)
		}
	})
}
