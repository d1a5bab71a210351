// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/rights"
	"github.com/everynode/everynode/internal/uninstall"
)

var writeAccesses = flag.Bool("update-accesses", false, "write testdata/access.txt")

const accessFile = "testdata/access.txt"

// actor is a user of the table. binds gives the user its roles.
type actor struct {
	name, user string
	groups     []string
	binds      func(w *world, user string)
}

// actors are the users of the table, in the order in which they are written.
func actors(node string) []actor {
	one := func(right string) func(*world, string) {
		return func(w *world, user string) {
			w.edits(user)
			w.onNodes(user, w.Namespace, right)
		}
	}
	return []actor{
		{name: "no role", user: "anybody"},
		{name: "viewer", user: "viewer", binds: func(w *world, user string) {
			w.bind(user, "everynode-view", false)
			w.bind(user, "everynode-view-nodes", true)
			w.bind(user, "everynode-view-all", true)
			w.bind(user, "everynode-view-drains", true)
		}},
		{name: "edit", user: "edit", binds: func(w *world, user string) { // its role is aggregated from these
			w.bind(user, "system:aggregate-to-edit", false)
			w.bind(user, "system:aggregate-to-view", false)
		}},
		{name: "* here", user: "tenant-here", binds: func(w *world, user string) { w.bind(user, "cluster-admin", false) }},
		{
			name:  "* elsewhere",
			user:  "tenant-elsewhere",
			binds: func(w *world, user string) { w.bindIn(w.Namespace+"-other", user, "cluster-admin") },
		},
		{name: "editor", user: "editor", binds: (*world).edits},
		{name: "run-as-root", user: "root", binds: one(rights.RunAsRoot)},
		{name: "disrupt", user: "disrupt", binds: one(rights.Disrupt)},
		{name: "gate", user: "gate", binds: one(rights.Gate)},
		{name: "label", user: "label", binds: one(rights.Label)},
		{name: "ignore-windows", user: "windows", binds: one(rights.IgnoreWindows)},
		{name: "GitOps", user: gitOpsUser, binds: func(w *world, user string) {
			w.edits(user)
			w.bind(user, "everynode-all-effects", true)
			w.bind(user, "system:aggregate-to-edit", false)
		}},
		{name: "operator", user: "operator", binds: func(w *world, user string) {
			w.edits(user)
			w.bind(user, "everynode-operator", false)
			w.bind(user, "everynode-operator-nodes", true)
		}},
		{name: "kubelet", user: "system:node:" + node, groups: []string{"system:nodes", "system:authenticated"}},
		{name: "garbage collector", user: "system:serviceaccount:kube-system:generic-garbage-collector"},
		// With the rights, because the API server tells only one of two policies that refuse a request.
		{name: "manager", user: managerUser, binds: func(w *world, user string) { w.bind(user, "everynode-all-effects", true) }},
		{name: "administrator", user: "administrator", binds: func(w *world, user string) { w.bind(user, "cluster-admin", true) }},
	}
}

// accesses is a world with one object of each kind that the manager reads or writes.
type accesses struct {
	*world
	actors   []actor
	clients  []client.Client
	replacer *strings.Replacer
	// sentences has what is the same in all messages, without names.
	sentences *strings.Replacer
}

func (w *world) bindIn(namespace, user, role string) {
	must(w.T, admin.Create(w.Ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{GenerateName: "bound-", Namespace: namespace},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}, Subjects: subject(user)}))
}

func newAccesses(t *testing.T) *accesses {
	w := newWorld(t)
	w.rightsAreAsked()
	// The same on all versions: no annotation is set by the API server.
	must(
		t,
		admin.Patch(
			w.Ctx,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}},
			mergePatch(`{"metadata":{"labels":{"`+unattributedLabel+`":"true"}}}`),
		),
	)
	a := &accesses{world: w}
	a.makes(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace + "-other"}})
	node := w.node("node-of-" + w.Namespace)
	w.prepare()
	guard := &v1alpha1.NodeGuard{}
	must(t, admin.Get(w.Ctx, client.ObjectKey{Namespace: w.Namespace, Name: "guard"}, guard))
	a.installation()
	expired := metav1.NewTime(time.Now().Add(-time.Hour))
	budget := &v1alpha1.NodeDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: w.Namespace},
		Spec:       v1alpha1.NodeDisruptionBudgetSpec{Limits: []v1alpha1.BudgetLimit{{MaxUnavailable: number(1)}}, ExpiresAt: &expired},
	}
	a.makes(budget)
	sealed := uninstall.SealSecret()
	must(t, admin.Get(w.Ctx, client.ObjectKeyFromObject(sealed), sealed))
	a.replacer = strings.NewReplacer(
		"BUDGET-UID",
		string(budget.UID),
		"SEAL-UID",
		string(sealed.UID),
		"NAMESPACE",
		w.Namespace,
		"OTHER",
		w.Namespace+"-other",
		"NODE-UID",
		string(node.UID),
		"NODE",
		node.Name,
		"JOB-UID",
		string(w.live("script").UID),
		"GUARD-UID",
		string(guard.UID),
	)
	a.store(managerUser, "Pod", "attempt", attempt+`, `+bound)
	a.store(managerUser, "Pod", "companion", `metadata: {labels: {everynode.dev/nodeguard: guard}, `+guardOwner+`}, `+bound)
	a.store("", "Pod", "unbound", `spec: {`+container+`, automountServiceAccountToken: false}`)
	a.store(
		managerUser,
		"PodDisruptionBudget",
		"budget",
		`metadata: {labels: {everynode.dev/nodeguard: guard}, `+guardOwner+`}, spec: {minAvailable: 1, selector: {matchLabels: {everynode.dev/nodeguard: guard}}}`,
	)
	a.store(
		"",
		"DaemonSet",
		"target",
		`spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {`+container+`}}}`,
	)
	a.actors = actors(node.Name)
	names := []string{w.Namespace, "NAMESPACE", node.Name, "NODE"}
	for _, actor := range a.actors {
		if actor.binds != nil {
			actor.binds(w, actor.user)
		}
		a.clients = append(a.clients, a.client(actor))
		names = append(names, " "+actor.user+" lacks", " USER lacks")
	}
	a.sentences = strings.NewReplacer(names...)
	a.rolesAreKnown()
	return a
}

// installation creates what config/default has in its namespace.
func (a *accesses) installation() {
	a.T.Helper()
	must(a.T, client.IgnoreAlreadyExists(admin.Create(a.Ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "everynode-system"}})))
	inNamespace := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "everynode-system", Name: name}
	}
	for _, o := range []client.Object{
		&corev1.Secret{ObjectMeta: inNamespace("everynode-seal")}, &corev1.ServiceAccount{ObjectMeta: inNamespace("everynode-manager")},
		&corev1.ServiceAccount{ObjectMeta: inNamespace("everynode-requirements")}, &coordinationv1.Lease{ObjectMeta: inNamespace("everynode-manager")},
	} {
		must(a.T, client.IgnoreAlreadyExists(admin.Create(a.Ctx, o)))
		a.T.Cleanup(func() { _ = admin.Delete(a.Ctx, o) }) // another test may have removed it
	}
}

func (a *accesses) client(user actor) client.Client {
	a.T.Helper()
	config := rest.CopyConfig(env.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user.user, Groups: user.groups}
	config.QPS = -1
	c, err := client.New(config, client.Options{Scheme: scheme})
	must(a.T, err)
	return c
}

// rolesAreKnown waits until the API server has seen all roles and bindings, of which these are the last ones.
func (a *accesses) rolesAreKnown() {
	a.T.Helper()
	a.allow("last", true, rule("test.everynode.dev", []string{"probe"}, "all"))
	a.allow("last", false, rule("test.everynode.dev", []string{"probe"}, "one"))
	for _, attributes := range []authorizationv1.ResourceAttributes{{Resource: "all"}, {Resource: "one", Namespace: a.Namespace}} {
		attributes.Verb, attributes.Group = "probe", "test.everynode.dev"
		a.Eventually("all roles are known", func() error {
			review := &authorizationv1.SubjectAccessReview{
				Spec: authorizationv1.SubjectAccessReviewSpec{User: "last", ResourceAttributes: &attributes},
			}
			if err := admin.Create(a.Ctx, review); err != nil || !review.Status.Allowed {
				return fmt.Errorf("%+v: %w", review.Status, errors.Join(err, errors.New("not yet")))
			}
			return nil
		})
	}
}

// object returns the object of a request, with the fields of body.
func (a *accesses) object(kind, namespace, name, body string) *unstructured.Unstructured {
	a.T.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{}}
	body = strings.TrimSpace(a.replacer.Replace(body))
	if body != "" && !strings.HasPrefix(body, "{") {
		body = "{" + body + "}"
	}
	must(a.T, yaml.Unmarshal([]byte(body), &o.Object))
	if o.GetKind() == "" {
		o.SetGroupVersionKind(schema.FromAPIVersionAndKind(groups[kind], kind))
	}
	o.SetName(a.replacer.Replace(name))
	if namespace = cmp.Or(namespace, a.Namespace); namespace != "-" {
		o.SetNamespace(namespace)
	}
	return o
}

// store creates an object for the table, as a user or, if it is "", as an administrator.
func (a *accesses) store(user, kind, name, body string) {
	a.T.Helper()
	var c client.Client = admin
	if user != "" {
		c = a.as(user)
	}
	must(a.T, c.Create(a.Ctx, a.object(kind, "", name, body)))
}

// do makes a request as a dry run, and returns the object that the API server would store.
func (a *accesses) do(c client.Client, q ask) (*unstructured.Unstructured, error) {
	target, dry := a.object(q.kind, q.namespace, q.name, ""), []string{metav1.DryRunAll}
	switch q.verb + " " + q.subresource {
	case "get ":
		return target, c.Get(a.Ctx, client.ObjectKeyFromObject(target), target)
	case "create ":
		o := a.object(q.kind, q.namespace, q.name, q.body)
		return o, c.Create(a.Ctx, o, client.DryRunAll)
	case "delete ":
		return target, c.Delete(a.Ctx, target, client.DryRunAll)
	}
	if q.verb == "create" {
		o := a.object(q.kind, q.namespace, q.name, q.body)
		return o, c.SubResource(q.subresource).
			Create(a.Ctx, target, o, &client.SubResourceCreateOptions{CreateOptions: client.CreateOptions{DryRun: dry}})
	}
	change := a.object(q.kind, q.namespace, q.name, q.body).Object
	patch, err := json.Marshal(change)
	must(a.T, err)
	if q.verb == "update" {
		must(a.T, admin.Get(a.Ctx, client.ObjectKeyFromObject(target), target))
		mergeInto(target.Object, change)
	}
	switch {
	case q.verb == "update" && q.subresource == "":
		return target, c.Update(a.Ctx, target, client.DryRunAll)
	case q.verb == "update":
		return target, c.SubResource(q.subresource).
			Update(a.Ctx, target, &client.SubResourceUpdateOptions{UpdateOptions: client.UpdateOptions{DryRun: dry}})
	case q.subresource == "":
		return target, c.Patch(a.Ctx, target, mergePatch(string(patch)), client.DryRunAll)
	}
	return target, c.SubResource(q.subresource).
		Patch(a.Ctx, target, mergePatch(string(patch)), &client.SubResourcePatchOptions{PatchOptions: client.PatchOptions{DryRun: dry}})
}

// mergeInto changes an object as a merge patch would.
func mergeInto(o, patch map[string]any) {
	for key, value := range patch {
		below, isMap := o[key].(map[string]any)
		switch changed, changes := value.(map[string]any); {
		case isMap && changes:
			mergeInto(below, changed)
		case value == nil:
			delete(o, key)
		default:
			o[key] = value
		}
	}
}

var denied = regexp.MustCompile(`(?s)ValidatingAdmissionPolicy '([a-z-]+)' with binding '[a-z-]+' denied request: (.*)`)

// cell is what the API server says to a request, without names that differ between runs.
func (a *accesses) cell(err error) string {
	switch {
	case err == nil:
		return "allowed"
	case !apierrors.IsForbidden(err):
		return "error: " + err.Error()
	}
	text := a.sentences.Replace(err.Error())
	if found := denied.FindStringSubmatch(text); found != nil {
		return found[1] + ": " + found[2]
	}
	if strings.Contains(text, ` cannot `) && strings.Contains(text, ` resource `) || strings.Contains(text, "no relationship found") {
		return noRole
	}
	return "refused by Kubernetes" // such as by NodeRestriction, in words of its own
}

// noRole is the answer of RBAC, which does not depend on what is in a request.
const noRole = "refused by RBAC"

// answers returns which actors get which answer to a request, as lines. key is a label or annotation that the request sets, and
// before are the answers to a request of the same kind; nil for the first one.
func (a *accesses) answers(q ask, place, key string, before []string) (lines string, said []string) {
	said = make([]string, len(a.actors))
	var wait sync.WaitGroup
	for i := range a.actors {
		if before != nil && before[i] == noRole {
			said[i] = noRole
			continue
		}
		wait.Go(func() {
			o, err := a.do(a.clients[i], q)
			said[i] = a.cell(err)
			if key != "" {
				said[i] = strings.ReplaceAll(said[i], ": "+key, ": KEY")
			}
			if (key == v1alpha1.ChangedByAnnotation || key == v1alpha1.RequestedByAnnotation) && a.actors[i].user == managerUser &&
				strings.HasPrefix(said[i], "everynode-") {
				said[i] = "refused by two policies, of which the API server tells one"
			}
			if value, _, _ := unstructured.NestedString(
				o.Object,
				"metadata",
				place,
				key,
			); err == nil && key != "" &&
				value != valueOf(place, key) {
				said[i] = "without effect"
			}
		})
	}
	wait.Wait()
	byAnswer := map[string][]string{}
	for i, answer := range said {
		byAnswer[answer] = append(byAnswer[answer], a.actors[i].name)
	}
	var text strings.Builder
	for _, answer := range slices.Sorted(maps.Keys(byAnswer)) {
		fmt.Fprintf(&text, "  %s\n    %s\n", strings.Join(byAnswer[answer], ", "), answer)
	}
	return text.String(), said
}

func resourceOf(t *testing.T, kind string) string {
	t.Helper()
	plural, _ := meta.UnsafeGuessKindToResource(schema.FromAPIVersionAndKind(groups[kind], kind))
	return plural.GroupResource().String()
}

// TestWhoMayAccessWhat compares what each actor may do with each object, subresource and key with testdata/access.txt. A change of
// the file is a change of who may do what: read it line by line.
func TestWhoMayAccessWhat(t *testing.T) {
	a := newAccesses(t)
	var blocks []string
	for _, q := range accessAsks {
		if q.notBefore136 && !policiesServed {
			continue
		}
		head := q.verb + " " + resourceOf(t, q.kind)
		if q.subresource != "" {
			head += "/" + q.subresource
		}
		if q.what != "" {
			head += ": " + q.what
		}
		answers, _ := a.answers(q, "", "", nil)
		blocks = append(blocks, head+"\n"+answers)
	}
	for _, f := range families {
		blocks = append(blocks, a.withKeys(f)...)
	}
	compareAccesses(t, blocks)
}

// withKeys returns the blocks of a family, each with the keys that have the same answers.
func (a *accesses) withKeys(f family) []string {
	a.T.Helper()
	where := resourceOf(a.T, f.kind)
	if f.subresource != "" {
		where += "/" + f.subresource
	}
	var blocks []string
	for _, place := range []string{"labels", "annotations"} {
		keys := map[string][]string{}
		var said []string
		for key, q := range keysOf(f, keysOfEverynode(a.T), place) {
			var answers string
			answers, said = a.answers(q, place, key, said)
			keys[answers] = append(keys[answers], strings.TrimPrefix(key, v1alpha1.Group+"/"))
		}
		for _, answers := range slices.SortedFunc(maps.Keys(keys), func(x, y string) int { return cmp.Compare(slices.Min(keys[x]), slices.Min(keys[y])) }) {
			slices.Sort(keys[answers])
			blocks = append(
				blocks,
				fmt.Sprintf(
					"patch %s: %s of everynode.dev on %s: %s\n%s",
					where,
					place,
					strings.ToLower(f.name),
					strings.Join(keys[answers], ", "),
					answers,
				),
			)
		}
	}
	return blocks
}

const accessHead = `# Who may do what, at the API server. TestWhoMayAccessWhat writes this file with -update-accesses, and compares it.
# Each block is a request, and which actors get which answer. An answer names the policy that refuses.
`

func compareAccesses(t *testing.T, blocks []string) {
	t.Helper()
	if *writeAccesses {
		must(t, os.WriteFile(accessFile, []byte(accessHead+"\n"+strings.Join(blocks, "\n")), 0o644))
		return
	}
	content, err := os.ReadFile(accessFile)
	must(t, err)
	_, body, _ := strings.Cut(string(content), "\n\n")
	want := map[string]string{}
	for block := range strings.SplitSeq(strings.TrimSuffix(body, "\n"), "\n\n") {
		head, answers, _ := strings.Cut(block, "\n")
		want[head] = answers
	}
	for _, block := range blocks {
		head, answers, _ := strings.Cut(strings.TrimSuffix(block, "\n"), "\n")
		if answers != want[head] {
			t.Errorf(
				"%s\nthe API server says:\n%s\n%s says:\n%s\nIf the change is intended: -run=TestWhoMayAccessWhat -update-accesses",
				head,
				answers,
				accessFile,
				want[head],
			)
		}
		delete(want, head)
	}
	for head := range want {
		if policiesServed || !strings.Contains(head, "mutatingadmissionpolic") && !strings.HasPrefix(head, "create events") {
			t.Errorf("%s has %q, which is no request of the test any more", accessFile, head)
		}
	}
}

// TestTheTableOfAccessesHasAllThatTheManagerReads : a new kind in the manager's role needs requests in the table.
func TestTheTableOfAccessesHasAllThatTheManagerReads(t *testing.T) {
	asked := map[string]bool{}
	for _, q := range accessAsks {
		asked[resourceOf(t, q.kind)] = true
	}
	role, err := managerRole()
	must(t, err)
	for _, r := range role.Rules {
		for _, resource := range r.Resources {
			main, _, _ := strings.Cut(resource, "/")
			if name := (schema.GroupResource{Group: r.APIGroups[0], Resource: main}).String(); !asked[name] {
				t.Errorf(
					"the manager may %s %s, and the table of accesses (accessAsks) has no request for it: add who may write it",
					strings.Join(r.Verbs, ", "),
					name,
				)
			}
		}
	}
	for _, f := range families {
		if !asked[resourceOf(t, f.kind)] {
			t.Errorf("the table has keys on %s, and no other request for it", f.kind)
		}
	}
}
