// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"flag"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/everynode/everynode/internal/testing/plantest"
)

var update = flag.Bool("update", false, "write the stories in testdata")

// storyDir has one text file for each story.
var storyDir = filepath.Join("testdata", "stories")

// A story is a simulation of a small cluster, from the creation of a NodeJob. The test writes what happens, what the
// planner does about it, and the states that result, in a text that can be read without the code.
type story struct {
	// file is the name of the file, about is what the story shows.
	file, about string
	// spec is the NodeJob in YAML.
	spec string
	// nodes exist from the beginning, and are listed from the oldest to the newest.
	nodes []string
	// script is what happens in the cluster.
	script func(*plantest.Cluster)
}

var stories = slices.Concat(rolloutStories, nodeStories)

// TestStories compares the stories with testdata/stories. They show a reviewer what a change of the planner means; the
// random histories check that it is correct.
func TestStories(t *testing.T) {
	files := map[string]bool{}
	for _, s := range stories {
		path := filepath.Join(storyDir, s.file)
		files[path] = true
		t.Run(s.file, func(t *testing.T) {
			plantest.CompareStory(t, path, tell(t, s), *update, "internal/nodejob/plan")
		})
	}
	existing, err := filepath.Glob(filepath.Join(storyDir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range existing {
		if !files[path] {
			t.Errorf("no story writes %s: delete it", path)
		}
	}
}

// tell returns the text of a story.
func tell(t *testing.T, s story) string {
	t.Helper()
	c := plantest.New(t, s.spec, s.nodes...)
	s.script(c)
	head := strings.Join(plantest.Wrap("", s.about), "\n")
	return head + "\n\n" + strings.TrimLeft(s.spec, "\n") + c.Text()
}
