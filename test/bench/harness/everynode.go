// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/policies"
	"github.com/everynode/everynode/test/bench/report"
	"github.com/everynode/everynode/test/bench/subject"
	"github.com/everynode/everynode/test/install"
)

const (
	nodeJobName  = "bench"
	nodeJobLabel = subject.Namespace + ".everynode.dev/" + nodeJobName
)

var nodeJobs = schema.GroupVersionResource{Group: v1alpha1.Group, Version: "v1alpha1", Resource: "nodejobs"}

// nodeJob is the NodeJob that each of our subjects creates.
func nodeJob(s report.Subject) []byte {
	text := `apiVersion: everynode.dev/v1alpha1
kind: NodeJob
metadata: {name: ` + nodeJobName + `, namespace: ` + subject.Namespace + `}
spec:
  task:
    script: |
      set -e
      want=262144
      if [ "$want" -gt "$(sysctl -n vm.max_map_count)" ]; then sysctl -w vm.max_map_count=$want; fi
`
	if s != report.Default {
		text += "  rollout: {maxConcurrent: 100%, steps: [{name: all}]}\n"
	}
	if s == report.Gated {
		text += "  gate: {}\n"
	}
	return []byte(text)
}

// everynode is the manager, installed from its manifests. Simulated nodes run no containers, so it runs outside of the
// cluster: as its own service account, with the flags and the environment of its Deployment.
type everynode struct {
	*world
	subject report.Subject
	manager *process
	// memoryLimit is GOMEMLIMIT of the Deployment.
	memoryLimit string
}

func (e *everynode) prepare(ctx context.Context) error {
	if err := e.kubectl(ctx, "apply", "-k", filepath.Join(e.Root, "config", "local")); err != nil {
		return err
	}
	if err := e.kubectl(ctx, "wait", "--for=condition=Established", "crd/nodejobs."+v1alpha1.Group); err != nil {
		return err
	}
	// A simulated node would only simulate the manager. There must be one manager only.
	if err := e.kubectl(ctx, "-n", install.Namespace, "scale", "deployment", install.Deployment, "--replicas=0"); err != nil {
		return err
	}
	if err := e.policies(ctx); err != nil {
		return err
	}
	return e.startManager(ctx)
}

// startManager starts the manager, and waits until it leads.
func (e *everynode) startManager(ctx context.Context) error {
	kubeconfig, err := install.ManagerKubeconfig(ctx, e.cluster, e.dir)
	if err != nil {
		return err
	}
	settings, err := e.goSettings()
	if err != nil {
		return err
	}
	e.memoryLimit = settings["GOMEMLIMIT"]
	args := []string{e.managerProgram, "--leader-elect", "--metrics-bind-address=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0"}
	if e.subject == report.Unchecked {
		args = append(args, "--require-policies=false")
	}
	e.manager, err = startProcess(e.dir, "manager", append(environ(settings),
		"KUBECONFIG="+kubeconfig, "POD_NAMESPACE="+install.Namespace, "POD_NAME="+install.Deployment+"-0", "NODE_NAME=",
		"EVERYNODE_RUNNER_IMAGE="+install.RunnerImage, "EVERYNODE_BENCH_PPROF="+e.profileAddress(),
	), args...)
	if err != nil {
		return err
	}
	err = e.eventually(ctx, "the manager leads", func() error {
		if err := e.manager.alive(); err != nil {
			return err
		}
		lease, err := e.client.CoordinationV1().Leases(install.Namespace).Get(ctx, install.Deployment, metav1.GetOptions{})
		if err == nil && (lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "") {
			err = errors.New("no manager leads")
		}
		return err
	})
	if err != nil {
		return err
	}
	// Its caches are filled soon after. A NodeJob that is created earlier after the policies has to be confirmed.
	return pause(ctx, policies.Enforced+time.Second)
}

func (e *everynode) kubectl(ctx context.Context, args ...string) error {
	_, err := install.Kubectl(ctx, e.cluster, "", args...)
	return err
}

func (e *everynode) begin(ctx context.Context) error {
	if err := e.create(ctx, nodeJobs, nodeJob(e.subject)); err != nil {
		return err
	}
	if e.subject != report.Gated {
		return nil
	}
	// The admission of the API server observes a NodeJob with a delay. The gate is measured, not that delay.
	return e.eventually(ctx, "the API server taints a node", func() error {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "probe"}}
		node, err := e.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return err
		}
		for _, taint := range node.Spec.Taints {
			if taint.Key == nodeJobLabel {
				return nil
			}
		}
		return fmt.Errorf("its taints are %v", node.Spec.Taints)
	})
}

func (e *everynode) complete(ctx context.Context) (bool, error) {
	job, err := e.dynamic.Resource(nodeJobs).Namespace(subject.Namespace).Get(ctx, nodeJobName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading the NodeJob: %w", err)
	}
	conditions, _, err := unstructured.NestedSlice(job.Object, "status", "conditions")
	if err != nil {
		return false, fmt.Errorf("reading the NodeJob: %w", err)
	}
	for _, c := range conditions {
		condition, _ := c.(map[string]any)
		if condition["type"] == v1alpha1.ConditionComplete {
			return condition["status"] == "True", nil
		}
	}
	return false, nil
}

func (e *everynode) processes() map[string]*process {
	return map[string]*process{report.Own: e.manager}
}

func (e *everynode) stop() error { return stopAll(e.manager) }

// profiling is added to the manager if profiles are requested, because it has no such endpoint.
const profiling = `package main

import (
	"net/http"
	_ "net/http/pprof"
	"os"
)

func init() { go http.ListenAndServe(os.Getenv("EVERYNODE_BENCH_PPROF"), nil) }
`

// buildManager builds the program that is in the manager's image.
func (b *Bench) buildManager(ctx context.Context) error {
	b.managerProgram = filepath.Join(b.temp, "everynode")
	var flags []string
	if b.Profile {
		source, overlay := filepath.Join(b.temp, "profiling.go"), filepath.Join(b.temp, "overlay.json")
		added := filepath.Join(b.Root, "cmd", "everynode", "zz_profiling.go")
		if err := errors.Join(
			os.WriteFile(source, []byte(profiling), 0o600),
			os.WriteFile(overlay, fmt.Appendf(nil, `{"Replace": {%q: %q}}`, added, source), 0o600),
		); err != nil {
			return err
		}
		flags = []string{"-overlay", overlay}
	}
	return install.Program(ctx, b.Root, "everynode", b.managerProgram, nil, flags...)
}

const pprofAddress = "127.0.0.1:16060"

func (b *Bench) profileAddress() string {
	if b.Profile {
		return pprofAddress
	}
	return ""
}
