package plan

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
)

// defaultMaxConcurrent is rollout.maxConcurrent when omitted, as in the CRD.
var defaultMaxConcurrent = intstr.FromString("25%")

// startWithinLimit starts candidates by name while slots are free. Nodes run in the order of their
// names so that the same cluster always rolls out in the same order.
func (s *survey) startWithinLimit(p *Plan) {
	matched, running := 0, 0
	for i := range p.Nodes {
		switch p.Nodes[i].State {
		case Running:
			running++
			matched++
		case Waiting, Done, Failed:
			matched++
		case Excluded:
		}
	}
	limit := maxConcurrent(s.in.Job.Spec.Rollout, matched)
	slots := limit - running
	if s.obstacle != nil {
		// One start shows whether the obstacle is still there.
		slots = min(slots, 1)
	}
	slices.SortFunc(s.candidates, func(a, b int) int { return cmp.Compare(p.Nodes[a].Name, p.Nodes[b].Name) })
	for _, i := range s.candidates {
		if slots <= 0 {
			p.Nodes[i].Message = fmt.Sprintf("rollout.maxConcurrent allows %d at once", limit)
			continue
		}
		slots--
		s.starts++
		p.Nodes[i].set(Running, v1alpha1.ReasonStarting, "")
		p.Actions = append(p.Actions, Start{Attempt: s.attempts[i]})
	}
}

// maxConcurrent is how many of the matched nodes may run at once: at least one, or nothing would
// ever run.
func maxConcurrent(r v1alpha1.RolloutSpec, matched int) int {
	value := r.MaxConcurrent
	if value == nil {
		value = &defaultMaxConcurrent
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(value, matched, false)
	if err != nil {
		// The CRD's rule lets no such value in.
		return 1
	}
	return max(n, 1)
}
