// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/everynode/everynode/internal/outcome"
	"github.com/everynode/everynode/internal/runner/contract"
)

const password = "correct-horse-battery"

// mountedFiles makes folders as a kubelet does, with symbolic links into a folder that is replaced as a whole, and returns the
// variable that names them.
func mountedFiles(t *testing.T) string {
	t.Helper()
	files := contract.Files{Dir: t.TempDir(), Folders: []contract.Folder{{Name: "tools"}, {Name: "tls", Secret: true}}}
	for folder, content := range map[string]string{"tools": "#!/bin/sh\necho \"tool $*\"\n", "tls": password + "\n"} {
		dir := filepath.Join(files.Dir, folder)
		err := errors.Join(
			os.MkdirAll(filepath.Join(dir, "..1"), 0o755),
			os.WriteFile(filepath.Join(dir, "..1", "run"), []byte(content), 0o755),
			os.Symlink("..1", filepath.Join(dir, "..data")),
			os.Symlink("..data/run", filepath.Join(dir, "run")),
		)
		if err != nil {
			t.Fatal(err)
		}
	}
	return contract.EnvMountedFiles + "=" + contract.JSON(files)
}

func TestFiles(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		env      []string
		wantCode int
		want     string
	}{
		"a script reads and executes files": {
			env: []string{`EVERYNODE_SCRIPT="$EVERYNODE_FILES/tools/run" a; wc -c < $EVERYNODE_FILES/tls/run`}, want: "tool a\n22\n",
		},
		"a child that has closed its descriptors executes a file": {
			env: []string{`EVERYNODE_SCRIPT=env -i F="$EVERYNODE_FILES" sh -c 'exec 3>&- 4>&- 5>&-; "$F"/tools/run b'`}, want: "tool b\n",
		},
		"a command names a file": {
			env:  []string{`EVERYNODE_COMMAND=["$(EVERYNODE_FILES)/tools/run","c","$(HOME)"]`},
			want: "tool c $(HOME)\n",
		},
		"a file is the argument of a program": {
			env: []string{`EVERYNODE_COMMAND=["cat","$(EVERYNODE_FILES)/tools/run"]`}, want: "#!/bin/sh\necho \"tool $*\"\n",
		},
		"an interpreter is a file": {
			env: []string{`EVERYNODE_SCRIPT=x`, `EVERYNODE_INTERPRETER=["$(EVERYNODE_FILES)/tools/run","-x"]`}, want: "tool -x /proc/",
		},
		"the check has the same files": {
			env: []string{`EVERYNODE_SCRIPT=:`, `EVERYNODE_CHECK="$EVERYNODE_FILES"/tools/run check`}, want: "tool check\n",
		},
		"files of a Secret are masked": {env: []string{`EVERYNODE_SCRIPT=cat "$EVERYNODE_FILES/tls/run"`}, want: "***\n"},
		"a variable with the same name has no influence": {
			env:  []string{`EVERYNODE_FILES=/etc`, `EVERYNODE_SCRIPT="$EVERYNODE_FILES"/tools/run d`},
			want: "tool d\n",
		},
		"a missing file is named": {
			env: []string{`EVERYNODE_COMMAND=["$(EVERYNODE_FILES)/tools/stop"]`}, wantCode: 127,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// The node has another /tmp, where nothing can be executed.
			got := startRunner(t, startNode(t, 0), testLimits(), append(tt.env, mountedFiles(t))...).wait()
			if got.code != tt.wantCode || !strings.HasPrefix(got.stdout, tt.want) || (tt.want == "") != (got.stdout == "") {
				t.Errorf("ended with %d, stdout %q, stderr %q; want %d, %q", got.code, got.stdout, got.stderr, tt.wantCode, tt.want)
			}
		})
	}
}

func TestWithoutFilesTheVariableIsUnset(t *testing.T) {
	t.Parallel()
	got := runToEnd(t, "EVERYNODE_FILES=/etc", `EVERYNODE_SCRIPT=echo "${EVERYNODE_FILES-unset}"`)
	if got.code != 0 || got.stdout != "unset\n" {
		t.Errorf("ended with %d, stdout %q", got.code, got.stdout)
	}
}

func TestFilesInAnotherPIDNamespace(t *testing.T) {
	t.Parallel()
	got := startRunner(
		t,
		startNode(t, unix.CLONE_NEWPID),
		testLimits(),
		`EVERYNODE_SCRIPT="$EVERYNODE_FILES"/tools/run e`,
		mountedFiles(t),
	).wait()
	if got.code != 0 || got.stdout != "tool e\n" {
		t.Errorf("ended with %d, stdout %q, stderr %q", got.code, got.stdout, got.stderr)
	}
}

// A container runtime may mount an image so that nothing in it can be executed.
func TestFilesOnAMountWithoutExecution(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	files := mountedFiles(t)
	tools := filepath.Join(strings.Split(files, `"`)[3], "tools")
	r := prepareRunner(t, startNode(t, 0), testLimits(), `EVERYNODE_SCRIPT="$EVERYNODE_FILES"/tools/run f`, files)
	const mount = `mount --bind "$0" "$0" && mount -o remount,bind,ro,noexec "$0" && exec "$@"`
	r.cmd.Path, r.cmd.Args = "/bin/sh", append([]string{"sh", "-c", mount, tools, self}, r.cmd.Args[1:]...)
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	r.start()
	if got := r.wait(); got.code != 0 || got.stdout != "tool f\n" {
		t.Errorf("ended with %d, stdout %q, stderr %q", got.code, got.stdout, got.stderr)
	}
}

func TestMissingFiles(t *testing.T) {
	t.Parallel()
	tests := map[string]func(dir string) error{
		"the folder is missing": os.RemoveAll,
		"the folder is empty":   func(dir string) error { return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o755)) },
	}
	for name, remove := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := mountedFiles(t)
			if err := remove(filepath.Join(strings.Split(files, `"`)[3], "tools")); err != nil {
				t.Fatal(err)
			}
			got := runToEnd(t, "EVERYNODE_SCRIPT=echo ran", files)
			if got.code != 125 || got.outcome.Reason != outcome.ReasonBadConfiguration || got.stdout != "" ||
				!strings.Contains(got.outcome.Message, `the folder "tools" of task.files has no files`) {
				t.Errorf("ended with %d, %+v, stdout %q", got.code, got.outcome, got.stdout)
			}
		})
	}
}

// Whatever ends the runner ends the path, and the copy of the mounts behind it.
func TestFilesEndWithTheRunner(t *testing.T) {
	t.Parallel()
	r := startRunner(t, 0, testLimits(), `EVERYNODE_SCRIPT=echo "$EVERYNODE_FILES/"; sleep 1000`, mountedFiles(t))
	r.stdout.waitFor(t, "/\n")
	path := strings.TrimSpace(r.stdout.String())
	if _, err := os.Stat(path + "tools/run"); err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = r.cmd.Wait() // killed
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is still there: %v", path, err)
	}
}
