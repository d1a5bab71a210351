// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/manager/policies"
	"github.com/everynode/everynode/internal/rights"
)

// authorization are the objects of config/authorization, and userRoles those of config/rbac/user_roles.yaml.
var (
	authorization = []string{
		"authorization/nodejobs.yaml",
		"authorization/nodeguards.yaml",
		"authorization/configmaps.yaml",
		"authorization/namespaces.yaml",
		"authorization/status.yaml",
		"authorization/pods.yaml",
		"authorization/ownpods.yaml",
		"authorization/attribution.yaml",
		"warnings/namespaces.yaml",
	}
	userRoles = []string{"rbac/user_roles.yaml"}
)

// configObjects returns the objects of files in config.
func configObjects(files ...string) ([]*unstructured.Unstructured, error) {
	var found []*unstructured.Unstructured
	for _, file := range files {
		content, err := os.ReadFile(filepath.Join("../../config", file))
		if err != nil {
			return nil, err
		}
		documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
		for {
			document, err := documents.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			object := &unstructured.Unstructured{}
			if err == nil {
				err = yaml.Unmarshal(document, &object.Object)
			}
			if err != nil {
				return nil, fmt.Errorf("reading %s: %w", file, err)
			}
			found = append(found, object)
		}
	}
	return found, nil
}

// unattributedLabel, on a namespace, has the API server not name who changes a NodeJob there, as before Kubernetes 1.36.
const unattributedLabel = "test.everynode.dev/unattributed"

// unprotectedLabel, on a namespace, has the API server let all users create pods with labels of Everynode there, as where the
// policies are not installed.
const unprotectedLabel = "test.everynode.dev/unprotected"

// exceptIn has a binding of a policy not count in namespaces with a label.
func exceptIn(binding *unstructured.Unstructured, label string) error {
	return unstructured.SetNestedSlice(binding.Object, []any{map[string]any{"key": label, "operator": "DoesNotExist"}},
		"spec", "matchResources", "namespaceSelector", "matchExpressions")
}

// unprotected has other users than the manager create pods of NodeJobs and NodeGuards in the namespace.
func (w *world) unprotected() {
	w.T.Helper()
	must(
		w.T,
		admin.Patch(
			w.Ctx,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}},
			mergePatch(`{"metadata":{"labels":{"`+unprotectedLabel+`":"true"}}}`),
		),
	)
	forged := plainPod(w.Namespace, "unprotected")
	forged.Labels = map[string]string{v1alpha1.NodeJobLabel: "x", v1alpha1.NodeGuardLabel: "x"}
	w.Eventually("the namespace is not protected", func() error { return admin.Create(w.Ctx, forged.DeepCopy(), client.DryRunAll) })
}

// installAuthorization has the API server of all tests ask for rights, and gives it the roles for users.
func installAuthorization(ctx context.Context) error {
	objects, err := configObjects(append(authorization, userRoles...)...)
	if policiesServed {
		attribution, wrong := configObjects("attribution/policy.yaml")
		for _, o := range attribution {
			if o.GetKind() == "MutatingAdmissionPolicyBinding" {
				wrong = errors.Join(wrong, exceptIn(o, unattributedLabel))
			}
		}
		objects, err = append(objects, attribution...), errors.Join(err, wrong)
	}
	for _, o := range objects {
		if policy, _, _ := unstructured.NestedString(o.Object, "spec", "policyName"); policy == "everynode-pods" {
			err = errors.Join(err, exceptIn(o, unprotectedLabel))
		}
		err = errors.Join(err, admin.Create(ctx, o))
	}
	return errors.Join(err, changesAreNamed(ctx, admin))
}

// changesAreNamed waits until an API server names who creates an object, if it can. It reads the schemas of new CRDs every 5 s,
// and refuses NodeJobs before that.
func changesAreNamed(ctx context.Context, admin client.Client) error {
	if !policiesServed {
		return nil
	}
	var last error
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		job := &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "named"}}
		job.Spec.Nodes.Names, job.Spec.Task.Script = []string{"none"}, "true"
		if last = admin.Create(ctx, job, client.DryRunAll); last == nil && named(job) != "" {
			return nil
		}
	}
	return fmt.Errorf(
		"the API server does not name who creates a NodeJob within 30 s: %w",
		errors.Join(last, errors.New("there is no annotation")),
	)
}

// as returns a client that acts as another user.
func (w *world) as(user string) client.Client {
	w.T.Helper()
	config := rest.CopyConfig(env.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	c, err := client.New(config, client.Options{Scheme: scheme})
	must(w.T, err)
	return c
}

// subject is a user or, with the name that a ServiceAccount has as a user, a ServiceAccount.
func subject(user string) []rbacv1.Subject {
	if account, is := strings.CutPrefix(user, "system:serviceaccount:"); is {
		namespace, name, _ := strings.Cut(account, ":")
		return []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}}
	}
	return []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}}
}

// bind binds a ClusterRole to a user: in the namespace of the world, or in the whole cluster.
func (w *world) bind(user, role string, cluster bool) {
	w.T.Helper()
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
	meta := metav1.ObjectMeta{GenerateName: "bound-"}
	if cluster {
		w.makes(&rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subject(user)})
		return
	}
	meta.Namespace = w.Namespace
	must(w.T, admin.Create(w.Ctx, &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subject(user)}))
}

// allow gives a user what these rules allow: in the namespace of the world, or in the whole cluster.
func (w *world) allow(user string, cluster bool, rules ...rbacv1.PolicyRule) {
	w.T.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: "role-"}, Rules: rules}
	w.makes(role)
	w.bind(user, role.Name, cluster)
}

// rule allows all verbs for some resources.
func rule(group string, verbs []string, resources ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs}
}

var all = []string{"*"}

// edits lets a user write NodeJobs, NodeGuards and ConfigMaps in the namespace of the world, and nothing else.
func (w *world) edits(user string) {
	w.T.Helper()
	w.bind(user, "everynode-nodejob-editor", false)
	w.bind(user, "everynode-nodeguard-editor", false)
	w.allow(user, false, rule("", all, "configmaps"))
}

// onNodes lets a user have NodeJobs of a namespace do something on nodes.
func (w *world) onNodes(user, namespace string, verbs ...string) {
	w.T.Helper()
	w.allow(
		user,
		true,
		rbacv1.PolicyRule{
			APIGroups:     []string{"everynode.dev"},
			Resources:     []string{"nodejobs/nodes"},
			ResourceNames: []string{namespace},
			Verbs:         verbs,
		},
	)
}

// effects are the rights of everynode-all-effects, and allEffects all rights on nodes.
var (
	effects    = []string{rights.RunAsRoot, rights.Disrupt, rights.Gate, rights.Label}
	allEffects = append(slices.Clone(effects), rights.IgnoreWindows)
)

// rightsAreAsked waits until the API server evaluates the policies: it learns of them a moment after their creation.
func (w *world) rightsAreAsked() {
	w.T.Helper()
	const user = "probe"
	w.edits(user)
	probe := w.as(user)
	for _, o := range []client.Object{
		jobFromYAML(w.T, w.Namespace, "probe", `{task: {script: "true"}}`),
		guardFromYAML(w.T, w.Namespace, "probe", `{target: {daemonSet: a}}`),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "probe", Labels: map[string]string{"everynode.dev/script": "true"}}},
	} {
		w.Eventually(fmt.Sprintf("a %T without rights is refused", o), func() error {
			err := probe.Create(w.Ctx, o.DeepCopyObject().(client.Object), client.DryRunAll)
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "lacks the right") {
				return fmt.Errorf("the API server says %w", errors.Join(errors.New("it is no refusal"), err))
			}
			return nil
		})
	}
}

// authorizesNewObjects waits until the policies are so old that a manager knows that they were enforced when an object is created.
func authorizesNewObjects(ctx context.Context, admin client.Client) error {
	expected, err := policies.NewExpected(true, false)
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		by, problem, err := expected.Check(ctx, withoutException{admin})
		if err != nil || problem != "" {
			return errors.Join(err, errors.New(problem))
		}
		probe := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "probe"}}
		if err := admin.Create(ctx, probe, client.DryRunAll); err != nil {
			return err
		}
		if probe.CreationTimestamp.After(by.Since.Add(policies.Enforced)) {
			return nil
		}
	}
	return errors.New("they are not after 20 s")
}
