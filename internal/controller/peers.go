package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/plan"
	"github.com/everynode/everynode/internal/record"
)

// observePeers gathers what of other NodeJobs matters to this one: those that it depends on, those that share
// its gate, and the gates of all.
func (r *Reconciler) observePeers(ctx context.Context, seen *observation) error {
	var jobs v1alpha1.NodeJobList
	if err := r.Client.List(ctx, &jobs, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing NodeJobs: %w", err)
	}
	in, job := &seen.input, seen.job
	all := make([]*v1alpha1.NodeJob, 0, len(jobs.Items))
	inNamespace := map[string]*v1alpha1.NodeJob{}
	for i := range jobs.Items {
		other := r.memory.job(&jobs.Items[i])
		all = append(all, other)
		if other.Namespace == job.Namespace {
			inNamespace[other.Name] = other
		}
	}
	r.observeGates(all, seen)
	if obstacle := dependencyObstacle(job, inNamespace); obstacle != nil && in.Obstacle == nil && job.DeletionTimestamp.IsZero() {
		in.Obstacle = obstacle
	}
	for _, name := range job.Spec.DependsOn {
		if other := inNamespace[name]; other != nil {
			in.DependsOn = append(in.DependsOn, r.peer(job, other, in.Nodes))
		}
	}
	return nil
}

// observeGates gathers the gates of all NodeJobs, and who shares the one of this.
func (r *Reconciler) observeGates(all []*v1alpha1.NodeJob, seen *observation) {
	in, job := &seen.input, seen.job
	for _, other := range all {
		if other.Spec.Gate != nil {
			in.GateKeys = append(in.GateKeys, v1alpha1.GateKey(other))
		}
		if sharesGate(job, other) {
			in.Sharers = append(in.Sharers, r.peer(job, other, in.Nodes))
		}
	}
	slices.Sort(in.GateKeys)
	in.GateKeys = slices.Compact(in.GateKeys)
	if job.Spec.Gate != nil {
		in.GateGap = r.gates.gap(job.Namespace)
	}
}

// sharesGate is true for another NodeJob whose gate is the same taint.
func sharesGate(job, other *v1alpha1.NodeJob) bool {
	return job.UID != other.UID && job.Spec.Gate != nil && other.Spec.Gate != nil && other.DeletionTimestamp.IsZero() &&
		v1alpha1.GateKey(job) == v1alpha1.GateKey(other) && gateEffect(job) == gateEffect(other)
}

func gateEffect(job *v1alpha1.NodeJob) v1alpha1.GateEffect {
	if job.Spec.Gate.Effect == "" {
		return v1alpha1.GateNoSchedule
	}
	return job.Spec.Gate.Effect
}

// peer is another NodeJob as the plan of this one reads it.
func (r *Reconciler) peer(job, other *v1alpha1.NodeJob, nodes []plan.Node) plan.Peer {
	p := plan.Peer{
		Name:         other.Name,
		Key:          v1alpha1.RecordKey(other.Namespace, other.Name),
		Selector:     other.Spec.NodeSelector,
		Tolerations:  other.Spec.Tolerations,
		RemoveLabels: other.Spec.RemoveLabels,
		OnReboot:     other.Spec.Rerun.OnReboot,
		OnReplace:    other.Spec.Rerun.OnReplace == nil || *other.Spec.Rerun.OnReplace,
		On:           make(map[string]record.OnNode, len(nodes)),
	}
	if other.Namespace != job.Namespace {
		p.Name = other.Namespace + "/" + other.Name
	}
	if other.Status.ObservedGeneration == other.Generation {
		p.Revision = other.Status.Revision
	}
	p.AnyRevision = other.Spec.Rerun.OnChange != nil && !*other.Spec.Rerun.OnChange
	for i := range nodes {
		p.On[nodes[i].Name] = r.records.read(nodes[i].Name, nodes[i].Labels, nodes[i].Annotations, p.Key)
	}
	return p
}

// dependencyObstacle is a dependency that can never be met; nil when there is none.
func dependencyObstacle(job *v1alpha1.NodeJob, jobs map[string]*v1alpha1.NodeJob) *plan.Obstacle {
	if len(job.Spec.DependsOn) == 0 {
		return nil
	}
	needs := make(map[string][]string, len(jobs))
	for name, other := range jobs {
		needs[name] = other.Spec.DependsOn
	}
	needs[job.Name] = job.Spec.DependsOn
	if circle := plan.Circle(job.Name, needs); circle != nil {
		return &plan.Obstacle{
			Reason: v1alpha1.ReasonDependencyCycle,
			Message: fmt.Sprintf("NodeJobs depend on each other in a circle by spec.dependsOn: %s. Take one of them out of another's dependsOn",
				cleanHead(strings.Join(circle, " -> "), maxRefusalBytes)),
		}
	}
	for _, name := range job.Spec.DependsOn {
		if jobs[name] == nil {
			return &plan.Obstacle{
				Reason:  v1alpha1.ReasonDependencyNotFound,
				Message: fmt.Sprintf("spec.dependsOn: NodeJob %s/%s does not exist. Create it, or take it out; this one goes on by itself", job.Namespace, cleanHead(name, 80)),
			}
		}
	}
	return nil
}
