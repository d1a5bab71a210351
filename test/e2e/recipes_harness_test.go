// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

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

	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/test/install"
)

// The recipes are tested as they are in recipes/: each test applies the file itself, in its own namespace, and reverts
// it with the commands in the file. A test changes only what is necessary, and documents it: the nodes, since the tests
// share the nodes of the cluster, and values that any user may change, such as the address of a registry and its
// certificate.

// recipe is a file of recipes/ that was applied.
type recipe struct {
	w    *world
	text string
	// job is the name of its NodeJob.
	job string
}

// recipe applies a file of recipes/ with changes to the NodeJob in it.
func (w *world) recipe(file string, changes ...func(*v1alpha1.NodeJobSpec)) recipe {
	w.T.Helper()
	root, err := install.Root()
	must(w.T, err)
	text, err := os.ReadFile(filepath.Join(root, "recipes", file))
	must(w.T, err)
	r := recipe{w: w, text: string(text)}
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	decoder := serializer.NewCodecFactory(admin.Scheme()).UniversalDeserializer()
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return r
		}
		must(w.T, err)
		decoded, _, err := decoder.Decode(document, nil, nil)
		must(w.T, err)
		object := decoded.(client.Object)
		object.SetNamespace(w.Namespace)
		if job, ok := object.(*v1alpha1.NodeJob); ok {
			r.job = job.Name
			for _, change := range changes {
				change(&job.Spec)
			}
		}
		must(w.T, client.IgnoreAlreadyExists(admin.Create(w.Ctx, object)))
	}
}

// with sets an existing variable of the recipe.
func (w *world) with(name, value string) func(*v1alpha1.NodeJobSpec) {
	return func(s *v1alpha1.NodeJobSpec) {
		w.T.Helper()
		i := slices.IndexFunc(s.Task.Env, func(e v1alpha1.EnvVar) bool { return e.Name == name })
		if i < 0 {
			w.T.Fatalf("the recipe has no variable %s", name)
		}
		s.Task.Env[i] = v1alpha1.EnvVar{Name: name, Value: value}
	}
}

// onceOnly: a test of a failure need not wait for the retries.
func onceOnly(s *v1alpha1.NodeJobSpec) { s.Retry.Limit = new(int32(0)) }

// commands are those that the comment of the file gives in the paragraph that begins so.
func (r recipe) commands(paragraph string) []string {
	var commands []string
	found := false
	for line := range strings.Lines(r.text) {
		line = strings.TrimRight(line, "\n")
		command, indented := strings.CutPrefix(line, "#   ")
		switch {
		case strings.HasPrefix(line, "# "+paragraph):
			found = true
		case found && indented:
			commands = append(commands, strings.ReplaceAll(command, "node-setup", r.w.Namespace))
		case found && line == "#" || !strings.HasPrefix(line, "#"):
			return commands
		}
	}
	return commands
}

// asWritten runs these commands unchanged, like a user who copies them.
func (r recipe) asWritten(paragraph string) string {
	r.w.T.Helper()
	commands := r.commands(paragraph)
	if len(commands) == 0 {
		r.w.T.Fatalf("the recipe has no commands below %q", paragraph)
	}
	var printed strings.Builder
	for _, command := range commands {
		cmd := exec.CommandContext(r.w.Ctx, "/bin/sh", "-c", command)
		cmd.Env = real.Environ()
		out, err := cmd.CombinedOutput()
		if err != nil {
			r.w.T.Fatalf("%s: %v\n%s", command, err, out)
		}
		printed.Write(out)
	}
	return printed.String()
}

// worked runs what the file says under "See that it worked".
func (r recipe) worked() string { r.w.T.Helper(); return r.asWritten("See that it worked") }

// takenBack runs the commands under "Take it back" in the file.
func (r recipe) takenBack(nodes ...string) {
	r.w.T.Helper()
	r.asWritten("Take it back")
	r.w.gone(r.job, nodes...)
	r.w.NoPods()
}

// again runs the recipe once more on a node that is done, and returns what is on record then.
func (r recipe) again(node string) record.Record {
	r.w.T.Helper()
	first := r.w.Done(r.job, node)
	r.w.unlabel(r.job, node)
	return r.another(node, first)
}

// another waits until another run than the given one is on record.
func (r recipe) another(node string, than record.Record) record.Record {
	r.w.T.Helper()
	var rec record.Record
	r.w.Eventually(r.job+" ran again on "+node, func() error {
		if rec = r.w.Done(r.job, node); rec.PodUID == than.PodUID {
			return errors.New("the record is the first")
		}
		return nil
	})
	return rec
}

// wantMissing checks that a file is not on the node.
func (w *world) wantMissing(node, path string) {
	w.T.Helper()
	if out := w.sh(node, "ls -d "+path+" 2>&1 || true"); !strings.Contains(out, "No such file") {
		w.T.Errorf("%s is on %s: %s", path, node, out)
	}
}
