// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package recipes

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestDropFileFollowsNoLink checks that a user with write access to the folder cannot make root write another file.
func TestDropFileFollowsNoLink(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: files of several users")
	}
	dir, owner := t.TempDir(), fmt.Sprintf("test-%d/drop-file", os.Getpid())
	t.Cleanup(func() {
		_ = os.RemoveAll("/var/lib/everynode/" + filepath.Dir(owner))
		_ = os.Remove("/var/lib/everynode") // if nothing else is in it
	})
	folder, secret := filepath.Join(dir, "shared"), filepath.Join(dir, "shadow")
	file := filepath.Join(folder, "app.conf")
	for _, err := range []error{
		os.Chmod(dir, 0o755), os.Mkdir(folder, 0o777), os.Chmod(folder, 0o777),
		os.WriteFile(secret, []byte("root's\n"), 0o600), os.WriteFile(file, []byte("before\n"), 0o640),
		os.Symlink(secret, filepath.Join(folder, ".app.conf.everynode")), os.Symlink(secret, filepath.Join(folder, ".app.conf.new")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	job := nodeJob(t, "drop-file.yaml")
	run := func(script string) {
		t.Helper()
		cmd := exec.Command("/bin/sh", "-c", script)
		cmd.Env = append(os.Environ(), "FILE="+file, "MODE=0644", "OWNER=nobody:root", "ENCODING=text", "SHA256=", "CONTENT=new\n",
			"EVERYNODE_NODEJOB="+owner, "EVERYNODE_RESULTS="+filepath.Join(dir, "results"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if content, err := os.ReadFile(secret); string(content) != "root's\n" || err != nil {
			t.Errorf("the file behind the link is %q now, %v", content, err)
		}
		if info, err := os.Stat(secret); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the file behind the link has mode %v now, %v", info.Mode(), err)
		}
		left, err := filepath.Glob(filepath.Join(folder, ".everynode*"))
		if len(left) > 0 || err != nil {
			t.Errorf("left behind: %s", strings.Join(left, " "))
		}
	}
	run(job.Spec.Task.Script)
	run(job.Spec.Task.Check.Script)
	run(job.Spec.Task.Script) // a second time
	run(job.Spec.Rollback.Script)
	if content, err := os.ReadFile(file); string(content) != "before\n" || err != nil {
		t.Errorf("after the rollback the file is %q, %v", content, err)
	}
}
