// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
)

const version = "v0.7.3-test.1"

var (
	created = time.Date(2026, 7, 1, 12, 30, 15, 0, time.UTC)
	images  = []string{
		"registry.example:5000/a/manager:" + version + "@sha256:1", "registry.example:5000/a/runner:" + version + "@sha256:2",
		"registry.example:5000/a/runner-archive:" + version + "@sha256:3",
	}
)

// packaged returns the files of the chart.
func packaged(t *testing.T) map[string]string {
	t.Helper()
	dir, other := t.TempDir(), t.TempDir()
	if err := errors.Join(
		Package("../..", dir, version, images, created),
		Package("../..", other, version, images, created.In(time.FixedZone("elsewhere", 7200))),
	); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(dir, FileName(version)))
	if err != nil {
		t.Fatal(err)
	}
	again, err := os.ReadFile(filepath.Join(other, FileName(version)))
	if err != nil || !bytes.Equal(content, again) {
		t.Errorf("the second archive differs: %v", err)
	}
	files, err := archive.LoadArchiveFiles(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, file := range files {
		if !file.ModTime.Equal(created) {
			t.Errorf("%s changed at %s", file.Name, file.ModTime)
		}
		found["everynode/"+file.Name] = string(file.Data)
	}
	return found
}

func TestTheArchiveHasTheFilesOfTheCheckout(t *testing.T) {
	got := packaged(t)
	delete(got, "everynode/Chart.yaml")
	want := map[string]string{}
	root := "../../charts/everynode"
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && name != "Chart.yaml" {
			var content []byte
			content, err = os.ReadFile(filepath.Join(root, name))
			want["everynode/"+name] = string(content)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	crd, err := os.ReadFile("../../config/crd/everynode.dev_nodejobs.yaml")
	if err != nil || got["everynode/files/crd/everynode.dev_nodejobs.yaml"] != string(crd) {
		t.Errorf("the CRD of the chart is not that of config: %v", err)
	}
}

func TestTheArchiveHasTheVersionsAndImagesOfTheRelease(t *testing.T) {
	got := packaged(t)["everynode/Chart.yaml"]
	lines := []string{"version: 0.7.3-test.1", "appVersion: v0.7.3-test.1"}
	for _, image := range images {
		lines = append(lines, "      image: "+image)
	}
	for _, line := range lines {
		if !strings.Contains(got, "\n"+line+"\n") {
			t.Errorf("Chart.yaml lacks %q:\n%s", line, got)
		}
	}
	if strings.Contains(got, "0.0.0-dev") {
		t.Errorf("Chart.yaml has the version of the checkout:\n%s", got)
	}
}

func TestAChartWithoutPlacesForTheReleaseIsRefused(t *testing.T) {
	tests := map[string]struct{ chart, want string }{
		"no Chart.yaml": {"", "Chart.yaml file is missing"},
		"no place for a image": {
			"apiVersion: v2\nname: a\nversion: 0.0.0-dev\n",
			`the image "ghcr.io/everynode/manager:v0.0.0-dev" is not in the annotation artifacthub.io/images of Chart.yaml exactly once`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			dir := filepath.Join(root, "charts", Name)
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			file := "values.yaml"
			if tt.chart != "" {
				file = "Chart.yaml"
			}
			if err := os.WriteFile(filepath.Join(dir, file), []byte(tt.chart), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := Package(root, t.TempDir(), version, images, created); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %s", err, tt.want)
			}
		})
	}
}
