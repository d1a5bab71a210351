// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/manager/budgetcontroller"
	"github.com/everynode/everynode/internal/manager/claims"
	"github.com/everynode/everynode/internal/manager/controller"
	"github.com/everynode/everynode/internal/manager/guardcontroller"
	"github.com/everynode/everynode/internal/manager/notify"
	"github.com/everynode/everynode/internal/manager/requirements"
	"github.com/everynode/everynode/internal/nodebudget/budget"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/seal"
	"github.com/everynode/everynode/internal/uninstall"
)

// budgeted is an API server with an installation, the disruption controller and the garbage collector of Kubernetes, and simulated
// kubelets.
type budgeted struct {
	*removable
	// key is the key of the installation.
	key seal.Key
	// notify is where managers that are started later send notifications.
	notify notify.Config
}

func newBudgeted(t *testing.T, nodes ...string) *budgeted {
	t.Helper()
	b := &budgeted{removable: newRemovable(t), key: seal.Key{1}}
	b.installed()
	startControllers(t, b.kubeconfig, "disruption", "garbage-collector-controller")
	for _, name := range nodes {
		b.join(name, nil)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var kubelets sync.WaitGroup
	kubelets.Go(func() { b.playKubelets(ctx) })
	t.Cleanup(func() { cancel(); kubelets.Wait() })
	return b
}

// startControllers starts controllers of Kubernetes.
func startControllers(t *testing.T, kubeconfig string, names ...string) {
	t.Helper()
	program := filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kube-controller-manager")
	if _, err := os.Stat(program); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skipf("it needs a kube-controller-manager in KUBEBUILDER_ASSETS, which `make test-api` builds: %v", err)
	}
	list := names[0]
	for _, name := range names[1:] {
		list += "," + name
	}
	var out bytes.Buffer
	cmd := exec.Command(program, "--kubeconfig="+kubeconfig, "--controllers="+list,
		"--leader-elect=false", "--secure-port=0", "--cert-dir="+t.TempDir())
	cmd.Stdout, cmd.Stderr = &out, &out
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		killed := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait() // an interrupt is an error
		killed.Stop()
		if t.Failed() {
			t.Logf("kube-controller-manager:\n%s", &out)
		}
	})
}

// join creates a node that is Ready.
func (b *budgeted) join(name string, labels map[string]string) {
	b.T.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	must(b.T, b.admin.Create(b.Ctx, node))
	node.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()},
	}
	node.Status.NodeInfo = corev1.NodeSystemInfo{MachineID: "machine-of-" + name, BootID: "boot-1"}
	must(b.T, b.admin.Status().Update(b.Ctx, node))
}

// playKubelets has each seat run, and each task succeed.
func (b *budgeted) playKubelets(ctx context.Context) {
	for ctx.Err() == nil {
		var pods corev1.PodList
		_ = b.admin.List(ctx, &pods)
		for i := range pods.Items {
			b.playKubelet(ctx, &pods.Items[i])
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (b *budgeted) playKubelet(ctx context.Context, pod *corev1.Pod) {
	switch {
	case !pod.DeletionTimestamp.IsZero():
		_ = b.admin.Delete(ctx, pod, client.GracePeriodSeconds(0))
	case pod.Status.Phase == corev1.PodRunning && pod.Labels[v1alpha1.NodeJobLabel] != "" && time.Since(pod.Status.StartTime.Time) > time.Second:
		pod.Status.Phase = corev1.PodSucceeded
		ended := metav1.Now()
		pod.Status.ContainerStatuses[0].State = corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{StartedAt: *pod.Status.StartTime, FinishedAt: ended, Reason: "Completed"},
		}
		_ = b.admin.Status().Update(ctx, pod)
	case pod.Status.Phase == corev1.PodPending && pod.Spec.NodeName != "":
		now := metav1.Now()
		pod.Status.Phase, pod.Status.StartTime = corev1.PodRunning, &now
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: now}}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{
			{
				Name:  pod.Spec.Containers[0].Name,
				Ready: true,
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
			},
		}
		_ = b.admin.Status().Update(ctx, pod)
	}
}

// startManager runs the controllers of NodeJobs, NodeGuards and budgets until stop is called. For them, a node is never joining, and it is
// available as soon as it is Ready.
func (b *budgeted) startManager() (stop func()) {
	b.T.Helper()
	skip := true
	cacheOptions, err := controller.CacheOptions(b.key)
	must(b.T, err)
	as := b.asManager()
	as.Wrap(used.through)
	mgr, err := ctrl.NewManager(as, ctrl.Options{
		Scheme: scheme, Cache: cacheOptions, Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: &skip},
	})
	must(b.T, err)
	secret, yes := uninstall.SealSecret(), true
	must(b.T, b.admin.Get(b.Ctx, client.ObjectKeyFromObject(secret), secret))
	registry, options := claims.New(), task.Options{RunnerImage: "registry.test/runner:1", Key: b.key}
	place := budget.Place{
		Namespace: uninstall.Namespace, Key: b.key, Options: options,
		Owner: metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: secret.Name, UID: secret.UID, Controller: &yes},
	}
	budgets, err := budgetcontroller.Setup(mgr, budgetcontroller.NewMetrics(prometheus.NewRegistry()), registry, place)
	must(b.T, err)
	budgets.JoiningFor, budgets.SettleFor = time.Nanosecond, time.Nanosecond
	guards, err := guardcontroller.Setup(mgr, guardcontroller.NewMetrics(prometheus.NewRegistry()), options)
	must(b.T, err)
	guards.Key, guards.RequireNamespaceLabel = b.key, true
	guards.Follow(budgets)
	allowed, err := requirements.ParseAddresses("127.0.0.1")
	must(b.T, err)
	checker, err := requirements.New(mgr.GetClient(), mgr.GetConfig(), mgr.GetAPIReader(), allowed, registry, time.Now)
	must(b.T, err)
	checker.Every = time.Second
	must(b.T, checker.SetupWithManager(mgr))
	ctx, cancel := context.WithCancel(context.Background())
	r := controller.New(
		mgr.GetClient(),
		mgr.GetAPIReader(),
		mgr.GetEventRecorder("everynode"),
		controller.NewMetrics(prometheus.NewRegistry()),
		options,
	)
	if notifier := notify.New(b.notify, prometheus.NewRegistry()); notifier != nil {
		r.Notifier, budgets.Notifier = notifier, notifier
		must(b.T, mgr.Add(manager.RunnableFunc(notifier.Start)))
	}
	r.RequireNamespaceLabel, r.Claims, r.JoiningFor = true, registry, time.Nanosecond
	r.Own.Pod.Namespace = uninstall.Namespace
	must(b.T, r.SetupWithManager(ctx, mgr))
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			b.T.Errorf("running the manager: %v", err)
		}
	})
	b.T.Cleanup(stop)
	return stop
}

// asManager returns the configuration of a user who is the ServiceAccount of the manager. It impersonates nobody, because the manager itself
// does, with its own permissions.
func (b *budgeted) asManager() *rest.Config {
	b.T.Helper()
	user, err := b.env.AddUser(envtest.User{
		Name:   "system:serviceaccount:" + uninstall.Namespace + ":" + uninstall.Manager,
		Groups: []string{"system:serviceaccounts"},
	}, nil)
	must(b.T, err)
	as := rest.CopyConfig(user.Config())
	as.QPS = -1
	return as
}

// budget creates a NodeDisruptionBudget that allows one unavailable node.
func (b *budgeted) budget(name string, change func(*v1alpha1.NodeDisruptionBudgetSpec)) *v1alpha1.NodeDisruptionBudget {
	b.T.Helper()
	one := &v1alpha1.NodeDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name}}
	one.Spec.Limits = []v1alpha1.BudgetLimit{{MaxUnavailable: number(1)}}
	if change != nil {
		change(&one.Spec)
	}
	must(b.T, b.admin.Create(b.Ctx, one))
	return one
}

// has waits until the status of a budget has these counts.
func (b *budgeted) has(name string, seats, unavailable, allowed int32) {
	b.T.Helper()
	b.Within(
		time.Minute,
		100*time.Millisecond,
		fmt.Sprintf("budget %s has %d seats, %d unavailable, %d allowed", name, seats, unavailable, allowed),
		func() error {
			var ndb v1alpha1.NodeDisruptionBudget
			if err := b.admin.Get(b.Ctx, client.ObjectKey{Name: name}, &ndb); err != nil {
				return err
			}
			s := &ndb.Status
			if s.Nodes.Seats != seats || s.Nodes.Unavailable != unavailable || s.DisruptionsAllowed != allowed {
				return fmt.Errorf("the status is %+v", s)
			}
			return nil
		},
	)
}

// granting waits until the PodDisruptionBudgets of seats allow so many evictions.
func (b *budgeted) granting(want int32) {
	b.T.Helper()
	b.Within(time.Minute, 50*time.Millisecond, fmt.Sprintf("%d evictions are allowed", want), func() error {
		var list policyv1.PodDisruptionBudgetList
		if err := b.admin.List(
			b.Ctx,
			&list,
			client.InNamespace(uninstall.Namespace),
			client.HasLabels{v1alpha1.BudgetGroupLabel},
		); err != nil {
			return err
		}
		sum := int32(0)
		for i := range list.Items {
			if s := &list.Items[i].Status; s.ObservedGeneration == list.Items[i].Generation {
				sum += s.DisruptionsAllowed
			}
		}
		if sum != want {
			return fmt.Errorf("%d are allowed by %d PodDisruptionBudgets", sum, len(list.Items))
		}
		return nil
	})
}

// newKubectl returns kubectl for use in parallel.
func (b *budgeted) newKubectl() func(args string) error {
	return func(args string) error {
		cmd := exec.CommandContext(b.Ctx, filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl"),
			append([]string{"--kubeconfig=" + b.kubeconfig}, strings.Fields(args)...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("kubectl %s: %w: %s", args, err, out)
		}
		return nil
	}
}
