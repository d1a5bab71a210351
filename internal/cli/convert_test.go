// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/everynode/everynode/internal/testing/clitest"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

const (
	convertible = "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: task}\nspec: {template: {spec: {hostPID: true, initContainers: [{name: c, image: i, command: [sh, -c, work]}], containers: [{name: p, image: pause}]}}}\n"
	waiting     = "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: task}\nspec: {template: {spec: {hostPID: true, containers: [{name: c, image: i, command: [sh, -c, work; sleep infinity]}]}}}\n"
	affine      = "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: task}\nspec: {template: {spec: {hostPID: true, affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: cores, operator: Gt, values: [\"8\"]}]}]}}}, initContainers: [{name: c, image: i, command: [sh, -c, work]}], containers: [{name: p, image: pause}]}}}\n"
	server      = "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: server}\nspec: {template: {spec: {containers: [{name: c, image: i, ports: [{containerPort: 80}]}]}}}\n"
)

// TestConvertFiles needs no API server: none is asked.
func TestConvertFiles(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"task.yaml": convertible, "server.yaml": server, "empty.yaml": "", "text.yaml": "just text\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	tests := map[string]struct {
		args []string
		in   string
		// want is in the output, and wantError in the error or in the messages before it.
		want, wantError string
		wantCode        int
	}{
		"a file": {
			args: []string{"-f", "task.yaml"},
			want: "kind: NodeJob\nmetadata:\n  name: task\nspec:\n  nodes:\n    selector:\n      matchExpressions:\n      - key: kubernetes.io/os\n        operator: Exists\n  rerun:\n    onReboot: true\n  rollout:\n    maxFailures: 100%\n  suspend: true\n",
		},
		"a file, with namespace": {args: []string{"-f", "task.yaml", "-n", "given"}, want: "  namespace: given\n"},
		"standard input":         {args: []string{"-f", "-"}, in: convertible, want: "kind: NodeJob\n"},
		"several files": {
			args:      []string{"-f", "task.yaml", "-f", "server.yaml"},
			want:      "kind: NodeJob\n",
			wantError: "DaemonSet server is not converted",
			wantCode:  cmdutil.ExitUsage,
		},
		"two refused objects": {
			args:      []string{"-f", "-"},
			in:        server + "---\n" + strings.ReplaceAll(server, "server", "other"),
			wantError: "DaemonSet server is not converted",
			wantCode:  cmdutil.ExitUsage,
		},
		"a file that selects other nodes": {
			args:      []string{"-f", "-"},
			in:        affine,
			want:      "# TODO: the NodeJob runs on more nodes",
			wantError: "TODO: DaemonSet task: the NodeJob runs on more nodes: it can neither compare numbers nor exclude nodes by a field (cores Gt)\n1 TODO in the comments",
			wantCode:  cmdutil.ExitIncomplete,
		},
		"a script that waits": {
			args:      []string{"-f", "-"},
			in:        waiting,
			want:      "- work; sleep infinity\n",
			wantError: "waits or repeats its work in line 1",
			wantCode:  cmdutil.ExitIncomplete,
		},
		"kinds that look like others": {
			args:      []string{"-f", "-"},
			in:        "apiVersion: apps.kruise.io/v1alpha1\nkind: DaemonSet\nmetadata: {name: s}\n---\napiVersion: batch/v1\nkind: CronJob\nmetadata: {name: s}\n",
			wantError: "but DaemonSet of apps.kruise.io, CronJob of batch. For a task that repeats, write a NodeJob with rerun.periodSeconds",
			wantCode:  cmdutil.ExitUsage,
		},
		"no file":        {wantError: "which file? convert -f FILE", wantCode: cmdutil.ExitUsage},
		"an absent file": {args: []string{"-f", "absent.yaml"}, wantError: "no such file", wantCode: cmdutil.ExitUsage},
		"a directory":    {args: []string{"-f", "."}, wantError: "is a directory", wantCode: cmdutil.ExitUsage},
		"an empty file": {
			args:      []string{"-f", "empty.yaml"},
			wantError: "there is nothing to convert in empty.yaml",
			wantCode:  cmdutil.ExitUsage,
		},
		"objects of other kinds": {
			args:      []string{"-f", "-"},
			in:        "apiVersion: v1\nkind: Service\nmetadata: {name: s}\n",
			wantError: "there is nothing to convert in -",
			wantCode:  cmdutil.ExitUsage,
		},
		"a file without objects": {
			args:      []string{"-f", "text.yaml"},
			wantError: "reading text.yaml: it is not a file of Kubernetes objects",
			wantCode:  cmdutil.ExitUsage,
		},
		"an argument": {args: []string{"task.yaml"}, wantError: "convert takes no arguments", wantCode: cmdutil.ExitUsage},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f, out, errs := clitest.NewFactory(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				t.Errorf("%s %s was not expected", r.Method, r.URL)
			}))
			f.In = strings.NewReader(tt.in)
			root := NewCommand(f)
			root.SetArgs(append([]string{"convert"}, tt.args...))
			err := cmdutil.Explain(root.ExecuteContext(t.Context()))
			if code := cmdutil.CodeOf(err); code != tt.wantCode {
				t.Errorf("exit code %d: %v", code, err)
			}
			messages := errs.String()
			if err != nil {
				messages += err.Error()
			}
			if !strings.Contains(messages, tt.wantError) || tt.wantError == "" && messages != "" {
				t.Errorf("%q", messages)
			}
			if got := out.String(); !strings.Contains(got, tt.want) || tt.want == "" && got != "" {
				t.Errorf("%s", got)
			}
		})
	}
}
