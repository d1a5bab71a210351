// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
)

// TestTheSamplesAreAccepted also covers samples that the demo does not apply.
func TestTheSamplesAreAccepted(t *testing.T) {
	w := newWorld(t)
	files, jobs := w.accept("../../config/samples/*.yaml", "Kustomization", "Namespace", "ResourceQuota")
	if len(jobs) < 3 {
		t.Errorf("%d samples were found in %v", len(jobs), files)
	}
}

// TestTheRecipesAreAccepted, say what people need to know, and are listed.
func TestTheRecipesAreAccepted(t *testing.T) {
	w := newWorld(t)
	files, jobs := w.accept("../../recipes/*.yaml", "ConfigMap", "NodeGuard", "NodeDisruptionBudget")
	if len(jobs)+3 != len(files) || len(jobs) < 8 {
		t.Errorf("%d NodeJobs were found in %v", len(jobs), files)
	}
	list, err := os.ReadFile("../../recipes/README.md")
	must(t, err)
	for _, file := range files {
		if name := filepath.Base(file); !strings.Contains(string(list), "("+name+")") {
			t.Errorf("%s is not in recipes/README.md", name)
		}
		content, err := os.ReadFile(file)
		must(t, err)
		comment, _, _ := strings.Cut(string(content), "\napiVersion:")
		for _, paragraph := range []string{"# Use it ", "# Change: ", "# See that it worked", "# Take it back"} {
			if !strings.Contains(comment, "\n"+paragraph) {
				t.Errorf("the comment of %s has no paragraph that begins with %q", file, paragraph)
			}
		}
	}
	for _, job := range jobs {
		for _, script := range scripts(job) {
			// If /bin/sh only supports POSIX, it checks the syntax.
			check := exec.CommandContext(w.Ctx, "/bin/sh", "-n")
			check.Stdin = strings.NewReader(script)
			if out, err := check.CombinedOutput(); err != nil {
				t.Errorf("a script of %s: %v %s", job.Name, err, out)
			}
			if !strings.HasPrefix(script, "set -eu\n") && strings.Contains(strings.TrimSpace(script), "\n") {
				t.Errorf("a script of %s does not begin with set -eu", job.Name)
			}
		}
	}
}

// TestTheConvertedNodeJobsAreAccepted covers the output of kubectl everynode convert.
func TestTheConvertedNodeJobsAreAccepted(t *testing.T) {
	w := newWorld(t)
	// A document with only comments has no kind.
	if files, jobs := w.accept("../../internal/cli/convert/testdata/*.golden.yaml", ""); len(jobs) < 20 {
		t.Errorf("%d NodeJobs were found in %v", len(jobs), files)
	}
}

// scripts of a NodeJob: what it does, checks and undoes.
func scripts(job *v1alpha1.NodeJob) []string {
	scripts := []string{job.Spec.Task.Script}
	if job.Spec.Task.Check != nil {
		scripts = append(scripts, job.Spec.Task.Check.Script)
	}
	if job.Spec.Rollback != nil {
		scripts = append(scripts, job.Spec.Rollback.Script)
	}
	return scripts
}

// accept has the API server look at the NodeJobs in files, among which may be objects of other kinds.
func (w *world) accept(pattern string, others ...string) (files []string, jobs []*v1alpha1.NodeJob) {
	w.T.Helper()
	files, documents := w.documents(pattern)
	for _, document := range documents {
		job := &v1alpha1.NodeJob{}
		must(w.T, yaml.Unmarshal(document.content, job))
		switch {
		case job.Kind == "NodeJob":
			must(w.T, yaml.UnmarshalStrict(document.content, job))
			jobs = append(jobs, job)
			job.Namespace = w.Namespace
			if err := admin.Create(w.Ctx, job.DeepCopy(), client.DryRunAll); err != nil {
				w.T.Errorf("%s: %v", document.file, err)
			}
		case !slices.Contains(others, job.Kind):
			w.T.Errorf("%s has an object of the kind %q", document.file, job.Kind)
		case job.Kind == "NodeGuard":
			guard := &v1alpha1.NodeGuard{}
			must(w.T, yaml.UnmarshalStrict(document.content, guard))
			guard.Namespace = w.Namespace
			if err := admin.Create(w.Ctx, guard, client.DryRunAll); err != nil {
				w.T.Errorf("%s: %v", document.file, err)
			}
		case job.Kind == "NodeDisruptionBudget":
			ndb := &v1alpha1.NodeDisruptionBudget{}
			must(w.T, yaml.UnmarshalStrict(document.content, ndb))
			if err := admin.Create(w.Ctx, ndb, client.DryRunAll); err != nil {
				w.T.Errorf("%s: %v", document.file, err)
			}
		case job.Kind == "ConfigMap":
			must(w.T, yaml.UnmarshalStrict(document.content, &corev1.ConfigMap{}))
		}
	}
	return files, jobs
}

// document is a document of a YAML file.
type document struct {
	file    string
	content []byte
}

// documents reads all documents of files.
func (w *world) documents(pattern string) (files []string, documents []document) {
	w.T.Helper()
	files, err := filepath.Glob(pattern)
	must(w.T, err)
	for _, file := range files {
		content, err := os.ReadFile(file)
		must(w.T, err)
		for _, part := range split(w.T, content) {
			documents = append(documents, document{file, part})
		}
	}
	return files, documents
}

// split returns the documents in YAML.
func split(t *testing.T, content []byte) (documents [][]byte) {
	t.Helper()
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return documents
		}
		must(t, err)
		documents = append(documents, document)
	}
}
