// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/console"
	"github.com/everynode/everynode/internal/plural"
	"github.com/everynode/everynode/internal/rights"
	"github.com/everynode/everynode/internal/text"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

type canIOptions struct{ fileOptions }

func newCanICommand(f *console.Factory) *cobra.Command {
	o := &canIOptions{fileOptions{Factory: f}}
	cmd := &cobra.Command{
		Use:   "can-i -f FILE",
		Short: "Show the rights that a file needs, and which of them you lack",
		Long: `Show the rights that you need to apply the NodeJobs, NodeGuards, NodeDisruptionBudgets (freezes too) and ConfigMaps of a file,
which of them you lack, and the commands by which an administrator grants them. The exit code is 1 if you lack one, or if the
manager is known not to serve a namespace of the file. Nothing is changed.

The right to create NodeJobs is not enough. What they do on nodes needs the rights run-as-root, disrupt, gate, label and ignore-windows for
their namespace, which are asked for at the scope of the cluster: a role with * in the namespace does not include them.`,
		Example: `  kubectl everynode can-i -f max-map-count.yaml

  # the rights of another user, from a pipe
  kustomize build . | kubectl everynode can-i -f - --as jane`,
		Args:              console.ExactArgs(0, "no arguments"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.complete(cmd); err != nil {
				return err
			}
			return o.run(cmd.Context())
		},
	}
	o.addFlag(cmd, "a file with NodeJobs, NodeGuards, NodeDisruptionBudgets and ConfigMaps")
	console.AddOutputFlag(cmd, &o.output, console.OutputJSON, console.OutputYAML)
	return cmd
}

// canI is what the command found out, for programs.
type canI struct {
	User   string       `json:"user"`
	Rights []askedRight `json:"rights"`
	// Grants are commands that grant the missing rights.
	Grants []string `json:"grants,omitempty"`
	// RunAsRoot says on which nodes the right run-as-root makes its holder root, one sentence for each namespace.
	RunAsRoot []string `json:"runAsRoot,omitempty"`
	// NotEnforced says why the API server does not ask for all of the rights.
	NotEnforced []string `json:"notEnforced,omitempty"`
	// Reading are permissions that other commands need, and not the file. ReadingGrants are commands that grant the missing ones.
	Reading       []askedRight `json:"reading,omitempty"`
	ReadingGrants []string     `json:"readingGrants,omitempty"`
	// Namespaces are those of the NodeJobs and NodeGuards, as far as the user may read them.
	Namespaces []askedNamespace `json:"namespaces,omitempty"`
}

// askedNamespace is a namespace, and whether the manager serves NodeJobs and NodeGuards there.
type askedNamespace struct {
	Name    string   `json:"name"`
	For     []string `json:"for"`
	Allowed bool     `json:"allowed"`
	// Message says why nothing starts there.
	Message string `json:"message,omitempty"`

	served console.Namespace
}

// askedRight is a right, and what the API server says of it.
type askedRight struct {
	rights.Right `json:",inline"`
	// For are the objects that need it, each with the first field that does.
	For     []string `json:"for"`
	Allowed bool     `json:"allowed"`
}

func (o *canIOptions) run(ctx context.Context) error {
	file, err := o.read()
	if err != nil {
		return err
	}
	if len(neededFor(file, nil)) == 0 {
		return cmdutil.Failf(cmdutil.ExitNotFound, "there is no NodeJob, NodeGuard, NodeDisruptionBudget or ConfigMap in %s", o.file)
	}
	if err := o.installed(ctx); err != nil {
		return err
	}
	live, err := o.live(ctx, file)
	if err != nil {
		return err
	}
	result := &canI{Rights: neededFor(file, live)}
	for i := range result.Rights {
		right := &result.Rights[i]
		if right.Allowed, err = o.ask(ctx, right.Right); err != nil {
			return err
		}
	}
	if err := o.grants(ctx, file, result); err != nil {
		return err
	}
	if result.NotEnforced, err = o.notEnforced(ctx); err != nil {
		return err
	}
	result.Namespaces = o.namespaces(ctx, file)
	result.RunAsRoot = o.runAsRoot(ctx, result.Rights)
	if err := o.show(result); err != nil {
		return err
	}
	if !result.suffices() {
		return cmdutil.Exit(cmdutil.ExitError)
	}
	return nil
}

// suffices reports whether the user has all rights, and the manager is not known not to serve a namespace of the file.
func (r *canI) suffices() bool {
	return len(r.missing()) == 0 && !slices.ContainsFunc(r.Namespaces, func(n askedNamespace) bool { return n.served == console.NamespaceNotServed })
}

// grants determines the commands that grant what the user lacks.
func (o *canIOptions) grants(ctx context.Context, file *planFile, result *canI) error {
	var err error
	if result.User, err = o.user(ctx); err != nil {
		return err
	}
	result.Grants = rights.Grants(result.missing(), result.User)
	return o.reading(ctx, file, result)
}

func (r *canI) missing() []rights.Right {
	var missing []rights.Right
	for _, right := range r.Rights {
		if !right.Allowed {
			missing = append(missing, right.Right)
		}
	}
	return missing
}

// live returns the NodeJobs of a file as they are in the cluster, as far as they exist and the user may read them.
func (o *canIOptions) live(ctx context.Context, file *planFile) (map[client.ObjectKey]*v1alpha1.NodeJob, error) {
	found := map[client.ObjectKey]*v1alpha1.NodeJob{}
	for _, job := range file.jobs {
		name, live := client.ObjectKeyFromObject(job), &v1alpha1.NodeJob{}
		switch err := o.client.Get(ctx, name, live); {
		case err == nil:
			found[name] = live
		case !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err):
			return nil, cmdutil.Explain(err)
		}
	}
	return found, nil
}

// neededFor returns the rights that a file needs, each once, if these NodeJobs of it exist.
func neededFor(file *planFile, live map[client.ObjectKey]*v1alpha1.NodeJob) []askedRight {
	var all []askedRight
	add := func(kind string, o client.Object, needed ...rights.Right) {
		for _, right := range needed {
			reason := kind + " " + strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/")
			if right.Field != "" {
				reason += " (" + right.Field + ")"
			}
			right.Field = ""
			i := slices.IndexFunc(all, func(a askedRight) bool { return a.Right == right })
			if i < 0 {
				i, all = len(all), append(all, askedRight{Right: right})
			}
			all[i].For = append(all[i].For, reason)
		}
	}
	for _, job := range file.jobs {
		add("NodeJob", job, rights.ToApply(v1alpha1.Group, "nodejobs", job.Namespace)...)
		before := cmp.Or(live[client.ObjectKeyFromObject(job)], job)
		add("NodeJob", job, rights.OfChange(before, job)...)
	}
	for _, guard := range file.guards {
		add("NodeGuard", guard, rights.ToApply(v1alpha1.Group, "nodeguards", guard.Namespace)...)
		add("NodeGuard", guard, rights.OfNodeGuard(guard)...)
	}
	for _, budget := range file.budgets {
		add("NodeDisruptionBudget", budget, rights.ToApply(v1alpha1.Group, "nodedisruptionbudgets", "")...)
	}
	for _, configMap := range file.sortedConfigMaps() {
		add("ConfigMap", configMap, rights.ToApply("", "configmaps", configMap.Namespace)...)
		add("ConfigMap", configMap, rights.OfConfigMap(configMap)...)
	}
	return all
}

// namespaces returns whether the manager serves the namespaces of the NodeJobs and NodeGuards of a file.
func (o *canIOptions) namespaces(ctx context.Context, file *planFile) []askedNamespace {
	needs := map[string][]string{}
	for _, job := range file.jobs {
		needs[job.Namespace] = append(needs[job.Namespace], "NodeJob "+job.Namespace+"/"+job.Name)
	}
	for _, guard := range file.guards {
		needs[guard.Namespace] = append(needs[guard.Namespace], "NodeGuard "+guard.Namespace+"/"+guard.Name)
	}
	var all []askedNamespace
	for _, name := range slices.Sorted(maps.Keys(needs)) {
		if served := console.CheckNamespace(ctx, o.client, name); served != console.NamespaceUnknown {
			all = append(all, askedNamespace{name, needs[name], served == console.NamespaceServed, served.Message(name), served})
		}
	}
	return all
}

// runAsRoot returns what the right run-as-root means in each namespace. It is not limited to the pods of the namespace, as its scope suggests.
func (o *canIOptions) runAsRoot(ctx context.Context, asked []askedRight) (sentences []string) {
	for _, right := range asked {
		if !right.OnNodes() || right.Verb != rights.RunAsRoot {
			continue
		}
		const everywhere = "every node, also where the pods of others run"
		var namespace corev1.Namespace
		err := o.client.Get(ctx, client.ObjectKey{Name: right.Name}, &namespace)
		nodes := everywhere + ". To limit it to nodes: kubectl annotate namespace " + right.Name + " " + v1alpha1.NodesAnnotation + "=LABEL=VALUE (docs/security.md)"
		if limit := namespace.Annotations[v1alpha1.NodesAnnotation]; limit != "" {
			nodes = "the nodes with " + limit
		} else if err != nil {
			nodes = everywhere + ", unless the annotation " + v1alpha1.NodesAnnotation + " limits the namespace"
		}
		sentences = append(sentences, fmt.Sprintf("%s in namespace %s is root on %s", right.Verb, right.Name, nodes))
	}
	return sentences
}

// reading asks for the permissions to read what the commands that follow an apply show. They do not change the exit code.
func (o *canIOptions) reading(ctx context.Context, file *planFile, result *canI) error {
	if len(file.jobs) == 0 {
		return nil
	}
	ask := func(verb, resource, namespace, grant string, commands ...string) error {
		right := askedRight{Right: rights.Right{Verb: verb, Resource: resource, Namespace: namespace}, For: commands}
		var err error
		if right.Allowed, err = o.ask(ctx, right.Right); err == nil && !right.Allowed {
			name, flag := rights.Subject(result.User)
			result.ReadingGrants = append(result.ReadingGrants, fmt.Sprintf(grant, name, flag))
		}
		result.Reading = append(result.Reading, right)
		return err
	}
	if err := ask("list", "nodes", "", "kubectl create clusterrolebinding %s-everynode-view-nodes --clusterrole=everynode-view-nodes %s",
		"explain", "plan", "report", "results", "run", "status -o wide"); err != nil {
		return err
	}
	namespaces := map[string]bool{}
	for _, job := range file.jobs {
		namespaces[job.Namespace] = true
	}
	for _, namespace := range slices.Sorted(maps.Keys(namespaces)) {
		if err := ask("list", "pods", namespace, "kubectl -n "+namespace+" create rolebinding %s-everynode-view --clusterrole=everynode-view %s",
			"logs", "run", "status"); err != nil {
			return err
		}
	}
	return nil
}

// installed returns an error if the API server does not know NodeJobs. A user who may not list them learns that from the
// rights.
func (o *canIOptions) installed(ctx context.Context) error {
	err := o.client.List(ctx, &v1alpha1.NodeJobList{}, client.InNamespace(o.namespace), client.Limit(1))
	if apierrors.IsForbidden(err) {
		return nil
	}
	return cmdutil.Explain(err)
}

// ask asks the API server whether the user has a right.
func (o *canIOptions) ask(ctx context.Context, right rights.Right) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
		Verb: right.Verb, Group: right.Group, Resource: right.Resource, Subresource: right.Subresource, Namespace: right.Namespace, Name: right.Name,
	}}}
	if err := o.client.Create(ctx, review); err != nil {
		return false, fmt.Errorf("asking for the right to %s %s: %w", right.Verb, right.Resource, cmdutil.Explain(err))
	}
	return review.Status.Allowed, nil
}

// user returns the name of the user; "" if the API server does not tell it.
func (o *canIOptions) user(ctx context.Context) (string, error) {
	review := &authenticationv1.SelfSubjectReview{}
	err := o.client.Create(ctx, review)
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		return "", nil
	}
	return review.Status.UserInfo.Username, cmdutil.Explain(err)
}

// notEnforced returns which admission policies of config/authorization do not reject requests. What the user may not read
// is left out.
func (o *canIOptions) notEnforced(ctx context.Context) ([]string, error) {
	var found []string
	for _, name := range rights.Bindings() {
		var binding admissionv1.ValidatingAdmissionPolicyBinding
		err := o.client.Get(ctx, client.ObjectKey{Name: name}, &binding)
		switch {
		case apierrors.IsNotFound(err):
			found = append(found, "ValidatingAdmissionPolicyBinding "+name+" does not exist: apply config/authorization")
		case apierrors.IsForbidden(err):
		case err != nil:
			return nil, cmdutil.Explain(err)
		case !slices.Contains(binding.Spec.ValidationActions, admissionv1.Deny):
			found = append(found, fmt.Sprintf("ValidatingAdmissionPolicyBinding %s has the validationActions %s, without Deny", name, binding.Spec.ValidationActions))
		}
	}
	return found, nil
}

func (o *canIOptions) show(result *canI) error {
	if o.output == console.OutputPeople {
		if err := o.Say(result.table()...); err != nil {
			return err
		}
		return o.Say(result.sentences()...)
	}
	return o.PrintData(o.output, result)
}

// table returns the rights for people.
func (r *canI) table() []text.Line {
	rows := [][]text.Line{text.Cells("RIGHT", "NAMESPACE", "ALLOWED", "FOR")}
	add := func(what, namespace string, allowed bool, reasons []string) {
		answer := text.Toned(text.Bad, "no")
		if allowed {
			answer = text.Toned(text.Good, "yes")
		}
		rows = append(rows, []text.Line{text.Of(what), text.Of(namespace), answer, text.Of(strings.Join(reasons, ", "))})
	}
	for _, right := range r.Rights {
		what, namespace := right.Verb+" "+right.Resource, right.Namespace
		if right.OnNodes() {
			what, namespace = right.Verb, right.Name
		}
		add(what, cmp.Or(namespace, "(all)"), right.Allowed, right.For)
	}
	for _, right := range r.Reading {
		add(right.Verb+" "+right.Resource, cmp.Or(right.Namespace, "(all)"), right.Allowed, right.For)
	}
	for _, namespace := range r.Namespaces {
		add("(namespace)", namespace.Name, namespace.Allowed, namespace.For)
	}
	return append(text.Table(rows), nil)
}

// maxMissing limits the missing rights that are named in a sentence. The table has all.
const maxMissing = 6

// missingNames names the missing rights, for a sentence.
func (r *canI) missingNames() string {
	missing := r.missing()
	var names []string
	for _, right := range missing[:min(len(missing), maxMissing)] {
		name, namespace := right.Verb+" "+right.Resource, right.Namespace
		if right.OnNodes() {
			name, namespace = right.Verb, right.Name
		}
		if namespace != "" {
			name += " in namespace " + namespace
		}
		names = append(names, name)
	}
	if more := len(missing) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

// sentences returns what follows from the rights.
func (r *canI) sentences() []text.Line {
	var lines []text.Line
	if n := len(r.missing()); n > 0 {
		lines = append(lines, text.Toned(text.Bad, fmt.Sprintf("%s lacks %s: %s. An administrator grants what is missing with:",
			cmp.Or(r.User, "This user"), plural.Count(n, "right"), r.missingNames())))
		for _, command := range r.Grants {
			lines = append(lines, text.Of("  "+command))
		}
	} else {
		lines = append(lines, text.Toned(text.Good, cmp.Or(r.User, "This user")+" has all rights that this file needs."))
	}
	if len(r.ReadingGrants) > 0 {
		lines = append(lines, text.Toned(text.Warn, "To use the commands that need to read more, which the file does not, an administrator grants:"))
		for _, command := range r.ReadingGrants {
			lines = append(lines, text.Of("  "+command))
		}
	}
	for _, sentence := range r.RunAsRoot {
		lines = append(lines, text.Toned(text.Warn, sentence))
	}
	for _, namespace := range r.Namespaces {
		if namespace.Message != "" {
			lines = append(lines, text.Toned(text.Warn, namespace.Message))
		}
	}
	for _, reason := range r.NotEnforced {
		lines = append(lines, text.Toned(text.Warn, "Not all rights are enforced: "+reason))
	}
	return lines
}
