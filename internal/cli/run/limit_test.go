// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/everynode/everynode/internal/testing/clitest"
	"github.com/everynode/everynode/internal/ui/cmdutil"
	"github.com/everynode/everynode/internal/ui/view"
)

func TestALimitRestrictsTheSelectedNodes(t *testing.T) {
	nodes := []string{"control-1", "worker-1", "worker-2", "worker-10", "worker-3.eu"}
	failed := func(dir string) ([]string, error) {
		if dir != "saved" {
			return nil, errors.New("no such directory")
		}
		return []string{"worker-2", "worker-9"}, nil
	}
	tests := map[string]struct {
		limit, want, wantUnused, wantErr string
	}{
		"nothing":                           {limit: "", want: "control-1 worker-1 worker-2 worker-10 worker-3.eu"},
		"names":                             {limit: "worker-1,control-1", want: "control-1 worker-1"},
		"a name is not a prefix":            {limit: "worker", wantUnused: "worker"},
		"a glob":                            {limit: "worker-?", want: "worker-1 worker-2"},
		"a glob crosses dots":               {limit: "worker-*", want: "worker-1 worker-2 worker-10 worker-3.eu"},
		"a range":                           {limit: "*-[2-3]*", want: "worker-2 worker-3.eu"},
		"all but some":                      {limit: "!worker-*", want: "control-1"},
		"an exclusion wins at any position": {limit: "!worker-1*,worker-*", want: "worker-2 worker-3.eu"},
		"the rest of a saved run":           {limit: "@saved", want: "worker-2", wantUnused: "worker-9 of @saved"},
		"the rest of a saved run and more":  {limit: "@saved,control-*", want: "control-1 worker-2", wantUnused: "worker-9 of @saved"},
		"less than a saved run":             {limit: "@saved,!worker-2", wantUnused: "worker-9 of @saved"},
		"some that do not exist":            {limit: "worker-1,worker-7,x*,!y", want: "worker-1", wantUnused: "worker-7 x* !y"},
		"a saved run that does not exist":   {limit: "@other", wantErr: "no such directory"},
		"an empty pattern":                  {limit: "a,,b", wantErr: `--limit "": give names`},
		"an unfinished range":               {limit: "worker-[1", wantErr: `--limit "worker-[1": give names`},
		"separators of Ansible":             {limit: "a:b", wantErr: `--limit "a:b": give names`},
		"an intersection of Ansible":        {limit: "a,&b", wantErr: `--limit "&b": give names`},
		"a negated range of a shell":        {limit: "a-[!1]", wantErr: `--limit "a-[!1]": give names`},
		"all but a saved run":               {limit: "!@saved", wantErr: `--limit "!@saved": give names`},
		"an escape":                         {limit: "a\x1b[2J", wantErr: `--limit "a\x1b[2J": give names`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var patterns []string
			if tt.limit != "" {
				patterns = strings.Split(tt.limit, ",")
			}
			l, err := parseLimit(patterns, failed)
			if tt.wantErr != "" {
				if err == nil || !strings.HasPrefix(err.Error(), tt.wantErr) {
					t.Errorf("error %v, want %q", err, tt.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var kept []string
			for _, node := range nodes {
				if l.keeps(node) {
					kept = append(kept, node)
				}
			}
			if got := strings.Join(kept, " "); got != tt.want {
				t.Errorf("it leaves %q, want %q", got, tt.want)
			}
			if got := strings.Join(l.unused(nodes), " "); got != tt.wantUnused {
				t.Errorf("not among the nodes: %q, want %q", got, tt.wantUnused)
			}
		})
	}
}

func TestTheRestOfASavedRun(t *testing.T) {
	tests := map[string]struct {
		index, want, wantErr string
		code                 int
	}{
		"nodes that did not succeed": {
			index: `{"nodeJob": "run-1", "nodes": [{"node":"a","outcome":"Succeeded"},{"node":"b","outcome":"Failed"},{"node":"c","outcome":"Unreachable"},{"node":"d","outcome":"Waiting"}]}`,
			want:  "b c d",
		},
		"all succeeded": {
			index:   `{"nodes":[{"node":"a","outcome":"Succeeded"}]}`,
			wantErr: "leaves no node: that run succeeded on every node",
			code:    cmdutil.ExitNotFound,
		},
		"another object": {
			index:   `{"items":[]}`,
			wantErr: "it is not an index of a run: it has no nodes: give the directory of an earlier --save",
			code:    cmdutil.ExitUsage,
		},
		"other entries": {
			index:   `{"nodes":[{"name":"a"}]}`,
			wantErr: "it is not an index of a run: an entry has no node or no outcome",
			code:    cmdutil.ExitUsage,
		},
		"a list of names": {index: "a\nb\n", wantErr: "it is not an index of a run: invalid character", code: cmdutil.ExitUsage},
		"an unfinished one": {
			index:   `{"nodes":[{"node":"a","out`,
			wantErr: "it is not an index of a run: unexpected end",
			code:    cmdutil.ExitUsage,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, indexFile)
			if err := os.WriteFile(file, []byte(tt.index), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, path := range []string{dir, file} {
				got, err := unsuccessfulNodes(path)
				if cmdutil.CodeOf(err) != tt.code || (err != nil) != (tt.wantErr != "") ||
					(err != nil && !strings.Contains(err.Error(), tt.wantErr)) {
					t.Fatalf("error %v, want %q", err, tt.wantErr)
				}
				if strings.Join(got, " ") != tt.want {
					t.Errorf("%s leaves %q, want %q", path, got, tt.want)
				}
			}
		})
	}
	if _, err := unsuccessfulNodes(filepath.Join(t.TempDir(), "x")); cmdutil.CodeOf(err) != cmdutil.ExitUsage {
		t.Errorf("without a directory: %v", err)
	}
}

// TestAnIndexLimitsTheNextRun checks that what --save writes is what --limit reads.
func TestAnIndexLimitsTheNextRun(t *testing.T) {
	r, dir := savingRun(t)
	r.view.Nodes[0].State = view.RunSucceeded
	r.saveIndex(true)
	o := &options{limits: []string{"@" + dir}, limited: true}
	if err := o.parseLimits(); err != nil || o.limit.keeps("node-1") || !o.limit.keeps("node-2") {
		t.Errorf("the limit is %+v (%v)", o.limit, err)
	}
}

func TestALimitAppliesToTheNodesOfACluster(t *testing.T) {
	tests := map[string]struct {
		options   options
		wantNames string
		wantTold  string
		wantErr   string
	}{
		"all nodes": {
			options: options{
				all:    true,
				limits: []string{"linux-*", "linux-3"},
			},
			wantNames: "linux-1 linux-2",
			wantTold:  "--limit: not among the selected nodes: linux-3\n",
		},
		"named nodes": {
			options: options{nodes: []string{"linux-1", "linux-2"}, limits: []string{"!linux-1"}}, wantNames: "linux-2",
		},
		"a named node of another operating system, without it": {
			options: options{nodes: []string{"linux-1", "win-2"}, limits: []string{"!win-*"}}, wantNames: "linux-1",
		},
		"nothing is left": {
			options: options{all: true, limits: []string{"node-*", "!linux-1"}},
			wantErr: "--limit node-*,!linux-1 leaves no node; selected: linux-1, linux-2, win-1, win-2. Give names of nodes or globs such as 'worker-*'",
		},
		"an unset variable": {
			options: options{all: true, limited: true},
			wantErr: "--limit is empty: give names of nodes, globs or @DIR, or leave it out",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f, _, errs := clitest.NewFactory(t, mixedCluster(t))
			o := tt.options
			o.Factory, o.namespace, o.yes = f, "ns", true
			err := o.parseLimits()
			var found targets
			if err == nil {
				if o.client, err = f.Client(); err != nil {
					t.Fatal(err)
				}
				found, err = o.targets(t.Context())
			}
			if tt.wantErr != "" || err != nil {
				if err == nil || err.Error() != tt.wantErr {
					t.Fatalf("error %v, want %q", err, tt.wantErr)
				}
				return
			}
			if got := strings.Join(found.names, " "); got != tt.wantNames {
				t.Errorf("it runs on %q, want %q", got, tt.wantNames)
			}
			if err := o.confirm(t.Context(), found); err != nil || errs.String() != tt.wantTold {
				t.Errorf("told %q, %v; want %q", errs.String(), err, tt.wantTold)
			}
		})
	}
}
