// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestAProgramCanImportOnlyTheAPI builds a program in a module that requires only the API. Like the go.mod of every such
// program after go mod tidy, its go.mod lists all modules that its packages are from. So the go command needs no other
// module than those of the API, and the test neither the network nor what another build has left in the module cache.
func TestAProgramCanImportOnlyTheAPI(t *testing.T) {
	api, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	copyFile(t, filepath.Join("testdata", "program", "main.go"), filepath.Join(dir, "main.go"))
	copyFile(t, filepath.Join(api, "go.sum"), filepath.Join(dir, "go.sum"))
	requirements, err := os.ReadFile(filepath.Join(api, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	_, requirements, _ = bytes.Cut(requirements, []byte("\ngo "))
	module := fmt.Sprintf(
		"module example.com/program\n\ngo %s\nrequire github.com/everynode/everynode/api v0.0.0\n\nreplace github.com/everynode/everynode/api => %q\n",
		requirements,
		api,
	)
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(module), 0o600); err != nil {
		t.Fatal(err)
	}

	job := &NodeJob{}
	if err := json.Unmarshal(goTool(t, dir, "run", "."), job); err != nil {
		t.Fatal(err)
	}
	if want := "echo hello"; job.Spec.Task.Script != want {
		t.Errorf("the program prints a NodeJob with the script %q, want %q", job.Spec.Task.Script, want)
	}
	for pkg := range strings.FieldsSeq(string(goTool(t, dir, "list", "-deps", "."))) {
		if strings.HasPrefix(pkg, "github.com/everynode/") && pkg != "github.com/everynode/everynode/api/v1alpha1" ||
			strings.HasPrefix(pkg, "k8s.io/client-go/") || strings.HasPrefix(pkg, "sigs.k8s.io/controller-runtime/") {
			t.Errorf("a program that imports the API gets %s", pkg)
		}
	}
}

// goTool returns what go prints, with the modules of the cache only.
func goTool(t *testing.T, dir string, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=mod", "GOPROXY=off", "GOSUMDB=off", "GOWORK=off")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %v: %v\n%s", args, err, stderr.String())
	}
	return out
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, content, 0o600); err != nil {
		t.Fatal(err)
	}
}
