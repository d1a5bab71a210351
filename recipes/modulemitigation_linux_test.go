// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package recipes

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
)

// mitigation runs the scripts of the recipe with folders of the test instead of those of the machine.
type mitigation struct {
	t   *testing.T
	dir string
	job v1alpha1.NodeJob
}

func newMitigation(t *testing.T) mitigation {
	t.Helper()
	m := mitigation{t: t, dir: t.TempDir()}
	content, err := Files.ReadFile("module-mitigation.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(content, &m.job); err != nil {
		t.Fatal(err)
	}
	m.write("modules", "esp4 28672 0 - Live 0x0\ntls 151552 2 - Live 0x0\n")
	m.write("modules.builtin", "kernel/net/ipv4/tunnel4.ko\n")
	m.write("bin/rmmod", "#!/bin/sh\necho \"$1\" >> '"+m.dir+"/unloaded'\n")
	return m
}

func (m mitigation) write(name, content string) {
	m.t.Helper()
	path := filepath.Join(m.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		m.t.Fatal(err)
	}
}

func (m mitigation) read(name string) string {
	content, _ := os.ReadFile(filepath.Join(m.dir, name)) // "" without a file
	return string(content)
}

// run returns the exit code of a script, its output and its results.
func (m mitigation) run(script string, env ...string) (code int, output, results string) {
	m.t.Helper()
	script = strings.NewReplacer("/etc/modprobe.d", m.dir+"/modprobe.d", "/proc/modules", m.dir+"/modules",
		"/lib/modules/$(uname -r)", m.dir).Replace(script)
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.Env = append(
		os.Environ(),
		"PATH="+m.dir+"/bin:"+os.Getenv("PATH"),
		"EVERYNODE_NODEJOB=ns/deny",
		"EVERYNODE_RESULTS="+m.dir+"/results",
		"MODULES=esp4 esp6",
		"UNLESS_IN_USE=yes",
		"FIXED_KERNEL=6.12.85",
		"RELEASE_FILE="+m.dir+"/release",
	)
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		m.t.Fatal(err)
	}
	results = strings.ReplaceAll(strings.TrimSpace(m.read("results")), "\n", " ")
	_ = os.Remove(filepath.Join(m.dir, "results"))
	return code, string(out), results
}

func TestModuleMitigation(t *testing.T) {
	const conf = "modprobe.d/everynode-ns-deny.conf"
	for name, tt := range map[string]struct {
		env            []string
		code           int
		output         string
		results        string
		denied, unload string
	}{
		"modules are denied, and unloaded if they are not in use": {results: "denied=yes", denied: "esp4 esp4 esp6 esp6", unload: "esp4\n"},
		"a module in use is left alone":                           {env: []string{"MODULES=esp4 tls"}, output: "left alone", results: "denied=no in-use=tls"},
		"a module in use is a failure":                            {env: []string{"MODULES=tls", "UNLESS_IN_USE=no"}, code: 1, output: "in use: tls"},
		"a module that is built in":                               {env: []string{"MODULES=tunnel4"}, code: 1, output: "built into the kernel"},
		"a name that is not one":                                  {env: []string{"MODULES=../etc"}, code: 1, output: "is not the name of a module"},
		"a wrong value":                                           {env: []string{"UNLESS_IN_USE=maybe"}, code: 1, output: "use yes or no"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMitigation(t)
			code, output, results := m.run(m.job.Spec.Task.Script, tt.env...)
			var denied []string
			for line := range strings.Lines(m.read(conf)) {
				if words := strings.Fields(line); words[0] != "#" {
					denied = append(denied, words[1])
				}
			}
			if code != tt.code || !strings.Contains(output, tt.output) || results != tt.results || strings.Join(denied, " ") != tt.denied ||
				m.read("unloaded") != tt.unload {
				t.Errorf("exit code %d, results %q, denied %q, unloaded %q: %s", code, results, denied, m.read("unloaded"), output)
			}
			if code, output, _ := m.run(m.job.Spec.Rollback.Script); code != 0 || m.read(conf) != "" {
				t.Errorf("after the rollback with exit code %d, the file is %q: %s", code, m.read(conf), output)
			}
		})
	}
}

func TestModuleMitigationExpires(t *testing.T) {
	for release, want := range map[string]int{
		"6.12.84": 1, "6.12.85": 0, "6.12.85-1-amd64": 0, "6.12.100-cloud": 0, "6.6.140": 1, "6.13.0": 0, "": 3,
	} {
		m := newMitigation(t)
		if release != "" {
			m.write("release", release+"\n")
		}
		if code, output, _ := m.run(m.job.Spec.Expires.Check.Script); code != want {
			t.Errorf("with kernel %q, the exit code is %d, want %d: %s", release, code, want, output)
		}
	}
}
