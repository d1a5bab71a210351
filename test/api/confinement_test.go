// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodeguard/guard"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/rights"
)

// thief is an attacker with the token of the manager's service account, and no other.
type thief struct {
	*world
	token  client.Client
	node   *corev1.Node
	job    *v1alpha1.NodeJob
	expiry *v1alpha1.NodeJob
	guard  *v1alpha1.NodeGuard
}

func newThief(t *testing.T) *thief {
	w := newWorld(t)
	token, err := client.New(asManager, client.Options{Scheme: scheme})
	must(t, err)
	f := &thief{world: w, token: token}
	f.node = w.node("stolen-" + w.Namespace)
	must(t, admin.Patch(w.Ctx, f.node, mergePatch(`{"metadata":{
"labels":{"x.test/site":"a","topology.kubernetes.io/zone":"z"},
"annotations":{"everynode.dev/approve-release":"a/b, c/d","everynode.dev/break-glass":"fire","csi.volume.kubernetes.io/nodeid":"{}"},
"finalizers":["x.test/theirs"]},
"spec":{"taints":[{"key":"dedicated","value":"gpu","effect":"NoSchedule"},{"key":"x.test/up","value":"by-kubelet","effect":"NoSchedule"},{"key":"x.test/ours","value":"everynode","effect":"NoSchedule"}]}}`)))
	t.Cleanup(func() {
		must(t, client.IgnoreNotFound(admin.Patch(w.Ctx, f.node, mergePatch(`{"metadata":{"finalizers":null}}`))))
	})
	// Otherwise the policies that ask for rights may refuse its changes of NodeJobs first.
	w.bind(managerUser, "everynode-all-effects", true)
	w.rightsAreKnown(requester{user: managerUser, has: []string{rights.RunAsRoot}})
	f.job = w.job("task", nil)
	f.expiry = w.job("expires", func(s *v1alpha1.NodeJobSpec) { s.TTLSecondsAfterFinished = new(int32(1)) })
	must(
		t,
		admin.Patch(
			w.Ctx,
			f.job,
			mergePatch(
				`{"metadata":{"annotations":{"everynode.dev/retry":"1"},"finalizers":["x.test/theirs","everynode.dev/node-records"]}}`,
			),
		),
	)
	f.guard = &v1alpha1.NodeGuard{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "guard"},
		Spec:       v1alpha1.NodeGuardSpec{Target: v1alpha1.GuardTarget{DaemonSet: "storage"}},
	}
	must(t, admin.Create(w.Ctx, f.guard))
	return f
}

// taskPod is what the manager creates for a script.
func (f *thief) taskPod(change func(*corev1.Pod)) *corev1.Pod {
	pod := task.Pod(
		f.job,
		task.Source{Script: "true"},
		task.Attempt{Phase: task.Task, Revision: "r", Number: 1, NodeName: f.node.Name, NodeUID: f.node.UID},
		task.Options{RunnerImage: "registry.test/runner:1"},
	)
	if change != nil {
		change(pod)
	}
	return pod
}

// others creates an object of others, as an administrator.
func (f *thief) others(o client.Object) client.Object {
	f.T.Helper()
	must(f.T, admin.Create(f.Ctx, o))
	return o
}

func (f *thief) budget(owner string, selects map[string]string) *policyv1.PodDisruptionBudget {
	budget := guard.NewBudget(f.guard, guard.BudgetState{})
	budget.OwnerReferences[0].Kind = owner
	if selects != nil {
		budget.Spec.Selector.MatchLabels = selects
	}
	return budget
}

// TestWhatATokenOfTheManagerAllows tries what is worth trying with a stolen token. All requests are dry runs: admission
// decides about them as about others.
func TestWhatATokenOfTheManagerAllows(t *testing.T) {
	f := newThief(t)
	f.unprotected()
	workload := f.others(plainPod(f.Namespace, "workload"))
	labeled := plainPod(f.Namespace, "labeled")
	labeled.Labels = map[string]string{v1alpha1.NodeJobLabel: "task"}
	f.others(labeled)
	ours := f.taskPod(func(pod *corev1.Pod) {
		pod.Name, pod.Spec.PriorityClassName = "ours", ""
		pod.Finalizers = append(pod.Finalizers, "x.test/theirs")
	})
	f.others(ours)
	theirs := f.budget("NodeGuard", nil)
	theirs.Name, theirs.OwnerReferences, theirs.Annotations = "theirs", nil, nil
	f.others(theirs)
	own := f.budget("NodeGuard", nil)
	own.Name = "own"
	f.others(own)
	scheduled := guard.Placeholder(f.guard, "placeholder", task.Options{RunnerImage: "i"})
	scheduled.Spec.SchedulingGates = nil
	account := f.managersAccount()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "everynode-manager"}}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "everynode-manager"}}

	patch := func(o client.Object, merge string) func() error {
		return func() error { return f.token.Patch(f.Ctx, copyOf(o), mergePatch(merge), client.DryRunAll) }
	}
	create := func(o client.Object) func() error {
		return func() error { return f.token.Create(f.Ctx, copyOf(o), client.DryRunAll) }
	}
	remove := func(o client.Object) func() error {
		return func() error { return f.token.Delete(f.Ctx, copyOf(o), client.DryRunAll) }
	}
	label := func(key string) func() error {
		return patch(f.node, fmt.Sprintf(`{"metadata":{"labels":{%q:"x"}}}`, key))
	}
	annotate := func(key, value string) func() error {
		return patch(f.node, fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, key, value))
	}
	taints := func(list string) func() error {
		return patch(f.node, `{"spec":{"taints":[`+list+`]}}`)
	}
	const dedicated, registered, gate = `{"key":"dedicated","value":"gpu","effect":"NoSchedule"}`, `{"key":"x.test/up","value":"by-kubelet","effect":"NoSchedule"}`, `{"key":"x.test/ours","value":"everynode","effect":"NoSchedule"}`
	const all = dedicated + "," + registered + "," + gate

	for name, tt := range map[string]struct {
		try func() error
		// refused is part of the message; "" if the request is accepted.
		refused string
	}{
		"a label that workloads are bound by":         {label("node-restriction.kubernetes.io/tier"), "must not change these labels of a node: node-restriction.kubernetes.io/tier"},
		"a seal of others":                            {label("x.node-restriction.kubernetes.io/y"), "these labels"},
		"the role of a node":                          {label("node-role.kubernetes.io/control-plane"), "these labels"},
		"the zone of a node":                          {patch(f.node, `{"metadata":{"labels":{"topology.kubernetes.io/zone":null}}}`), "these labels of a node: topology.kubernetes.io/zone"},
		"a reserved label of Everynode":               {label("everynode.dev/x"), "these labels"},
		"the label of a record":                       {label(f.Namespace + ".everynode.dev/task"), ""},
		"a seal":                                      {label(f.Namespace + ".everynode.node-restriction.kubernetes.io/task"), ""},
		"a label that publish accepts":                {label("x.test/kernel"), ""},
		"a label of the kubelet that publish accepts": {label("node.kubernetes.io/x"), ""},
		"a label that takes it off load balancers":    {label("node.kubernetes.io/exclude-from-external-load-balancers"), "must not change these labels of a node: node.kubernetes.io/exclude-from-external-load-balancers"},
		"a label that hides its failures":             {label("node.kubernetes.io/exclude-disruption"), "these labels"},
		"the removal of a label by removeLabels":      {patch(f.node, `{"metadata":{"labels":{"x.test/site":null}}}`), ""},
		"an annotation of a driver":                   {annotate("csi.volume.kubernetes.io/nodeid", "null"), "these annotations of a node: csi.volume.kubernetes.io/nodeid"},
		"another annotation of Everynode":             {annotate("everynode.dev/x", `"x"`), "these annotations"},
		"a record":                                    {annotate(f.Namespace+".everynode.dev/task", `"{}"`), ""},
		"a record with a label of others":             {patch(f.node, `{"metadata":{"annotations":{"a.everynode.dev/b":"{}"},"labels":{"a.everynode.dev/b":"r","node-restriction.kubernetes.io/tier":"x"}}}`), "must not change these labels of a node"},
		"a record without a label of others":          {patch(f.node, `{"metadata":{"annotations":{"a.everynode.dev/b":"{}"},"labels":{"topology.kubernetes.io/zone":null}}}`), "these labels of a node: topology.kubernetes.io/zone"},
		"a record with an annotation of others":       {patch(f.node, `{"metadata":{"annotations":{"a.everynode.dev/b":"{}","everynode.dev/break-glass":"now"}}}`), "must not set everynode.dev/break-glass"},
		"a record without an annotation of others":    {patch(f.node, `{"metadata":{"annotations":{"a.everynode.dev/b":"{}","csi.volume.kubernetes.io/nodeid":null}}}`), "must not change these annotations of a node"},
		"a record without a taint of others":          {patch(f.node, `{"metadata":{"annotations":{"a.everynode.dev/b":"{}"}},"spec":{"taints":[`+registered+","+gate+`]}}`), "must not remove these taints: dedicated"},
		"a record with an owner of the node":          {patch(f.node, `{"metadata":{"annotations":{"a.everynode.dev/b":"{}"},"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"x","uid":"x"}]}}`), "finalizers or owners of a node"},
		"a record with the provider's ID":             {patch(f.node, `{"metadata":{"annotations":{"a.everynode.dev/b":"{}"}},"spec":{"providerID":"x://y"}}`), "only taints and unschedulable"},
		"a record with the pods' network":             {patch(f.node, `{"metadata":{"annotations":{"a.everynode.dev/b":"{}"}},"spec":{"podCIDR":"10.1.0.0/24","podCIDRs":["10.1.0.0/24"]}}`), "only taints and unschedulable"},
		"a record that opens a gate":                  {patch(f.node, `{"metadata":{"annotations":{"a.everynode.dev/b":"{}"}},"spec":{"taints":[`+dedicated+","+registered+`]}}`), ""},
		"a cordon and a taint that deletes volumes":   {patch(f.node, `{"metadata":{"annotations":{"everynode.dev/cordoned-by":"a.everynode.dev/b"}},"spec":{"unschedulable":true,"taints":[`+all+`,{"key":"node.kubernetes.io/out-of-service","value":"everynode","effect":"NoExecute"}]}}`), "must not add these taints: node.kubernetes.io/out-of-service"},
		"the end of a cordon":                         {patch(f.node, `{"metadata":{"annotations":{"everynode.dev/cordoned-by":null}},"spec":{"unschedulable":null}}`), ""},
		"a gate with the value of others":             {taints(all + `,{"key":"a.everynode.dev/b","value":"x","effect":"NoSchedule"}`), "must not add these taints: a.everynode.dev/b"},
		"a gate with the effect PreferNoSchedule":     {taints(all + `,{"key":"a.everynode.dev/b","value":"everynode","effect":"PreferNoSchedule"}`), "must not add these taints: a.everynode.dev/b"},
		"a record without a finalizer of others":      {patch(f.node, `{"metadata":{"annotations":{"a.everynode.dev/b":"{}"},"finalizers":null}}`), "finalizers or owners of a node"},
		"published keys":                              {annotate("everynode.dev/published", `"{}"`), ""},
		"breaking the glass":                          {annotate("everynode.dev/break-glass", `"now"`), "must not set everynode.dev/break-glass"},
		"removing a used break-glass annotation":      {annotate("everynode.dev/break-glass", "null"), ""},
		"approving a release":                         {annotate("everynode.dev/approve-release", `"a/b,e/f"`), "must not approve a release"},
		"removing one approval":                       {annotate("everynode.dev/approve-release", `"c/d"`), ""},
		"removing all approvals":                      {annotate("everynode.dev/approve-release", "null"), ""},
		"a cordon":                                    {patch(f.node, `{"metadata":{"annotations":{"everynode.dev/cordoned-by":"a.everynode.dev/b"}},"spec":{"unschedulable":true}}`), ""},
		"a gate":                                      {taints(all + `,{"key":"` + f.Namespace + `.everynode.dev/task","value":"everynode","effect":"NoSchedule"}`), ""},
		"a gate with a startup taint":                 {taints(all + `,{"key":"startup-taint.cluster-autoscaler.kubernetes.io/x","value":"everynode","effect":"NoExecute"}`), ""},
		"a taint that deletes volumes":                {taints(all + `,{"key":"node.kubernetes.io/out-of-service","value":"everynode","effect":"NoExecute"}`), "must not add these taints: node.kubernetes.io/out-of-service"},
		"a taint without a prefix":                    {taints(all + `,{"key":"dedicated","value":"everynode","effect":"NoExecute"}`), "must not add these taints: dedicated"},
		"a taint that is no gate":                     {taints(all + `,{"key":"x.test/other","value":"x","effect":"NoSchedule"}`), "must not add these taints"},
		"removing a gate":                             {taints(dedicated + "," + registered), ""},
		"removing a gate that a kubelet registered":   {taints(dedicated + "," + gate), ""},
		"removing a taint of others":                  {taints(registered + "," + gate), "must not remove these taints: dedicated"},
		"the provider's ID":                           {patch(f.node, `{"spec":{"providerID":"x://y"}}`), "only taints and unschedulable"},
		"a finalizer of a node":                       {patch(f.node, `{"metadata":{"finalizers":null}}`), "finalizers or owners of a node"},
		"deleting a node":                             {remove(f.node), "cannot delete"},
		"a privileged pod without an owner":           {create(plainPod(f.Namespace, "root")), "with a NodeJob or a NodeGuard as their controller"},
		"a pod in a namespace that is not allowed":    {create(f.taskPod(func(pod *corev1.Pod) { pod.Namespace = "kube-system" })), "must create pods only in namespaces with the label everynode.dev/enabled=true, and not in kube-system"},
		"a pod with the label only":                   {create(f.taskPod(func(pod *corev1.Pod) { pod.OwnerReferences = nil })), "as their controller"},
		"a pod with the owner only":                   {create(f.taskPod(func(pod *corev1.Pod) { delete(pod.Labels, v1alpha1.NodeJobLabel) })), "as their controller"},
		"a pod with the label of another NodeJob":     {create(f.taskPod(func(pod *corev1.Pod) { pod.Labels[v1alpha1.NodeJobLabel] = "other" })), "as their controller"},
		"a pod of another kind of owner":              {create(f.taskPod(func(pod *corev1.Pod) { pod.OwnerReferences[0].Kind = "DaemonSet" })), "as their controller"},
		"a pod of another API":                        {create(f.taskPod(func(pod *corev1.Pod) { pod.OwnerReferences[0].APIVersion = "apps/v1" })), "as their controller"},
		"a pod that a scheduler places":               {create(f.taskPod(func(pod *corev1.Pod) { pod.Spec.NodeName = "" })), "only pods that are bound to a node"},
		"a pod of a NodeJob":                          {create(f.taskPod(nil)), ""},
		"a companion":                                 {create(guard.Companion(f.guard, new(guard.Template(f.guard, nil, task.Options{RunnerImage: "i"})), f.node.Name, "companion")), ""},
		"the placeholder of a NodeGuard":              {create(guard.Placeholder(f.guard, "placeholder", task.Options{RunnerImage: "i"})), ""},
		"a placeholder that a scheduler places":       {create(scheduled), "only pods that are bound to a node, or never scheduled"},
		"the image of a workload":                     {patch(workload, `{"spec":{"containers":[{"name":"c","image":"registry.test/evil:1"}]}}`), "only pods of NodeJobs and NodeGuards"},
		"the image of a workload with our label":      {patch(labeled, `{"metadata":{"labels":{"x":"y"}}}`), "only pods of NodeJobs and NodeGuards"},
		"deleting a workload":                         {remove(workload), "must evict others"},
		"evicting a workload":                         {func() error { return f.evict(workload) }, ""},
		"deleting a pod of a NodeJob":                 {remove(ours), ""},
		"the image of a pod of a NodeJob":             {patch(ours, `{"spec":{"activeDeadlineSeconds":1}}`), "must not change the spec"},
		"the owner of a pod":                          {patch(ours, `{"metadata":{"ownerReferences":null}}`), "must not change the spec or the owners"},
		"a finalizer of others on a pod":              {patch(ours, `{"metadata":{"finalizers":null}}`), "must not remove finalizers of others"},
		"our finalizer of a pod":                      {patch(ours, `{"metadata":{"finalizers":["x.test/theirs"],"annotations":{"everynode.dev/recorded":"true"}}}`), ""},
		"our finalizer with another deadline":         {patch(ours, `{"metadata":{"finalizers":["x.test/theirs"]},"spec":{"activeDeadlineSeconds":1}}`), "must not change the spec"},
		"our finalizer with another owner":            {patch(ours, `{"metadata":{"finalizers":["x.test/theirs"],"ownerReferences":null}}`), "must not change the spec or the owners"},
		"a budget of a NodeGuard":                     {create(f.budget("NodeGuard", nil)), ""},
		"a budget without an owner":                   {create(f.budget("Deployment", nil)), "with a NodeGuard as their controller"},
		"a budget that holds workloads":               {create(f.budget("NodeGuard", map[string]string{"app": "x"})), "select the pods of their NodeGuard"},
		"opening a budget of a NodeGuard":             {patch(own, `{"spec":{"minAvailable":0}}`), "cannot patch"},
		"deleting a budget of others":                 {remove(theirs), "with a NodeGuard as their controller"},
		"deleting a budget of a NodeGuard":            {remove(own), ""},
		"the script of a NodeJob":                     {patch(f.job, `{"spec":{"task":{"script":"evil"}}}`), "must not change the spec of a NodeJob"},
		"a retry":                                     {patch(f.job, `{"metadata":{"annotations":{"everynode.dev/retry":"2"}}}`), "must not change annotations of a NodeJob"},
		"the end of a retry":                          {patch(f.job, `{"metadata":{"annotations":{"everynode.dev/retry":null}}}`), "must not change annotations of a NodeJob"},
		"a label of a NodeJob":                        {patch(f.job, `{"metadata":{"labels":{"x":"y"}}}`), "must not change labels of a NodeJob"},
		"an annotation of a tool on a NodeJob":        {patch(f.job, `{"metadata":{"annotations":{"argocd.argoproj.io/tracking-id":"x"}}}`), "must not change annotations of a NodeJob"},
		"an owner that does not exist":                {patch(f.job, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"x"}]}}`), "must not change the owners of a NodeJob"},
		"a finalizer of others on a NodeJob":          {patch(f.job, `{"metadata":{"finalizers":null}}`), "must not remove finalizers of others"},
		"our finalizer of a NodeJob":                  {patch(f.job, `{"metadata":{"finalizers":["x.test/theirs"]}}`), ""},
		"deleting a NodeJob":                          {remove(f.job), "only NodeJobs with spec.ttlSecondsAfterFinished"},
		"deleting a NodeJob whose time is over":       {remove(f.expiry), ""},
		"giving the manager's rights to others":       {patch(binding, `{"subjects":[{"kind":"ServiceAccount","namespace":"default","name":"evil"}]}`), "must not change rules or subjects"},
		"fewer rights":                                {patch(role, `{"rules":[]}`), "must not change rules or subjects"},
		"the cloud identity of the service account":   {patch(account, `{"metadata":{"annotations":{"eks.amazonaws.com/role-arn":"x"}}}`), "only finalizers and owners"},
		"the finalizer of the service account":        {patch(account, `{"metadata":{"finalizers":["everynode.dev/installation"]}}`), ""},
		"a token of another service account": {func() error {
			return f.token.SubResource("token").Create(f.Ctx, account, &authenticationv1.TokenRequest{})
		}, "cannot create resource"},
		"the Secrets of a namespace": {func() error { return f.token.List(f.Ctx, &corev1.SecretList{}) }, "cannot list"},
		"a role of its own":          {create(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "x"}}), "cannot create"},
	} {
		t.Run(name, func(t *testing.T) {
			err := tt.try()
			switch {
			case tt.refused == "" && err != nil:
				t.Errorf("it is refused: %v", err)
			case tt.refused != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), tt.refused)):
				t.Errorf("the error is %v, want %q", err, tt.refused)
			}
		})
	}
}

// TestThePoliciesOfTheManagerConcernNoOthers repeats what the manager must not do as an administrator.
func TestThePoliciesOfTheManagerConcernNoOthers(t *testing.T) {
	f := newThief(t)
	for name, err := range map[string]error{
		"a label":         admin.Patch(f.Ctx, copyOf(f.node), mergePatch(`{"metadata":{"labels":{"node-restriction.kubernetes.io/tier":"x"}}}`), client.DryRunAll),
		"taints":          admin.Patch(f.Ctx, copyOf(f.node), mergePatch(`{"spec":{"taints":[]}}`), client.DryRunAll),
		"a pod":           admin.Create(f.Ctx, plainPod(f.Namespace, "p"), client.DryRunAll),
		"a NodeJob":       admin.Patch(f.Ctx, copyOf(f.job), mergePatch(`{"spec":{"suspend":true}}`), client.DryRunAll),
		"another NodeJob": admin.Delete(f.Ctx, copyOf(f.job), client.DryRunAll),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func copyOf(o client.Object) client.Object { return o.DeepCopyObject().(client.Object) }

func (f *thief) evict(o client.Object) error {
	return f.token.SubResource("eviction").Create(f.Ctx, o, &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.GetNamespace(),
			Name:      o.GetName(),
		},
		DeleteOptions: &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}},
	})
}

// managersAccount returns the service account of the manager, which the installation creates.
func (f *thief) managersAccount() *corev1.ServiceAccount {
	f.T.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "everynode-system"}}
	must(f.T, client.IgnoreAlreadyExists(admin.Create(f.Ctx, namespace)))
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "everynode-system", Name: "everynode-manager"}}
	must(f.T, client.IgnoreAlreadyExists(admin.Create(f.Ctx, account)))
	f.T.Cleanup(func() { must(f.T, client.IgnoreNotFound(admin.Delete(f.Ctx, account))) })
	return account
}
