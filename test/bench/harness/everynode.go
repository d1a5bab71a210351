// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/manager/policies"
	"github.com/everynode/everynode/test/bench/report"
	"github.com/everynode/everynode/test/bench/subject"
	"github.com/everynode/everynode/test/install"
)

func (w *world) kubectl(ctx context.Context, args ...string) error {
	_, err := install.Kubectl(ctx, w.cluster, "", args...)
	return err
}

// installManager installs the manager from its manifests. Simulated nodes run no containers, so it runs outside of the
// cluster: as its own service account, with the flags and the environment of its Deployment.
func (w *world) installManager(ctx context.Context) error {
	if err := w.kubectl(ctx, "apply", "-k", filepath.Join(w.Root, "config", "local")); err != nil {
		return err
	}
	if err := w.kubectl(ctx, "wait", "--for=condition=Established", "crd/nodejobs."+v1alpha1.Group); err != nil {
		return err
	}
	// A simulated node would only simulate the manager. There must be one manager only.
	if err := w.kubectl(ctx, "-n", install.Namespace, "scale", "deployment", install.Deployment, "--replicas=0"); err != nil {
		return err
	}
	if err := w.untilPolicies(ctx); err != nil {
		return err
	}
	return w.startManager(ctx)
}

// startManager starts the manager, and waits until it leads.
func (w *world) startManager(ctx context.Context) error {
	kubeconfig, err := install.ManagerKubeconfig(ctx, w.cluster, w.dir)
	if err != nil {
		return err
	}
	settings, err := w.goSettings()
	if err != nil {
		return err
	}
	args := []string{w.managerProgram(), "--leader-elect", "--metrics-bind-address=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0"}
	if w.Profile {
		args = append(args, "--pprof-bind-address="+pprofAddress)
	}
	if w.subject == report.Unchecked {
		args = append(args, "--require-policies=false")
	}
	w.program, err = startProcess(ctx, w.dir, "manager", append(settings,
		"KUBECONFIG="+kubeconfig, "POD_NAMESPACE="+install.Namespace, "POD_NAME="+install.Deployment+"-0", "NODE_NAME=",
		"EVERYNODE_RUNNER_IMAGE="+install.RunnerImage,
	), args...)
	if err != nil {
		return err
	}
	err = w.eventually(ctx, "the manager leads", func() error {
		if err := w.program.alive(); err != nil {
			return err
		}
		lease, err := w.client.CoordinationV1().Leases(install.Namespace).Get(ctx, install.Deployment, metav1.GetOptions{})
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

// untilPolicies waits until the API server evaluates the admission policies of config/default. For Unchecked, it removes the
// bindings of all or some of them, and waits until the API server does not evaluate them.
func (w *world) untilPolicies(ctx context.Context) error {
	enforced := w.subject != report.Unchecked
	switch {
	case !enforced && len(w.Without) > 0:
		if err := w.kubectl(ctx, append([]string{"delete", "validatingadmissionpolicybindings"}, w.Without...)...); err != nil {
			return err
		}
		return pause(ctx, policies.Enforced)
	case !enforced:
		if err := w.kubectl(ctx, "delete", "validatingadmissionpolicybindings,mutatingadmissionpolicybindings", "--all"); err != nil {
			return err
		}
	}
	as := rest.CopyConfig(w.config)
	as.Impersonate.UserName = "system:serviceaccount:" + install.Namespace + ":" + install.Deployment
	manager, err := kubernetes.NewForConfig(as)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	return w.eventually(ctx, fmt.Sprintf("the policies are evaluated: %t", enforced), func() error {
		if confined := isConfined(ctx, manager); confined != enforced {
			return fmt.Errorf("the manager is confined: %t", confined)
		}
		probe, err := w.create(ctx, nodeJobs, w.nodeJob(), metav1.DryRunAll)
		if err != nil {
			return err
		}
		if named := probe.GetAnnotations()[v1alpha1.ChangedByAnnotation] != ""; named != enforced {
			return fmt.Errorf("the author of a NodeJob is named: %t", named)
		}
		return nil
	})
}

// isConfined reports whether the manager must not create a pod that belongs to no NodeJob.
func isConfined(ctx context.Context, manager kubernetes.Interface) bool {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "probe"},
		Spec:       corev1.PodSpec{AutomountServiceAccountToken: new(bool), Containers: []corev1.Container{{Name: "c", Image: "registry.invalid/none:1"}}},
	}
	_, err := manager.CoreV1().Pods(subject.Namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err != nil && strings.Contains(err.Error(), "everynode-confine-")
}
