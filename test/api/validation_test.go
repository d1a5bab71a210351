package api_test

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
)

// TestTheAPIRejectsWhatCannotWork sends what a user would write as YAML, so that nothing is dropped
// on the way. Each message must say what to write instead.
func TestTheAPIRejectsWhatCannotWork(t *testing.T) {
	w := newWorld(t)
	for name, test := range map[string]struct{ name, spec, wantMessage string }{
		"a task with nothing in it":                    {spec: `task: {}`, wantMessage: "exactly one of task.script, task.scriptFrom and task.template"},
		"a task that is missing":                       {spec: `suspend: true`, wantMessage: "spec.task: Required value"},
		"an empty script":                              {spec: `task: {script: ""}`, wantMessage: "task.script is empty: write the commands"},
		"a script of blanks":                           {spec: `task: {script: " \n\t"}`, wantMessage: "task.script is empty: write the commands"},
		"a script that is too long":                    {spec: `task: {script: "` + strings.Repeat("x", 65537) + `"}`, wantMessage: "65536"},
		"both script and scriptFrom":                   {spec: `task: {script: "true", scriptFrom: {configMapKeyRef: {name: a, key: b}}}`, wantMessage: "exactly one of"},
		"both script and template":                     {spec: `task: {script: "true", template: {spec: {containers: [{name: a, image: b}]}}}`, wantMessage: "exactly one of"},
		"a scriptFrom without a name":                  {spec: `task: {scriptFrom: {configMapKeyRef: {key: b}}}`, wantMessage: "configMapKeyRef.name: Required value"},
		"an empty interpreter":                         {spec: `task: {script: "true", interpreter: []}`, wantMessage: "task.interpreter"},
		"an interpreter for a template":                {spec: `task: {interpreter: [sh], template: {spec: {containers: [{name: a, image: b}]}}}`, wantMessage: "set command in the template's container"},
		"env for a template":                           {spec: `task: {env: [{name: A, value: b}], template: {spec: {containers: [{name: a, image: b}]}}}`, wantMessage: "set env in the template's container"},
		"an environment name of our own":               {spec: `task: {script: "true", env: [{name: EVERYNODE_SCRIPT, value: b}]}`, wantMessage: "must not begin with EVERYNODE_"},
		"the same environment name twice":              {spec: `task: {script: "true", env: [{name: A, value: b}, {name: A, value: c}]}`, wantMessage: "Duplicate value"},
		"a timeout of zero":                            {spec: `task: {script: "true", timeoutSeconds: 0}`, wantMessage: "greater than or equal to 1"},
		"a timeout over a day":                         {spec: `task: {script: "true", timeoutSeconds: 86401}`, wantMessage: "less than or equal to 86400"},
		"a template that restarts":                     {spec: `task: {template: {spec: {restartPolicy: OnFailure, containers: [{name: a, image: b}]}}}`, wantMessage: "use spec.retry"},
		"a template that chooses a node":               {spec: `task: {template: {spec: {nodeName: x, containers: [{name: a, image: b}]}}}`, wantMessage: "use spec.nodeSelector"},
		"a template with a node selector":              {spec: `task: {template: {spec: {nodeSelector: {a: b}, containers: [{name: a, image: b}]}}}`, wantMessage: "use spec.nodeSelector"},
		"a template with affinity":                     {spec: `task: {template: {spec: {affinity: {}, containers: [{name: a, image: b}]}}}`, wantMessage: "use spec.nodeSelector"},
		"a template without containers":                {spec: `task: {template: {spec: {containers: []}}}`, wantMessage: "containers is empty"},
		"a template without spec":                      {spec: `task: {template: {}}`, wantMessage: "containers is empty"},
		"verify for a template":                        {spec: `{verify: {script: "true"}, task: {template: {spec: {containers: [{name: a, image: b}]}}}}`, wantMessage: "verify works with task.script"},
		"a verify with nothing in it":                  {spec: `{verify: {}, task: {script: "true"}}`, wantMessage: "exactly one of verify.script and verify.scriptFrom"},
		"an empty verify script":                       {spec: `{verify: {script: " "}, task: {script: "true"}}`, wantMessage: "verify.script is empty"},
		"a retry limit below zero":                     {spec: `{task: {script: "true"}, retry: {limit: -1}}`, wantMessage: "greater than or equal to 0"},
		"a backoff above its maximum":                  {spec: `{task: {script: "true"}, retry: {backoffSeconds: 20, maxBackoffSeconds: 10}}`, wantMessage: "raise maxBackoffSeconds or lower backoffSeconds"},
		"a default backoff above the maximum given":    {spec: `{task: {script: "true"}, retry: {maxBackoffSeconds: 5}}`, wantMessage: "raise maxBackoffSeconds or lower backoffSeconds"},
		"zero nodes at once":                           {spec: `{task: {script: "true"}, rollout: {maxConcurrent: 0}}`, wantMessage: "rollout.maxConcurrent must be a number of nodes of at least 1"},
		"zero percent of the nodes at once":            {spec: `{task: {script: "true"}, rollout: {maxConcurrent: "0%"}}`, wantMessage: "rollout.maxConcurrent must be"},
		"more than all nodes at once":                  {spec: `{task: {script: "true"}, rollout: {maxConcurrent: "101%"}}`, wantMessage: "rollout.maxConcurrent must be"},
		"a number of nodes that is no number":          {spec: `{task: {script: "true"}, rollout: {maxConcurrent: "many"}}`, wantMessage: "rollout.maxConcurrent must be"},
		"a deletion policy that does not exist":        {spec: `{task: {script: "true"}, deletionPolicy: Keep}`, wantMessage: `supported values: "Forget", "Retain"`},
		"a name that does not fit into a node's label": {name: strings.Repeat("n", 64), spec: `task: {script: "true"}`, wantMessage: "at most 63 characters"},
	} {
		t.Run(name, func(t *testing.T) {
			job := jobFromYAML(t, w.namespace, test.name, test.spec)
			err := admin.Create(w.ctx, job)
			if !apierrors.IsInvalid(err) {
				t.Fatalf("the API server answered %v, want Invalid", err)
			}
			wantText(t, err.Error(), test.wantMessage)
		})
	}
}

func TestTheAPIAcceptsWhatWorksAndFillsInDefaults(t *testing.T) {
	w := newWorld(t)
	for name, spec := range map[string]string{
		"a script":                          `task: {script: "true"}`,
		"a script as long as allowed":       `task: {script: "` + strings.Repeat("x", 65536) + `"}`,
		"a script from a ConfigMap":         `task: {scriptFrom: {configMapKeyRef: {name: a, key: b}}}`,
		"a template":                        `task: {template: {spec: {containers: [{name: a, image: b}]}}}`,
		"a template that says Never itself": `task: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: b}]}}}`,
		"all nodes at once":                 `{task: {script: "true"}, rollout: {maxConcurrent: "100%"}}`,
		"a number of nodes at once":         `{task: {script: "true"}, rollout: {maxConcurrent: 7}}`,
		"a name as long as allowed":         `task: {script: "true"}`,
	} {
		t.Run(name, func(t *testing.T) {
			objectName := ""
			if strings.HasPrefix(name, "a name") {
				objectName = strings.Repeat("n", 63)
			}
			must(t, admin.Create(w.ctx, jobFromYAML(t, w.namespace, objectName, spec)))
		})
	}

	job := jobFromYAML(t, w.namespace, "defaults", `task: {script: "true"}`)
	must(t, admin.Create(w.ctx, job))
	spec, _, _ := unstructured.NestedMap(job.Object, "spec")
	got, err := yaml.Marshal(spec)
	must(t, err)
	want := `deletionPolicy: Forget
onFailure:
  node: Leave
rerun:
  onChange: true
  onReplace: true
retry:
  backoffSeconds: 10
  limit: 3
  maxBackoffSeconds: 300
rollout:
  maxConcurrent: 25%
  maxFailures: 0
  steps:
  - name: canary
    nodes: 1
  - name: all
task:
  script: "true"
  timeoutSeconds: 600
`
	if string(got) != want {
		t.Errorf("the defaults are\n%s\nwant\n%s", got, want)
	}
}

func jobFromYAML(t *testing.T, namespace, name, spec string) *unstructured.Unstructured {
	t.Helper()
	var content map[string]any
	must(t, yaml.Unmarshal([]byte(spec), &content))
	job := &unstructured.Unstructured{Object: map[string]any{"spec": content}}
	job.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("NodeJob"))
	job.SetNamespace(namespace)
	if name == "" {
		job.SetGenerateName("job-")
	}
	job.SetName(name)
	return job
}
