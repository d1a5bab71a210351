// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package recipes

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
)

// nodeJob is the NodeJob of a recipe. It is the last document of the file.
func nodeJob(t *testing.T, recipe string) v1alpha1.NodeJob {
	t.Helper()
	content, err := Files.ReadFile(recipe)
	if err != nil {
		t.Fatal(err)
	}
	var job v1alpha1.NodeJob
	documents := bytes.Split(content, []byte("\n---\n"))
	if err := yaml.UnmarshalStrict(documents[len(documents)-1], &job); err != nil {
		t.Fatal(err)
	}
	return job
}

// root is a folder with what the scripts of a recipe find and change instead of the files of the machine.
type root struct {
	t   *testing.T
	dir string
	job v1alpha1.NodeJob
	// env has the variables that differ from those of the recipe.
	env map[string]string
	// instead are paths of the machine, each followed by what is in its place.
	instead []string
}

// newRoot prepares a recipe. Each of the paths is one below the folder instead.
func newRoot(t *testing.T, recipe string, paths ...string) *root {
	t.Helper()
	r := &root{t: t, dir: t.TempDir(), job: nodeJob(t, recipe), env: map[string]string{}}
	for _, path := range paths {
		r.instead = append(r.instead, path, r.dir+path)
	}
	r.mkdir("bin")
	return r
}

func (r *root) mkdir(path string) {
	r.t.Helper()
	if err := os.MkdirAll(filepath.Join(r.dir, path), 0o755); err != nil {
		r.t.Fatal(err)
	}
}

// write makes a file with its folders, and returns its path.
func (r *root) write(path, content string) string {
	r.t.Helper()
	r.mkdir(filepath.Dir(path))
	path = filepath.Join(r.dir, path)
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		r.t.Fatal(err)
	}
	return path
}

// program makes a script that is found before the program of the machine. In it, $ROOT is the folder.
func (r *root) program(name, script string) {
	r.t.Helper()
	if err := os.Chmod(r.write("bin/"+name, "#!/bin/sh\nset -eu\n"+script), 0o755); err != nil {
		r.t.Fatal(err)
	}
}

func (r *root) read(path string) string {
	r.t.Helper()
	content, err := os.ReadFile(filepath.Join(r.dir, path))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		r.t.Fatal(err)
	}
	return string(content)
}

// run runs a script of the recipe, and returns its exit code, its results, and what it prints.
func (r *root) run(script string, more ...string) (code int, results map[string]string, out string) {
	r.t.Helper()
	file := filepath.Join(r.t.TempDir(), "results")
	cmd := exec.Command("/bin/sh", "-c", strings.NewReplacer(r.instead...).Replace(script))
	cmd.Env = append(os.Environ(), "EVERYNODE_RESULTS="+file, "EVERYNODE_NODEJOB=ns/recipe", "ROOT="+r.dir)
	cmd.Env = append(cmd.Env, "PATH="+filepath.Join(r.dir, "bin")+":"+os.Getenv("PATH"))
	env := map[string]string{}
	for _, v := range r.job.Spec.Task.Env {
		env[v.Name] = v.Value
	}
	maps.Copy(env, r.env)
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.Env = append(cmd.Env, more...)
	said, err := cmd.CombinedOutput()
	if exit, failed := errors.AsType[*exec.ExitError](err); failed {
		code = exit.ExitCode()
	} else if err != nil {
		r.t.Fatal(err)
	}
	results = map[string]string{}
	written, _ := os.ReadFile(file) // a check and a rollback write none
	for line := range strings.Lines(string(written)) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		results[key] = value
	}
	return code, results, string(said)
}

// succeeds runs a script that must succeed, and returns its results.
func (r *root) succeeds(script string, more ...string) map[string]string {
	r.t.Helper()
	code, results, out := r.run(script, more...)
	if code != 0 {
		r.t.Fatalf("exit code %d: %s", code, out)
	}
	return results
}

// fails runs a script that must fail with a text.
func (r *root) fails(script, want string) {
	r.t.Helper()
	if code, _, out := r.run(script); code != 1 || !strings.Contains(out, want) {
		r.t.Errorf("exit code %d: %s; want 1 and %q", code, out, want)
	}
}
