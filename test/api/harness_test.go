// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package api_test runs against a real API server and etcd, without nodes: the tests play the
// kubelet. It shows the API's own rules, and what the manager does when things go wrong around it.
package api_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/local/cleanup"
	"github.com/everynode/everynode/test/install"
	"github.com/everynode/everynode/test/testenv"
)

var (
	env    *envtest.Environment
	admin  client.WithWatch
	scheme = runtime.NewScheme()
	// asManager is the configuration of a user who may do what config/rbac and config/confinement allow, and no more.
	asManager *rest.Config
	// kubernetes is the version of the API server, such as "v1.36.3". policiesServed says whether it serves the
	// policies of config/gate.
	kubernetes     string
	policiesServed bool
)

func TestMain(m *testing.M) {
	if program, ok := programs[filepath.Base(os.Args[0])]; ok {
		os.Exit(program())
	}
	os.Exit(cleanup.Run(func() int { return tests(m) }))
}

func tests(m *testing.M) int {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		fmt.Println(
			"KUBEBUILDER_ASSETS is not set: it names the folder of etcd, kube-apiserver and kubectl. `make test` builds them and sets it",
		)
		return 1
	}
	flag.Parse()
	switch {
	case flag.Lookup("test.list").Value.String() != "":
		return m.Run() // needs no API server
	case *shardsAtOnce > 1:
		return runShards(*shardsAtOnce)
	}
	return run(m)
}

func run(m *testing.M) int {
	ctrl.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})))
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		fmt.Println("registering kinds:", err)
		return 1
	}
	// What kubectl remembers of an API server is for this one alone: another version may have had its address before.
	remembered, err := os.MkdirTemp("", "everynode-kubectl-")
	if err == nil {
		err = os.Setenv("KUBECACHEDIR", remembered)
	}
	if err != nil {
		fmt.Println("making a folder for kubectl:", err)
		return 1
	}
	env = &envtest.Environment{
		CRDDirectoryPaths: []string{
			"../../config/crd/everynode.dev_nodejobs.yaml", "../../config/crd/everynode.dev_nodeguards.yaml",
			"../../config/crd/everynode.dev_nodedisruptionbudgets.yaml",
		},
		ErrorIfCRDPathMissing: true,
		Scheme:                scheme,
	}
	asNodesAreServed(env)
	cfg, err := env.Start()
	defer func() {
		if err := env.Stop(); err != nil { // also when only the CRD was refused
			fmt.Println("stopping the API server:", err)
		}
	}()
	if err != nil {
		fmt.Println("starting the API server:", err)
		return 1
	}
	if admin, err = client.NewWithWatch(cfg, client.Options{Scheme: scheme}); err != nil {
		fmt.Println("making a client:", err)
		return 1
	}
	if err := setVersion(cfg); err != nil {
		fmt.Println("asking for the version:", err)
		return 1
	}
	if asManager, err = managerConfig(); err != nil {
		fmt.Println("making the manager's user:", err)
		return 1
	}
	if err := confineManager(context.Background()); err != nil {
		fmt.Println("confining the manager:", err)
		return 1
	}
	if err := installAuthorization(context.Background()); err != nil {
		fmt.Println("installing config/authorization:", err)
		return 1
	}
	if err := authorizesNewObjects(context.Background(), admin); err != nil {
		fmt.Println("waiting until NodeJobs are authorized:", err)
		return 1
	}
	code := m.Run()
	if code != 0 {
		return code
	}
	if path := os.Getenv(permissionsVariable); path != "" {
		if err := leavePermissions(path); err != nil {
			fmt.Println("writing the permissions that were used:", err)
			return 1
		}
		return 0
	}
	return checkUsed()
}

func setVersion(cfg *rest.Config) error {
	client, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return err
	}
	info, err := client.ServerVersion()
	if err != nil {
		return err
	}
	kubernetes = info.GitVersion
	fmt.Println("the API server is Kubernetes", kubernetes)
	policiesServed, err = install.ServesPolicies(kubernetes)
	return err
}

// needsPolicies skips a test of the policies of config/gate where the API server does not serve them.
func needsPolicies(t *testing.T) {
	t.Helper()
	if !policiesServed {
		t.Skip(install.WhyNoPolicies(kubernetes))
	}
}

// managerRole reads config/rbac/role.yaml.
func managerRole() (role rbacv1.ClusterRole, err error) {
	content, err := os.ReadFile("../../config/rbac/role.yaml")
	if err != nil {
		return role, err
	}
	return role, yaml.Unmarshal(content, &role)
}

// managerConfig makes a user with the role of config/rbac/role.yaml.
func managerConfig() (*rest.Config, error) {
	role, err := managerRole()
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	if err := admin.Create(ctx, &role); err != nil {
		return nil, err
	}
	if err := admin.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "everynode-system", Name: "everynode-manager"}},
	}); err != nil {
		return nil, err
	}
	// What a user may give to the manager's ServiceAccount must reach this one.
	user, err := env.AddUser(envtest.User{Name: "system:serviceaccount:everynode-system:everynode-manager"}, nil)
	if err != nil {
		return nil, err
	}
	config := user.Config()
	config.Wrap(used.through)
	used.role = role
	return config, nil
}

// must and wantText are shared with the tests on real nodes.
var must, wantText = testenv.Must, testenv.WantText

// world is one test's namespace, nodes and NodeJob.
type world struct{ *testenv.World }

func newWorld(t *testing.T) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	ns := testenv.NewNamespace(metav1.ObjectMeta{GenerateName: "t-"})
	must(t, admin.Create(ctx, ns))
	w := worldIn(ctx, t, ns.Name)
	t.Cleanup(w.cleanUp)
	return w
}

// worldIn is the world of a namespace that exists.
func worldIn(ctx context.Context, t *testing.T, namespace string) *world {
	return &world{
		&testenv.World{T: t, Ctx: ctx, Client: admin, Namespace: namespace, Limit: 20 * time.Second, Pause: 20 * time.Millisecond},
	}
}

// cleanUp removes what would affect other tests: the nodes, and finalizers without a manager.
func (w *world) cleanUp() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute) // a test may have a thousand nodes and pods
	defer cancel()
	must(w.T, admin.DeleteAllOf(ctx, &corev1.Node{}, client.MatchingLabels{"world": w.Namespace}))
	var jobs v1alpha1.NodeJobList
	must(w.T, admin.List(ctx, &jobs, client.InNamespace(w.Namespace)))
	for i := range jobs.Items {
		job := &jobs.Items[i]
		w.remove(ctx, job)
	}
	// The manager of the next test would release these, and count that among its own writes.
	var pods corev1.PodList
	must(w.T, admin.List(ctx, &pods, client.InNamespace(w.Namespace)))
	for i := range pods.Items {
		w.remove(ctx, &pods.Items[i], client.GracePeriodSeconds(0))
	}
}

// remove deletes an object that a finalizer may hold.
func (w *world) remove(ctx context.Context, o client.Object, opts ...client.DeleteOption) {
	must(w.T, client.IgnoreNotFound(admin.Delete(ctx, o, opts...)))
	must(w.T, client.IgnoreNotFound(admin.Patch(ctx, o, mergePatch(`{"metadata":{"finalizers":null}}`))))
}

func (w *world) node(name string) *corev1.Node {
	w.T.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"world": w.Namespace}}}
	must(w.T, admin.Create(w.Ctx, node))
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	node.Status.NodeInfo = corev1.NodeSystemInfo{MachineID: "machine-of-" + name, BootID: "boot-1"}
	must(w.T, admin.Status().Update(w.Ctx, node))
	// A real node loses this taint when it is Ready; there is no controller manager here to do so.
	return node
}

// job makes a NodeJob for this world's nodes. It goes to all at once, and on when some fail.
func (w *world) job(name string, change func(*v1alpha1.NodeJobSpec)) *v1alpha1.NodeJob {
	w.T.Helper()
	job := w.draft(name)
	if change != nil {
		change(&job.Spec)
	}
	must(w.T, admin.Create(w.Ctx, job))
	return job
}

// allNodes selects all nodes, whatever labels they have.
func allNodes() v1alpha1.NodesSpec {
	return v1alpha1.NodesSpec{Selector: &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "example.com/none", Operator: metav1.LabelSelectorOpDoesNotExist}},
	}}
}

func (w *world) draft(name string) *v1alpha1.NodeJob {
	return &v1alpha1.NodeJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name},
		Spec: v1alpha1.NodeJobSpec{
			Nodes:   v1alpha1.NodesSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"world": w.Namespace}}},
			Task:    v1alpha1.TaskSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "true"}},
			Retry:   v1alpha1.RetrySpec{BackoffSeconds: new(int32(1))},
			Rollout: v1alpha1.RolloutSpec{MaxFailures: percent("100%"), Steps: []v1alpha1.RolloutStep{{Name: "all"}}},
		},
	}
}

// podOn waits for a task's pod on a node that has not ended.
func (w *world) podOn(node string) *corev1.Pod {
	w.T.Helper()
	var found *corev1.Pod
	w.Eventually("a pod is on "+node, func() error {
		for _, pod := range w.Pods() {
			ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
			if pod.Spec.NodeName == node && !ended && pod.DeletionTimestamp.IsZero() {
				found = &pod
				return nil
			}
		}
		return errors.New("there is none")
	})
	return found
}

// end plays the kubelet: the task's container ended.
func (w *world) end(pod *corev1.Pod, code int32, message string) {
	w.T.Helper()
	live := &corev1.Pod{}
	must(w.T, admin.Get(w.Ctx, client.ObjectKeyFromObject(pod), live))
	setEnd(live, code, message)
	must(w.T, admin.Status().Update(w.Ctx, live))
}

// setEnd makes the status of a pod that of one whose container ended.
func setEnd(pod *corev1.Pod, code int32, message string) {
	now := metav1.Now()
	pod.Status.Phase = corev1.PodSucceeded
	if code != 0 {
		pod.Status.Phase = corev1.PodFailed
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: pod.Spec.Containers[0].Name,
		State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: code, Message: message, StartedAt: now, FinishedAt: now, Reason: "Completed",
		}},
	}}
}

func (w *world) gone(o client.Object) {
	w.T.Helper()
	w.Eventually(o.GetName()+" is gone", func() error {
		err := admin.Get(w.Ctx, client.ObjectKeyFromObject(o), o)
		if err == nil {
			return errors.New("it is there")
		}
		return client.IgnoreNotFound(err)
	})
}
