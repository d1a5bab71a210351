// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package recipes

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestKernelSettingReportsTheValueFromBefore runs the script of the recipe with folders of the test instead of those of
// the machine.
func TestKernelSettingReportsTheValueFromBefore(t *testing.T) {
	job := nodeJob(t, "kernel-setting.yaml")
	dir := t.TempDir()
	proc, results := filepath.Join(dir, "sys", "vm", "swappiness"), filepath.Join(dir, "results")
	script := strings.NewReplacer("/proc/sys/", dir+"/sys/", "/etc/sysctl.d", dir+"/sysctl.d")
	run := func(script, value, onlyRaise string) string {
		t.Helper()
		cmd := exec.Command("/bin/sh", "-c", script)
		cmd.Env = append(os.Environ(), "SETTING=vm.swappiness", "VALUE="+value, "ONLY_RAISE="+onlyRaise, "EVERYNODE_RESULTS="+results)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		reported, _ := os.ReadFile(results) // a rollback reports nothing
		_ = os.Remove(results)
		return strings.ReplaceAll(strings.TrimSpace(string(reported)), "\n", " ")
	}
	if err := os.MkdirAll(filepath.Dir(proc), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(proc, []byte("60\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	task := script.Replace(job.Spec.Task.Script)
	for _, tt := range []struct{ sentence, value, onlyRaise, want string }{
		{"as high as requested", "50", "yes", "found=60 was=60"},
		{"set to another value", "10", "no", "found=60 was=60"},
		{"set once more", "10", "no", "found=10 was=60"},
		{"set to a value of another revision", "20 30", "no", "found=10 was=60"},
	} {
		if got := run(task, tt.value, tt.onlyRaise); got != tt.want {
			t.Errorf("%s: it reports %q, want %q", tt.sentence, got, tt.want)
		}
	}
	run(script.Replace(job.Spec.Rollback.Script), "20", "no")
	if got, err := os.ReadFile(proc); string(got) != "60\n" || err != nil {
		t.Errorf("after the rollback the value is %q, %v", got, err)
	}
}
