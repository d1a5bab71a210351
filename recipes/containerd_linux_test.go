// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package recipes

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// The test binary has three roles: the test, process 1 of a node, and programs that are called containerd.
func TestMain(m *testing.M) {
	self, _ := os.Executable() // regardless of the path by which it was run
	switch {
	case len(os.Args) > 1 && os.Args[1] == "as-node":
		os.Exit(asNode(os.Args[2], os.Args[3:]))
	case len(os.Args) > 1 && os.Args[1] == "wait":
		_ = unix.Pause() // until the node is gone
	case strings.HasPrefix(self, homes):
		os.Exit(asContainerd(filepath.Dir(self)))
	}
	os.Exit(m.Run())
}

// homes is the prefix of the folders of the programs. They are not below /tmp, which is writable for all users.
const homes = "/var/lib/everynode-recipes-test-"

// asContainerd prints where it looks for registries, in its own folder, and records that it was run.
func asContainerd(home string) int {
	note, err := os.OpenFile(filepath.Join(home, "ran"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer func() { _ = note.Close() }()
	fmt.Fprintln(note, os.Args)
	fmt.Printf("[plugins.\"io.containerd.grpc.v1.cri\".registry]\n  config_path = \"%s/certs.d\"\n", home)
	return 0
}

// asNode is process 1 of a PID namespace and of a mount namespace. It starts the programs and then runs the script.
func asNode(script string, programs []string) int {
	err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount("node", "/proc", "proc", 0, ""))
	for _, program := range programs {
		how, path, _ := strings.Cut(program, ":")
		cmd := exec.Command(path, "wait")
		cmd.SysProcAttr = &syscall.SysProcAttr{}
		switch how {
		case "nobody":
			cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
		case "container":
			cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWNS
		}
		err = errors.Join(err, cmd.Start())
	}
	if err != nil {
		fmt.Println(err)
		return 99
	}
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stdout
	if err := cmd.Run(); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// program copies the test binary to a folder of its own, as name, and returns its path.
func program(t *testing.T, name string, change func(home, path string) error) string {
	t.Helper()
	home, err := os.MkdirTemp(filepath.Dir(homes), filepath.Base(homes)) //nolint:usetesting // its parent is writable for all users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	binary, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(home, name)
	err = errors.Join(os.Chmod(home, 0o755), os.WriteFile(path, binary, 0o755))
	if change != nil {
		err = errors.Join(err, change(home, path))
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestRecipesDoNotRunWhatOnlyCallsItselfContainerd covers a recipe that runs containerd as root to read its
// configuration. Of several processes with that name, the recipe must not run one that another user could have started.
func TestRecipesDoNotRunWhatOnlyCallsItselfContainerd(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: processes of several users, in namespaces of their own")
	}
	decoys := map[string]func(t *testing.T) string{
		"a process of another user": func(t *testing.T) string { return "nobody:" + program(t, "containerd", nil) },
		"a process of root, from the file of another user": func(t *testing.T) string {
			return "root:" + program(t, "containerd", func(_, path string) error { return os.Chown(path, 65534, 0) })
		},
		"a process of root, from a file that others may write": func(t *testing.T) string {
			return "root:" + program(t, "containerd", func(_, path string) error { return os.Chmod(path, 0o777) })
		},
		"a process of root, from a folder in which others may write": func(t *testing.T) string {
			return "root:" + program(t, "containerd", func(home, _ string) error { return os.Chmod(home, 0o1777) })
		},
		"a process in a container that has the node's processes": func(t *testing.T) string {
			return "container:" + program(t, "containerd", nil)
		},
	}
	for _, recipe := range []string{"ca-certificate-containerd.yaml", "registry-mirror.yaml"} {
		for name, start := range decoys {
			t.Run(recipe+", "+name, func(t *testing.T) {
				decoy, real := start(t), "root:"+program(t, "containerd", nil)
				_, decoyPath, _ := strings.Cut(decoy, ":")
				_, realPath, _ := strings.Cut(real, ":")
				out, results := runRecipe(t, recipe, decoy, real)
				if want := "dir=" + filepath.Dir(realPath) + "/certs.d/registry.example"; strings.TrimSpace(results) != want {
					t.Errorf("results %q, want %q:\n%s", results, want, out)
				}
				if ran, err := os.ReadFile(filepath.Join(filepath.Dir(decoyPath), "ran")); err == nil {
					t.Errorf("the decoy was run as root: %s", ran)
				}
				if out, results := runRecipe(t, recipe, decoy); results != "" || !strings.Contains(out, "no containerd was found") {
					t.Errorf("with the decoy alone: results %q, output %q; want none", results, out)
				}
			})
		}
	}
}

// runRecipe runs the task of a recipe on a node with these programs, and returns what it prints and its results.
func runRecipe(t *testing.T, recipe string, programs ...string) (out, results string) {
	t.Helper()
	job := nodeJob(t, recipe)
	file := filepath.Join(t.TempDir(), "results")
	cmd := exec.Command("/proc/self/exe", append([]string{"as-node", job.Spec.Task.Script}, programs...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID}
	cmd.Env = append(os.Environ(), "EVERYNODE_RESULTS="+file, "EVERYNODE_NODEJOB=ns/recipe")
	for _, v := range job.Spec.Task.Env {
		if v.Name == "REGISTRY" {
			v.Value = "registry.example"
		}
		cmd.Env = append(cmd.Env, v.Name+"="+v.Value)
	}
	said, err := cmd.CombinedOutput()
	if errors.Is(err, unix.EPERM) {
		t.Skipf("needs CAP_SYS_ADMIN: creating namespaces: %v", err)
	}
	if exit, failed := errors.AsType[*exec.ExitError](err); err != nil && (!failed || exit.ExitCode() == 99) {
		t.Fatalf("%v: %s", err, said)
	}
	written, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(said), string(written)
}
