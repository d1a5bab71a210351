// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/kube"
)

// These tests find mistakes that make mutants generates and that no other test finds.

// did names the actions of a plan.
func did(p Plan) []string {
	var words []string
	for _, action := range p.Actions {
		switch a := action.(type) {
		case CreateCompanion:
			words = append(words, "create a companion on "+a.Node)
		case CreatePlaceholder:
			words = append(words, "create the placeholder")
		case CreateBudget:
			words = append(words, "create the budget")
		case SetBudget:
			words = append(words, setBudget(&a))
		case CreateCheck:
			words = append(words, "check "+a.Node)
		case DeletePod:
			words = append(words, "delete "+a.Pod.Name+map[bool]string{true: " for its release"}[a.Unchanged])
		case EndRelease:
			words = append(words, "end the release of "+a.Companion.Name)
		case DeleteBudget:
			words = append(words, "delete the budget "+a.Budget.Name)
		case RemoveApproval:
			words = append(words, fmt.Sprintf("remove approvals from %s, except %q, break glass %t", a.Node, a.Approved, a.BreakGlass))
		}
	}
	return words
}

func setBudget(a *SetBudget) string {
	switch a.MinAvailable {
	case a.Budget.MinAvailable:
		return "change the budget"
	case Locked:
		return "lock the budget"
	}
	return fmt.Sprintf("change the budget to %d", a.MinAvailable)
}

func live(is bool) func(*Input) { return func(in *Input) { in.Live = is } }

func TestActionsOfAPass(t *testing.T) {
	newRequest := func(in *Input) { in.Nodes[0].Unschedulable = true }
	approval := func(in *Input) {
		in.Guard.Spec.Release.Approval, in.Nodes[0].Approved, in.Nodes[0].BreakGlass = v1alpha1.ApprovalRequired, "storage/disks", "yes"
	}
	noneElse := func(in *Input) { in.Nodes[2].Ready = false }
	terminating := func(in *Input) { in.Checks[0].Terminating = true }
	noPlaceholder := func(in *Input) { in.Placeholders = nil }
	for name, tt := range map[string]struct {
		in   Input
		want []string
	}{
		"a release that is written now needs no write of the request":                {scene(newRequest), nil},
		"a release that is not written yet needs one":                                {scene(newRequest, live(false)), []string{"lock the budget"}},
		"a companion is deleted for a stored release":                                {scene(going(0, false), cordoned(0)), []string{"delete c-n1 for its release"}},
		"it is not deleted twice":                                                    {scene(going(0, false), cordoned(0), func(in *Input) { in.Companions[0].Terminating, in.Budgets[0].Healthy = true, 2 }), []string{"change the budget to 2"}},
		"another companion is not deleted for it":                                    {scene(going(0, false), cordoned(0), live(false), func(in *Input) { in.Companions[0].UID = "new" }), nil},
		"a stale view shows a release that has ended":                                {scene(going(0, false), cordoned(0), live(false), releaseEnds), nil},
		"a release ends before the companion is deleted":                             {scene(going(0, true)), []string{"end the release of c-n1"}},
		"the end of a release is noted once":                                         {scene(going(0, true), releaseEnds, live(false)), nil},
		"the release of a node that is no longer guarded ends":                       {scene(going(0, false), func(in *Input) { in.Nodes[0].UID = "another" }), []string{"end the release of c-n1"}},
		"a companion of an earlier NodeGuard is deleted, and the budget requires it": {scene(func(in *Input) { in.Companions[0].Owner = "earlier" }), []string{"delete c-n1"}},
		"a budget of an earlier NodeGuard is deleted":                                {scene(func(in *Input) { in.Budgets[0].Owner = "earlier" }), []string{"create the budget", "delete the budget disks-guard"}},
		"a missing budget is not created in a namespace that is not allowed":         {scene(func(in *Input) { in.NotAllowed, in.Budgets = hold.NamespaceNotAllowed("storage"), nil }), nil},
		"a budget is changed in a namespace that was allowed":                        {scene(newRequest, live(false), func(in *Input) { in.NotAllowed = hold.NamespaceNotAllowed("storage") }), []string{"lock the budget"}},
		"a missing placeholder is created":                                           {scene(noPlaceholder), []string{"create the placeholder"}},
		"a placeholder of an earlier NodeGuard is replaced":                          {scene(func(in *Input) { in.Placeholders[0].Owner = "earlier" }), []string{"create the placeholder", "delete placeholder"}},
		"no placeholder is created in a namespace that is not allowed":               {scene(noPlaceholder, func(in *Input) { in.NotAllowed = hold.NamespaceNotAllowed("storage") }), nil},
		"no placeholder is created for a while after it was rejected":                {scene(noPlaceholder, func(in *Input) { in.PlaceholderObstacle = &hold.Why{Until: t0.Add(1)} }), nil},
		"a placeholder is created some time after it was rejected":                   {scene(noPlaceholder, func(in *Input) { in.PlaceholderObstacle = &hold.Why{Until: t0} }), []string{"create the placeholder"}},

		"the approval of a returning node is removed":           {scene(approval, going(0, true), func(in *Input) { in.Companions[0].Ready = false }), []string{`remove approvals from n1, except "", break glass true`, "end the release of c-n1"}},
		"an approval is removed according to a stale view, too": {scene(approval, live(false), going(0, true), func(in *Input) { in.Nodes[0].BreakGlass = "" }), []string{`remove approvals from n1, except "", break glass false`, "end the release of c-n1"}},
		"an approval for the next request stays":                {scene(approval, cordoned(0), going(0, true), noneElse, func(in *Input) { in.Companions[0].Ready, in.Nodes[0].BreakGlass = false, "" }), []string{"end the release of c-n1"}},

		"a check waits until its request is stored":            {scene(newRequest, checked("", 0), live(false)), []string{"lock the budget"}},
		"a check starts for a stored request":                  {scene(cordoned(0), checked("", 0)), []string{"check n1"}},
		"no check starts without a budget":                     {scene(cordoned(0), checked("", 0), func(in *Input) { in.Budgets = nil }), []string{"create the budget"}},
		"no check starts in a namespace that is not allowed":   {scene(cordoned(0), checked("", 0), func(in *Input) { in.NotAllowed = hold.NamespaceNotAllowed("storage") }), nil},
		"a check of an earlier NodeGuard is replaced":          {scene(cordoned(0), checked(corev1.PodSucceeded, time.Second), func(in *Input) { in.Checks[0].Owner = "earlier" }), []string{"check n1", "delete check-n1"}},
		"a check on a node that is gone is deleted":            {scene(checked(corev1.PodRunning, 0), func(in *Input) { in.Checks[0].Node = "gone" }), []string{"delete check-n1"}},
		"a check is deleted without release.check":             {scene(cordoned(0), checked(corev1.PodRunning, 0), func(in *Input) { in.Guard.Spec.Release = v1alpha1.ReleaseSpec{} }), []string{"delete check-n1"}},
		"a check without a request is deleted":                 {scene(checked(corev1.PodRunning, 0)), []string{"delete check-n1"}},
		"a check without a request is not deleted twice":       {scene(checked(corev1.PodRunning, 0), terminating), nil},
		"a running check stays":                                {scene(cordoned(0), checked(corev1.PodRunning, 0)), nil},
		"a check that succeeded stays while the node waits":    {scene(cordoned(0), checked(corev1.PodSucceeded, time.Second), noneElse), nil},
		"a check that failed recently stays":                   {scene(cordoned(0), checked(corev1.PodFailed, time.Second)), nil},
		"a check that failed long ago makes room for the next": {scene(cordoned(0), checked(corev1.PodFailed, time.Minute)), []string{"delete check-n1"}},
		"a check of a released node is no longer needed":       {scene(cordoned(0), going(0, false), checked(corev1.PodSucceeded, time.Second), func(in *Input) { in.Companions = in.Companions[1:] }), []string{"delete check-n1"}},
		"a released node gets no companion":                    {scene(cordoned(0), func(in *Input) { in.Companions = in.Companions[1:] }), nil},
		"a held node gets its companion":                       {scene(cordoned(0), noneElse, func(in *Input) { in.Companions = in.Companions[1:] }), []string{"create a companion on n1"}},
		"no companion is created on a terminating node":        {scene(cordoned(0), noneElse, func(in *Input) { in.Companions, in.Nodes[0].Deleting = in.Companions[1:], true }), nil},
		"no companion is created where it would be evicted": {scene(func(in *Input) {
			in.Companions, in.Nodes[0].Taints = in.Companions[1:], []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoExecute}}
		}), []string{}},
		"a taint that evicts no pods does not matter": {scene(func(in *Input) {
			in.Companions, in.Nodes[0].Taints, in.Target.Template = in.Companions[1:], []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoSchedule}}, nil
		}), []string{"create a companion on n1"}},
		"a companion that has just ended waits":                {scene(endedCompanion(failedWait - 1)), nil},
		"a companion that ended is replaced":                   {scene(endedCompanion(failedWait)), []string{"delete c-n1"}},
		"a companion that ended is not deleted twice":          {scene(endedCompanion(failedWait), func(in *Input) { in.Companions[0].Terminating = true }), nil},
		"an outdated companion is replaced":                    {scene(outdated), []string{"delete c-n1"}},
		"not while it terminates":                              {scene(outdated, func(in *Input) { in.Companions[0].Terminating = true }), nil},
		"not while the node requests its release":              {scene(outdated, cordoned(0), noneElse), nil},
		"not in a namespace that is not allowed":               {scene(outdated, func(in *Input) { in.NotAllowed = hold.NamespaceNotAllowed("storage") }), nil},
		"not while the companion of another node is not ready": {scene(outdated, func(in *Input) { in.Companions[1].Ready = false }), nil},
		"pods are deleted with the NodeGuard":                  {scene(isDeleted, func(in *Input) { in.Companions = in.Companions[:1] }), []string{"delete the budget disks-guard", "delete c-n1", "delete placeholder"}},
		"terminating pods are not deleted again with it":       {scene(isDeleted, func(in *Input) { in.Companions = in.Companions[:1]; in.Companions[0].Terminating = true }), []string{"delete the budget disks-guard", "delete placeholder"}},
		"pods of a node without a target are deleted":          {scene(withoutTarget), []string{"delete c-n1"}},
		"terminating pods of a node without a target are left": {scene(withoutTarget, func(in *Input) { in.Companions[0].Terminating = true }), nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, did(Next(tt.in)), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
		})
	}
}

func endedCompanion(age time.Duration) func(*Input) {
	return func(in *Input) {
		in.Companions[0].Phase, in.Companions[0].Ready, in.Companions[0].Created = corev1.PodFailed, false, t0.Add(-age)
	}
}

func outdated(in *Input) { in.Companions[0].Revision = "r0" }

func isDeleted(in *Input) { in.Guard.DeletionTimestamp = &metav1.Time{Time: t0} }

func withoutTarget(in *Input) {
	in.Target.Pods, in.Companions[0].Node = in.Target.Pods[1:], "gone"
	in.Nodes = in.Nodes[1:]
}

// A check takes at most 60 s and ends 60 s after that at the latest; it runs again after 20 s, and its success counts for 30 s.
func TestCheckStates(t *testing.T) {
	check := func(interval int32) observed {
		in := scene(checked("", 0))
		in.Guard.Spec.Release.Check.PeriodSeconds = &interval
		return observe(&in)
	}
	o := check(20)
	latest := o.checkTimeout() + checkSlack
	running := func(age time.Duration) Pod { return Pod{Phase: corev1.PodRunning, Created: t0.Add(-age)} }
	ended := func(phase corev1.PodPhase, age time.Duration) Pod {
		return Pod{Phase: phase, Created: t0.Add(-age - time.Second), Ended: t0.Add(-age)}
	}
	for name, tt := range map[string]struct {
		o    observed
		pod  Pod
		want checkState
	}{
		"before its end":                     {o, running(latest - 1), checkRunning},
		"at its end":                         {o, running(latest), checkOverdue},
		"an interval after its end":          {o, running(latest + 20*time.Second), checkExpired},
		"it has just failed":                 {o, ended(corev1.PodFailed, 20*time.Second-1), checkFailed},
		"it failed an interval ago":          {o, ended(corev1.PodFailed, 20*time.Second), checkExpired},
		"it has just succeeded":              {o, ended(corev1.PodSucceeded, 30*time.Second-1), checkSucceeded},
		"it succeeded 30 s ago":              {o, ended(corev1.PodSucceeded, 30*time.Second), checkSucceededEarlier},
		"a longer interval":                  {check(40), ended(corev1.PodSucceeded, 40*time.Second-1), checkSucceeded},
		"it succeeded a longer interval ago": {check(40), ended(corev1.PodSucceeded, 40*time.Second), checkSucceededEarlier},
		"it terminates":                      {o, Pod{Terminating: true}, checkTerminating},
		"it belongs to an earlier request":   {o, Pod{Phase: corev1.PodSucceeded, RequestedAt: "earlier"}, checkOutdated},
	} {
		if got := tt.o.checkState(&nodePlan{observedNode: observedNode{check: &tt.pod}}); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
	if got := o.checkState(&nodePlan{}); got != checkMissing {
		t.Errorf("without a pod: %d, want %d", got, checkMissing)
	}
}

func TestEarliestOfTwoTimes(t *testing.T) {
	never, soon, late := time.Time{}, t0, t0.Add(1)
	for _, tt := range []struct{ a, b, want time.Time }{
		{never, never, never}, {never, late, late}, {late, never, late}, {soon, late, soon}, {late, soon, soon}, {soon, soon, soon},
	} {
		if got := earliest(tt.a, tt.b); !got.Equal(tt.want) {
			t.Errorf("of %v and %v: %v", tt.a, tt.b, got)
		}
	}
}

func TestACheckThatDoesNotStartSaysWhy(t *testing.T) {
	for waiting, want := range map[string]string{"": "release.check runs on it", "ImagePullBackOff": "release.check does not start: ImagePullBackOff"} {
		p := Next(scene(cordoned(0), checked(corev1.PodPending, 0), func(in *Input) { in.Checks[0].Waiting = waiting }))
		if held := p.Status.Waiting; len(held) != 1 || !strings.HasPrefix(held[0].Message, want) {
			t.Errorf("%+v, want %s", held, want)
		}
	}
}

func TestDeadlines(t *testing.T) {
	late := func(action v1alpha1.DeadlineAction, seconds int32) func(*Input) {
		return func(in *Input) {
			in.Guard.Spec.Release.DeadlineSeconds, in.Guard.Spec.Release.OnDeadline = &seconds, action
		}
	}
	waits := func(in *Input) { in.Guard.Spec.Release.Approval = v1alpha1.ApprovalRequired }
	for name, tt := range map[string]struct {
		in    Input
		state string
		says  string
	}{
		"just before":           {scene(cordoned(0), waits, late(v1alpha1.OnDeadlineRelease, 3601)), "Held AwaitingApproval", ""},
		"at the deadline":       {scene(cordoned(0), waits, late(v1alpha1.OnDeadlineRelease, 3600)), "Released DeadlineReached", ""},
		"it holds":              {scene(cordoned(0), waits, late(v1alpha1.OnDeadlineHold, 3600)), "Held AwaitingApproval", "; its deadline has passed, and release.onDeadline is Hold"},
		"it holds by default":   {scene(cordoned(0), waits, late("", 3600)), "Held AwaitingApproval", "; its deadline has passed, and release.onDeadline is Hold"},
		"a check fails by then": {scene(cordoned(0), checked(corev1.PodFailed, time.Second), late(v1alpha1.OnDeadlineRelease, 3600)), "Released DeadlineReached", ""},
		"a check fails before":  {scene(cordoned(0), checked(corev1.PodFailed, time.Second), late(v1alpha1.OnDeadlineRelease, 3601)), "Held CheckFailed", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := Next(tt.in)
			if got := states(p)["n1"]; got != tt.state {
				t.Errorf("%s, want %s", got, tt.state)
			}
			if !slices.ContainsFunc(p.Nodes, func(n NodeState) bool { return n.Name == "n1" && strings.Contains(n.Message, tt.says) }) {
				t.Errorf("%+v, want a message with %q", p.Nodes, tt.says)
			}
		})
	}
}

// A break-glass annotation stays until all NodeGuards that have released the node have recorded the end of its release.
func TestBreakGlassIsRetained(t *testing.T) {
	peer := func(change func(*v1alpha1.ReleasedNode)) []Peer {
		r := v1alpha1.ReleasedNode{Node: "n1", UID: "uid-n1"}
		change(&r)
		return []Peer{{Name: "ns/a", Released: []v1alpha1.ReleasedNode{r}}}
	}
	for name, tt := range map[string]struct {
		peers []Peer
		node  nodePlan
		want  bool
	}{
		"released by another":   {peer(func(*v1alpha1.ReleasedNode) {}), nodePlan{stage: returning}, true},
		"returning there":       {peer(func(r *v1alpha1.ReleasedNode) { r.Returning = true }), nodePlan{stage: returning}, false},
		"another node":          {peer(func(r *v1alpha1.ReleasedNode) { r.Node = "n2" }), nodePlan{stage: returning}, false},
		"an earlier node":       {peer(func(r *v1alpha1.ReleasedNode) { r.UID = "uid-0" }), nodePlan{stage: returning}, false},
		"released by no other":  {nil, nodePlan{stage: returning}, false},
		"it is still released":  {peer(func(*v1alpha1.ReleasedNode) {}), nodePlan{stage: released}, false},
		"it requests a release": {peer(func(*v1alpha1.ReleasedNode) {}), nodePlan{stage: returning, observedNode: observedNode{requestedBy: "cordoned"}}, false},
	} {
		tt.node.Node = &kube.Node{Name: "n1", UID: "uid-n1"}
		if observe(&Input{Peers: tt.peers}).retainsBreakGlass(&tt.node) {
			t.Errorf("%s: an annotation that the node does not have is retained", name)
		}
		tt.node.BreakGlass = "yes"
		if got := observe(&Input{Peers: tt.peers}).retainsBreakGlass(&tt.node); got != tt.want {
			t.Errorf("%s: %t, want %t", name, got, tt.want)
		}
	}
}

func TestReadyPods(t *testing.T) {
	ready := Pod{Phase: corev1.PodRunning, Ready: true}
	for name, tt := range map[string]struct {
		change func(*Pod)
		want   bool
	}{
		"it is ready":     {func(*Pod) {}, true},
		"it is not ready": {func(p *Pod) { p.Ready = false }, false},
		"it terminates":   {func(p *Pod) { p.Terminating = true }, false},
		"it has ended":    {func(p *Pod) { p.Phase = corev1.PodSucceeded }, false},
	} {
		pod := ready
		if tt.change(&pod); isReady(&pod) != tt.want {
			t.Errorf("%s: %t, want %t", name, !tt.want, tt.want)
		}
	}
	if isReady(nil) {
		t.Error("no pod is ready")
	}
}

func TestReservedPlaces(t *testing.T) {
	at := func(position int, reserved bool) *nodePlan { return &nodePlan{position: position, reserved: reserved} }
	for name, tt := range map[string]struct {
		node, other *nodePlan
		want        bool
	}{
		"it has reserved none":                     {at(1, false), at(2, false), false},
		"the other one has reserved none":          {at(2, true), at(1, false), true},
		"both have, and it is before the other":    {at(1, true), at(2, true), true},
		"both have, and it is after the other one": {at(2, true), at(1, true), false},
		"a node is not before itself":              {at(1, true), at(1, true), false},
	} {
		if got := tt.node.reservesBefore(tt.other); got != tt.want {
			t.Errorf("%s: %t, want %t", name, got, tt.want)
		}
	}
}

// While the target is missing or invalid, the nodes that were guarded stay guarded.
func TestGuardedWithoutTarget(t *testing.T) {
	for name, tt := range map[string]struct {
		node nodePlan
		want bool
	}{
		"with a companion": {nodePlan{observedNode: observedNode{companion: &Pod{}}}, true},
		"with a request":   {nodePlan{observedNode: observedNode{storedAt: t0}}, true},
		"returning":        {nodePlan{stage: returning}, true},
		"released":         {nodePlan{stage: released}, true},
		"another node":     {nodePlan{}, false},
	} {
		tt.node.Node = &kube.Node{Name: "n"}
		for _, target := range []Target{{Missing: true}, {Invalid: "a selector", Template: &corev1.PodSpec{}}} {
			if got := observe(&Input{Target: target}).guards(&tt.node); got != tt.want {
				t.Errorf("%s: %t, want %t", name, got, tt.want)
			}
		}
	}
}

func TestTargetSelects(t *testing.T) {
	for name, tt := range map[string]struct {
		template corev1.PodSpec
		want     bool
	}{
		"any node":     {corev1.PodSpec{}, true},
		"its name":     {corev1.PodSpec{NodeName: "n"}, true},
		"another name": {corev1.PodSpec{NodeName: "m"}, false},
		"its labels":   {corev1.PodSpec{NodeSelector: map[string]string{"a": "b"}}, true},
		"other labels": {corev1.PodSpec{NodeSelector: map[string]string{"a": "c"}}, false},
	} {
		if got := targetSelects(&tt.template, &kube.Node{Name: "n", Labels: map[string]string{"a": "b"}}); got != tt.want {
			t.Errorf("%s: %t, want %t", name, got, tt.want)
		}
	}
}

// An entry in status.released can only be removed when no companion can be deleted for it any more.
func TestUndoneReleases(t *testing.T) {
	entry := v1alpha1.ReleasedNode{Node: "n", UID: "uid", Since: metav1.NewTime(t0), CompanionUID: "c"}
	for name, tt := range map[string]struct {
		companion Pod
		want      bool
	}{
		"its end is noted":                   {Pod{UID: "c", EndedRelease: releaseID(entry)}, true},
		"its end is not noted":               {Pod{UID: "c"}, false},
		"its companion terminates":           {Pod{UID: "c", Terminating: true}, false},
		"the end of an earlier one is noted": {Pod{UID: "c", EndedRelease: "uid/2026-03-01T11:59:59Z"}, false},
		"the end of a later one is noted":    {Pod{UID: "c", EndedRelease: "uid/2026-03-01T12:00:01Z"}, true},
		"the end of one of another Node":     {Pod{UID: "c", EndedRelease: "other/2026-03-01T12:00:00Z"}, false},
		"it does not say when":               {Pod{UID: "c", EndedRelease: "uid/"}, false},
		"its companion is another one":       {Pod{UID: "d"}, true},
	} {
		in := scene(func(in *Input) { in.Companions = []Pod{tt.companion} })
		if got := observe(&in).isUndone(&entry); got != tt.want {
			t.Errorf("%s: %t, want %t", name, got, tt.want)
		}
	}
}

func TestBreakGlassIsLimited(t *testing.T) {
	for entries, want := range map[int]string{maxReleased - 1: "Released BreakGlass", maxReleased: "Held MaxUnavailableReached"} {
		in := scene(cordoned(0), func(in *Input) {
			in.Nodes[0].BreakGlass = "yes"
			for i := range entries {
				in.Guard.Status.Released = append(
					in.Guard.Status.Released,
					v1alpha1.ReleasedNode{Node: fmt.Sprintf("m%d", i), UID: "uid", Since: metav1.NewTime(t0)},
				)
				in.Companions = append(
					in.Companions,
					Pod{Node: fmt.Sprintf("m%d", i), UID: types.UID(fmt.Sprint("m", i)), Owner: in.Guard.UID},
				)
				in.Guard.Status.Released[i].CompanionUID = types.UID(fmt.Sprint("m", i))
			}
		})
		if got := states(Next(in))["n1"]; got != want {
			t.Errorf("beside %d released nodes: %s, want %s", entries, got, want)
		}
		if _, breaksGlass := RequestingNodes(in); breaksGlass != (entries < maxReleased) {
			t.Errorf("beside %d released nodes, a node breaks the glass: %t", entries, breaksGlass)
		}
	}
	if _, breaksGlass := RequestingNodes(scene(cordoned(0))); breaksGlass {
		t.Error("a node breaks the glass without the annotation")
	}
}

func TestBreakGlassReleasesANodeOnce(t *testing.T) {
	p := Next(scene(cordoned(0), going(0, false), func(in *Input) { in.Nodes[0].BreakGlass = "fire" }))
	if r := p.Status.Released; len(p.Moves) > 0 || len(r) != 1 || !r[0].Since.Time.Equal(t0.Add(-time.Minute)) {
		t.Errorf("%+v; released: %+v", p.Moves, r)
	}
}

// The IDs of two releases of a node differ, also if the second one is in the same second.
func TestASecondReleaseIsLaterThanTheFirst(t *testing.T) {
	for name, tt := range map[string]struct{ before, want time.Time }{
		"a minute ago":       {t0.Add(-time.Minute), t0},
		"a second ago":       {t0.Add(-time.Second), t0},
		"in the same second": {t0, t0.Add(time.Second)},
		"by a clock ahead":   {t0.Add(time.Minute), t0.Add(61 * time.Second)},
	} {
		p := Next(scene(cordoned(0), going(0, true), func(in *Input) {
			in.Guard.Status.Released[0].Since = metav1.NewTime(tt.before)
			releaseEnds(in)
			in.Companions[0].Ready, in.Nodes[0].Ready = false, false
		}))
		if r := p.Status.Released; len(r) != 1 || r[0].Returning || !r[0].Since.Time.Equal(tt.want) {
			t.Errorf("%s: %+v, want a release at %v", name, r, tt.want)
		}
	}
}

func TestFreeNames(t *testing.T) {
	in := scene()
	first := observe(&in).freeName(v1alpha1.GuardRoleCompanion, "n1")
	in.TakenNames = map[string]NameHolder{first: {}}
	if second := observe(&in).freeName(v1alpha1.GuardRoleCompanion, "n1"); second == "" || second == first {
		t.Errorf("%q is taken, and the next name is %q", first, second)
	}
	in.NotAllowed = hold.NamespaceNotAllowed("storage")
	if name := observe(&in).freeName(v1alpha1.GuardRoleCompanion, "n1"); name != "" {
		t.Errorf("the name %q in a namespace that is not allowed", name)
	}
}

func TestANodeGuardIsServedOnlyInAnAllowedNamespace(t *testing.T) {
	first := func(in *Input) { in.Companions = nil }
	none := func(in *Input) { in.NotAllowed = hold.NamespaceNotAllowed("storage") }
	before := func(in *Input) { in.Guard.Status.Revision = "r1" }
	for name, tt := range map[string]struct {
		in   Input
		want int
	}{
		"a new NodeGuard":                            {scene(first), 3},
		"a new NodeGuard, and it is not allowed":     {scene(first, none), 0},
		"it was served, and is not allowed any more": {scene(first, none, before), 3},
	} {
		if p := Next(tt.in); len(p.Nodes) != tt.want || len(p.Status.Conditions) == 0 {
			t.Errorf("%s: it guards %+v, want %d nodes", name, p.Nodes, tt.want)
		}
	}
}

func TestWakeKeepsTheEarliestTime(t *testing.T) {
	for _, times := range [][]time.Time{{t0.Add(1), t0, {}}, {t0, t0.Add(1)}, {{}, t0}} {
		var p Plan
		for _, at := range times {
			p.wake(at)
		}
		if !p.WakeAt.Equal(t0) {
			t.Errorf("after %v: %v", times, p.WakeAt)
		}
	}
}

// The release of a node counts from the first NodeGuard that has released this Node.
func TestReleasesByOtherNodeGuards(t *testing.T) {
	entry := func(name string, since time.Duration, change ...func(*v1alpha1.ReleasedNode)) Peer {
		r := v1alpha1.ReleasedNode{Node: "n1", UID: "uid-n1", Since: metav1.NewTime(t0.Add(since))}
		for _, c := range change {
			c(&r)
		}
		return Peer{Name: name, Released: []v1alpha1.ReleasedNode{r}}
	}
	for name, tt := range map[string]struct {
		peers []Peer
		want  string
	}{
		"the first of two":            {[]Peer{entry("ns/a", -1), entry("ns/b", -2)}, "ns/b"},
		"the first of two in order":   {[]Peer{entry("ns/a", -2), entry("ns/b", -1)}, "ns/a"},
		"at the same time":            {[]Peer{entry("ns/a", -1), entry("ns/b", -1)}, "ns/a"},
		"a release that has ended":    {[]Peer{entry("ns/a", -1, func(r *v1alpha1.ReleasedNode) { r.Returning = true })}, ""},
		"an earlier Node of the name": {[]Peer{entry("ns/a", -1, func(r *v1alpha1.ReleasedNode) { r.UID = "before" })}, ""},
		"a node that does not exist":  {[]Peer{entry("ns/a", -1, func(r *v1alpha1.ReleasedNode) { r.Node = "gone" })}, ""},
	} {
		in := scene(func(in *Input) { in.Peers = tt.peers })
		p, got := newPlanner(&in), ""
		if r := p.byName["n1"].peerRelease; r != nil {
			got = r.guard
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

func TestMessageOfADeletion(t *testing.T) {
	const holds = "it is being deleted and holds no node"
	for want, in := range map[string]Input{
		holds: {},
		holds + "; 1 PodDisruptionBudgets are being deleted":                                           {Budgets: []Budget{{}}},
		holds + "; pods that have not ended yet: " + podOnNode("c", "n"):                               {Companions: []Pod{{Name: "c", Node: "n"}}},
		holds + "; it is gone when its finalizers are removed by those who set them: example.com/keep": {Guard: &v1alpha1.NodeGuard{ObjectMeta: metav1.ObjectMeta{Finalizers: []string{"example.com/keep"}}}},
	} {
		if in.Guard == nil {
			in.Guard = &v1alpha1.NodeGuard{}
		}
		if got := deletionMessage(&in); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
