// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"strings"
	"testing"

	"github.com/everynode/everynode/internal/cli/manifest"
)

func daemonSet(pod string) string {
	return "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: d, namespace: ns}\nspec: {template: {spec: " + pod + "}}\n"
}

// affinityOf returns a pod that runs only on the nodes of one of the terms.
func affinityOf(terms ...string) string {
	return `{affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [` + strings.Join(terms, ", ") +
		`]}}}, hostPID: true, containers: [{name: c, image: i, command: [sh, -c, "work; sleep infinity"]}]}`
}

// TestWhatIsNotATaskIsRefused expects an error that names the object, the reason, and what to write instead.
func TestWhatIsNotATaskIsRefused(t *testing.T) {
	tests := map[string]struct {
		manifest string
		want     []string
	}{
		"a server with ports": {
			daemonSet(`{containers: [{name: c, image: i, ports: [{containerPort: 80}]}]}`),
			[]string{
				"DaemonSet ns/d is not converted: it has the field spec.template.spec.containers[c].ports, so it is a server",
				"Keep the DaemonSet",
				"kubectl everynode create script",
			},
		},
		"a server with probes": {
			daemonSet(
				`{containers: [{name: c, image: i, command: [sh, -c, "work; sleep infinity"], livenessProbe: {tcpSocket: {port: 80}}}]}`,
			),
			[]string{"it has the field spec.template.spec.containers[c].livenessProbe.tcpSocket"},
		},
		"a server without ports": {
			daemonSet(
				`{initContainers: [{name: init, image: i, command: [sh, -c, sysctl]}], containers: [{name: c, image: i, command: [agent]}]}`,
			),
			[]string{`its container c runs "agent", and the manifest does not show whether that ends`},
		},
		"a sidecar": {daemonSet(`{initContainers: [{name: s, image: i, restartPolicy: Always}], containers: [{name: c, image: pause}]}`),
			[]string{"it has the field spec.template.spec.initContainers[s].restartPolicy"}},
		"only a wait": {
			daemonSet(`{containers: [{name: c, image: "registry.k8s.io/pause:3.9"}]}`),
			[]string{"its containers only wait"},
		},
		"a label of the cloud": {
			daemonSet(
				`{serviceAccountName: a, affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: eks.amazonaws.com/compute-type, operator: DoesNotExist}]}]}}}, containers: [{name: c, image: i}]}`,
			),
			[]string{"its container c runs the image i"},
		},
		"a script that is absent": {
			daemonSet(
				`{volumes: [{name: v, configMap: {name: scripts}}], containers: [{name: c, image: i, command: [sh, /s/run.sh], volumeMounts: [{name: v, mountPath: /s}]}]}`,
			),
			[]string{
				"the program of its container c is in the ConfigMap scripts, which is not in the file",
				"kubectl get configmap scripts -n ns -o yaml",
			},
		},
		"a Job for the cluster": {
			"apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec: {template: {spec: {containers: [{name: c, image: i}]}}}\n",
			[]string{"Job j is not converted: it does not choose a node", "task.template"},
		},
		"a Job for one of two nodes": {
			"apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec: {template: {spec: " + affinityOf(
				`{matchFields: [{key: metadata.name, operator: In, values: [a]}]}`,
				`{matchFields: [{key: metadata.name, operator: In, values: [b]}]}`,
			) + "}}\n",
			[]string{"Job j is not converted: it does not choose a node"},
		},
		"a Job for a node or others": {
			"apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec: {template: {spec: " + affinityOf(
				`{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [a]}]}`,
				`{matchExpressions: [{key: a, operator: Exists}]}`,
			) + "}}\n",
			[]string{"Job j is not converted: it does not choose a node"},
		},
		"an affinity to no node": {
			daemonSet(affinityOf("{}")),
			[]string{"DaemonSet ns/d is not converted: its nodeSelectorTerms match no node", "remove the affinity to run on all nodes"},
		},
		"an affinity that contradicts itself": {
			daemonSet(
				affinityOf(
					`{matchFields: [{key: metadata.name, operator: In, values: [a]}, {key: metadata.name, operator: In, values: [b]}]}`,
				),
			),
			[]string{"its nodeSelectorTerms match no node"},
		},
		"a Plan without upgrade": {
			"apiVersion: upgrade.cattle.io/v1\nkind: Plan\nmetadata: {name: p}\nspec: {concurrency: 1}\n",
			[]string{"Plan p is not converted: it has no spec.upgrade"},
		},
		"a field of another type": {
			"apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: d}\nspec: {template: text}\n",
			[]string{"DaemonSet d is not converted: reading its fields"},
		},
		"a name that is too long for a NodeJob": {
			strings.Replace(
				daemonSet(affinityOf(`{matchExpressions: [{key: a, operator: Exists}]}`)),
				"name: d,",
				"name: "+strings.Repeat("n", 64)+",",
				1,
			),
			[]string{`its metadata.name "nnn`, "cannot be the name of a NodeJob: it has more than 63 characters"},
		},
		"a name that is no name": {
			strings.Replace(
				daemonSet(`{hostPID: true, containers: [{name: c, image: i, command: [sh, -c, "work; sleep infinity"]}]}`),
				"name: d,",
				`name: "a\n---\nkind: Secret",`,
				1,
			),
			[]string{"cannot be the name of a NodeJob"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			objects, err := manifest.Decode([]byte(tt.manifest))
			if err != nil {
				t.Fatal(err)
			}
			result := Convert(objects, "")
			if len(result.Refused) != 1 || result.NodeJobs != 0 || len(result.YAML) > 0 {
				t.Fatalf("%v\n%s", result.Refused, result.YAML)
			}
			for _, want := range tt.want {
				if !strings.Contains(result.Refused[0].Error(), want) {
					t.Errorf("%v does not contain %q", result.Refused[0], want)
				}
			}
		})
	}
}

func TestWhatIsNoManifestIsRefused(t *testing.T) {
	tests := map[string]struct{ content, want string }{
		"text":                      {"just text\n", "it is not a file of Kubernetes objects"},
		"invalid YAML":              {"a: [b\n", "it is not a file of Kubernetes objects"},
		"an object of no kind":      {"a: b\n", "a document has no apiVersion or no kind"},
		"a list of other items":     {"apiVersion: v1\nkind: List\nitems: [text]\n", "items member is not an object"},
		"a field that occurs twice": {"apiVersion: v1\nkind: A\nspec: {b: 1, b: 2}\n", `key "b" already set in map`},
		"an anchor that is changed": {"apiVersion: v1\nkind: A\na: &x {b: 1}\nc:\n  <<: *x\n  b: 2\n", `key "b" already set in map`},
		"too much":                  {strings.Repeat("#", manifest.MaxBytes+1), "the file has more than 8 MiB"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := manifest.Decode([]byte(tt.content)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestObjectsAreFoundInAllForms(t *testing.T) {
	tests := map[string]struct {
		content string
		want    int
	}{
		"nothing":                  {"", 0},
		"only comments":            {"# nothing\n---\n---\n", 0},
		"JSON":                     {`{"apiVersion": "v1", "kind": "ConfigMap"}`, 1},
		"a List":                   {"apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: A}, {apiVersion: v1, kind: B}]\n", 2},
		"a list of another kind":   {"apiVersion: apps/v1\nkind: DaemonSetList\nitems: [{apiVersion: apps/v1, kind: DaemonSet}]\n", 1},
		"Windows line endings":     {"apiVersion: v1\r\nkind: A\r\n---\r\napiVersion: v1\r\nkind: B\r\n", 2},
		"an anchor that is merged": {"apiVersion: v1\nkind: A\na: &x {b: 1}\nc:\n  <<: *x\n  d: 2\n", 1},
		"anchors":                  {"apiVersion: v1\nkind: A\na: &x text\nb: *x\n", 1},
		"a document with a marker": {"---\napiVersion: v1\nkind: A\n---\n", 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			objects, err := manifest.Decode([]byte(tt.content))
			if err != nil || len(objects) != tt.want {
				t.Errorf("%d objects: %v", len(objects), err)
			}
		})
	}
}

// TestNamesCannotAddFields puts line breaks into texts that become comments.
func TestNamesCannotAddFields(t *testing.T) {
	hostile := daemonSet(
		`{hostPID: true, priorityClassName: "x\n  suspend: false", containers: [{name: "c\nkind: Secret", image: "i\nspec: {}", command: [sh, -c, "work; sleep infinity"]}]}`,
	)
	objects, err := manifest.Decode([]byte(hostile))
	if err != nil {
		t.Fatal(err)
	}
	result := Convert(objects, "other")
	if len(result.Refused) > 0 {
		t.Fatal(result.Refused)
	}
	validate(t, string(result.YAML))
	for line := range strings.SplitSeq(string(result.YAML), "\n") {
		if strings.HasPrefix(line, "kind: Secret") || strings.HasPrefix(line, "  suspend: false") {
			t.Errorf("%q\n%s", line, result.YAML)
		}
	}
}

func TestTheNamespaceIsThatOfTheUserIfTheObjectHasNone(t *testing.T) {
	const pod = `{hostPID: true, containers: [{name: c, image: i, command: [sh, -c, "work; sleep infinity"]}]}`
	tests := map[string]struct {
		inObject, given, want string
	}{
		"of the object":        {"ns", "", "\n  namespace: ns\n"},
		"of the object always": {"ns", "given", "\n  namespace: ns\n"},
		"given":                {"", "given", "\n  namespace: given\n"},
		"none":                 {"", "", "\n  name: d\nspec:\n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			objects, err := manifest.Decode(
				[]byte(strings.Replace(daemonSet(pod), "namespace: ns", fmt.Sprintf("namespace: %q", tt.inObject), 1)),
			)
			if err != nil {
				t.Fatal(err)
			}
			if result := Convert(objects, tt.given); !strings.Contains(string(result.YAML), tt.want) {
				t.Errorf("%v\n%s", result.Refused, result.YAML)
			}
		})
	}
}
