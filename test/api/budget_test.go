// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodebudget/budget"
	"github.com/everynode/everynode/internal/ui/cmdutil"
	"github.com/everynode/everynode/internal/uninstall"
)

// TestABudgetGrantsOneEvictionAtATime : two drains with kubectl, with and without a manager; a freeze; and what is left without budgets.
func TestABudgetGrantsOneEvictionAtATime(t *testing.T) {
	b := newBudgeted(t, "n0", "n1", "n2")
	stop := b.startManager()
	b.budget("one", nil)
	b.has("one", 3, 0, 1)
	b.granting(1)

	first, second := b.drainBoth("n0", "n1")
	b.has("one", 2, 1, 0)
	must(t, b.kubectl("uncordon "+first))
	b.has("one", 3, 0, 1)
	must(t, b.kubectl("drain "+second+" --timeout=30s"))
	must(t, b.kubectl("uncordon "+second))
	b.has("one", 3, 0, 1)
	b.granting(1)

	stop() // the API server alone is the referee
	first, second = b.drainBoth("n1", "n2")
	must(t, b.kubectl("uncordon "+second))
	stop = b.startManager()
	must(t, b.kubectl("uncordon "+first))
	b.has("one", 3, 0, 1)

	b.budget("freeze", func(spec *v1alpha1.NodeDisruptionBudgetSpec) {
		spec.Limits, spec.Description = []v1alpha1.BudgetLimit{{MaxUnavailable: number(0)}}, "INC-42"
	})
	b.granting(0)
	stop()
	b.refuses("n0")
	must(t, b.kubectl("uncordon n0"))

	must(t, b.kubectl("delete ndb --all"))
	must(t, b.kubectl("drain n0 n1 n2 --timeout=60s")) // the garbage collector has removed what held them
	b.startManager()
	b.Within(time.Minute, 100*time.Millisecond, "no seat and no PodDisruptionBudget is left", func() error {
		var seats corev1.PodList
		var floors policyv1.PodDisruptionBudgetList
		in := []client.ListOption{client.InNamespace(uninstall.Namespace), client.HasLabels{v1alpha1.BudgetGroupLabel}}
		if err := b.admin.List(b.Ctx, &seats, in...); err != nil {
			return err
		}
		if err := b.admin.List(b.Ctx, &floors, in...); err != nil {
			return err
		}
		if left := len(seats.Items) + len(floors.Items); left > 0 {
			return fmt.Errorf("%d are left", left)
		}
		return nil
	})
}

// TestAnEvictionThatIsUnderWayCounts makes the first of the two writes of an eviction as the API server does, and the deletion later. The
// disruption controller leaves the pod in status.disruptedPods meanwhile.
func TestAnEvictionThatIsUnderWayCounts(t *testing.T) {
	b := newBudgeted(t)
	for _, name := range []string{"n0", "n1", "n2"} {
		b.join(name, map[string]string{"pool": name})
	}
	b.startManager()
	b.budget("one", nil)
	b.has("one", 3, 0, 1)
	b.granting(1)
	seat := b.seatOn("n0")
	group := seat.Labels[v1alpha1.BudgetGroupLabel]
	b.Eventually("the eviction is counted", func() error {
		var floor policyv1.PodDisruptionBudget
		must(t, b.admin.Get(b.Ctx, client.ObjectKey{Namespace: uninstall.Namespace, Name: budget.FloorName(group)}, &floor))
		floor.Status.DisruptionsAllowed--
		floor.Status.DisruptedPods = map[string]metav1.Time{seat.Name: metav1.Now()}
		return b.admin.Status().Update(b.Ctx, &floor)
	})
	b.has("one", 3, 1, 0)

	b.budget("freeze", func(spec *v1alpha1.NodeDisruptionBudgetSpec) {
		spec.Limits[0].MaxUnavailable = number(0)
		spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "pool", Operator: metav1.LabelSelectorOpIn, Values: []string{"n0", "n1"}},
		}}
	})
	b.Within(time.Minute, 100*time.Millisecond, "the seat of n1 has the label of frozen nodes", func() error {
		if got := b.seatOn("n1").Labels[v1alpha1.BudgetGroupLabel]; got == group {
			return errors.New("it has the label of the others")
		}
		return nil
	})
	b.refuses("n2")
	must(t, b.kubectl("uncordon n2"))
	if got := b.seatOn("n0"); got.UID != seat.UID || got.Labels[v1alpha1.BudgetGroupLabel] != group {
		t.Errorf("the seat whose eviction is under way has the labels %v", got.Labels)
	}
	must(t, b.admin.Delete(b.Ctx, seat, client.Preconditions{UID: &seat.UID}))
	b.granting(1)
	must(t, b.kubectl("drain n2 --timeout=60s"))
}

// TestNoPodDisruptionBudgetStopsAnUpgrade : AKS refuses to upgrade any node while a PodDisruptionBudget requires all pods that it expects. With
// a budget, a NodeGuard and a freeze, none does while no drain waits, and the drains of kubectl are decided as before.
// Source: https://github.com/Azure/AKS/issues/4860
func TestNoPodDisruptionBudgetStopsAnUpgrade(t *testing.T) {
	b := newBudgeted(t, "n0", "n1", "n2")
	b.startManager()
	b.budget("one", nil)
	b.has("one", 3, 0, 1)
	must(t, b.admin.Create(b.Ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "storage", Labels: map[string]string{v1alpha1.EnabledLabel: "true"},
	}}))
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: "disks"}}
	ds.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "disks"}}
	ds.Spec.Template = corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: ds.Spec.Selector.MatchLabels},
		Spec:       plainPod("", "").Spec,
	}
	must(t, b.admin.Create(b.Ctx, ds))
	for _, node := range []string{"n0", "n1", "n2"} {
		pod := plainPod("storage", "disks-"+node)
		pod.Labels, pod.Spec.NodeName = ds.Spec.Selector.MatchLabels, node
		pod.OwnerReferences = []metav1.OwnerReference{
			{APIVersion: "apps/v1", Kind: "DaemonSet", Name: ds.Name, UID: ds.UID, Controller: new(true)},
		}
		must(t, b.admin.Create(b.Ctx, pod))
	}
	guard := &v1alpha1.NodeGuard{ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: "disks"}}
	guard.Spec.Target.DaemonSet = "disks"
	must(t, b.admin.Create(b.Ctx, guard))
	guarded := func(ready int32) {
		t.Helper()
		b.Within(time.Minute, 100*time.Millisecond, fmt.Sprintf("%d companions are ready", ready), func() error {
			if err := b.admin.Get(b.Ctx, client.ObjectKeyFromObject(guard), guard); err != nil || guard.Status.Nodes.Ready != ready {
				return fmt.Errorf("the status is %+v, %w", guard.Status, err)
			}
			return nil
		})
	}
	guarded(3)
	b.mayUpgrade()

	must(t, b.kubectl("drain n0 --ignore-daemonsets --timeout=60s"))
	guarded(2)
	b.has("one", 2, 1, 0)
	b.mayUpgrade()
	b.budget("freeze", func(spec *v1alpha1.NodeDisruptionBudgetSpec) { spec.Limits[0].MaxUnavailable = number(0) })
	b.granting(0)
	b.mayUpgrade()
	b.refuses("n1 --ignore-daemonsets")
	must(t, b.kubectl("uncordon n1"))
	must(t, b.kubectl("uncordon n0"))
	guarded(3)
	b.mayUpgrade()
	must(t, b.kubectl("delete ndb freeze"))
	must(t, b.kubectl("drain n2 --ignore-daemonsets --timeout=60s"))
}

// mayUpgrade waits until each PodDisruptionBudget requires fewer pods than it expects.
func (b *budgeted) mayUpgrade() {
	b.T.Helper()
	b.Within(time.Minute, 100*time.Millisecond, "all PodDisruptionBudgets require fewer pods than they expect", func() error {
		var list policyv1.PodDisruptionBudgetList
		if err := b.admin.List(b.Ctx, &list); err != nil {
			return err
		}
		for i := range list.Items {
			if p := &list.Items[i]; p.Status.ObservedGeneration != p.Generation || p.Spec.MinAvailable.IntVal >= p.Status.ExpectedPods {
				return fmt.Errorf("%s/%s requires %s: %+v", p.Namespace, p.Name, p.Spec.MinAvailable, p.Status)
			}
		}
		return nil
	})
}

// drainBoth drains two nodes at once, and returns the one that was drained and the one that was refused.
func (b *budgeted) drainBoth(one, other string) (drained, refused string) {
	b.T.Helper()
	errs := map[string]error{}
	var mu sync.Mutex
	var group sync.WaitGroup
	for _, node := range []string{one, other} {
		kubectl := b.newKubectl()
		group.Go(func() {
			err := kubectl("drain " + node + " --timeout=8s")
			mu.Lock()
			defer mu.Unlock()
			errs[node] = err
		})
	}
	group.Wait()
	switch {
	case errs[one] == nil && isHeld(errs[other]):
		return one, other
	case errs[other] == nil && isHeld(errs[one]):
		return other, one
	}
	b.T.Fatalf("one of two drains should be refused: %v", errs)
	return "", ""
}

func isHeld(err error) bool {
	return err != nil && strings.Contains(err.Error(), "violate the pod's disruption budget")
}

// refuses drains a node whose drain must be refused.
func (b *budgeted) refuses(node string) {
	b.T.Helper()
	if err := b.kubectl("drain " + node + " --timeout=4s"); !isHeld(err) {
		b.T.Fatalf("the drain of %s: %v", node, err)
	}
}

// TestNodeJobsDrawOnABudget : two NodeJobs that could take all nodes at once, and a drain by a user.
func TestNodeJobsDrawOnABudget(t *testing.T) {
	b := newBudgeted(t, "n0", "n1", "n2")
	stop := b.startManager()
	b.budget("one", nil)
	b.has("one", 3, 0, 1)
	must(
		t,
		b.kubectl(
			"label namespace default "+v1alpha1.EnabledLabel+"="+v1alpha1.EnabledValue+" pod-security.kubernetes.io/enforce=privileged",
		),
	)

	most := b.watchAway()
	for _, name := range []string{"first", "second"} {
		job := b.draft(name)
		job.Namespace, job.Spec.Nodes = "default", allNodes()
		job.Spec.Rollout.MaxConcurrent = percent("100%")
		job.Spec.Maintenance.Cordon, job.Spec.Maintenance.MaxUnavailable = true, percent("100%")
		must(t, b.admin.Create(b.Ctx, job))
	}
	b.Within(time.Minute, 100*time.Millisecond, "a NodeJob waits for the budget, and says so", func() error {
		var ndb v1alpha1.NodeDisruptionBudget
		if err := b.admin.Get(b.Ctx, client.ObjectKey{Name: "one"}, &ndb); err != nil {
			return err
		}
		for _, w := range ndb.Status.Waiting {
			if strings.HasPrefix(w.By, "NodeJob default/") {
				return nil
			}
		}
		return fmt.Errorf("the status is %+v", ndb.Status)
	})
	drain := b.newKubectl()
	drained := make(chan error, 1)
	go func() { drained <- drain("drain n2 --timeout=120s") }()
	stop() // a manager that starts again knows from the nodes which it has taken
	b.startManager()
	if err := <-drained; err != nil {
		t.Fatal(err)
	}
	must(t, b.kubectl("uncordon n2"))
	for _, name := range []string{"first", "second"} {
		b.Within(2*time.Minute, 100*time.Millisecond, "NodeJob "+name+" is complete", func() error {
			var job v1alpha1.NodeJob
			if err := b.admin.Get(b.Ctx, client.ObjectKey{Namespace: "default", Name: name}, &job); err != nil {
				return err
			}
			if job.Status.Nodes.Done != 3 {
				return fmt.Errorf("the status is %+v", job.Status)
			}
			return nil
		})
	}
	b.has("one", 3, 0, 1)
	if got := most(); got != 1 {
		t.Errorf("at most %d nodes were cordoned without a seat at the same time, want 1", got)
	}
}

// watchAway counts, until the returned function is called, how many nodes a drain had at the same time, and had no seat.
func (b *budgeted) watchAway() (most func() int) {
	b.T.Helper()
	done := make(chan struct{})
	result := make(chan int, 1)
	go func() {
		most := 0
		for {
			select {
			case <-done:
				result <- most
				return
			case <-time.After(10 * time.Millisecond):
			}
			var nodes corev1.NodeList
			var seats corev1.PodList
			if b.admin.List(b.Ctx, &nodes) != nil ||
				b.admin.List(b.Ctx, &seats, client.InNamespace(uninstall.Namespace), client.HasLabels{v1alpha1.BudgetGroupLabel}) != nil {
				continue
			}
			away := 0
			for i := range nodes.Items {
				n := &nodes.Items[i]
				seated := slices.ContainsFunc(
					seats.Items,
					func(p corev1.Pod) bool { return p.Spec.NodeName == n.Name && p.DeletionTimestamp.IsZero() },
				)
				if isTaken(n) && !seated {
					away++
				}
			}
			most = max(most, away)
		}
	}()
	return func() int { close(done); return <-result }
}

// isTaken reports whether something drains a node.
func isTaken(node *corev1.Node) bool {
	return node.Spec.Unschedulable || !node.DeletionTimestamp.IsZero() || slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == karpenterTaint || t.Key == autoscalerTaint
	})
}

// TestTheAPIRejectsBudgetsThatCannotWork sends what a user would write. What only the manager can find out is in TestBadSpecs.
func TestTheAPIRejectsBudgetsThatCannotWork(t *testing.T) {
	w := newWorld(t)
	window := func(rest string) string { return `windows: [{` + rest + `}]` }
	const bothDays = "schedule must not restrict both the day of month and the day of week, because either of them would match: " +
		"use two windows if either should, and two budgets if both should"
	for name, test := range map[string]struct{ spec, want string }{
		"nothing is limited":       {`description: x`, "spec limits nothing: set limits, windows, exceptDates, paceSeconds or requirements"},
		"an empty selector":        {`{paceSeconds: 1, selector: {}}`, "the selector is empty: write selector.matchLabels.KEY: VALUE, or omit selector for all nodes"},
		"an empty list of labels":  {`{paceSeconds: 1, selector: {matchLabels: {}}}`, "the selector is empty"},
		"no limit":                 {`limits: []`, "should have at least 1 items"},
		"a limit without a number": {`limits: [{topologyKey: zone}]`, "spec.limits[0].maxUnavailable: Required value"},
		"fewer than zero nodes":    {`limits: [{maxUnavailable: -1}]`, "maxUnavailable must be a number of nodes"},
		"more than all nodes":      {`limits: [{maxUnavailable: "101%"}]`, "maxUnavailable must be a number of nodes"},
		"a fraction":               {`limits: [{maxUnavailable: "2.5%"}]`, "maxUnavailable must be a number of nodes"},
		"a number that is a string": {
			`limits: [{maxUnavailable: "2"}]`, `maxUnavailable must be a number of nodes, or a percentage from "0%" to "100%"`,
		},
		"a label that is none":           {`limits: [{maxUnavailable: 1, topologyKey: "a b"}]`, "spec.limits[0].topologyKey"},
		"a window without a schedule":    {window(`durationSeconds: 60`), "spec.windows[0].schedule: Required value"},
		"a window without an end":        {window(`schedule: "0 2 * * *"`), "spec.windows[0].durationSeconds: Required value"},
		"a window of less than a minute": {window(`schedule: "0 2 * * *", durationSeconds: 59`), "greater than or equal to 60"},
		"a window of more than a week":   {window(`schedule: "0 2 * * *", durationSeconds: 604801`), "less than or equal to 604800"},
		"a time zone in the schedule": {
			window(`schedule: "CRON_TZ=Asia/Tokyo 0 2 * * *", durationSeconds: 60`), "schedule must not contain a time zone: use timeZone",
		},
		"too few fields":                                   {window(`schedule: "SUN 02:00", durationSeconds: 60`), "schedule must have five fields, as in a CronJob"},
		"a day that does not exist":                        {window(`schedule: "0 2 32 * *", durationSeconds: 60`), "schedule must have five fields, as in a CronJob"},
		"an hour that does not exist":                      {window(`schedule: "0 24 * * *", durationSeconds: 60`), "schedule must have five fields, as in a CronJob"},
		"a name of a schedule":                             {window(`schedule: "@weekly  ", durationSeconds: 60`), "schedule must have five fields, as in a CronJob"},
		"a step of days of the week":                       {window(`schedule: "0 2 * * 1/2", durationSeconds: 60`), "schedule must have five fields, as in a CronJob"},
		"a day of the month and one of the week":           {window(`schedule: "0 2 1-7 * SUN", durationSeconds: 60`), bothDays},
		"a date and days of the week by number":            {window(`schedule: "0 2 13 * 1-5", durationSeconds: 60`), bothDays},
		"the last days of a quarter on a Saturday":         {window(`schedule: "30 22 25-31 MAR,JUN sat", durationSeconds: 60`), bothDays},
		"each second day of the month and one of the week": {window(`schedule: "0 2 */2 * SUN", durationSeconds: 60`), bothDays},
		"days of the month and each second of the week":    {window(`schedule: "0 2 8-14 * */2", durationSeconds: 60`), bothDays},
		"a step in a list of days of the month":            {window(`schedule: "0 2 8,?/10 * SUN", durationSeconds: 60`), bothDays},
		"a step in a list of days of the week":             {window(`schedule: "0 2 8 * SUN,*/3 ", durationSeconds: 60`), bothDays},
		"an unknown time zone":                             {`{exceptDates: ["2026-12-24"], timeZone: Europe/Berlln}`, "timeZone must be a name of the IANA time zone database, such as Europe/Berlin"},
		"a city":                                           {`{exceptDates: ["2026-12-24"], timeZone: Berlin}`, "timeZone must be a name of the IANA time zone database"},
		"the time zone of the API server":                  {`{exceptDates: ["2026-12-24"], timeZone: Local}`, "timeZone must be a name of the IANA time zone database"},
		"an offset":                                        {`{exceptDates: ["2026-12-24"], timeZone: "+02:00"}`, "timeZone must be a name of the IANA time zone database"},
		"a date in another format":                         {`exceptDates: ["24.12.2026"]`, "must be a date such as 2026-12-24, or the first and the last date"},
		"a date that does not exist":                       {`exceptDates: ["2026-02-30"]`, "each date must exist"},
		"dates in the wrong order":                         {`exceptDates: ["2026-12-27/2026-12-24"]`, "the last date must not be before the first one"},
		"a negative pace":                                  {`paceSeconds: -1`, "greater than or equal to 0"},
		"an unknown set of tasks":                          {`{paceSeconds: 1, appliesTo: All}`, `supported values: "Disruptions", "AllTasks"`},
		"an unknown enforcement":                           {`{paceSeconds: 1, enforcement: Cooperate}`, `supported values: "Enforce", "Report"`},
	} {
		t.Run(name, func(t *testing.T) {
			err := admin.Create(w.Ctx, fromYAML(t, "NodeDisruptionBudget", "", "cannot-work", test.spec), client.DryRunAll)
			if !apierrors.IsInvalid(err) {
				t.Fatalf("the API server answered %v, want Invalid", err)
			}
			wantText(t, err.Error(), test.want)
		})
	}
	for name, spec := range map[string]string{
		"a freeze":     `limits: [{maxUnavailable: 0}]`,
		"zero percent": `limits: [{maxUnavailable: "0%"}]`,
		"only a pace":  `paceSeconds: 300`,
		"only dates":   `exceptDates: ["2026-12-24", "2026-12-30/2027-01-02"]`,
		"all that schedules have": `windows: [
			{schedule: "*/15,7 0-23/2 * JAN-MAR,12 mon-fri,SUN", durationSeconds: 60}, {schedule: " 0  2 1,15,31 1-12/3 ? ", durationSeconds: 60},
			{schedule: "05 02 * * 0-7", durationSeconds: 60}, {schedule: "0 2 */2 * *", durationSeconds: 60}]`,
		"a time zone with two slashes": `{exceptDates: ["2026-12-24"], timeZone: America/Argentina/Buenos_Aires}`,
		"a time zone with a sign":      `{exceptDates: ["2026-12-24"], timeZone: Etc/GMT+5}`,
		"days that a star leaves unrestricted": `windows: [
			{schedule: "0 2 */1 * SUN", durationSeconds: 60}, {schedule: "0 2 8-14 * */1", durationSeconds: 60},
			{schedule: "0 2 1,* * SUN", durationSeconds: 60}, {schedule: "0 2 8-14 * ?,1 ", durationSeconds: 60}]`,
		"all fields": `{selector: {matchLabels: {a: b}}, appliesTo: AllTasks, limits: [{maxUnavailable: "10%", topologyKey: example.com/rack}],
			windows: [{schedule: "0 2 * * SUN", durationSeconds: 60}], timeZone: Europe/Berlin, paceSeconds: 1,
			joiningNodes: Included, enforcement: Report, expiresAt: "2027-01-01T00:00:00Z", description: x}`,
	} {
		t.Run(name, func(t *testing.T) {
			must(t, admin.Create(w.Ctx, fromYAML(t, "NodeDisruptionBudget", "", "works", spec), client.DryRunAll))
		})
	}
}

// TestOnlyAGrantedAbsenceBeginsAPace : a node that ends its seat returns without a pace, and one that is drained with one.
func TestOnlyAGrantedAbsenceBeginsAPace(t *testing.T) {
	b := newBudgeted(t, "n0", "n1", "n2")
	b.startManager()
	b.budget("paced", func(spec *v1alpha1.NodeDisruptionBudgetSpec) {
		spec.Limits[0].MaxUnavailable, spec.PaceSeconds = number(2), new(int32(4))
	})
	b.has("paced", 3, 0, 2)
	before := b.seatOn("n0")
	must(t, b.admin.Delete(b.Ctx, before)) // as a kubelet can
	b.returnsWith("n0", before, "")
	b.has("paced", 3, 0, 2)

	before = b.seatOn("n1")
	must(t, b.kubectl("drain n1 --timeout=60s"))
	must(t, b.kubectl("uncordon n1"))
	b.returnsWith("n1", before, "true")
	b.has("paced", 3, 0, 2)
}

// TestADeletedSeatUnderAFreezeIsReported : with and without a grace period. Seats that were evicted before the freeze are not.
func TestADeletedSeatUnderAFreezeIsReported(t *testing.T) {
	b := newBudgeted(t, "n0", "n1", "n2")
	b.startManager()
	b.budget("one", nil)
	b.has("one", 3, 0, 1)
	must(t, b.kubectl("drain n0 --timeout=30s"))
	b.has("one", 2, 1, 0)
	b.budget("freeze", func(spec *v1alpha1.NodeDisruptionBudgetSpec) {
		spec.Limits = []v1alpha1.BudgetLimit{{MaxUnavailable: number(0)}}
	})
	b.has("freeze", 2, 1, 0)
	must(t, b.admin.Delete(b.Ctx, b.seatOn("n1")))
	must(t, b.admin.Delete(b.Ctx, b.seatOn("n2"), client.GracePeriodSeconds(0)))
	b.Eventually("an event reports each node", func() error {
		var list eventsv1.EventList
		must(t, b.admin.List(b.Ctx, &list))
		var nodes []string
		for i := range list.Items {
			if e := &list.Items[i]; e.Reason == v1alpha1.ReasonBudgetBypassed {
				nodes = append(nodes, e.Regarding.Name+" "+e.Related.Name+" "+e.Type)
			}
		}
		slices.Sort(nodes)
		if diff := cmp.Diff([]string{"freeze n1 Warning", "freeze n2 Warning"}, nodes); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
}

// TestASeatToleratesTheTaintsThatItsNodeGets : the policies let the manager add tolerations to a seat that runs.
func TestASeatToleratesTheTaintsThatItsNodeGets(t *testing.T) {
	b := newBudgeted(t, "n0", "n1")
	b.startManager()
	b.budget("one", nil)
	b.has("one", 2, 0, 1)
	before := b.seatOn("n0")
	must(t, b.kubectl("taint node n0 dedicated=gpu:NoSchedule cluster-autoscaler.kubernetes.io/a=b:NoSchedule spot=yes:PreferNoSchedule"))
	want := append(slices.Clone(before.Spec.Tolerations), budget.Taints("dedicated:NoSchedule,spot:PreferNoSchedule").Tolerations()...)
	b.Eventually("the seat tolerates the taints of its node", func() error {
		is := b.seatOn("n0")
		if is == nil || is.UID != before.UID {
			t.Fatalf("the seat was replaced: %+v", is)
		}
		if diff := cmp.Diff(want, is.Spec.Tolerations); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
	must(t, b.kubectl("drain n0 --timeout=30s"))
	must(t, b.kubectl("uncordon n0"))
	b.Eventually("the next seat tolerates them too", func() error {
		if is := b.seatOn("n0"); is == nil || is.UID == before.UID || !cmp.Equal(is.Spec.Tolerations, want) {
			return fmt.Errorf("it is %+v", is)
		}
		return nil
	})
}

// returnsWith waits until a node has another seat, and checks whether it says that the node has returned.
func (b *budgeted) returnsWith(node string, before *corev1.Pod, returned string) {
	b.T.Helper()
	b.Within(time.Minute, 20*time.Millisecond, "the node has another seat", func() error {
		is := b.seatOn(node)
		if is == nil || is.UID == before.UID {
			return fmt.Errorf("it has %v", is)
		}
		if got := is.Annotations[v1alpha1.SeatReturnedAnnotation]; got != returned {
			b.T.Fatalf("the new seat of %s has the annotation %q, want %q", node, got, returned)
		}
		return nil
	})
}

// seatOn returns the seat of a node that is not being deleted; nil if it has none.
func (b *budgeted) seatOn(node string) *corev1.Pod {
	b.T.Helper()
	var seats corev1.PodList
	must(b.T, b.admin.List(b.Ctx, &seats, client.InNamespace(uninstall.Namespace), client.HasLabels{v1alpha1.BudgetGroupLabel}))
	i := slices.IndexFunc(seats.Items, func(p corev1.Pod) bool { return p.Spec.NodeName == node && p.DeletionTimestamp == nil })
	if i < 0 {
		return nil
	}
	return &seats.Items[i]
}

// TestFreezeSaysWhatIsStopped : in a cluster without budgets, with a manager and without one. When the command has succeeded, no drain ends.
func TestFreezeSaysWhatIsStopped(t *testing.T) {
	b := newBudgeted(t, "n0", "n1")
	w := newWorld(t)
	frozen := func(args ...string) told {
		return w.everynode(b.kubeconfig, append([]string{"freeze", "--reason=INC-42"}, args...)...)
	}
	if got := frozen("--timeout=1s"); got.code != cmdutil.ExitTimedOut || !strings.Contains(got.err, "no manager has observed the freeze") {
		t.Errorf("without a manager, it says %+v", got)
	}
	must(t, b.kubectl("drain n0 --timeout=30s")) // as it says
	must(t, b.kubectl("uncordon n0"))

	stop := b.startManager()
	got := frozen("--for=5h")
	if got.code != cmdutil.ExitOK || !strings.Contains(got.out, "NodeJobs: stopped. Drains by other tools: stopped on 2 of 2 nodes") {
		t.Fatalf("with a manager, it says %+v", got)
	}
	stop()
	b.refuses("n0")
	if got := frozen("--for=1h"); got.code != cmdutil.ExitError || !strings.Contains(got.err, "the nodes are frozen already, for longer") {
		t.Errorf("for an earlier end, it says %+v", got)
	}
}
