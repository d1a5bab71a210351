// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"cmp"
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
	"github.com/everynode/everynode/internal/cli/manifest"
	"github.com/everynode/everynode/internal/plural"
	"github.com/everynode/everynode/internal/text"
)

// draft is a NodeJob with the comment above it.
type draft struct {
	*work
	// sources are the objects that the NodeJob replaces.
	sources []*unstructured.Unstructured
	job     *v1alpha1.NodeJob
	// todos are what a user must decide or change. The first line of each is also a warning. notes are what a user should know, and
	// gone is what is no longer needed.
	todos, notes, gone []string
}

// newDraft adds a draft for a pod. Its name can be another one than wanted, because that of a NodeJob is unique.
func (c *converter) newDraft(wanted string, template *corev1.PodTemplateSpec, sources ...*unstructured.Unstructured) *draft {
	wanted = cmp.Or(wanted, strings.TrimRight(sources[0].GetGenerateName(), "-."))
	w := &work{converter: c, namespace: cmp.Or(sources[0].GetNamespace(), c.options.Namespace), template: template, pod: &template.Spec}
	for i := range w.pod.InitContainers {
		w.steps = append(w.steps, w.newStep(&w.pod.InitContainers[i], true))
	}
	for i := range w.pod.Containers {
		w.steps = append(w.steps, w.newStep(&w.pod.Containers[i], false))
	}
	d := &draft{work: w, sources: sources, job: &v1alpha1.NodeJob{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeJob"},
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: wanted},
		Spec:       v1alpha1.NodeJobSpec{Suspend: true},
	}}
	isTaken := func(other *draft) bool { return other.namespace == d.namespace && other.job.Name == d.job.Name }
	for n := 2; slices.ContainsFunc(c.drafts, isTaken); n++ {
		suffix := fmt.Sprint("-", n)
		d.job.Name = strings.TrimRight(wanted[:min(len(wanted), validation.DNS1123LabelMaxLength-len(suffix))], "-.") + suffix
		d.todo("another NodeJob has the same name: choose names that say what each does")
	}
	c.drafts = append(c.drafts, d)
	return d
}

// add appends a line, unless the list has it.
func add(list *[]string, format string, args []any) {
	if line := fmt.Sprintf(format, args...); !slices.Contains(*list, line) {
		*list = append(*list, line)
	}
}

// todo adds what a user must decide or change.
func (d *draft) todo(format string, args ...any) { add(&d.todos, format, args) }

// note adds what a user should know.
func (d *draft) note(format string, args ...any) { add(&d.notes, format, args) }

// drop adds what is no longer needed.
func (d *draft) drop(format string, args ...any) { add(&d.gone, format, args) }

// kind returns the kind of the source.
func (d *draft) kind() string { return d.sources[0].GetKind() }

// yaml returns the document of the NodeJob.
func (d *draft) yaml() (string, error) {
	if err := d.check(); err != nil {
		return "", err
	}
	body, err := manifest.Write(d.job)
	if err != nil {
		return "", err
	}
	read := &v1alpha1.NodeJob{}
	if err := yaml.UnmarshalStrict(body, read); err != nil {
		return "", fmt.Errorf("its fields do not fit into a NodeJob: %w", err)
	}
	if !equality.Semantic.DeepEqual(read.Spec, d.job.Spec) {
		return "", errors.New("it has characters that YAML cannot keep")
	}
	return d.head() + string(body), nil
}

// check reports whether the NodeJob is valid, as far as this is known without an API server.
func (d *draft) check() error {
	problems := validation.IsDNS1123Subdomain(d.job.Name)
	if len(d.job.Name) > validation.DNS1123LabelMaxLength {
		problems = append(problems, fmt.Sprintf("it has more than %d characters", validation.DNS1123LabelMaxLength))
	}
	if len(problems) > 0 {
		return fmt.Errorf("its metadata.name %q cannot be the name of a NodeJob: %s", d.job.Name, strings.Join(problems, "; "))
	}
	if len(d.steps) == 0 {
		return errors.New("it has no container")
	}
	for _, s := range d.steps {
		for i, env := range s.Env {
			if slices.ContainsFunc(s.Env[:i], func(e corev1.EnvVar) bool { return e.Name == env.Name }) {
				return fmt.Errorf("its container %s has the variable %s twice, of which the last one counts: remove the others", s.Name, env.Name)
			}
		}
	}
	return nil
}

// head returns the comment above the NodeJob.
func (d *draft) head() string {
	var names []string
	for _, source := range d.sources { // all are of one kind, and in one namespace
		name := source.GetName()
		if isPlaceholder(name) {
			name = "NAME"
		}
		names = append(names, name)
	}
	from, in := nameOf(d.sources[0]), inNamespace(d.job.Namespace)
	if more := len(names) - 1; more > 0 {
		from += " and " + plural.Count(more, "other")
	}
	paragraphs := []string{"Converted from " + from + "."}
	for _, todo := range d.todos {
		paragraphs = append(paragraphs, "TODO: "+todo)
	}
	paragraphs = append(paragraphs, d.notes...)
	paragraphs = append(paragraphs,
		"NodeJobs run only in namespaces that are allowed. Unless this one has the label, an administrator sets it:\n"+
			"kubectl label namespace "+cmp.Or(d.job.Namespace, "NAMESPACE")+" "+v1alpha1.EnabledLabel+"="+v1alpha1.EnabledValue,
		"Switch over. The NodeJob is suspended, so nothing runs before the last command:\n"+
			"kubectl everynode plan -f FILE\nkubectl apply -f FILE\n"+
			"kubectl delete "+strings.ToLower(kindOf(d.sources[0]))+" "+strings.Join(names, " ")+in+"\n"+
			"kubectl everynode resume "+d.job.Name+in)
	if len(d.gone) > 0 {
		paragraphs = append(paragraphs, "No longer needed:\n- "+strings.Join(d.gone, "\n- "))
	}
	for i, paragraph := range paragraphs {
		paragraphs[i] = comment(paragraph)
	}
	return strings.Join(paragraphs, "#\n")
}

func inNamespace(namespace string) string {
	if namespace == "" {
		return ""
	}
	return " -n " + namespace
}

func isPlaceholder(name string) bool { return len(validation.IsDNS1123Subdomain(name)) > 0 }

// comment returns a paragraph as lines of a comment. Commands are not wrapped, and items begin with "- ".
func comment(paragraph string) string {
	var b strings.Builder
	for i, line := range strings.Split(paragraph, "\n") {
		head, columns := "  ", 98
		if item, isItem := strings.CutPrefix(line, "- "); isItem {
			head, line = "  - ", item
		}
		if i == 0 {
			head = ""
		} else if strings.HasPrefix(line, "kubectl ") {
			columns = 0
		}
		for _, line := range text.Render(text.Wrap(text.Of(head), text.Plain, line, columns), text.Options{}) {
			b.WriteString(strings.TrimRight("# "+line, " ") + "\n")
		}
	}
	return b.String()
}

// Settings that all patterns have in common.

// limit returns a number that has a highest value in a NodeJob; nil if there is none.
func (d *draft) limit(value int64, most int32, source string) *int32 {
	if value < 0 {
		return nil
	}
	if value > int64(most) {
		d.todo("%s is %d, and a NodeJob takes at most %d, which is set", source, value, most)
	}
	return new(int32(min(value, int64(most))))
}

// timeouts sets task.timeoutSeconds. A Job has a deadline for all attempts, and its pod has one for each attempt.
func (d *draft) timeouts(all *int64, source string) {
	if each := d.pod.ActiveDeadlineSeconds; each != nil {
		all, source = each, "template.spec.activeDeadlineSeconds"
	}
	if all != nil && *all > 0 {
		d.job.Spec.Task.TimeoutSeconds = d.limit(*all, 86400, source)
		return
	}
	d.note("The %s has no time limit. An attempt of the NodeJob has 600 seconds, including the image pull, unless task.timeoutSeconds is set.", d.kind())
}

// concurrent sets rollout.maxConcurrent, which is a number from 1 or a percentage from 1% to 100%.
func (d *draft) concurrent(value *intstr.IntOrString, source string) {
	if percent, err := intstr.GetScaledValueFromIntOrPercent(value, 100, true); err != nil || percent < 1 || value.Type == intstr.String && percent > 100 {
		d.todo("%s is %s, and rollout.maxConcurrent takes a number from 1 or a percentage from 1%% to 100%%", source, value.String())
		return
	}
	d.job.Spec.Rollout.MaxConcurrent = value
}

// runsAgain says that the NodeJob cannot know where the source has run.
func (d *draft) runsAgain() {
	d.note("The %s does not label the nodes on which it has run, so the task runs once on each node, also on these. "+
		"To prevent this, skip the nodes before you resume the NodeJob: kubectl everynode skip %s NODE…%s", d.kind(), d.job.Name, inNamespace(d.job.Namespace))
}
