// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/text"
)

// draft is a NodeJob with the comment above it.
type draft struct {
	// sources are the objects that the NodeJob replaces.
	sources []*unstructured.Unstructured
	job     *v1alpha1.NodeJob
	// todos are what a user must decide or change. The first line of each is also a warning. notes are what a user should know, and
	// gone is what is no longer needed.
	todos, notes, gone []string
}

func (c *converter) newDraft(sources ...*unstructured.Unstructured) *draft {
	source := sources[0]
	d := &draft{sources: sources, job: &v1alpha1.NodeJob{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeJob"},
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespaceOf(source)},
		Spec:       v1alpha1.NodeJobSpec{Suspend: true},
	}}
	d.rename(cmp.Or(source.GetName(), strings.TrimRight(source.GetGenerateName(), "-.")))
	return d
}

// rename sets the name, which can be shorter than that of other objects.
func (d *draft) rename(name string) {
	d.job.Name = name
	if len(name) > validation.DNS1123LabelMaxLength {
		d.job.Name = strings.TrimRight(name[:validation.DNS1123LabelMaxLength], "-.")
		d.todo("the name is cut, because the name of a NodeJob has at most 63 characters: choose another one")
	}
}

func add(list []string, format string, args []any) []string {
	if line := fmt.Sprintf(format, args...); !slices.Contains(list, line) {
		return append(list, line)
	}
	return list
}

// todo adds what a user must decide or change.
func (d *draft) todo(format string, args ...any) { d.todos = add(d.todos, format, args) }

// note adds what a user should know.
func (d *draft) note(format string, args ...any) { d.notes = add(d.notes, format, args) }

// drop adds what is no longer needed.
func (d *draft) drop(format string, args ...any) { d.gone = add(d.gone, format, args) }

// kind returns the kind of the source.
func (d *draft) kind() string { return d.sources[0].GetKind() }

// yaml returns the document of the NodeJob.
func (d *draft) yaml() (string, error) {
	if err := d.check(); err != nil {
		return "", err
	}
	fields := generic(d.job)
	delete(fields, "status")
	body, err := yaml.Marshal(fields)
	if err != nil {
		return "", fmt.Errorf("writing the NodeJob: %w", err)
	}
	read := &v1alpha1.NodeJob{}
	if err := yaml.UnmarshalStrict(body, read); err != nil {
		return "", fmt.Errorf("its fields do not fit into a NodeJob: %w", err)
	}
	if !equality.Semantic.DeepEqual(read.Spec, d.job.Spec) {
		return "", errors.New("it has characters that YAML cannot keep")
	}
	return strings.Join(d.head(), "\n") + "\n" + string(body), nil
}

// check reports whether the NodeJob is valid, as far as this is known without an API server.
func (d *draft) check() error {
	if problems := validation.IsDNS1123Subdomain(d.job.Name); len(problems) > 0 {
		return fmt.Errorf("%q cannot be the name of a NodeJob: %s", d.job.Name, strings.Join(problems, "; "))
	}
	if n := len(d.job.Spec.Nodes.Tolerations); n > 64 {
		return fmt.Errorf("it has %d tolerations, and a NodeJob takes 64", n)
	}
	lists := map[string][]corev1.EnvVar{"": d.job.Spec.Task.Env}
	if t := d.job.Spec.Task.Template; t != nil {
		if len(t.Spec.Containers) == 0 {
			return errors.New("it has no container")
		}
		for _, c := range slices.Concat(t.Spec.InitContainers, t.Spec.Containers) {
			lists[c.Name] = c.Env
		}
	}
	for container, list := range lists {
		for i, env := range list {
			if slices.ContainsFunc(list[i+1:], func(other corev1.EnvVar) bool { return other.Name == env.Name }) {
				return fmt.Errorf("its container %s has the variable %s twice, of which the last one counts: remove the others", container, env.Name)
			}
		}
	}
	return nil
}

// head returns the comment above the NodeJob.
func (d *draft) head() []string {
	names := make([]string, len(d.sources))
	for i, source := range d.sources {
		names[i] = nameOf(source)
	}
	if len(names) > 3 {
		names = append(names[:3], fmt.Sprintf("and %d more", len(names)-3))
	}
	paragraphs := []string{"Converted from " + strings.Join(names, ", ") + "."}
	for _, todo := range d.todos {
		paragraphs = append(paragraphs, "TODO: "+todo)
	}
	paragraphs = append(paragraphs, d.notes...)
	paragraphs = append(paragraphs,
		"NodeJobs run only in namespaces that are allowed. Unless this one has the label, an administrator sets it:\n"+
			"kubectl label namespace "+cmp.Or(d.job.Namespace, "NAMESPACE")+" "+v1alpha1.EnabledLabel+"="+v1alpha1.EnabledValue,
		"Switch over. The NodeJob is suspended, so nothing runs before the last command:\n"+strings.Join(d.switchOver(), "\n"))
	if len(d.gone) > 0 {
		paragraphs = append(paragraphs, "No longer needed:\n- "+strings.Join(d.gone, "\n- "))
	}
	var lines []string
	for i, paragraph := range paragraphs {
		if i > 0 {
			lines = append(lines, "#")
		}
		lines = append(lines, comment(paragraph)...)
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
		commands = append(commands, "kubectl delete "+resource+" "+name+inNamespace(cmp.Or(source.GetNamespace(), d.job.Namespace)))
	}
	return append(commands, "kubectl everynode resume "+d.job.Name+inNamespace(d.job.Namespace))
}

func inNamespace(namespace string) string {
	if namespace == "" {
		return ""
	}
	return " -n " + namespace
}

func isPlaceholder(name string) bool { return len(validation.IsDNS1123Subdomain(name)) > 0 }

// comment returns a paragraph as lines of a comment. Commands are not wrapped, and items begin with "- ".
func comment(paragraph string) []string {
	var lines []string
	for i, line := range strings.Split(paragraph, "\n") {
		switch {
		case i == 0:
			lines = append(lines, wrapped("# ", "# ", line)...)
		case strings.HasPrefix(line, "- "):
			lines = append(lines, wrapped("#   - ", "#     ", line[2:])...)
		case strings.HasPrefix(line, "kubectl "):
			lines = append(lines, "#   "+text.Safe(line))
		default:
			lines = append(lines, wrapped("#   ", "#   ", line)...)
		}
	}
	return lines
}

// wrapped returns a text as lines, with one prefix for the first line and another for the others.
func wrapped(first, others, paragraph string) []string {
	const columns = 100
	var lines []string
	line, prefix := "", first
	for word := range strings.FieldsSeq(text.Safe(paragraph)) {
		if line != "" && len([]rune(prefix+line))+1+len([]rune(word)) > columns {
			lines, line, prefix = append(lines, prefix+line), "", others
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, strings.TrimRight(prefix+line, " "))
}

// generic returns an object as JSON decodes it, without fields that only the Go type has.
func generic(value any) map[string]any {
	var decoded map[string]any
	body, err := json.Marshal(value)
	if err != nil || json.Unmarshal(body, &decoded) != nil {
		return nil
	}
	prune(decoded)
	return decoded
}

func prune(value any) {
	switch value := value.(type) {
	case map[string]any:
		for key, field := range value {
			prune(field)
			inner, isObject := field.(map[string]any)
			if field == nil || isObject && len(inner) == 0 && slices.Contains([]string{"metadata", "resources", "status"}, key) {
				delete(value, key)
			}
		}
	case []any:
		for _, item := range value {
			prune(item)
		}
	}
}

// Settings that all patterns have in common.

// limited sets a number that has a highest value in a NodeJob.
func limited[T int32 | int64](d *draft, field **int32, value *T, most int32, source, name string) {
	switch {
	case value == nil || *value < 0:
	case int64(*value) > int64(most):
		*field = &most
		d.todo("%s is %d, and %s has at most %d: %d is set", source, *value, name, most, most)
	default:
		*field = new(int32(*value))
	}
}

// timeouts sets task.timeoutSeconds. A Job has a deadline for all attempts, and its pod has one for each attempt.
func (d *draft) timeouts(all, each *int64, source string) {
	if each != nil {
		all, source = each, "template.spec.activeDeadlineSeconds"
	}
	if all != nil && *all == 0 {
		return
	}
	limited(d, &d.job.Spec.Task.TimeoutSeconds, all, 86400, source, "task.timeoutSeconds")
}

// timeLimit says which time limit the task has if its source has none.
func (d *draft) timeLimit() {
	if d.job.Spec.Task.TimeoutSeconds == nil {
		d.note("The %s has no time limit. An attempt of the NodeJob has 600 seconds, including the image pull, unless task.timeoutSeconds is set.", d.kind())
	}
}

// concurrent sets rollout.maxConcurrent, which is a number from 1 or a percentage from 1% to 100%.
func (d *draft) concurrent(value *intstr.IntOrString, source string) {
	if value == nil {
		return
	}
	if percent, err := intstr.GetScaledValueFromIntOrPercent(value, 100, true); err != nil || percent < 1 || value.Type == intstr.String && percent > 100 {
		d.todo("%s is %s, and rollout.maxConcurrent takes a number from 1 or a percentage from 1%% to 100%%", source, value.String())
		return
	}
	d.job.Spec.Rollout.MaxConcurrent = value
}

// finish suggests ttlSecondsAfterFinished. A NodeJob that is suspended has finished.
func (d *draft) finish(seconds *int32) {
	if seconds != nil {
		d.note("When you resume the NodeJob, you can set ttlSecondsAfterFinished: %d, if no node that joins later must run the task. It is not set yet, because a suspended NodeJob counts as finished, and would be deleted.", *seconds)
	}
}

// runsAgain says that the NodeJob cannot know where the source has run.
func (d *draft) runsAgain() {
	d.note("The %s does not label the nodes on which it has run, so the task runs once on each node, also on these. "+
		"To prevent this, skip the nodes before you resume the NodeJob: kubectl everynode skip %s NODE…%s", d.kind(), d.job.Name, inNamespace(d.job.Namespace))
}
