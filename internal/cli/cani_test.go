// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/rights"
	"github.com/everynode/everynode/internal/testing/clitest"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

// rightsServer is a fake API server that knows the rights of jane.
type rightsServer struct {
	t *testing.T
	// lacks are the verbs that jane does not have.
	lacks []string
	// actions are those of all policies; nil if there are no policies.
	actions []admissionv1.ValidationAction
	// notInstalled means that there is no CRD. mayNotRead means that jane may not read the policies.
	notInstalled, mayNotRead bool
	// live is the NodeJob tune in the cluster, if it exists.
	live *v1alpha1.NodeJob
	// namespace is the namespace, if jane may read it, and manager the Deployment of the manager.
	namespace *corev1.Namespace
	manager   *appsv1.Deployment
}

func (s *rightsServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	const policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/"
	switch path := r.URL.Path; {
	case path == "/api/v1/namespaces/ns" && s.namespace != nil:
		clitest.Respond(w, s.namespace)
	case path == "/apis/apps/v1/namespaces/everynode-system/deployments/everynode-manager" && s.manager != nil:
		clitest.Respond(w, s.manager)
	case path == "/api/v1/namespaces/ns", strings.HasPrefix(path, "/apis/apps/"):
		clitest.RespondError(w, http.StatusForbidden, metav1.StatusReasonForbidden, "no")
	case path == clitest.JobsPath && s.notInstalled:
		http.NotFound(w, r)
	case path == clitest.JobsPath:
		clitest.Respond(w, v1alpha1.NodeJobList{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeJobList"}})
	case path == clitest.JobsPath+"/tune" && s.live != nil:
		clitest.Respond(w, s.live)
	case strings.HasPrefix(path, clitest.JobsPath+"/"):
		clitest.RespondError(w, http.StatusNotFound, metav1.StatusReasonNotFound, "not found")
	case path == "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews":
		var review authorizationv1.SelfSubjectAccessReview
		body, err := io.ReadAll(r.Body)
		if err == nil {
			_, _, err = scheme.Codecs.UniversalDeserializer().Decode(body, nil, &review) // it may be in protobuf
		}
		if err != nil {
			s.t.Error(err)
		}
		review.Status.Allowed = !slices.Contains(s.lacks, review.Spec.ResourceAttributes.Verb)
		clitest.Respond(w, review)
	case path == "/apis/authentication.k8s.io/v1/selfsubjectreviews":
		clitest.Respond(w, authenticationv1.SelfSubjectReview{
			TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "SelfSubjectReview"},
			Status:   authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: "jane"}},
		})
	case strings.HasPrefix(path, policies) && s.mayNotRead:
		clitest.RespondError(w, http.StatusForbidden, metav1.StatusReasonForbidden, "no")
	case strings.HasPrefix(path, policies) && s.actions == nil:
		clitest.RespondError(w, http.StatusNotFound, metav1.StatusReasonNotFound, "not found")
	case strings.HasPrefix(path, policies):
		clitest.Respond(w, admissionv1.ValidatingAdmissionPolicyBinding{
			TypeMeta: metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingAdmissionPolicyBinding"},
			Spec:     admissionv1.ValidatingAdmissionPolicyBindingSpec{ValidationActions: s.actions},
		})
	default:
		s.t.Errorf("%s %s", r.Method, r.URL)
	}
}

const drainingJob = `
apiVersion: everynode.dev/v1alpha1
kind: NodeJob
metadata: {name: tune}
spec: {task: {scriptFrom: {configMapKeyRef: {name: scripts, key: sh}}}, maintenance: {drain: {}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: scripts, labels: {everynode.dev/script: "true"}}
`

// ofEachBinding is what can-i says of each binding.
func ofEachBinding(what string) string {
	said := ""
	for _, name := range rights.Bindings() {
		said += "Not all rights are enforced: ValidatingAdmissionPolicyBinding " + name + " " + what + "\n"
	}
	return said
}

func TestCanI(t *testing.T) {
	deny := []admissionv1.ValidationAction{admissionv1.Deny}
	const head = `RIGHT              NAMESPACE  ALLOWED  FOR
get nodejobs       ns         yes      NodeJob ns/tune
create nodejobs    ns         yes      NodeJob ns/tune
patch nodejobs     ns         yes      NodeJob ns/tune
`
	const tail = `get configmaps     ns         yes      ConfigMap ns/scripts
create configmaps  ns         yes      ConfigMap ns/scripts
patch configmaps   ns         yes      ConfigMap ns/scripts
list nodes         (all)      yes      explain, plan, report, results, run, status -o wide
list pods          ns         yes      logs, run, status

`
	const both = `run-as-root        ns         yes      NodeJob ns/tune (spec.task.scriptFrom), ConfigMap ns/scripts (the label everynode.dev/script)
disrupt            ns         yes      NodeJob ns/tune (spec.maintenance.drain)
`
	namespace := func(value string) *corev1.Namespace {
		return &corev1.Namespace{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
			ObjectMeta: metav1.ObjectMeta{Name: "ns", Labels: map[string]string{v1alpha1.EnabledLabel: value}},
		}
	}
	manager := func(args ...string) *appsv1.Deployment {
		d := &appsv1.Deployment{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}}
		d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "manager", Args: args}}
		return d
	}
	row := func(allowed string) string {
		return strings.TrimSuffix(tail, "\n") + "(namespace)        ns         " + allowed + "      NodeJob ns/tune\n\n"
	}
	const closed = "namespace ns is not allowed to have NodeJobs and NodeGuards, which can be root on nodes: nothing starts. An administrator can allow it: kubectl label namespace ns everynode.dev/enabled=true\n"
	none := strings.ReplaceAll(both, "yes", "no ")
	const root = "run-as-root in namespace ns is root on every node, also where the pods of others run, unless the annotation everynode.dev/nodes limits the namespace\n"
	const everywhere = "run-as-root in namespace ns is root on every node, also where the pods of others run. To limit it to nodes: kubectl annotate namespace ns everynode.dev/nodes=LABEL=VALUE (docs/security.md)\n"
	const held = "jane has all rights that this file needs.\n"
	const granted = held + root
	limited := namespace("true")
	limited.Annotations = map[string]string{v1alpha1.NodesAnnotation: "node-restriction.kubernetes.io/team=a"}
	for name, tt := range map[string]struct {
		server rightsServer
		code   int
		want   string
	}{
		"all rights":                            {rightsServer{actions: deny}, cmdutil.ExitOK, head + both + tail + granted},
		"the policies cannot be read":           {rightsServer{mayNotRead: true}, cmdutil.ExitOK, head + both + tail + granted},
		"the API server does not know NodeJobs": {rightsServer{notInstalled: true}, cmdutil.ExitNotInstalled, ""},
		"there are no policies":                 {rightsServer{}, cmdutil.ExitOK, head + both + tail + granted + ofEachBinding("does not exist: apply config/authorization")},
		"the policies only warn": {rightsServer{actions: []admissionv1.ValidationAction{admissionv1.Warn}}, cmdutil.ExitOK, head + both + tail + granted +
			ofEachBinding("has the validationActions [Warn], without Deny")},
		"a NodeJob that has a gate, and loses it": {rightsServer{actions: deny, live: &v1alpha1.NodeJob{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeJob"},
			Spec: v1alpha1.NodeJobSpec{Gate: &v1alpha1.GateSpec{}}}}, cmdutil.ExitOK, head + both +
			"gate               ns         yes      NodeJob ns/tune (spec.gate)\n" + tail + granted},
		"a namespace that is allowed": {rightsServer{actions: deny, namespace: namespace("true")}, cmdutil.ExitOK, head + both + row("yes") + held + everywhere},
		"a namespace that is limited to nodes": {rightsServer{actions: deny, namespace: limited}, cmdutil.ExitOK, head + both + row("yes") + held +
			"run-as-root in namespace ns is root on the nodes with node-restriction.kubernetes.io/team=a\n"},
		"a namespace that is not allowed": {rightsServer{actions: deny, namespace: namespace("no"), manager: manager("--v=1")}, cmdutil.ExitError,
			head + both + row("no ") + held + everywhere + closed},
		"a manager that serves all namespaces": {rightsServer{actions: deny, namespace: namespace("no"), manager: manager("--require-namespace-label=false")}, cmdutil.ExitOK,
			head + both + row("yes") + held + everywhere},
		"a manager that cannot be read": {rightsServer{actions: deny, namespace: namespace("no")}, cmdutil.ExitOK,
			head + both + row("no ") + held + everywhere + "unless the manager serves all namespaces, " + closed},
		"nothing can be read": {rightsServer{actions: deny, lacks: []string{"list"}}, cmdutil.ExitOK, head + both +
			strings.NewReplacer("(all)      yes", "(all)      no ", "list pods          ns         yes", "list pods          ns         no ").Replace(tail) + held +
			`To use the commands that need to read more, which the file does not, an administrator grants:
  kubectl create clusterrolebinding jane-everynode-view-nodes --clusterrole=everynode-view-nodes --user=jane
  kubectl -n ns create rolebinding jane-everynode-view --clusterrole=everynode-view --user=jane
` + root},
		"two rights are missing": {rightsServer{actions: deny, lacks: []string{"run-as-root", "disrupt"}}, cmdutil.ExitError, head + none + tail +
			`jane lacks 2 rights: run-as-root in namespace ns, disrupt in namespace ns. An administrator grants what is missing with:
  kubectl create clusterrole everynode-run-as-root-disrupt-in-ns --verb=run-as-root,disrupt --resource=nodejobs.everynode.dev/nodes --resource-name=ns
  kubectl create clusterrolebinding jane-everynode-run-as-root-disrupt-in-ns --clusterrole=everynode-run-as-root-disrupt-in-ns --user=jane
` + root},
	} {
		t.Run(name, func(t *testing.T) {
			tt.server.t = t
			f, out, errs := clitest.NewFactory(t, &tt.server)
			f.In = strings.NewReader(drainingJob)
			if code := command(t, f, "can-i", "-f", "-"); code != tt.code {
				t.Errorf("exit code %d, want %d: %s", code, tt.code, errs)
			}
			if diff := cmp.Diff(tt.want, out.String()); diff != "" {
				t.Errorf("output (-want +got):\n%s", diff)
			}
		})
	}
}

// TestCanICreateABudget checks the rights for a freeze in a file, which has no namespace.
func TestCanICreateABudget(t *testing.T) {
	const freeze = "apiVersion: everynode.dev/v1alpha1\nkind: NodeDisruptionBudget\nmetadata: {name: freeze}\nspec: {limits: [{maxUnavailable: 0}]}\n"
	const want = `RIGHT                         NAMESPACE  ALLOWED  FOR
get nodedisruptionbudgets     (all)      yes      NodeDisruptionBudget freeze
create nodedisruptionbudgets  (all)      no       NodeDisruptionBudget freeze
patch nodedisruptionbudgets   (all)      yes      NodeDisruptionBudget freeze

jane lacks 1 right: create nodedisruptionbudgets. An administrator grants what is missing with:
  kubectl create clusterrole create-nodedisruptionbudgets --verb=create --resource=nodedisruptionbudgets.everynode.dev
  kubectl create clusterrolebinding jane-create-nodedisruptionbudgets --clusterrole=create-nodedisruptionbudgets --user=jane
`
	f, out, errs := clitest.NewFactory(t, &rightsServer{t: t, lacks: []string{"create"}, mayNotRead: true})
	f.In = strings.NewReader(freeze)
	if code := command(t, f, "can-i", "-f", "-"); code != cmdutil.ExitError {
		t.Errorf("exit code %d: %s", code, errs)
	}
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
}

func TestCanIForPrograms(t *testing.T) {
	var results []canI
	for _, format := range []string{"json", "yaml"} {
		f, out, errs := clitest.NewFactory(t, &rightsServer{t: t, lacks: []string{"disrupt"}, mayNotRead: true})
		f.In = strings.NewReader(drainingJob)
		if code := command(t, f, "can-i", "-f", "-", "-o", format); code != cmdutil.ExitError {
			t.Errorf("-o %s: exit code %d: %s", format, code, errs)
		}
		var result canI
		if err := yaml.UnmarshalStrict([]byte(out.String()), &result); err != nil {
			t.Fatalf("%v in %s", err, out)
		}
		results = append(results, result)
	}
	if diff := cmp.Diff(
		results[0],
		results[1],
	); diff != "" || results[0].User != "jane" || len(results[0].Rights) != 8 || len(results[0].missing()) != 1 ||
		len(results[0].Grants) != 2 || len(results[0].RunAsRoot) != 1 {
		t.Errorf("(-json +yaml):\n%s\n%+v", diff, results[0])
	}
}

func TestCanIOfInvalidFiles(t *testing.T) {
	for name, tt := range map[string]struct {
		args []string
		in   string
		code int
	}{
		"no file":             {nil, "", cmdutil.ExitUsage},
		"an unknown format":   {[]string{"-f", "-", "-o", "wide"}, "", cmdutil.ExitUsage},
		"an unknown field":    {[]string{"-f", "-"}, strings.Replace(drainingJob, "drain:", "drains:", 1), cmdutil.ExitUsage},
		"nothing of interest": {[]string{"-f", "-"}, "apiVersion: v1\nkind: Service\nmetadata: {name: a}\n", cmdutil.ExitNotFound},
	} {
		f, _, _ := clitest.NewFactory(t, &rightsServer{t: t})
		f.In = strings.NewReader(tt.in)
		if code := command(t, f, append([]string{"can-i"}, tt.args...)...); code != tt.code {
			t.Errorf("%s: exit code %d, want %d", name, code, tt.code)
		}
	}
}
