// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/testing/clitest"
	"github.com/everynode/everynode/internal/ui/cmdutil"
	"github.com/everynode/everynode/internal/ui/view"
)

// planServer is a fake API server with nodes and NodeJobs that accepts dry runs.
type planServer struct {
	t     *testing.T
	nodes []corev1.Node
	jobs  []v1alpha1.NodeJob
	// secret is the only Secret; nil if there is none. There are no ConfigMaps.
	secret *corev1.Secret
	// denied is true if the namespace does not have the label that allows NodeJobs.
	denied bool
	// budgets are the NodeDisruptionBudgets.
	budgets []v1alpha1.NodeDisruptionBudget
}

func (s *planServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, named := strings.CutPrefix(r.URL.Path, clitest.JobsPath+"/")
	switch {
	case r.Method == http.MethodPost && r.URL.Path == budgetsPath:
		var b v1alpha1.NodeDisruptionBudget
		if err := json.NewDecoder(r.Body).Decode(&b); err != nil || r.URL.Query().Get("dryRun") != "All" {
			s.t.Errorf("%s %s: %v", r.Method, r.URL, err)
		}
		clitest.Respond(w, b)
	case r.Method == http.MethodPost || r.Method == http.MethodPut:
		var job v1alpha1.NodeJob
		if err := json.NewDecoder(r.Body).Decode(&job); err != nil || r.URL.Query().Get("dryRun") != "All" {
			s.t.Errorf("%s %s: %v", r.Method, r.URL, err)
		}
		if job.UID == "" {
			job.UID = "anything"
		}
		clitest.Respond(w, job)
	case r.URL.Path == "/api/v1/namespaces/ns":
		namespace := corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}}
		if !s.denied {
			namespace.Labels = map[string]string{v1alpha1.EnabledLabel: v1alpha1.EnabledValue}
		}
		clitest.Respond(w, namespace)
	case r.URL.Path == clitest.NodesPath:
		clitest.Respond(w, corev1.NodeList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}, Items: s.nodes})
	case r.URL.Path == clitest.PodsPath:
		clitest.Respond(w, corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}})
	case strings.HasPrefix(r.URL.Path, budgetsPath+"/"):
		clitest.RespondError(w, http.StatusNotFound, metav1.StatusReasonNotFound, "no such budget")
	case r.URL.Path == budgetsPath:
		clitest.Respond(w, v1alpha1.NodeDisruptionBudgetList{
			TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeDisruptionBudgetList"}, Items: s.budgets,
		})
	case strings.HasSuffix(r.URL.Path, "/nodejobs"):
		clitest.Respond(
			w,
			v1alpha1.NodeJobList{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeJobList"}, Items: s.jobs},
		)
	case strings.HasSuffix(r.URL.Path, "/serviceaccounts/there"):
		clitest.Respond(w, corev1.ServiceAccount{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"}})
	case strings.HasSuffix(r.URL.Path, "/serviceaccounts/absent"):
		clitest.RespondError(w, http.StatusNotFound, metav1.StatusReasonNotFound, "not there")
	case strings.HasSuffix(r.URL.Path, "/serviceaccounts/hidden"):
		clitest.RespondError(w, http.StatusForbidden, metav1.StatusReasonForbidden, "no")
	case strings.HasSuffix(r.URL.Path, "/secrets/token") && s.secret != nil:
		clitest.Respond(w, s.secret)
	case strings.HasSuffix(r.URL.Path, "/secrets/token"), strings.HasSuffix(r.URL.Path, "/configmaps/absent"),
		strings.HasSuffix(r.URL.Path, "/deployments/everynode-manager"):
		clitest.RespondError(w, http.StatusNotFound, metav1.StatusReasonNotFound, "not there")
	case named:
		for i := range s.jobs {
			if s.jobs[i].Name == name {
				clitest.Respond(w, s.jobs[i])
				return
			}
		}
		clitest.RespondError(w, http.StatusNotFound, metav1.StatusReasonNotFound, "no such NodeJob")
	default:
		s.t.Errorf("%s %s", r.Method, r.URL)
		clitest.RespondError(w, http.StatusNotFound, metav1.StatusReasonNotFound, "not found")
	}
}

func readyNode(name string) corev1.Node {
	return corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u"},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
}

// fileOf returns a file of NodeJobs, from pairs of a name and the name on which it depends.
func fileOf(needs ...string) string {
	var b strings.Builder
	for i := 0; i < len(needs); i += 2 {
		fmt.Fprintf(
			&b,
			"---\napiVersion: everynode.dev/v1alpha1\nkind: NodeJob\nmetadata: {name: %s}\nspec: {task: {script: \"true\"}, dependsOn: [%s]}\n",
			needs[i],
			needs[i+1],
		)
	}
	return b.String()
}

func TestNodeJobsOfAFileMayDependOnEachOther(t *testing.T) {
	// first has run with the spec in the file. The manager has not found the dependency of second.
	first := clitest.NodeJob("first")
	first.Status.Revision = task.Revision(&first.Spec, task.Source{Script: "true"})
	key := v1alpha1.RecordKey("ns", "first")
	done := readyNode("node-1")
	done.Labels = map[string]string{key: first.Status.Revision}
	record.SetOn(&done, key, record.Record{Revision: first.Status.Revision, Outcome: record.Succeeded, PodUID: "p"})
	stalled := clitest.NodeJob("second")
	stalled.Spec.DependsOn = []string{"first"}
	stalled.Status.Conditions = []metav1.Condition{
		{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonDependencyNotFound, Message: "as it was"},
	}

	tests := map[string]struct {
		server planServer
		file   string
		// want has a line for each NodeJob: why it is Stalled, and the reasons of its nodes.
		want []string
	}{
		"no NodeJob exists": {planServer{nodes: []corev1.Node{readyNode("node-1")}}, fileOf("second", "first", "first", ""),
			[]string{"second: [WaitingForDependency]", "first: [Starting]"}},
		"the first is done": {
			planServer{nodes: []corev1.Node{done}, jobs: []v1alpha1.NodeJob{*first}},
			fileOf("first", "", "second", "first"),
			[]string{"first: [Done]", "second: [Starting]"},
		},
		"the manager reported a missing dependency": {
			planServer{nodes: []corev1.Node{readyNode("node-1")}, jobs: []v1alpha1.NodeJob{*stalled}},
			fileOf("second", "first", "first", ""),
			[]string{"second: [WaitingForDependency]", "first: [Starting]"},
		},
		"a missing dependency": {
			planServer{nodes: []corev1.Node{readyNode("node-1")}},
			fileOf("second", "third", "first", ""),
			[]string{"second: DependencyNotFound [DependencyNotFound]", "first: [Starting]"},
		},
		"a cycle": {
			planServer{nodes: []corev1.Node{readyNode("node-1")}},
			fileOf("second", "first", "first", "second"),
			[]string{"second: DependencyCycle [DependencyCycle]", "first: DependencyCycle [DependencyCycle]"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tt.server.t = t
			f, out, errs := clitest.NewFactory(t, &tt.server)
			f.In = strings.NewReader(tt.file)
			if code := command(t, f, "plan", "-f", "-", "-o", "json"); code != cmdutil.ExitOK {
				t.Fatalf("exit code %d, and %s", code, errs)
			}
			var result planResult
			if err := json.Unmarshal([]byte(out.String()), &result); err != nil {
				t.Fatalf("%v in %s", err, out)
			}
			var got []string
			for _, job := range result.NodeJobs {
				line := job.Name + ": "
				if job.Stalled != nil {
					line += job.Stalled.Reason + " "
				}
				reasons := []string{}
				for _, node := range job.Nodes {
					reasons = append(reasons, node.Reason)
				}
				got = append(got, line+fmt.Sprint(reasons))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// TestAPlanUsesTheConfigMapsAndSecretsOfTheFile covers objects that do not exist yet, or have other content.
func TestAPlanUsesTheConfigMapsAndSecretsOfTheFile(t *testing.T) {
	const file = `
apiVersion: everynode.dev/v1alpha1
kind: NodeJob
metadata: {name: job}
spec:
  task: {scriptFrom: {configMapKeyRef: {name: NAME, key: run.sh}}, inputs: [{kind: Secret, name: token}], FILES}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: scripts, labels: {everynode.dev/script: "true"}}
data: {run.sh: "true"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: unlabeled}
data: {run.sh: "true"}
---
apiVersion: v1
kind: Secret
metadata: {name: token, namespace: ns}
data: {a: b25l}
stringData: {b: two}
`
	there := &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "token", UID: "u-1"},
		Data:       map[string][]byte{"a": []byte("old")},
	}
	would := map[string][]byte{"a": []byte("one"), "b": []byte("two")}
	for name, tt := range map[string]struct {
		configMap string
		// files are further fields of the task.
		files     string
		secret    *corev1.Secret
		wantUID   types.UID
		wantNotes []string
		// wantStalled is a reason.
		wantStalled string
	}{
		"files without the label":       {"scripts", `files: [{name: a, configMap: {name: unlabeled}}]`, there, "", nil, v1alpha1.ReasonConfigMapNotLabeled},
		"files without a key":           {"scripts", `files: [{name: a, secret: {name: token, items: [{key: c, path: c}]}}]`, there, "", nil, v1alpha1.ReasonSecretNotFound},
		"an existing Secret":            {"scripts", "", there, "u-1", nil, ""},
		"a new Secret":                  {"scripts", "", nil, "", []string{"the revision is a guess, as if Secret token were there: one that is made counts as another"}, ""},
		"a missing ConfigMap":           {"absent", "", there, "", nil, v1alpha1.ReasonConfigMapNotFound},
		"a ConfigMap without the label": {"unlabeled", "", there, "", nil, v1alpha1.ReasonConfigMapNotLabeled},
	} {
		t.Run(name, func(t *testing.T) {
			f, out, errs := clitest.NewFactory(t, &planServer{t: t, nodes: []corev1.Node{readyNode("node-1")}, secret: tt.secret})
			f.In = strings.NewReader(strings.NewReplacer("NAME", tt.configMap, ", FILES", ", "+tt.files).Replace(file))
			if code := command(t, f, "plan", "-f", "-", "-o", "json"); code != cmdutil.ExitOK {
				t.Fatalf("exit code %d, and %s", code, errs)
			}
			var result planResult
			if err := json.Unmarshal([]byte(out.String()), &result); err != nil {
				t.Fatalf("%v in %s", err, out)
			}
			got := result.NodeJobs[0]
			if tt.wantStalled != "" {
				if got.Stalled == nil || got.Stalled.Reason != tt.wantStalled {
					t.Errorf("it is stalled by %+v, want %s", got.Stalled, tt.wantStalled)
				}
				return
			}
			spec := &v1alpha1.NodeJobSpec{
				Task: v1alpha1.TaskSpec{
					ScriptBlock: v1alpha1.ScriptBlock{
						ScriptFrom: &v1alpha1.ScriptSource{ConfigMapKeyRef: v1alpha1.ConfigMapKeyRef{Name: "scripts", Key: "run.sh"}},
					},
				},
			}
			want := task.Revision(spec, task.Source{Script: "true", Inputs: []task.Hashes{{Content: task.ContentHash(tt.wantUID, would)}}})
			if got.Revision != want || got.Stalled != nil || !slices.Equal(got.Notes, tt.wantNotes) {
				t.Errorf("got revision %s, %+v, %q; want revision %s, %q", got.Revision, got.Stalled, got.Notes, want, tt.wantNotes)
			}
			if errs.String() != "" {
				t.Errorf("message %s", errs)
			}
		})
	}
}

// TestPlanListsPublishConflicts covers a migration: an earlier tool has set the label and the annotation.
func TestPlanListsPublishConflicts(t *testing.T) {
	const file = `
apiVersion: everynode.dev/v1alpha1
kind: NodeJob
metadata: {name: job}
spec:
  suspend: true
  task: {script: "true"}
  publish: [{result: a, label: example.com/a, adopt: ADOPT}, {result: b, annotation: example.com/b}]
`
	marked := readyNode("node-1")
	marked.Labels = map[string]string{"example.com/a": "done"}
	marked.Annotations = map[string]string{"example.com/b": "x"}
	other := readyNode("node-2")
	other.Labels = map[string]string{"example.com/a": "theirs"}
	other.Annotations = map[string]string{v1alpha1.PublishedAnnotation: `{"labels":{"example.com/a":"ns.everynode.dev/other"}}`}
	annotation := view.ConflictData{Node: "node-1", Kind: "annotation", Key: "example.com/b", Value: "x"}
	owned := view.ConflictData{Node: "node-2", Kind: "label", Key: "example.com/a", Value: "theirs", PublishedBy: "ns.everynode.dev/other"}
	for adopt, want := range map[string][]view.ConflictData{
		"Never":     {{Node: "node-1", Kind: "label", Key: "example.com/a", Value: "done"}, annotation, owned},
		"SameValue": {{Node: "node-1", Kind: "label", Key: "example.com/a", Value: "done"}, annotation, owned},
		"Always":    {annotation, owned},
	} {
		t.Run(adopt, func(t *testing.T) {
			f, out, errs := clitest.NewFactory(t, &planServer{t: t, nodes: []corev1.Node{marked, other, readyNode("node-3")}})
			f.In = strings.NewReader(strings.Replace(file, "ADOPT", adopt, 1))
			if code := command(t, f, "plan", "-f", "-", "-o", "json"); code != cmdutil.ExitOK {
				t.Fatalf("exit code %d, and %s", code, errs)
			}
			var result planResult
			if err := json.Unmarshal([]byte(out.String()), &result); err != nil {
				t.Fatalf("%v in %s", err, out)
			}
			if diff := cmp.Diff(want, result.NodeJobs[0].Conflicts); diff != "" {
				t.Errorf("conflicts (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAFileIsReadStrictly(t *testing.T) {
	for document, want := range map[string]string{
		"apiVersion: everynode.dev/v1alpha1\nkind: NodeDisruptionBudget\nmetadata: {name: a}\nspec: {maxUnavailable: 1}":         `unknown field "spec.maxUnavailable": write spec.limits[].maxUnavailable`,
		"apiVersion: everynode.dev/v1alpha1\nkind: NodeDisruptionBudget\nmetadata: {name: a}\nspec: {windows: [{duration: 3h}]}": `unknown field "spec.windows[0].duration": write durationSeconds, in seconds`,
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndatas: {}":                                                        "datas",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ndata: {a: no base64}":                                                "base64",
		"apiVersion: everynode.dev/v1alpha1\nkind: NodeJob\nmetadata: {name: a}\nspec: {script: \"true\"}":                       `unknown field "spec.script"`,
		"apiVersion: everynode.dev/v1alpha1\nkind: NodeJob\nspec: {nodes: {selector: {pool: db}}}": `unknown field "spec.nodes.selector.pool". A selector has matchLabels ` +
			"and matchExpressions: for the nodes with a label pool, write it under spec.nodes.selector.matchLabels",
		"apiVersion: everynode.dev/v1alpha1\nkind: NodeJob\nspec: {nodes: {selector: {kubernetes.io/os: linux}}}": `unknown field "spec.nodes.selector.kubernetes.io/os". A selector has matchLabels ` +
			"and matchExpressions: for the nodes with a label kubernetes.io/os, write it under spec.nodes.selector.matchLabels",
		"apiVersion: everynode.dev/v1alpha1\nkind: NodeJob\nspec: {nodes: {selector: {matchLabel: {a: b}}}}":                  `"spec.nodes.selector.matchLabel": did you mean matchLabels?`,
		"apiVersion: everynode.dev/v1alpha1\nkind: NodeJob\nspec: {task: {scrit: a}}":                                         `unknown field "spec.task.scrit": did you mean script?`,
		"apiVersion: everynode.dev/v1alpha1\nkind: NodeJob\nspec: {rollout: {steps: [{nods: 1}]}, taks: 1}":                   "\"spec.rollout.steps[0].nods\": did you mean nodes?\nunknown field \"spec.taks\": did you mean task?",
		"apiVersion: everynode.dev/v1alpha1\nkind: NodeJob\nspec:\n  task:\n\t  script: a":                                    "reading -: line 5 contains a tab; YAML permits only spaces for indentation",
		"apiVersion: everynode.dev/v1alpha1\nkind: NodeJob\nspec:\n  nodes:\n  -\ta":                                          "line 5 contains a tab",
		"apiVersion: everynode.dev/v1alpha1\nkind: NodeJob\nspec:\n  task:\n    script: |\n\techo a":                          "line 6 contains a tab",
		"apiVersion: everynode.dev/v1alpha1\nkind: NodeJob\nspec:\n  task:\n    script: |\n      a\n      \tb\n  suspend: @a": "line 8: found character that cannot start any token",
		"a: b\n---\n# the line is that of the file\napiVersion: v1\nkind: Secret\n\tdata: {}":                                 "line 6 contains a tab",
		"apiVersion: everynode.dev/v1alpha1\nkind: NodeJob\nspec: {rollout: {steps: [{selector: {pool: db}}]}}":               "write it under spec.rollout.steps[0].selector.matchLabels",
		"apiVersion: everynode.dev/v1alpha1\nkind: NodeJob\nspec: {nodeSelector: {pool: db}}":                                 `unknown field "spec.nodeSelector": write spec.nodes.selector.matchLabels`,
		"apiVersion: everynode.dev/v1alpha1\nkind: NodeJob\nspec: {rollout: {steps: [{nodeSelector: {pool: db}}]}}":           `unknown field "spec.rollout.steps[0].nodeSelector": write spec.rollout.steps[].selector`,
		"apiVersion: everynode.dev/v1alpha1\nkind: NodeJob\nspec: {suspend: maybe}":                                           "suspend",
		"apiVersion: everynode.dev/v1alpha1\nkind: NodeJob\nspec: {suspend: true, suspend: false}":                            "suspend",
	} {
		if _, err := readFile(
			"-",
			strings.NewReader(document),
			"ns",
		); err == nil || cmdutil.CodeOf(err) != cmdutil.ExitUsage ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", document, err)
		}
	}
	// The advice is for NodeJobs.
	if _, err := readFile(
		"-",
		strings.NewReader("apiVersion: everynode.dev/v1alpha1\nkind: NodeGuard\nmetadata: {name: a}\nspec: {nodeSelector: {pool: db}}"),
		"ns",
	); err == nil ||
		strings.Contains(err.Error(), "spec.nodes") {
		t.Errorf("a NodeGuard: %v", err)
	}
}

func TestAPlanSaysWhereTheTaskDoesNotRun(t *testing.T) {
	created := metav1.NewTime(time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC))
	older := func(name string, labels map[string]string) corev1.Node {
		n := readyNode(name)
		n.CreationTimestamp, n.Labels = metav1.NewTime(created.Add(-time.Hour)), labels
		return n
	}
	// node-2 was assumed to be done, and then lost the label.
	key, setUp := v1alpha1.RecordKey("ns", "j"), map[string]string{"set-up": "yes"}
	revision := task.Revision(
		&v1alpha1.NodeJobSpec{Task: v1alpha1.TaskSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "true"}}},
		task.Source{Script: "true"},
	)
	recorded := older("node-2", map[string]string{key: revision})
	record.SetOn(&recorded, key, record.Record{Revision: revision, Label: revision, Outcome: record.Succeeded, Assumed: true})
	nodes := []corev1.Node{older("node-1", setUp), recorded, older("node-3", setUp), older("node-4", nil)}
	tests := map[string]struct {
		spec string
		// want are parts of the output, with single spaces; not is none.
		want []string
		not  string
	}{
		"assumeDone": {
			spec: `{task: {script: "true"}, nodes: {assumeDone: {selector: {matchLabels: {set-up: "yes"}}}}}`,
			want: []string{
				"Nodes 4 nodes of 4 match, 3 assumed to be done (spec.nodes.assumeDone); at most 1 at once",
				"1 canary 1 node first node-4 (starts first)",
				"2 all 3 nodes, all assumed done after canary node-1 (assumed done), node-2 (assumed done), node-3 (assumed done)",
			},
			not: "Warning",
		},
		"assumeDone of a suspended NodeJob": {
			spec: `{suspend: true, task: {script: "true"}, nodes: {assumeDone: {selector: {matchLabels: {set-up: "yes"}}}}}`,
			want: []string{"1 canary 1 node first node-4 2 all 3 nodes, all assumed done after canary"},
		},
		"a selector that matches no node": {
			spec: `{task: {script: "true"}, nodes: {selector: {matchLabels: {pool: db}}}}`,
			want: []string{
				"Nodes 0 nodes of 4 match",
				"Warning the task would not run on any node now: no node matches spec.nodes.selector; the task runs as soon as one does",
			},
		},
		"names that no node has": {
			spec: `{task: {script: "true"}, nodes: {names: [node-5]}}`,
			want: []string{"Warning the task would not run on any node now: no node that spec.nodes.names names is there"},
		},
		"another reason why nothing runs": {
			spec: `{task: {scriptFrom: {configMapKeyRef: {name: absent, key: k}}}, nodes: {selector: {matchLabels: {pool: db}}}}`,
			want: []string{"Stalled ConfigMapNotFound"}, not: "Warning",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f, out, errs := clitest.NewFactory(t, &planServer{t: t, nodes: nodes})
			f.In = strings.NewReader(
				"apiVersion: everynode.dev/v1alpha1\nkind: NodeJob\nmetadata: {name: j, creationTimestamp: \"2026-07-01T12:00:00Z\"}\nspec: " + tt.spec,
			)
			if code := command(t, f, "plan", "-f", "-"); code != cmdutil.ExitOK {
				t.Fatalf("exit code %d, and %s", code, errs)
			}
			got := strings.Join(strings.Fields(out.String()), " ")
			for _, want := range tt.want {
				if !strings.Contains(got, want) {
					t.Errorf("no %q in\n%s", want, out)
				}
			}
			if tt.not != "" && strings.Contains(got, tt.not) {
				t.Errorf("there is %q in\n%s", tt.not, out)
			}
		})
	}
}

func TestAPlanSaysThatTheNamespaceIsNotAllowed(t *testing.T) {
	for _, denied := range []bool{false, true} {
		f, out, errs := clitest.NewFactory(t, &planServer{t: t, nodes: []corev1.Node{readyNode("node-1")}, denied: denied})
		f.In = strings.NewReader(fileOf("j", ""))
		if code := command(t, f, "plan", "-f", "-"); code != cmdutil.ExitOK {
			t.Fatalf("exit code %d, and %s", code, errs)
		}
		const want = "kubectl label namespace ns everynode.dev/enabled=true"
		if got := strings.Join(strings.Fields(out.String()), " "); strings.Contains(got, want) != denied {
			t.Errorf("denied is %v, and the output is\n%s", denied, out)
		}
	}
}

func TestAPlanFindsAMissingServiceAccount(t *testing.T) {
	const want = "ServiceAccountNotFound: ServiceAccount ns/absent does not exist. Create ServiceAccount absent in namespace ns: kubectl create serviceaccount absent -n ns; or correct spec.task.template.spec.serviceAccountName"
	for name, tt := range map[string]struct {
		account, more string
		missing       bool
	}{
		"it does not exist":     {account: "absent", missing: true},
		"it exists":             {account: "there"},
		"it may not be read":    {account: "hidden"},
		"the file creates it":   {account: "absent", more: "---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: absent}\n"},
		"another file's object": {account: "absent", more: "---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: absent, namespace: other}\n", missing: true},
	} {
		t.Run(name, func(t *testing.T) {
			f, out, errs := clitest.NewFactory(t, &planServer{t: t, nodes: []corev1.Node{readyNode("node-1")}})
			f.In = strings.NewReader(
				"apiVersion: everynode.dev/v1alpha1\nkind: NodeJob\nmetadata: {name: j}\nspec: {task: {template: {spec: {serviceAccountName: " + tt.account + ", containers: [{name: a, image: b}]}}}}\n" + tt.more,
			)
			if code := command(t, f, "plan", "-f", "-"); code != cmdutil.ExitOK {
				t.Fatalf("exit code %d, and %s", code, errs)
			}
			if got := strings.Join(
				strings.Fields(out.String()),
				" ",
			); strings.Contains(got, want) != tt.missing ||
				strings.Contains(got, "NotFound") != tt.missing {
				t.Errorf("the output is\n%s%s", out, errs)
			}
		})
	}
}

// TestAPlanSaysThatItsTimeHasPassed covers spec.expires.at, which the API server does not compare with the time.
func TestAPlanSaysThatItsTimeHasPassed(t *testing.T) {
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	for at, want := range map[string]string{
		"2026-07-01T12:00:01Z":      "",
		"2026-07-01T12:00:00Z":      "spec.expires.at has passed (2026-07-01T12:00:00Z), so no node runs the task: set a later time, or leave it out",
		"2026-07-01T13:30:00+02:00": "spec.expires.at has passed (2026-07-01T11:30:00Z), so no node runs the task: set a later time, or leave it out",
	} {
		parsed, err := time.Parse(time.RFC3339, at)
		if err != nil {
			t.Fatal(err)
		}
		job := clitest.NodeJob("j")
		job.Spec.Expires = &v1alpha1.ExpiresSpec{At: &metav1.Time{Time: parsed}}
		if got := strings.Join(notesOn(job, now), "\n"); got != want {
			t.Errorf("%s: %q, want %q", at, got, want)
		}
	}
}
