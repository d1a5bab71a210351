// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"bytes"
	"errors"
	"fmt"
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

// mountFolder makes a folder with one file as a kubelet does, with symbolic links into a folder that is replaced as a whole.
func mountFolder(t *testing.T, dir, version, content string) {
	t.Helper()
	err := errors.Join(
		os.MkdirAll(filepath.Join(dir, version), 0o755),
		os.WriteFile(filepath.Join(dir, version, "run"), []byte(content), 0o755),
		os.Symlink(version, filepath.Join(dir, "..new")),
		os.Rename(filepath.Join(dir, "..new"), filepath.Join(dir, "..data")),
	)
	if _, found := os.Lstat(filepath.Join(dir, "run")); found != nil {
		err = errors.Join(err, os.Symlink("..data/run", filepath.Join(dir, "run")))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// mountFiles makes the folders of a pod, as the manager has read them.
func mountFiles(t *testing.T) contract.Files {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: the copy of files is in a mount namespace")
	}
	const tool = "#!/bin/sh\necho \"tool $*\"\n"
	hash := func(content, salt string) string {
		return contract.FolderHash(map[string][]byte{"run": []byte(content)}, salt)
	}
	files := contract.Files{Dir: t.TempDir(), Folders: []contract.Folder{
		{Name: "tools", Hash: hash(tool, "")},
		{Name: "tls", Secret: true, Hash: hash(password+"\n", "salt"), Salt: "salt"},
		{Name: "image", Image: true},
	}}
	mountFolder(t, filepath.Join(files.Dir, "tools"), "..1", tool)
	mountFolder(t, filepath.Join(files.Dir, "tls"), "..1", password+"\n")
	image := filepath.Join(files.Dir, "image")
	if err := errors.Join(os.Mkdir(image, 0o755), os.WriteFile(filepath.Join(image, "run"), []byte(tool), 0o755)); err != nil {
		t.Fatal(err)
	}
	return files
}

// variableOf returns the variable that names the files.
func variableOf(files contract.Files) string {
	return contract.EnvMountedFiles + "=" + contract.JSON(files)
}

func mountedFiles(t *testing.T) string { t.Helper(); return variableOf(mountFiles(t)) }

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
		"a program of an image": {env: []string{`EVERYNODE_SCRIPT="$EVERYNODE_FILES"/image/run i`}, want: "tool i\n"},
		"copies cannot be changed": {
			env: []string{`EVERYNODE_SCRIPT=echo x 2>&1 > "$EVERYNODE_FILES"/tools/run | grep -o 'Read-only'`}, want: "Read-only\n",
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

// The object may be replaced at any time by a user who may write it. What runs is what the manager has read, or nothing.
func TestNothingButTheFilesThatWereReadRuns(t *testing.T) {
	t.Parallel()
	const foreign = "#!/bin/sh\necho foreign\n"
	folder := func(name string, mount func(t *testing.T, dir string)) func(*testing.T, *contract.Files) {
		return func(t *testing.T, files *contract.Files) { t.Helper(); mount(t, filepath.Join(files.Dir, name)) }
	}
	tests := map[string]struct {
		before     func(*testing.T, *contract.Files)
		wantReason string
		wantSays   string
	}{
		"a ConfigMap is replaced before the mount": {
			folder("tools", func(t *testing.T, dir string) { mountFolder(t, dir, "..2", foreign) }),
			outcome.ReasonFilesChanged, `the folder "tools" of task.files does not have the content that the manager has read`,
		},
		"a Secret is replaced before the mount": {
			folder(
				"tls",
				func(t *testing.T, dir string) { mountFolder(t, dir, "..2", foreign) },
			),
			outcome.ReasonFilesChanged,
			`the folder "tls"`,
		},
		"a file is added": {
			folder("tools", func(t *testing.T, dir string) {
				if err := os.WriteFile(filepath.Join(dir, "..1", "sh"), []byte(foreign), 0o755); err != nil {
					t.Fatal(err)
				}
			}), outcome.ReasonFilesChanged, `the folder "tools"`,
		},
		"a file is a symbolic link to another file of the node": {
			folder("tools", func(t *testing.T, dir string) {
				if err := os.Symlink("/bin/sh", filepath.Join(dir, "..1", "sh")); err != nil {
					t.Fatal(err)
				}
			}), outcome.ReasonFilesChanged, "is not a file of at most",
		},
		"a folder is larger than an object can be": {
			folder("tools", func(t *testing.T, dir string) {
				mountFolder(t, dir, "..2", strings.Repeat("x", contract.MaxFolderBytes+1))
			}),
			outcome.ReasonFilesChanged, "is not a file of at most",
		},
		"the manager has set no hash": {
			func(_ *testing.T, files *contract.Files) { files.Folders[0].Hash = "" },
			outcome.ReasonBadConfiguration,
			"has no hash to compare",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := mountFiles(t)
			tt.before(t, &files)
			got := runToEnd(
				t,
				`EVERYNODE_SCRIPT=echo ran; "$EVERYNODE_FILES"/tools/run`,
				`EVERYNODE_CHECK="$EVERYNODE_FILES"/tools/run`,
				variableOf(files),
			)
			if got.code != 125 || got.outcome.Reason != tt.wantReason || !strings.Contains(got.outcome.Message, tt.wantSays) ||
				got.stdout != "" {
				t.Errorf("ended with %d, %+v, stdout %q; want %s", got.code, got.outcome, got.stdout, tt.wantReason)
			}
		})
	}
}

// A kubelet updates a volume while the pod runs.
func TestFilesThatAreReplacedWhileTheTaskRuns(t *testing.T) {
	t.Parallel()
	files := mountFiles(t)
	next := filepath.Join(t.TempDir(), "next")
	r := startRunner(
		t,
		0,
		testLimits(),
		`EVERYNODE_SCRIPT="$EVERYNODE_FILES"/tools/run 1; until [ -e `+next+` ]; do sleep 0.02; done; "$EVERYNODE_FILES"/tools/run 2`,
		variableOf(files),
	)
	r.stdout.waitFor(t, "tool 1\n")
	mountFolder(t, filepath.Join(files.Dir, "tools"), "..2", "#!/bin/sh\necho foreign\n")
	if err := errors.Join(os.RemoveAll(filepath.Join(files.Dir, "tools", "..1")), os.WriteFile(next, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if got := r.wait(); got.code != 0 || got.stdout != "tool 1\ntool 2\n" {
		t.Errorf("ended with %d, stdout %q, stderr %q", got.code, got.stdout, got.stderr)
	}
}

// A ConfigMap of the largest size, with many keys.
func TestAFolderOfTheLargestSize(t *testing.T) {
	t.Parallel()
	files := mountFiles(t)
	all := map[string][]byte{}
	for i := range 500 {
		all[fmt.Sprintf("key-%d", i)] = bytes.Repeat([]byte{byte(i)}, contract.MaxFolderBytes/500)
	}
	files.Folders = append(files.Folders, contract.Folder{Name: "large", Hash: contract.FolderHash(all, "")})
	dir := filepath.Join(files.Dir, "large")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range all {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got := runToEnd(t, `EVERYNODE_SCRIPT=cat "$EVERYNODE_FILES"/large/* | wc -c; ls "$EVERYNODE_FILES"/large | wc -l`, variableOf(files))
	if want := fmt.Sprintf("%d\n500\n", 500*(contract.MaxFolderBytes/500)); got.code != 0 || got.stdout != want {
		t.Errorf("ended with %d, stdout %q, stderr %q; want %q", got.code, got.stdout, got.stderr, want)
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
