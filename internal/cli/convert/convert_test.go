// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/manifest"
)

var update = flag.Bool("update", false, "write what is converted to testdata")

// manifests returns the names of the manifests in testdata.
func manifests(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, file := range files {
		if !strings.HasSuffix(file, ".golden.yaml") {
			names = append(names, strings.TrimSuffix(filepath.Base(file), ".yaml"))
		}
	}
	if len(names) < 20 {
		t.Fatalf("only %v were found", names)
	}
	return names
}

func convertFile(t *testing.T, name string) Result {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	objects, err := manifest.Decode(content)
	if err != nil {
		t.Fatal(err)
	}
	return Convert(objects, "")
}

// TestManifests compares whole outputs, and requires that each NodeJob is valid.
func TestManifests(t *testing.T) {
	for _, name := range manifests(t) {
		t.Run(name, func(t *testing.T) {
			result := convertFile(t, name)
			got := string(result.YAML)
			for _, message := range result.Todos {
				got += "---\n# todo: " + message + "\n"
			}
			for _, err := range result.Refused {
				got += "---\n# error: " + err.Error() + "\n"
			}
			path := filepath.Join("testdata", name+".golden.yaml")
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s (if it is right: go test ./internal/cli/convert -update): -want +got\n%s", path, diff)
			}
			jobs := 0
			for document := range strings.SplitSeq(got, "---\n") {
				if strings.Contains(document, "\nkind: NodeJob\n") {
					jobs++
					validate(t, document)
				}
			}
			if jobs != result.NodeJobs || jobs == 0 && len(result.Refused) == 0 {
				t.Errorf("%d NodeJobs were written, and %d are reported", jobs, result.NodeJobs)
			}
		})
	}
}

// validate checks a NodeJob as far as this is possible without an API server. test/api applies the same files.
func validate(t *testing.T, document string) {
	t.Helper()
	job := &v1alpha1.NodeJob{}
	if err := yaml.UnmarshalStrict([]byte(document), job); err != nil {
		t.Fatalf("%v\n%s", err, document)
	}
	if !job.Spec.Suspend {
		t.Error("the NodeJob is not suspended")
	}
	if script := job.Spec.Task.Script; script != "" {
		shell := "sh"
		if len(job.Spec.Task.Interpreter) > 0 || strings.Contains(script, "bash") {
			shell = "bash"
		}
		check := exec.Command(shell, "-n")
		check.Stdin = strings.NewReader(script)
		if out, err := check.CombinedOutput(); err != nil {
			t.Errorf("the script is not valid: %v %s\n%s", err, out, script)
		}
	}
	for line := range strings.SplitSeq(document, "\n") {
		if rest := strings.TrimLeft(line, " "); strings.HasPrefix(rest, "# ") && len(line) > 200 && !strings.Contains(line, "kubectl") {
			t.Errorf("a comment is not wrapped: %s", line)
		}
	}
}
