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
	m.write("bin/rmmod", "#!/bin/sh\ncd '"+m.dir+"'\necho \"$1\" >> unloaded\nsed -i \"/^$1 /d\" modules\n")
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
	script = strings.NewReplacer("/etc/modprobe.d", m.dir+"/modprobe.d", "/sys/module", m.dir+"/sys",
		"/lib/modules/$(uname -r)", m.dir).Replace(script)
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.Env = append(
		os.Environ(),
		"PATH="+m.dir+"/bin:"+os.Getenv("PATH"),
		"EVERYNODE_NODEJOB=ns/deny",
		"EVERYNODE_RESULTS="+m.dir+"/results",
		"MODULES=esp4 esp6",
		"UNLESS_IN_USE=yes",
		"FIXED_KERNELS=6.1.170 6.12.85 6.8.0-110-generic",
		"FIXED_SERIES=7.0",
		"RELEASE_FILE="+m.dir+"/release",
		"LOADED_MODULES="+m.dir+"/modules",
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

const conf = "modprobe.d/everynode-ns-deny.conf"

// denied are the modules that the file denies.
func (m mitigation) denied() string {
	var denied []string
	for line := range strings.Lines(m.read(conf)) {
		if module, ok := strings.CutPrefix(
			line,
			"blacklist ",
		); ok &&
			strings.Contains(m.read(conf), "install "+strings.TrimSpace(module)+" /bin/false\n") {
			denied = append(denied, strings.TrimSpace(module))
		}
	}
	return strings.Join(denied, " ")
}

func TestModuleMitigation(t *testing.T) {
	for name, tt := range map[string]struct {
		env            []string
		modules        string // in /proc/modules
		rmmod          string // the script of the command
		code           int
		output         string
		results        string
		denied, unload string
	}{
		"modules are denied, and unloaded if they are not in use": {results: "in-effect=yes", denied: "esp4 esp6", unload: "esp4\n"},
		"a module in use is left alone, and the other is denied": {
			env: []string{"MODULES=esp4 tls"}, output: "not denied: tls", results: "in-effect=no in-use=tls", denied: "esp4", unload: "esp4\n",
		},
		"each module in use is named, also one that many use": {
			env: []string{"MODULES=tls esp4 af-alg"}, modules: "esp4 28672 0 - Live 0x0\ntls 151552 10 - Live 0x0\naf_alg 1 1 x, Live 0x0\n",
			output: "not denied: tls af-alg", results: "in-effect=no in-use=tls af-alg", denied: "esp4", unload: "esp4\n",
		},
		"a kernel that unloads no modules": {
			modules: "esp4 28672 - - Live 0x0\n", output: "not denied: esp4", results: "in-effect=no in-use=esp4", denied: "esp6",
		},
		"the only module is in use": {
			env: []string{"MODULES=tls"}, output: "not denied: tls", results: "in-effect=no in-use=tls",
		},
		"a module is used when it is to be unloaded": {
			rmmod: "exit 1", code: 1, output: "esp4 is loaded and cannot be unloaded", denied: "esp4 esp6",
		},
		"modules whose names begin like those of others": {
			env: []string{"MODULES=tunnel esp esp4_offload"}, results: "in-effect=yes", denied: "tunnel esp esp4_offload",
		},
		"a module is in use, and another one is built in": {
			env: []string{"MODULES=tls bridge"}, code: 1, output: "bridge is built into the kernel",
		},
		"a module that is built in, with a hyphen in the name of its file": {
			env: []string{"MODULES=xts_aes"}, code: 1, output: "built into the kernel",
		},
		"a module that is built in, with another hyphen, as only /sys says": {
			env: []string{"MODULES=snd-seq"}, code: 1, output: "built into the kernel",
		},
		"a module in use is a failure":                   {env: []string{"MODULES=esp4 tls", "UNLESS_IN_USE=no"}, code: 1, output: "in use: tls"},
		"a module that is built in":                      {env: []string{"MODULES=tunnel4"}, code: 1, output: "built into the kernel"},
		"a module that is built in, with another hyphen": {env: []string{"MODULES=af-alg"}, code: 1, output: "built into the kernel"},
		"a module that is built in, as only /sys says":   {env: []string{"MODULES=bridge"}, code: 1, output: "built into the kernel"},
		"a kernel without modules":                       {env: []string{"LOADED_MODULES=/nonexistent"}, code: 1, output: "loads no modules"},
		"a name that is not one":                         {env: []string{"MODULES=../etc"}, code: 1, output: "is not the name of a module"},
		"a wrong value":                                  {env: []string{"UNLESS_IN_USE=maybe"}, code: 1, output: "use yes or no"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMitigation(t)
			m.write("modules.builtin", "kernel/net/ipv4/tunnel4.ko\nkernel/crypto/af_alg.ko\nkernel/crypto/xts-aes.ko\n")
			m.write("sys/bridge/version", "")
			m.write("sys/snd_seq/version", "")
			if tt.modules != "" {
				m.write("modules", tt.modules)
			}
			if tt.rmmod != "" {
				m.write("bin/rmmod", tt.rmmod)
			}
			code, output, results := m.run(m.job.Spec.Task.Script, tt.env...)
			if code != tt.code || !strings.Contains(output, tt.output) || results != tt.results || m.denied() != tt.denied ||
				m.read("unloaded") != tt.unload {
				t.Errorf("exit code %d, results %q, denied %q, unloaded %q: %s", code, results, m.denied(), m.read("unloaded"), output)
			}
			if code, output, _ := m.run(m.job.Spec.Rollback.Script); code != 0 || m.read(conf) != "" {
				t.Errorf("after the rollback with exit code %d, the file is %q: %s", code, m.read(conf), output)
			}
		})
	}
}

// The check says no where the task would do something: after a boot with a new /etc, and when a module is no longer in use.
func TestModuleMitigationLooksAgain(t *testing.T) {
	const free, loaded = "tls 151552 2 - Live 0x0\n", "esp4 28672 0 - Live 0x0\ntls 151552 2 - Live 0x0\n"
	for name, tt := range map[string]struct {
		modules string // in /proc/modules after the task
		etcLost bool
		conf    string // what the file has then, if it is not empty
		want    int
	}{
		"what is denied is not loaded, and what is in use is not denied": {modules: free},
		"/etc is new":                    {modules: free, etcLost: true, want: 1},
		"the file was emptied":           {modules: free, conf: "\n", want: 1},
		"the file denies another module": {modules: free, conf: "blacklist esp4_offload\n", want: 1},
		"the line is a comment":          {modules: free, conf: "# blacklist esp4\n", want: 1},
		"a module is no longer in use":   {modules: "", want: 1},
		"a module is loaded, but unused": {modules: "tls 151552 0 - Live 0x0\n", want: 1},
		"a denied module is loaded":      {modules: loaded, want: 1},
		"a denied module is in use":      {modules: strings.ReplaceAll(loaded, " 0 -", " 3 -"), want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMitigation(t)
			if code, output, _ := m.run(m.job.Spec.Task.Script, "MODULES=esp4 tls"); code != 0 {
				t.Fatal(output)
			}
			m.write("modules", tt.modules)
			if tt.etcLost {
				_ = os.RemoveAll(filepath.Join(m.dir, "modprobe.d"))
			}
			if tt.conf != "" {
				m.write(conf, tt.conf)
			}
			if code, output, _ := m.run(m.job.Spec.Task.Check.Script, "MODULES=esp4 tls"); code != tt.want {
				t.Errorf("the exit code is %d, want %d: %s", code, tt.want, output)
			}
			if code, output, _ := m.run(m.job.Spec.Task.Script, "MODULES=esp4 tls"); code != 0 {
				t.Fatal(output)
			}
			if code, output, _ := m.run(m.job.Spec.Task.Check.Script, "MODULES=esp4 tls"); code != 0 {
				t.Errorf("after the task has run again, the exit code is %d: %s", code, output)
			}
		})
	}
	m := newMitigation(t)
	if code, _, _ := m.run(m.job.Spec.Task.Check.Script, "LOADED_MODULES=/nonexistent"); code != 75 {
		t.Errorf("without a list of modules, the exit code is %d, want 75", code)
	}
}

func TestModuleMitigationExpires(t *testing.T) {
	for release, want := range map[string]int{
		"6.12.84": 1, "6.12.85": 0, "6.12.85-1-amd64": 0, "6.12.100-cloud": 0, "6.12.80-106.amzn2023": 1, "6.12.9": 1,
		// Another series is as old as it may be.
		"6.6.140": 1, "6.13.0": 1, "6.1.169": 1, "6.1.170": 0, "6.1.200-generic": 0, "6.10.200": 1,
		// The numbers of other flavors mean something else.
		"6.8.0-110-generic": 0, "6.8.0-109-generic": 1, "6.8.0-1052-aws": 1,
		"6.8.0-110-lowlatency": 1,
		// As the nodes of several clouds and distributions print it.
		"6.1.169+": 1, "6.1.170+": 0, "6.12.84+deb13-amd64": 1, "6.12.85+deb13-amd64": 0, "6.12.85-0-virt": 0, "6.12.9-talos": 1,
		"5.14.0-611.5.1.el9_7.x86_64": 1, "6.12.0-124.8.1.el10_1.x86_64": 1, "6.1.1700": 0, "6.1.17": 1, "6.120.1": 1,
		"6.19.99": 1, "7.0": 0, "7.0.0-14-generic": 0, "7.1.3": 0, "7.10.0": 0, "7.0.0-rc3": 1, "6.12.85-rc1": 1, "": 3, "linux": 3,
	} {
		m := newMitigation(t)
		if release != "" {
			m.write("release", release+"\n")
		}
		if code, output, _ := m.run(m.job.Spec.Expires.Check.Script); code != want {
			t.Errorf("with kernel %q, the exit code is %d, want %d: %s", release, code, want, output)
		}
	}
	for release, want := range map[string]int{
		"6.12.79-101.147.amzn2023.x86_64": 1, "6.12.80-106.156.amzn2023.x86_64": 0, "6.12.85-1.amzn2023.x86_64": 0, "6.12.80": 1,
		"6.12.80-106.156.amzn2023.aarch64": 1, "5.14.0-570.9.1.el9_6.x86_64": 1, "5.14.0-570.12.1.el9_6.x86_64": 0, "5.14.0-611.5.1.el9_7.x86_64": 0,
	} {
		m := newMitigation(t)
		m.write("release", release+"\n")
		fixed := "FIXED_KERNELS=6.12.80-106.156.amzn2023.x86_64 5.14.0-570.12.1.el9_6.x86_64"
		if code, output, _ := m.run(m.job.Spec.Expires.Check.Script, fixed); code != want {
			t.Errorf("with kernel %q of a distribution, the exit code is %d, want %d: %s", release, code, want, output)
		}
	}
	m := newMitigation(t)
	m.write("release", "7.1.3\n")
	if code, output, _ := m.run(m.job.Spec.Expires.Check.Script, "FIXED_SERIES="); code != 1 {
		t.Errorf("without a fixed series, the exit code is %d: %s", code, output)
	}
}
