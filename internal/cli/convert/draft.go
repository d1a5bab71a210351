// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
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
	"github.com/everynode/everynode/internal/text"
)

// draft is a NodeJob with the comment above it.
type draft struct {
	*converter
	// sources are the objects that the NodeJob replaces.
	sources  []*unstructured.Unstructured
	template *corev1.PodTemplateSpec
	volumes  map[string]corev1.Volume
	steps    []step
	job      *v1alpha1.NodeJob
	// key is what Jobs have in common that do the same on different nodes.
	key string
	// undoes says that a pod has a preStop hook, which may undo the work.
	undoes bool
	// todos are what a user must decide or change. The first line of each is also a warning. notes are what a user should know, and
	// gone is what is no longer needed.
	todos, notes, gone []string
}

// newDraft adds a draft for a pod. Its name can be another one than wanted, because that of a NodeJob is unique.
func (c *converter) newDraft(wanted string, template *corev1.PodTemplateSpec, source *unstructured.Unstructured) *draft {
	wanted = cmp.Or(wanted, strings.TrimRight(source.GetGenerateName(), "-."))
	d := &draft{converter: c, sources: []*unstructured.Unstructured{source}, template: template, job: &v1alpha1.NodeJob{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeJob"},
		ObjectMeta: metav1.ObjectMeta{Namespace: cmp.Or(source.GetNamespace(), c.namespace), Name: wanted},
		Spec:       v1alpha1.NodeJobSpec{Suspend: true},
	}}
	d.volumes = map[string]corev1.Volume{}
	for _, volume := range template.Spec.Volumes {
		d.volumes[volume.Name] = volume
	}
	for i := range template.Spec.InitContainers {
		d.steps = append(d.steps, d.newStep(&template.Spec.InitContainers[i], true))
	}
	for i := range template.Spec.Containers {
		d.steps = append(d.steps, d.newStep(&template.Spec.Containers[i], false))
	}
	isTaken := func(o *draft) bool { return o.job.Namespace == d.job.Namespace && o.job.Name == d.job.Name }
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
	if err := yaml.UnmarshalStrict(body, read); err != nil || !equality.Semantic.DeepEqual(read.Spec, d.job.Spec) {
		return "", errors.New("it has fields or characters that a NodeJob cannot keep in YAML")
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
	for _, s := range d.steps {
		for i, env := range s.Env {
			if slices.ContainsFunc(s.Env[:i], func(e corev1.EnvVar) bool { return e.Name == env.Name }) {
				return fmt.Errorf("its container %s has the variable %s twice. The last one counts: remove the others", s.Name, env.Name)
			}
		}
	}
	return nil
}

// head returns the comment above the NodeJob.
func (d *draft) head() string {
	var from, names []string
	for _, source := range d.sources { // all are of one kind, and in one namespace
		name := source.GetName()
		if isPlaceholder(name) {
			name = "NAME"
		}
		from, names = append(from, nameOf(source)), append(names, name)
	}
	in := d.inNamespace()
	paragraphs := []string{"Converted from " + strings.Join(from, ", ") + "."}
	for _, todo := range d.todos {
		paragraphs = append(paragraphs, "TODO: "+todo)
	}
	if len(d.notes) > 0 {
		paragraphs = append(paragraphs, "Notes:\n- "+strings.Join(d.notes, "\n- "))
	}
	if len(d.others) > 0 {
		paragraphs = append(paragraphs, "Other objects in the files stay as they are: "+strings.Join(d.others, ", ")+".")
	}
	paragraphs = append(paragraphs,
		"Switch over. The NodeJob is suspended, so nothing runs before the last command; plan says whether the namespace is allowed:\n"+
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

func (d *draft) inNamespace() string {
	if d.job.Namespace == "" {
		return ""
	}
	return " -n " + d.job.Namespace
}

func isPlaceholder(name string) bool { return len(validation.IsDNS1123Subdomain(name)) > 0 }

// comment returns a paragraph as lines of a comment. Commands are not wrapped.
func comment(paragraph string) string {
	var b strings.Builder
	for i, line := range strings.Split(paragraph, "\n") {
		head, columns := "  ", 98
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

// timeout sets task.timeoutSeconds. A Job has a deadline for all attempts, and its pod has one for each attempt.
func (d *draft) timeout(all *int64) {
	seconds := cmp.Or(d.template.Spec.ActiveDeadlineSeconds, all)
	if seconds != nil && *seconds > 0 && *seconds <= math.MaxInt32 {
		d.job.Spec.Task.TimeoutSeconds = new(int32(*seconds))
		return
	}
	limit := "The " + d.kind() + " has no time limit."
	if d.kind() == "Plan" {
		limit = "The system-upgrade-controller has a limit for all Plans: SYSTEM_UPGRADE_JOB_ACTIVE_DEADLINE_SECONDS, of 600 by default."
	}
	d.note("An attempt of the NodeJob has 600 seconds, unless task.timeoutSeconds is set. %s", limit)
}

// runsAgain says that the NodeJob cannot know where the source has run.
func (d *draft) runsAgain() {
	if d.undoes {
		d.note("The task also runs on nodes on which the %s has run. Do not skip them: deleting the %s runs its preStop hooks, "+
			"which may undo the work.", d.kind(), d.kind())
		return
	}
	d.note("The task also runs on nodes on which the %s has run. To prevent this, skip them before you resume the NodeJob: "+
		"kubectl everynode skip %s NODE…%s", d.kind(), d.job.Name, d.inNamespace())
}

// A node affinity is a list of terms, and a node that matches one of them is selected. A selector of a NodeJob has no OR, and a NodeJob
// for each term would run twice on a node that matches two of them.

// requiredTerms returns the terms of the node affinity that a node must match; nil if there is no such affinity.
func requiredTerms(pod *corev1.PodSpec) []corev1.NodeSelectorTerm {
	if a := pod.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		return a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	}
	return nil
}

// isNames reports whether a requirement about a field lists names of nodes. Kubernetes knows only the field metadata.name.
func isNames(r corev1.NodeSelectorRequirement) bool {
	return r.Key == metav1.ObjectNameField && r.Operator == corev1.NodeSelectorOpIn
}

// matchesNothing reports whether a term matches no node: it has no requirements, unlike other empty selectors, or contradicts itself.
func matchesNothing(t corev1.NodeSelectorTerm) bool {
	names, byName := namesOf(t)
	return len(t.MatchExpressions)+len(t.MatchFields) == 0 || byName && len(names) == 0
}

// namesOf returns the names of the nodes that a term selects by name, and whether it does that.
func namesOf(t corev1.NodeSelectorTerm) (names []string, byName bool) {
	for _, r := range t.MatchFields {
		switch {
		case !isNames(r):
		case !byName:
			names, byName = slices.Clone(r.Values), true
		default:
			names = slices.DeleteFunc(names, func(name string) bool { return !slices.Contains(r.Values, name) })
		}
	}
	return names, byName
}

// inexact returns the requirements of a term that a NodeJob cannot have.
func inexact(t corev1.NodeSelectorTerm) (found []string) {
	for _, r := range t.MatchExpressions {
		if r.Operator == corev1.NodeSelectorOpGt || r.Operator == corev1.NodeSelectorOpLt {
			found = append(found, r.Key+" "+string(r.Operator))
		}
	}
	for _, r := range t.MatchFields {
		if !isNames(r) {
			found = append(found, r.Key+" "+string(r.Operator))
		}
	}
	return found
}

// isPatch returns an error for a pod without containers, or with a container without an image. A kustomize patch is like that.
func (d *draft) isPatch() error {
	const render = "so it is a patch or a template. Convert what is applied: kubectl kustomize DIR, helm template, or kubectl get -o yaml"
	pod := &d.template.Spec
	if len(pod.Containers) == 0 {
		return errors.New("it has no containers, " + render)
	}
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		if c.Image == "" {
			return fmt.Errorf("its container %s has no image, %s", c.Name, render)
		}
	}
	return nil
}

const oneNodeFirst = "Without rollout.steps, the task must succeed on one node before it runs on several."

// failOn says what a failure on a node means for the others, if the source handles each node alone.
func (d *draft) failOn(retries string) {
	d.job.Spec.Rollout.MaxFailures = new(intstr.FromString("100%"))
	d.note("rollout.maxFailures: a failed node does not stop the others, as with the %s. %s %s", d.kind(), oneNodeFirst, retries)
}

// selectNodes converts the node selector, the node affinity and the tolerations of the pod. If several terms match nodes, it takes the
// first one that a NodeJob can express.
func (d *draft) selectNodes() error {
	nodes, pod := &d.job.Spec.Nodes, &d.template.Spec
	selector := &metav1.LabelSelector{MatchLabels: maps.Clone(pod.NodeSelector)}
	required := requiredTerms(pod)
	if terms := slices.DeleteFunc(slices.Clone(required), matchesNothing); len(terms) > 0 {
		term := terms[max(0, slices.IndexFunc(terms, func(t corev1.NodeSelectorTerm) bool { return inexact(t) == nil }))]
		nodes.Names, _ = namesOf(term)
		lost := inexact(term)
		for _, r := range term.MatchExpressions {
			if !slices.Contains(lost, r.Key+" "+string(r.Operator)) {
				selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement{
					Key: r.Key, Operator: metav1.LabelSelectorOperator(r.Operator), Values: r.Values,
				})
			}
		}
		if lost != nil {
			d.todo("the NodeJob runs on more nodes: it can neither compare numbers nor exclude nodes by a field (%s)\n%s",
				strings.Join(lost, ", "), ownLabel)
		}
		if len(terms) > 1 {
			d.todo("the NodeJob does not run on all of its nodes: only one of %d nodeSelectorTerms is converted\n"+
				"A label selector has no OR. %s With a NodeJob for each term, a node that matches two would run the task twice.",
				len(terms), ownLabel)
		}
	} else if required != nil {
		return errors.New("its nodeSelectorTerms match no node. Correct them, or remove the affinity to run on all nodes")
	}
	nodes.Selector, nodes.Tolerations = notEmpty(selector), pod.Tolerations
	return nil
}

const ownLabel = "Give the nodes that must run the task a label of your own, also those that join later, and select it."

// notEmpty returns nil for an empty selector, which a NodeJob must not have.
func notEmpty(selector *metav1.LabelSelector) *metav1.LabelSelector {
	if selector == nil || len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
		return nil
	}
	return selector
}
