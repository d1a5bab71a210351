// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/task"
)

// draft is a NodeJob with comments.
type draft struct {
	// sources are the objects that the NodeJob replaces.
	sources         []*unstructured.Unstructured
	namespace, name string
	spec            object
	// notes are paragraphs of the comment at the top, and gone is what is no longer needed.
	notes, gone []string
	// warnings are what the user must not miss. They begin the comment, and the command prints their messages.
	warnings []warning
	// account is the service account of the source, and needsAccount says that the task still uses it.
	account      string
	needsAccount bool
	// mounted are the ConfigMaps and Secrets that the task mounts, and scripts are those whose script became task.script, by
	// contentKey.
	mounted, scripts []string
	// unneeded are the names of the containers that are not a part of the task.
	unneeded []string
}

// warning is about a difference between the NodeJob and its source.
type warning struct{ message, paragraph string }

func newDraft(o Options, sources ...*unstructured.Unstructured) *draft {
	source := sources[0]
	d := &draft{sources: sources, namespace: cmp.Or(source.GetNamespace(), o.Namespace)}
	d.rename(cmp.Or(source.GetName(), strings.TrimRight(source.GetGenerateName(), "-.")))
	d.spec.set("suspend", true)
	return d
}

// rename sets the name, which can be shorter than that of other objects.
func (d *draft) rename(name string) {
	d.name = name
	if len(name) > validation.DNS1123LabelMaxLength {
		d.name = strings.TrimRight(name[:validation.DNS1123LabelMaxLength], "-.")
		d.note("TODO: The name is cut, because the name of a NodeJob has at most 63 characters. Choose another one.")
	}
}

func (d *draft) note(format string, args ...any) {
	if note := fmt.Sprintf(format, args...); !slices.Contains(d.notes, note) {
		d.notes = append(d.notes, note)
	}
}

// warn adds a warning: a message that does not name the source, and a paragraph of the comment.
func (d *draft) warn(message, paragraph string) {
	d.warnings = append(d.warnings, warning{message, "TODO: " + paragraph})
}

// kind returns the kind of the source.
func (d *draft) kind() string { return d.sources[0].GetKind() }

// drop says that something is no longer needed.
func (d *draft) drop(format string, args ...any) {
	if what := fmt.Sprintf(format, args...); !slices.Contains(d.gone, what) {
		d.gone = append(d.gone, what)
	}
}

// assumeDone says which nodes are done: those that a selector matches.
func (d *draft) assumeDone(selector map[string]any) {
	d.spec.in("nodes").set("assumeDone", map[string]any{"selector": selector}, "Nodes with the label are done, and do not run the task.")
}

// yaml returns the document of the NodeJob.
func (d *draft) yaml() ([]byte, error) {
	document := &object{}
	document.set("apiVersion", v1alpha1.GroupVersion.String())
	document.set("kind", "NodeJob")
	metadata := document.in("metadata")
	metadata.set("name", d.name)
	if d.namespace != "" {
		metadata.set("namespace", d.namespace)
	}
	document.set("spec", &d.spec)
	lines := slices.Concat(d.head(), document.lines(0))
	content := []byte(strings.Join(lines, "\n") + "\n")
	return content, check(content)
}

// check reports whether the document is a valid NodeJob, as far as this is known without an API server.
func check(content []byte) error {
	job := &v1alpha1.NodeJob{}
	if err := yaml.UnmarshalStrict(content, job); err != nil {
		return fmt.Errorf("its fields do not fit into a NodeJob: %w", err)
	}
	if problems := validation.IsDNS1123Subdomain(job.Name); len(problems) > 0 {
		return fmt.Errorf("%q cannot be the name of a NodeJob: %s", job.Name, strings.Join(problems, "; "))
	}
	switch spec := &job.Spec; {
	case len(spec.Task.Script) > task.MaxScriptBytes:
		return fmt.Errorf("its script has %d bytes, and task.script takes %d: put it into a ConfigMap, and write a NodeJob with task.scriptFrom", len(spec.Task.Script), task.MaxScriptBytes)
	case len(spec.Task.Env) > 64:
		return fmt.Errorf("it has %d variables, and task.env takes 64: write a NodeJob with task.template", len(spec.Task.Env))
	case len(spec.Nodes.Tolerations) > 64:
		return fmt.Errorf("it has %d tolerations, and a NodeJob takes 64", len(spec.Nodes.Tolerations))
	}
	return nil
}

// head returns the comment at the top of the document.
func (d *draft) head() []string {
	names := make([]string, len(d.sources))
	for i, source := range d.sources {
		names[i] = nameOf(source)
	}
	if len(names) > 3 {
		names = append(names[:3], fmt.Sprintf("and %d more", len(names)-3))
	}
	paragraphs := []string{"Converted from " + strings.Join(names, ", ") + "."}
	for _, w := range d.warnings {
		paragraphs = append(paragraphs, w.paragraph)
	}
	paragraphs = append(paragraphs, d.notes...)
	namespace := cmp.Or(d.namespace, "NAMESPACE")
	paragraphs = append(paragraphs, "NodeJobs run only in namespaces that are allowed. Unless this one has the label, an administrator sets it:\n"+
		"kubectl label namespace "+namespace+" "+v1alpha1.EnabledLabel+"="+v1alpha1.EnabledValue)
	paragraphs = append(paragraphs, "Switch over. The NodeJob is suspended, so nothing runs before the last command:\n"+strings.Join(d.switchOver(), "\n"))
	if len(d.gone) > 0 {
		paragraphs = append(paragraphs, "No longer needed:\n- "+strings.Join(d.gone, "\n- "))
	}
	var lines []string
	for i, paragraph := range paragraphs {
		if i > 0 {
			lines = append(lines, "#")
		}
		lines = append(lines, comment(paragraph, columns)...)
	}
	return lines
}

// switchOver returns the commands that replace the source without running the task twice.
func (d *draft) switchOver() []string {
	commands := []string{"kubectl everynode plan -f FILE", "kubectl apply -f FILE"}
	for i, source := range d.sources {
		if i == 3 {
			commands = append(commands, "# and the others")
			break
		}
		name := source.GetName()
		if name == "" || isPlaceholder(name) {
			name = "NAME"
		}
		resource := strings.ToLower(source.GetKind())
		if group := source.GroupVersionKind().Group; group != "apps" && group != "batch" && group != "extensions" {
			resource += "." + group
		}
		commands = append(commands, "kubectl delete "+resource+" "+name+inNamespace(cmp.Or(source.GetNamespace(), d.namespace)))
	}
	return append(commands, "kubectl everynode resume "+d.name+inNamespace(d.namespace))
}

func inNamespace(namespace string) string {
	if namespace == "" {
		return ""
	}
	return " -n " + namespace
}
