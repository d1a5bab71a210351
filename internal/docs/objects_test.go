// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package docs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/outcome"
	"github.com/everynode/everynode/internal/testing/plantest"
)

// objectExamples are the examples with objects of the API.
var objectExamples = map[string]func(t *testing.T) string{
	"rollout-paused": func(t *testing.T) string {
		c := sample(t)
		c.Create()
		c.Run(10 * time.Minute)
		return messageOf(t, c, v1alpha1.ConditionComplete)
	},
	"rollout-stopped-status": func(t *testing.T) string {
		status := sampleThatStopped(t).Job.Status
		b, err := yaml.Marshal(map[string]any{"status": v1alpha1.NodeJobStatus{
			Nodes: status.Nodes, Rollout: status.Rollout, Drains: status.Drains, Failures: status.Failures,
		}})
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	},
	"rollout-stopped": func(t *testing.T) string {
		return messageOf(t, sampleThatStopped(t), v1alpha1.ConditionStalled)
	},
	"status": func(t *testing.T) string {
		b, err := yaml.Marshal(map[string]any{"status": diskCheck(t).Job.Status})
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	},
	"record": func(t *testing.T) string {
		c := diskCheck(t)
		var b bytes.Buffer
		if err := json.Indent(&b, []byte(c.Nodes["node-2"].Annotations[c.Key()]), "", "  "); err != nil {
			t.Fatal(err)
		}
		return b.String() + "\n"
	},
	"first-nodejob": firstNodeJob,
}

func init() { maps.Copy(examples, objectExamples) }

// sample returns the cluster of docs/rollout.md, with the NodeJob of config/samples.
func sample(t *testing.T) *plantest.Cluster {
	spec, err := os.ReadFile("../../config/samples/somaxconn-in-steps.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return plantest.New(t, string(spec), "node-1", "node-2", "node-3", "node-4", "node-5", "node-6", "node-7", "node-8")
}

// sampleThatStopped returns it after a change of the script that its check does not accept.
func sampleThatStopped(t *testing.T) *plantest.Cluster {
	c := sample(t)
	c.Create()
	c.Run(10 * time.Minute)
	c.Happens("The user promotes the rollout.", func() {
		c.ChangeSpec(func(s *v1alpha1.NodeJobSpec) { s.Rollout.PromoteTo = "all" })
	})
	c.Run(20 * time.Minute)
	c.Task = func(a task.Attempt) plantest.Result {
		if a.Phase == task.Task {
			return plantest.Result{Code: 1, Reason: outcome.ReasonCheckFailed, After: 2 * time.Second}
		}
		return plantest.Result{After: 2 * time.Second}
	}
	blocked := plantest.NewWorkload("shop", "cart-67cb9989d4-8q5b6")
	blocked.Budget = "The disruption budget cart needs 2 healthy pods and has 2 currently"
	c.Workloads["node-1"] = []*plantest.Workload{blocked}
	c.Happens("The user changes the script, and not its check.", func() {
		c.ChangeSpec(func(s *v1alpha1.NodeJobSpec) {
			s.Task.Script = strings.ReplaceAll(s.Task.Script, "16384", "32768")
			s.Rollout.PromoteTo = "canary"
		})
	})
	c.Run(5 * time.Minute)
	return c
}

// messageOf returns the message of a condition, and the command that shows it.
func messageOf(t *testing.T, c *plantest.Cluster, kind string) string {
	t.Helper()
	is := apimeta.FindStatusCondition(c.Job.Status.Conditions, kind)
	if is == nil {
		t.Fatalf("there is no condition %s", kind)
	}
	return fmt.Sprintf("$ kubectl -n %s get nodejob %s -o jsonpath='{.status.conditions[?(@.type==%q)].message}'\n%s\n",
		c.Job.Namespace, c.Job.Name, kind, is.Message)
}

// diskCheck returns a NodeJob that has failed on the second of two nodes.
func diskCheck(t *testing.T) *plantest.Cluster {
	c := plantest.New(t, simple("node-setup", "disk-check"), "node-1", "node-2")
	c.ChangeSpec(func(s *v1alpha1.NodeJobSpec) { s.Task.Script, s.Retry.Limit = "/opt/disk-check --all", new(int32(1)) })
	c.Task = func(a task.Attempt) plantest.Result {
		if a.NodeName == "node-1" {
			return plantest.Result{}
		}
		return plantest.Result{Code: 3, Output: "looking for the disk\nno disk at /dev/sdz", After: 2 * time.Second}
	}
	c.Create()
	c.Run(2 * time.Minute)
	return c
}

// manifest is the first NodeJob of docs/nodejob.md.
var manifest = regexp.MustCompile("(?ms)^apiVersion: everynode.dev/v1alpha1\nkind: NodeJob\nmetadata:\n  name: core-pattern\n.*?^```\n")

// firstNodeJob applies this NodeJob in a cluster of two nodes.
func firstNodeJob(t *testing.T) string {
	page, err := os.ReadFile("../../docs/nodejob.md")
	if err != nil {
		t.Fatal(err)
	}
	c := plantest.New(t, strings.TrimSuffix(string(manifest.Find(page)), "```\n"), "node-1", "node-2")
	c.Task = func(task.Attempt) plantest.Result { return plantest.Result{After: 2 * time.Second} }
	c.Create()
	c.Run(5 * time.Second)
	nodes := [][]string{{"NAME", "STATUS", "ROLES", "AGE", "VERSION", strings.ToUpper(c.Job.Name)}}
	for _, name := range []string{"node-1", "node-2"} {
		node := c.Nodes[name]
		nodes = append(
			nodes,
			[]string{
				name,
				"Ready",
				"<none>",
				duration.HumanDuration(c.Now.Sub(node.CreationTimestamp.Time)),
				"v1.36.3",
				node.Labels[c.Key()],
			},
		)
	}
	return fmt.Sprintf("$ kubectl apply -f %s.yaml\n$ kubectl -n %s get nodejobs\n", c.Job.Name, c.Job.Namespace) + table(printed(t, c)) +
		fmt.Sprintf("$ kubectl get nodes -L %s\n", c.Key()) + table(nodes)
}

// printed returns the columns of kubectl get, as the CRD defines them.
func printed(t *testing.T, c *plantest.Cluster) [][]string {
	t.Helper()
	type column struct {
		Name, Type, JSONPath string
		Priority             int
	}
	var crd struct {
		Spec struct {
			Versions []struct {
				AdditionalPrinterColumns []column `json:"additionalPrinterColumns"`
			} `json:"versions"`
		} `json:"spec"`
	}
	content, err := os.ReadFile("../../config/crd/everynode.dev_nodejobs.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(content, &crd); err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(c.Job)
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := json.Unmarshal(body, &object); err != nil {
		t.Fatal(err)
	}
	head, row := []string{"NAME"}, []string{c.Job.Name}
	for _, column := range crd.Spec.Versions[0].AdditionalPrinterColumns {
		if column.Priority > 0 {
			continue
		}
		var value bytes.Buffer
		path := jsonpath.New(column.Name).AllowMissingKeys(true)
		if err := path.Parse("{" + column.JSONPath + "}"); err != nil {
			t.Fatal(err)
		}
		if err := path.Execute(&value, object); err != nil {
			t.Fatal(err)
		}
		if at, err := time.Parse(time.RFC3339, value.String()); err == nil && column.Type == "date" {
			value.Reset()
			value.WriteString(duration.HumanDuration(c.Now.Sub(at)))
		}
		head, row = append(head, strings.ToUpper(column.Name)), append(row, value.String())
	}
	return [][]string{head, row}
}

// table renders rows as kubectl does.
func table(rows [][]string) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 6, 4, 3, ' ', 0)
	for _, row := range rows {
		_, _ = fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	_ = w.Flush()
	return b.String()
}
