// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/everynode/everynode/internal/cli/console"
	"github.com/everynode/everynode/internal/testing/clitest"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

// TestInvalidCommandLines expects a message and an exit code that says that nothing was changed.
func TestInvalidCommandLines(t *testing.T) {
	file := filepath.Join(t.TempDir(), "Makefile")
	if err := os.WriteFile(file, []byte("all: ; echo\n---\njust text\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		args []string
		want string
	}{
		"a mistyped command": {
			[]string{"statsu"},
			`unknown command "statsu" (similar: "status"). See: kubectl everynode --help`,
		},
		"no name": {
			[]string{"promote"},
			"kubectl everynode promote takes the names of one or more NodeJobs. See: kubectl everynode promote --help",
		},
		"too many names": {
			[]string{"list", "extra"},
			"kubectl everynode list takes no arguments, and got 1 argument. See: kubectl everynode list --help",
		},
		"results without a table": {
			[]string{"status", "j", "--results"},
			"--results is for the table of nodes: add -o wide, and leave out --watch",
		},
		"results in a live view": {
			[]string{"status", "j", "--results", "-o", "wide", "--watch"},
			"--results is for the table of nodes: add -o wide, and leave out --watch",
		},
		"an unknown format": {
			[]string{"status", "j", "-o", "toml"},
			"-o toml is not supported here: give one of wide, name, json, yaml",
		},
		"a file without objects": {[]string{"plan", "-f", file}, "it is not a file of Kubernetes objects in YAML or JSON"},
		"a confirmation without a terminal": {
			[]string{"rerun", "j"},
			"the command needs a confirmation, and standard input is not a terminal. To confirm, give --yes. Run ns/j again on 2 nodes: node-1, node-2",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f, _, _ := clitest.NewFactory(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == clitest.JobsPath+"/j" {
					clitest.Respond(w, clitest.NodeJob("j"))
					return
				}
				list := &metav1.PartialObjectMetadataList{
					TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"},
				}
				for _, name := range []string{"node-1", "node-2"} {
					list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}})
				}
				clitest.Respond(w, list)
			}))
			root := NewCommand(f)
			root.SetArgs(tt.args)
			err := cmdutil.Explain(root.ExecuteContext(t.Context()))
			if code := cmdutil.CodeOf(
				err,
			); err == nil || !strings.Contains(err.Error(), tt.want) ||
				(code != cmdutil.ExitUsage && code != cmdutil.ExitDeclined) {
				t.Errorf("exit code %d: %v", code, err)
			}
		})
	}
}

func TestAMissingClusterIsReported(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	empty := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f := console.NewFactory(genericiooptions.NewTestIOStreamsDiscard())
	*f.Config.KubeConfig = empty
	root := NewCommand(f)
	root.SetArgs([]string{"list"})
	const want = "no cluster is configured: set KUBECONFIG, or give --kubeconfig or --server"
	if err := cmdutil.Explain(root.ExecuteContext(t.Context())); cmdutil.CodeOf(err) != cmdutil.ExitUsage || err.Error() != want {
		t.Errorf("exit code %d: %v", cmdutil.CodeOf(err), err)
	}
}

// TestTheHelpOfEachCommandNamesAs because --as answers what another user may do.
func TestTheHelpOfEachCommandNamesAs(t *testing.T) {
	f, _, _ := clitest.NewFactory(t, http.NotFoundHandler())
	for _, command := range NewCommand(f).Commands() {
		if usage := command.UsageString(); !strings.Contains(usage, "--as string") {
			t.Errorf("%s:\n%s", command.Name(), usage)
		}
	}
}
