// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/manager/controller"
	"github.com/everynode/everynode/internal/outcome"
	"github.com/everynode/everynode/internal/seal"
)

// described is a cluster as the pages describe it: Everynode is installed, and a manager runs. The kubelets of its nodes
// are simulated.
type described struct {
	*removable
	// dir is the working directory of the commands, and bin has the programs that they use.
	dir, bin string
	// logs is what the API server asks for the logs of all pods.
	logs *httptest.Server
	// states are those that are still to be brought about.
	states []state
}

func newDescribed(t *testing.T) *described {
	t.Helper()
	d := &described{removable: newRemovable(t), bin: t.TempDir(), states: slices.Clone(states)}
	program, err := os.Executable()
	must(t, err)
	for name := range programs {
		must(t, os.Symlink(program, filepath.Join(d.bin, name)))
	}
	d.logs = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "the output") }))
	t.Cleanup(d.logs.Close)
	d.play()
	d.dir = d.folder(nil)
	d.mustRun(
		"kubectl apply -k config/local && kubectl wait crd/nodejobs.everynode.dev crd/nodeguards.everynode.dev crd/nodedisruptionbudgets.everynode.dev --for=condition=Established",
	)
	must(t, changesAreNamed(t.Context(), d.admin))
	must(t, authorizesNewObjects(t.Context(), d.admin))
	d.mustRun(
		"kubectl apply -f config/samples/namespace.yaml && kubectl create namespace storage && kubectl create namespace rook-ceph && kubectl create namespace system-upgrade && kubectl label namespace storage system-upgrade everynode.dev/enabled=true",
	)
	as := rest.CopyConfig(d.config)
	as.Impersonate.UserName = "system:serviceaccount:everynode-system:everynode-manager"
	cacheOptions, err := controller.CacheOptions(seal.Key{})
	must(t, err)
	stop, err := runManager(as, cacheOptions, noFaults, nil, time.Now)
	must(t, err)
	t.Cleanup(func() { must(t, stop()) })
	return d
}

// play plays the kubelets, and the controller that ends namespaces.
func (d *described) play() {
	t := d.T // d.t changes from page to page
	ctx, cancel := context.WithCancel(context.Background())
	var playing sync.WaitGroup
	playing.Go(func() {
		follow(ctx, t, d.admin, &corev1.PodList{}, func(e watch.Event) {
			pod := e.Object.(*corev1.Pod)
			if err := d.see(ctx, e.Type, pod); client.IgnoreNotFound(err) != nil && ctx.Err() == nil {
				t.Errorf("simulating the kubelet of %s: %v", pod.Name, err)
			}
		})
	})
	playing.Go(func() {
		follow(ctx, t, d.admin, &corev1.NamespaceList{}, func(e watch.Event) {
			if namespace := e.Object.(*corev1.Namespace); e.Type != watch.Deleted && !namespace.DeletionTimestamp.IsZero() {
				d.endNamespace(ctx, namespace)
			}
		})
	})
	t.Cleanup(func() {
		cancel()
		playing.Wait()
	})
}

// folder returns a working directory with the files that the commands read.
func (d *described) folder(manifests map[string]string) string {
	d.T.Helper()
	dir := d.T.TempDir()
	root, err := filepath.Abs("../..")
	must(d.T, err)
	for _, name := range []string{"config", "recipes"} {
		must(d.T, os.Symlink(filepath.Join(root, name), filepath.Join(dir, name)))
	}
	must(d.T, os.CopyFS(dir, os.DirFS("testdata/pages")))
	for name, content := range manifests {
		must(d.T, os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(content), 0o600))
	}
	return dir
}

// begin removes what is left of another page, and creates the nodes of this one.
func (d *described) begin(all []page, p page) {
	d.T.Helper()
	manifests, own := map[string]string{}, p.manifests(d.T)
	for _, other := range slices.Backward(all) {
		maps.Copy(manifests, other.manifests(d.T))
	}
	maps.Copy(manifests, own)
	d.dir = d.folder(manifests)
	d.mustRun("kubectl delete nodes,nodejobs,nodeguards,nodedisruptionbudgets,pods,resourcequotas --all --all-namespaces")
	port := d.logs.Listener.Addr().(*net.TCPAddr).Port
	for _, name := range []string{"node-1", "node-2", "node-3"} {
		node := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelOSStable: "linux", "pool": "opensearch"}},
		}
		d.create(node)
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		node.Status.NodeInfo = corev1.NodeSystemInfo{MachineID: "machine-of-" + name, BootID: "boot-1"}
		node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
		node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(port)
		must(d.T, d.admin.Status().Update(d.T.Context(), node))
	}
	if len(own) > 0 {
		d.mustRun("kubectl apply -f " + strings.Join(slices.Collect(maps.Keys(own)), ".yaml -f ") + ".yaml")
	}
}

func (d *described) mustRun(script string) {
	d.T.Helper()
	if got := d.run("set -e; . ./states.sh; "+script, false); got.code != 0 {
		d.T.Fatalf("%s: exit code %d\n%s%s", script, got.code, got.out, got.err)
	}
}

// run runs a script as a user at a terminal, who answers yes to each question. A script that has no end is killed when
// it has printed something.
func (d *described) run(script string, endless bool) told {
	d.T.Helper()
	ctx, cancel := context.WithTimeout(d.T.Context(), 60*time.Second)
	defer cancel()
	user, terminal, err := pty.Open()
	must(d.T, err)
	defer func() { must(d.T, errors.Join(user.Close(), terminal.Close())) }()
	_, err = user.WriteString("y\n")
	must(d.T, err)
	out, errs := &output{}, &output{}
	if endless {
		out.written = cancel
	}
	cmd := exec.CommandContext(ctx, "bash", "-c", "set -uo pipefail\n"+script)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = d.dir, terminal, out, errs
	cmd.Env = append(
		os.Environ(),
		"KUBECONFIG="+d.kubeconfig,
		"HOME="+d.bin,
		"PATH="+d.bin+":"+os.Getenv("KUBEBUILDER_ASSETS")+":"+os.Getenv("PATH"),
		"GOGC=400",
	) // hundreds of short programs: less garbage collection saves time
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	err = cmd.Run()
	// A script that ends by itself while it is being killed returns the error of the context.
	if exit := (&exec.ExitError{}); err != nil && !errors.As(err, &exit) && !(endless && errors.Is(err, context.Canceled)) {
		d.T.Fatalf("%s: %v", script, err)
	}
	code := cmd.ProcessState.ExitCode()
	if endless && out.text.Len() > 0 {
		code = 0
	}
	return told{code, out.text.String(), errs.text.String()}
}

// output calls written when something has been written to it.
type output struct {
	text    bytes.Buffer
	written func()
}

func (o *output) Write(p []byte) (int, error) {
	if o.written != nil {
		defer o.written()
	}
	return o.text.Write(p)
}

// see plays the kubelet of a pod. A task succeeds, unless its script says otherwise.
func (d *described) see(ctx context.Context, event watch.EventType, pod *corev1.Pod) error {
	deleted, script := !pod.DeletionTimestamp.IsZero(), envOf(pod, "EVERYNODE_SCRIPT")
	ended := over(pod) || pod.Labels[v1alpha1.PhaseLabel] == ""
	switch {
	case event == watch.Deleted:
	case ended && deleted && len(pod.Finalizers) == 0:
		return d.admin.Delete(ctx, pod.DeepCopy(), client.GracePeriodSeconds(0))
	case ended:
	case deleted:
		return d.tellEnd(ctx, pod, outcome.Outcome{ExitCode: 143, Reason: outcome.ReasonTaskFailed, Message: "Terminated"})
	case strings.Contains(script, "hangs on "+pod.Spec.NodeName):
	case strings.Contains(script, "fails on "+pod.Spec.NodeName):
		return d.tellEnd(ctx, pod, outcome.Outcome{ExitCode: 3, Reason: outcome.ReasonTaskFailed, Message: "it fails here"})
	default:
		return d.succeed(ctx, pod)
	}
	return nil
}

// succeed ends a pod with all results that its NodeJob publishes. Each revision has other results.
func (d *described) succeed(ctx context.Context, pod *corev1.Pod) error {
	var job v1alpha1.NodeJob
	if err := d.admin.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: pod.Labels[v1alpha1.NodeJobLabel]}, &job); err != nil {
		return err
	}
	results := map[string]string{}
	for _, entry := range job.Spec.Publish {
		results[entry.Result] = pod.Labels[v1alpha1.RevisionLabel]
	}
	return d.tellEnd(ctx, pod, outcome.Outcome{Message: "it is done", Results: results})
}

func (d *described) tellEnd(ctx context.Context, pod *corev1.Pod, ended outcome.Outcome) error {
	return tellEnd(ctx, d.admin, pod, int32(ended.ExitCode), string(ended.Encode()))
}
