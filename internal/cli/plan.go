// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/console"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/plan"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/observe"
	"github.com/everynode/everynode/internal/text"
	"github.com/everynode/everynode/internal/ui/cmdutil"
	"github.com/everynode/everynode/internal/ui/view"
)

type planOptions struct {
	fileOptions
	// onNodes runs task.check on the nodes, for at most timeout. unanswered is true if not all nodes have answered.
	onNodes    bool
	timeout    time.Duration
	unanswered bool
	// managerNode is the node that the manager runs on; "" if it is not known.
	managerNode string
}

func newPlanCommand(f *console.Factory) *cobra.Command {
	o := &planOptions{fileOptions: fileOptions{Factory: f}}
	cmd := &cobra.Command{
		Use:   "plan -f FILE",
		Short: "Show what a NodeJob or a NodeDisruptionBudget would do to this cluster, and change nothing",
		Long: `Show what the NodeJobs of a file would do to this cluster as it is now: which nodes match, in which steps and order,
which do not and why, what would be cordoned, which pods a drain would evict, and what would block it. Several NodeJobs may
depend on each other, and name ConfigMaps and Secrets of the file. Nothing is changed: the only write is a dry run, by
which the API server checks the file.

For a NodeDisruptionBudget, it shows how many nodes it selects, how many of them may be unavailable, what is closed now, the next five
windows in their time zone, and when other budgets of these nodes are open at the same time.

With --on-nodes, task.check also runs on the nodes, in a NodeJob that runs nothing else and is then deleted: it shows on which
nodes the task is needed, before anything is applied. It needs the same permissions as to apply the file.`,
		Example: `  kubectl everynode plan -f max-map-count.yaml

  # from a pipe, with all names
  kustomize build . | kubectl everynode plan -f - -o wide

  # on which nodes the task is needed
  kubectl everynode plan -f max-map-count.yaml --on-nodes`,
		Args:              console.ExactArgs(0, "no arguments"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("timeout") && !o.onNodes {
				return cmdutil.Failf(cmdutil.ExitUsage, "--timeout is for --on-nodes: add it, or leave --timeout out")
			}
			if err := o.complete(cmd); err != nil {
				return err
			}
			return o.run(cmd.Context())
		},
	}
	cmd.Flags().BoolVar(&o.onNodes, "on-nodes", false, "run task.check on the nodes, to see where the task is needed")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 5*time.Minute, "with --on-nodes: how long to wait for the answers; exit code 11 if some are missing then")
	o.addFlag(cmd, "a file with NodeJobs and the ConfigMaps and Secrets that they name, or with NodeDisruptionBudgets")
	console.AddOutputFlag(cmd, &o.output, console.OutputWide, console.OutputJSON)
	return cmd
}

func (o *planOptions) run(ctx context.Context) error {
	file, err := o.readPlannable()
	if err != nil {
		return err
	}
	budgets, err := o.planBudgets(ctx, file)
	if err != nil {
		return err
	}
	if len(file.jobs) == 0 {
		return o.show(nil, budgets, nil)
	}
	seen, err := readCluster(ctx, o.Factory, o.client, o.namespace)
	if err != nil {
		return err
	}
	seen.Budgets = applied(seen.Budgets, file.budgets)
	seen.readManagerNode(ctx, o.client, file.jobs)
	o.managerNode = seen.ManagerNode
	seen.readAllowedNodes(ctx, o.client, file.jobs)
	plans, err := o.planAll(ctx, &seen, file)
	if err != nil {
		return err
	}
	if o.onNodes {
		if err := o.askNodes(ctx, file, plans); err != nil {
			return err
		}
	}
	if err := o.show(plans, budgets, cmdutil.FreezesOn(seen.Budgets, seen.Nodes, seen.Now)); err != nil || !o.unanswered {
		return err
	}
	return cmdutil.Exit(cmdutil.ExitTimedOut)
}

// readPlannable reads the file, and says what is not planned.
func (o *planOptions) readPlannable() (*planFile, error) {
	file, err := o.read()
	if err != nil {
		return nil, err
	}
	for range file.guards {
		file.skipped = append(file.skipped, v1alpha1.GroupVersion.String()+" NodeGuard")
	}
	for _, kind := range file.skipped {
		o.Tell(text.Toned(text.Dim, "-- left out, since no plan depends on it: "+kind))
	}
	if len(file.jobs)+len(file.budgets) == 0 {
		return nil, cmdutil.Failf(cmdutil.ExitNotFound, "there is no NodeJob and no NodeDisruptionBudget in %s", o.file)
	}
	return file, nil
}

// planAll returns the plans of all NodeJobs of a file.
func (o *planOptions) planAll(ctx context.Context, seen *clusterView, file *planFile) ([]view.Plan, error) {
	plans, err := o.draft(ctx, &seen.Cluster, file)
	if err != nil {
		return nil, err
	}
	for i := range plans {
		if seen.namespaced != nil {
			plans[i].Notes = append(plans[i].Notes, "gates of NodeJobs in other namespaces are not in this plan: "+seen.namespaced.Error())
		}
		if note := seen.limits[plans[i].Job.Namespace]; note != "" && observe.ToldObstacle(plans[i].Job) == nil {
			plans[i].Notes = append(plans[i].Notes, note)
		}
		if seen.managerUnknown && plan.Disrupts(plans[i].Job) {
			plans[i].Notes = append(plans[i].Notes, "the manager's node comes last, and its name is not known to this plan: to read it, you need the permission "+
				"to list pods in namespace "+cmdutil.ManagerNamespace)
		}
		if err := o.plan(ctx, seen.Cluster, &plans[i]); err != nil {
			return nil, err
		}
	}
	return plans, nil
}

// showData prints the plans for programs.
func (o *planOptions) showData(plans []view.Plan, budgets []view.BudgetPlan) error {
	all := planResult{NodeJobs: []view.PlanData{}}
	for i := range budgets {
		all.Budgets = append(all.Budgets, budgets[i].Data())
	}
	for i := range plans {
		all.NodeJobs = append(all.NodeJobs, plans[i].Data())
	}
	return o.PrintData(o.output, all)
}

// show prints the plans: for programs, or for users below the freezes.
func (o *planOptions) show(plans []view.Plan, budgets []view.BudgetPlan, found []view.Freeze) error {
	if o.output == console.OutputJSON {
		return o.showData(plans, budgets)
	}
	if err := sayFreezes(o.Factory, found); err != nil {
		return err
	}
	var lines []text.Line
	for i := range budgets {
		lines = append(append(lines, budgets[i].Lines()...), nil)
	}
	for i := range plans {
		lines = append(append(lines, plans[i].Lines()...), nil)
	}
	return o.Say(lines[:len(lines)-1]...)
}

// planResult is the plan of a file, for programs.
type planResult struct {
	NodeJobs []view.PlanData       `json:"nodeJobs"`
	Budgets  []view.BudgetPlanData `json:"nodeDisruptionBudgets,omitempty"`
}

// draft returns the NodeJobs of the file as they would be, each with its future revision. It adds them to the view,
// since they may depend on each other.
func (o *planOptions) draft(ctx context.Context, seen *observe.Cluster, file *planFile) ([]view.Plan, error) {
	plans := make([]view.Plan, 0, len(file.jobs))
	for i, job := range file.jobs {
		v := view.Plan{Now: seen.Now, Width: o.Terminal().Options().Width, All: o.output != console.OutputPeople}
		job, err := o.dryRun(ctx, job, unmade(i), &v)
		if err != nil {
			return nil, err
		}
		v.Job = job
		if message := console.CheckNamespace(ctx, o.client, job.Namespace).Message(job.Namespace); message != "" && observe.ToldObstacle(job) == nil {
			v.Notes = append(v.Notes, message)
		}
		v.Notes = append(v.Notes, notesOn(job, seen.Now)...)
		source, obstacle, err := observe.Source(job, o.fetch(ctx, file, &v))
		if err != nil {
			return nil, cmdutil.Explain(err)
		}
		if task.CannotSayNo(source.Check) {
			v.Notes = append(v.Notes, "task.check always ends with exit code 0, so it never says no: remove what ends its last line")
		}
		asPeer := job.DeepCopy()
		if v.Obstacle = obstacle; obstacle == nil {
			v.Revision = task.Revision(&job.Spec, source)
			asPeer.Status.Revision, asPeer.Status.ObservedGeneration = v.Revision, asPeer.Generation
			if v.Obstacle, err = o.missingAccount(ctx, file, job); err != nil {
				return nil, err
			}
		}
		seen.Jobs = withJob(seen.Jobs, asPeer)
		plans = append(plans, v)
	}
	return plans, nil
}

// notesOn are what to know of the spec of a NodeJob.
func notesOn(job *v1alpha1.NodeJob, now time.Time) (notes []string) {
	for _, image := range task.TaggedImages(job) {
		notes = append(notes, "image "+image+" is named by a tag: its content can change from node to node and from attempt to attempt, without a new revision. Name it by digest (IMAGE@sha256:...)")
	}
	if e := job.Spec.Expires; e != nil && e.At != nil && !now.Before(e.At.Time) {
		notes = append(notes, "spec.expires.at has passed ("+e.At.UTC().Format(time.RFC3339)+"), so no node runs the task: set a later time, or leave it out")
	}
	return notes
}

// plan returns the plan of a NodeJob.
func (o *planOptions) plan(ctx context.Context, seen observe.Cluster, v *view.Plan) error {
	pods, err := cmdutil.PodsNamed(ctx, o.client, v.Job)
	if err != nil {
		return err
	}
	in := seen.Input(v.Job, pods)
	in.Revision = v.Revision
	if v.Obstacle != nil {
		in.Obstacle = v.Obstacle
	}
	v.Obstacle = in.Obstacle
	in.Nodes = afterAssuming(in)
	v.Plan = plan.Next(in)
	v.Notes = append(v.Notes, view.Exempt(cmdutil.ExemptOf(seen.Budgets, &in, v.Plan.Nodes), in.Now)...)
	v.Assumed = assumed(in.Nodes)
	v.Conflicts = conflicts(v, in.Nodes)
	return o.drains(ctx, v)
}

// withJob replaces a NodeJob with its future version.
func withJob(jobs []*v1alpha1.NodeJob, job *v1alpha1.NodeJob) []*v1alpha1.NodeJob {
	others := slices.DeleteFunc(slices.Clone(jobs), func(j *v1alpha1.NodeJob) bool { return j.Namespace == job.Namespace && j.Name == job.Name })
	return append(others, job)
}

// unmade returns a placeholder UID for the i-th NodeJob of a file while it does not exist.
func unmade(i int) types.UID { return types.UID(fmt.Sprint("not-made-", i)) }

// dependencyReasons are reasons that the manager may have reported about dependencies on NodeJobs that are in the file.
var dependencyReasons = []string{v1alpha1.ReasonDependencyCycle, v1alpha1.ReasonDependencyNotFound}

// dryRun lets the API server validate the NodeJob and set defaults. If the user may not write, the plan is made from
// the file alone.
func (o *planOptions) dryRun(ctx context.Context, job *v1alpha1.NodeJob, uid types.UID, v *view.Plan) (*v1alpha1.NodeJob, error) {
	var live v1alpha1.NodeJob
	err := o.client.Get(ctx, client.ObjectKeyFromObject(job), &live)
	switch {
	case err == nil:
		v.Exists, v.Was = true, live.Status.Revision
	case !apierrors.IsNotFound(err) || cmdutil.NotInstalled(err):
		return nil, cmdutil.Explain(err)
	}
	would := job.DeepCopy()
	if v.Exists {
		would = live.DeepCopy()
		would.Spec, would.Annotations, would.Labels = job.Spec, job.Annotations, job.Labels
		err = o.client.Update(ctx, would, client.DryRunAll)
	} else {
		err = o.client.Create(ctx, would, client.DryRunAll)
	}
	note, err := unchecked(err)
	if err != nil {
		return nil, err
	}
	if note != "" {
		v.Notes = append(v.Notes, note)
		would = job.DeepCopy()
	}
	// The plan is the one that the manager makes when it first reconciles the NodeJob.
	if would.UID == "" || !v.Exists {
		would.UID, would.CreationTimestamp, would.Generation = uid, metav1.NewTime(v.Now), 1
	}
	if v.Exists {
		would.UID, would.Status = live.UID, live.Status
		would.Status.Conditions = slices.DeleteFunc(slices.Clone(live.Status.Conditions), func(c metav1.Condition) bool {
			return slices.Contains(dependencyReasons, c.Reason)
		})
	}
	return would, nil
}

// unchecked returns a note if a user may not let the API server check an object by a dry run, or an error if it would not take it.
func unchecked(err error) (note string, problem error) {
	switch {
	case apierrors.IsForbidden(err):
		return "not checked by the API server, and without its defaults: " + cmdutil.Explain(err).Error(), nil
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return "", cmdutil.Failf(cmdutil.ExitUsage, "the API server would not take it: %w", err)
	case err != nil:
		return "", cmdutil.Explain(err)
	}
	return "", nil
}

// fetch reads the objects to which the NodeJob refers, from the file or with the user's own permissions.
func (o *planOptions) fetch(ctx context.Context, file *planFile, v *view.Plan) observe.Fetch {
	return observe.Fetch{
		Script: func(_ string, ref v1alpha1.ConfigMapKeyRef) (string, bool, error) {
			configMap, err := o.configMap(ctx, file, client.ObjectKey{Namespace: v.Job.Namespace, Name: ref.Name})
			if err != nil {
				return "", false, err
			}
			return observe.ScriptIn(configMap, ref.Key)
		},
		Contents: func(contents []task.Content) ([]task.Hashes, *hold.Why, error) {
			return o.contents(ctx, file, v, contents)
		},
	}
}

// contents returns hashes of the objects whose content is part of the revision. If the user may not read a Secret, or a Secret does
// not exist yet, the revision is only a guess.
func (o *planOptions) contents(ctx context.Context, file *planFile, v *view.Plan, contents []task.Content) ([]task.Hashes, *hold.Why, error) {
	var hashes []task.Hashes
	for _, content := range contents {
		hash, obstacle, err := o.contentHash(ctx, file, v, content)
		switch {
		case apierrors.IsForbidden(err):
			guess(v, "had changed", content, cmdutil.Explain(err))
			hash = "not known"
		case apierrors.IsNotFound(err):
			return nil, &hold.Why{Reason: map[v1alpha1.ContentKind]string{
				v1alpha1.ContentConfigMap: v1alpha1.ReasonConfigMapNotFound, v1alpha1.ContentSecret: v1alpha1.ReasonSecretNotFound,
			}[content.Kind], Message: fmt.Sprintf("%s: %s %s/%s does not exist. Create it first", content.Field(), content.Kind, v.Job.Namespace, content.Name)}, nil
		case err != nil || obstacle != nil:
			return nil, obstacle, err
		}
		hashes = append(hashes, task.Hashes{Content: hash}) // no pod is made of them
	}
	return hashes, nil, nil
}

// guess notes that the content of an object is not known.
func guess(v *view.Plan, as string, content task.Content, why any) {
	v.Notes = append(v.Notes, fmt.Sprintf("the revision is a guess, as if %s %s %s: %s", content.Kind, content.Name, as, why))
}

func (o *planOptions) contentHash(ctx context.Context, file *planFile, v *view.Plan, content task.Content) (hash string, obstacle *hold.Why, err error) {
	key := client.ObjectKey{Namespace: v.Job.Namespace, Name: content.Name}
	var labels map[string]string
	var data map[string][]byte
	var uid types.UID
	if content.Kind == v1alpha1.ContentConfigMap {
		configMap, err := o.configMap(ctx, file, key)
		if err != nil {
			return "", nil, err
		}
		labels, data = configMap.Labels, observe.ConfigMapData(configMap)
	} else {
		secret, guessed, err := o.secret(ctx, file, key)
		if err != nil {
			return "", nil, err
		}
		if guessed {
			guess(v, "were there", content, "one that is made counts as another")
		}
		uid, data = secret.UID, secret.Data
	}
	if content.File != "" {
		obstacle = observe.UnusableFiles(key.Namespace, content, labels, data)
	}
	return task.ContentHash(uid, data), obstacle, nil
}
