// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package browser_test shows the dashboard in a real Chromium. The API server is real too; its nodes are objects, and the
// tests write what the manager and the kubelets write.
package browser_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli"
	"github.com/everynode/everynode/internal/testing/clitest"
	"github.com/everynode/everynode/local/cleanup"
	"github.com/everynode/everynode/local/prereq"
	"github.com/everynode/everynode/test/browser/chromium"
)

var (
	pictures = flag.String("pictures", "", "write the pictures of the page into this folder")
	measure  = flag.Bool("measure", false, "measure how long the page takes with many nodes")

	changes = flag.Duration("changes", 0, "measure the memory while nodes change for this time")

	env     *envtest.Environment
	admin   client.Client
	browser *chromium.Browser
	scheme  = runtime.NewScheme()
)

func TestMain(m *testing.M) {
	if kubeconfig := os.Getenv(asCommand); kubeconfig != "" {
		os.Exit(runCommand(kubeconfig))
	}
	os.Exit(cleanup.Run(func() int { return tests(m) }))
}

func tests(m *testing.M) int {
	flag.Parse()
	ctrl.SetLogger(logr.Discard())
	if err := prereq.Ensure(context.Background(), os.Stdout, prereq.ForBrowser()); err != nil {
		fmt.Println("the tests of the dashboard are skipped:", err)
		if os.Getenv("CI") != "" || os.Geteuid() == 0 {
			return 1 // where Chromium can be installed, nothing is skipped
		}
		return 0
	}
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		fmt.Println(
			"KUBEBUILDER_ASSETS is not set: it names the folder of etcd, kube-apiserver and kubectl. `make test-browser` builds them and sets it",
		)
		return 1
	}
	return run(m)
}

func run(m *testing.M) int {
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		fmt.Println("registering kinds:", err)
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
	// The tests create pods directly, and no controller manager creates the service accounts.
	env.ControlPlane.GetAPIServer().Configure().Append("disable-admission-plugins", "ServiceAccount")
	config, err := env.Start()
	defer func() {
		if err := env.Stop(); err != nil {
			fmt.Println("stopping the API server:", err)
		}
	}()
	if err != nil {
		fmt.Println("starting the API server:", err)
		return 1
	}
	config.QPS = -1
	if admin, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		fmt.Println("making a client:", err)
		return 1
	}
	if browser, err = chromium.Start(); err != nil {
		fmt.Println(err)
		return 1
	}
	defer func() {
		if err := browser.Close(); err != nil {
			fmt.Println("ending Chromium:", err)
		}
	}()
	code := m.Run()
	for _, do := range afterTests {
		do()
	}
	return code
}

// dashboard starts the command dashboard as a user of the API server, and returns the address that it prints.
func dashboard(t *testing.T, user envtest.User, args ...string) string {
	t.Helper()
	added, err := env.AddUser(user, nil)
	if err != nil {
		t.Fatal(err)
	}
	content, err := added.KubeConfig()
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, content, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var out, errs clitest.Buffer
	code := make(chan int, 1)
	go func() {
		code <- cli.Run(ctx, genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errs}, append([]string{"dashboard", "--kubeconfig", kubeconfig}, args...))
	}()
	t.Cleanup(func() {
		cancel()
		if got := <-code; got != 0 {
			t.Errorf("the command ended with exit code %d: %s", got, errs.String())
		}
	})
	wait(t, "the address of the dashboard", func() error {
		if !strings.Contains(out.String(), "\n") {
			return fmt.Errorf("output %q, errors %q", out.String(), errs.String())
		}
		return nil
	})
	return strings.TrimSpace(out.String())
}

// asAdmin may do everything.
var asAdmin = envtest.User{Name: "admin", Groups: []string{"system:masters"}}

// wait waits until a condition is met.
func wait(t *testing.T, what string, met func() error) {
	t.Helper()
	patience := 20 * time.Second
	if *measure {
		patience = 5 * time.Minute
	}
	deadline := time.Now().Add(patience)
	for {
		err := met()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waiting for %s: %v", what, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// open opens an address in a new tab.
func open(t *testing.T, address string, width, height int, dark bool) *chromium.Tab {
	t.Helper()
	tab, err := browser.Open(width, height, dark)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tab.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := tab.Go(address); err != nil {
		t.Fatal(err)
	}
	return tab
}

// see waits until an expression is true in the page.
func see(t *testing.T, tab *chromium.Tab, expression string) {
	t.Helper()
	wait(t, expression, func() error {
		var met bool
		err := tab.Evaluate("Boolean("+expression+")", &met)
		if err == nil && !met {
			var said string
			_ = tab.Evaluate("document.body.innerText.slice(0, 1500)", &said)
			err = fmt.Errorf("the page says: %s\nproblems: %s", said, tab.Problems())
		}
		return err
	})
}

// do evaluates an expression for its effect.
func do(t *testing.T, tab *chromium.Tab, expression string) {
	t.Helper()
	if err := tab.Evaluate(expression, nil); err != nil {
		t.Fatal(err)
	}
}

// reload reloads the page, and waits for the new document. Until then, a condition may be true in the old one, and a click
// there is lost.
func reload(t *testing.T, tab *chromium.Tab) {
	t.Helper()
	do(t, tab, "window.isOld = true; location.reload()")
	see(t, tab, "!window.isOld && document.readyState === 'complete'")
}

func press(t *testing.T, tab *chromium.Tab, keys ...string) {
	t.Helper()
	for _, key := range keys {
		if err := tab.Press(key); err != nil {
			t.Fatal(err)
		}
	}
}

// create creates an object, writes its status, and deletes it after the test.
func create(t *testing.T, object client.Object, status func()) {
	t.Helper()
	if err := admin.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.IgnoreNotFound(admin.Delete(context.Background(), object, client.GracePeriodSeconds(0))); err != nil {
			t.Error(err)
		}
	})
	if status == nil {
		return
	}
	status()
	if err := admin.Status().Update(t.Context(), object); err != nil {
		t.Fatal(err)
	}
}

func newNode(name string, labels map[string]string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

// ready sets the status of a node whose kubelet reports. The API server keeps the status of a node that is created.
func ready(node *corev1.Node) {
	node.Status.NodeInfo = corev1.NodeSystemInfo{BootID: "boot-" + node.Name, MachineID: "machine-" + node.Name, OperatingSystem: "linux"}
	node.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()},
	}
}

// killAPIServer kills the API server, and returns a function that starts it again as it was.
func killAPIServer(t *testing.T) (start func()) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "pgrep", "-P", strconv.Itoa(os.Getpid()), "kube-apiserver").Output()
	if err != nil {
		t.Fatalf("looking for the API server: %v", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatal(err)
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		t.Fatal(err)
	}
	argv := strings.Split(strings.TrimRight(string(line), "\x00"), "\x00")
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	started := false
	start = func() {
		if started {
			return
		}
		started = true
		again := exec.Command(argv[0], argv[1:]...) //nolint:gosec,noctx // the program of the environment, which outlives the test
		if err := again.Start(); err != nil {
			t.Fatal(err)
		}
		afterTests = append(afterTests, func() {
			_ = again.Process.Kill()
			_ = again.Wait()
		})
		wait(t, "the API server", func() error { return admin.List(context.Background(), &corev1.NamespaceList{}) })
	}
	t.Cleanup(start) // also if the test fails
	return start
}

// afterTests are called when all tests have ended.
var afterTests []func()
