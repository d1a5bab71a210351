// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/manifest"
)

// FuzzConvert requires that no manifest ends the command, and that each document of the output is a NodeJob that is
// suspended.
func FuzzConvert(f *testing.F) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		objects, err := manifest.Decode(content)
		if err != nil {
			return
		}
		result := Convert(objects, "")
		jobs := 0
		for document := range strings.SplitSeq(string(result.YAML), "\n---\n") {
			job := &v1alpha1.NodeJob{}
			if err := yaml.UnmarshalStrict([]byte(document), job); err != nil {
				t.Fatalf("%v\n%s", err, document)
			}
			if job.Kind == "NodeJob" && job.Spec.Suspend {
				jobs++
			}
		}
		if jobs != result.NodeJobs {
			t.Errorf("%d NodeJobs are reported, and %d were found\n%s", result.NodeJobs, jobs, result.YAML)
		}
	})
}
