// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cluster_test

import (
	"encoding/json"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/everynode/everynode/local/cluster"
	"github.com/everynode/everynode/local/internal/nodespec"
	"github.com/everynode/everynode/local/internal/procs"
)

// marks are the traces of a cluster that are visible from outside.
type marks struct{ dir, id string }

func remember(t *testing.T, c *cluster.Cluster) marks {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(c.Dir(), "cluster.json"))
	if err != nil {
		t.Fatal(err)
	}
	var record struct{ ID string }
	if err := json.Unmarshal(data, &record); err != nil || record.ID == "" {
		t.Fatalf("reading the cluster's record: %v", err)
	}
	m := marks{c.Dir(), record.ID}
	if len(m.left()) == 0 {
		t.Fatal("a running cluster has no traces: the test checks the wrong things")
	}
	return m
}

// left lists every trace of the cluster on this machine.
func (m marks) left() []string {
	var found []string
	for _, record := range procs.Marked(nodespec.Marker, m.dir) {
		command, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(record.PID), "cmdline"))
		found = append(found, "process "+strings.ReplaceAll(string(command), "\x00", " "))
	}
	links, _ := net.Interfaces()
	for _, link := range links {
		if strings.Contains(link.Name, m.id) {
			found = append(found, "link "+link.Name)
		}
	}
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && strings.Contains(path, m.id) {
			found = append(found, "control group "+path)
			return fs.SkipDir
		}
		return nil
	})
	mounts, _ := os.ReadFile("/proc/self/mounts")
	if strings.Contains(string(mounts), m.dir) {
		found = append(found, "mounts below "+m.dir)
	}
	if _, err := os.Stat(m.dir); err == nil {
		found = append(found, "folder "+m.dir)
	}
	return found
}

func (m marks) wantGone(t *testing.T) {
	t.Helper()
	for _, trace := range m.left() {
		t.Errorf("still there: %s", trace)
	}
}

// If the command that starts a cluster is killed, only the folder is needed to remove the cluster. If it is interrupted, it removes
// the cluster.
func TestUpIsInterrupted(t *testing.T) {
	needRoot(t)
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "everynode-local")
	if out, err := exec.Command("go", "build", "-o", binary, "../cmd/everynode-local").CombinedOutput(); err != nil {
		t.Fatalf("building the command: %v\n%s", err, out)
	}
	for name, test := range map[string]struct {
		moment string // the file that shows its progress
		signal os.Signal
	}{
		"killed while the control plane starts": {"processes/etcd.json", os.Kill},
		"killed while nodes start":              {"nodes/node-1/" + nodespec.InitRecord, os.Kill},
		"interrupted while nodes start":         {"nodes/node-1/" + nodespec.InitRecord, os.Interrupt},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(binary, "up", "--name", "test-broken-off", "--nodes", "2")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var c *cluster.Cluster
			eventually(t, limitOfStart, func() string {
				opened, err := cluster.Open("test-broken-off")
				if err != nil {
					return err.Error()
				}
				c = opened
				if _, err := os.Stat(filepath.Join(c.Dir(), test.moment)); err != nil {
					return err.Error()
				}
				return ""
			})
			m := remember(t, c)
			if err := cmd.Process.Signal(test.signal); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err == nil {
				t.Fatal("up succeeded nevertheless")
			}
			if test.signal == os.Kill {
				if len(m.left()) == 0 {
					t.Error("nothing was left to take down")
				}
				if err := c.Down(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			m.wantGone(t)
		})
	}
}
