package api_test

import (
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
)

// TestTheSamplesAreAccepted : those too that the demo does not apply.
func TestTheSamplesAreAccepted(t *testing.T) {
	w := newWorld(t)
	files, err := filepath.Glob("../../config/samples/*.yaml")
	must(t, err)
	found := 0
	for _, file := range files {
		content, err := os.ReadFile(file)
		must(t, err)
		var job v1alpha1.NodeJob
		must(t, yaml.Unmarshal(content, &job))
		if job.Kind != "NodeJob" {
			continue
		}
		found++
		must(t, yaml.UnmarshalStrict(content, &job))
		job.Namespace = w.namespace
		if err := admin.Create(w.ctx, &job, client.DryRunAll); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	if found < 3 {
		t.Errorf("%d samples were found in %v", found, files)
	}
}
