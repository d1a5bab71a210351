// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/everynode/everynode/release/archive"
)

var release = Release{
	Version: "v0.7.3-test.1", Manager: "registry.example/a/manager:v0.7.3-test.1@sha256:1", Runner: "registry.example/a/runner:v0.7.3-test.1@sha256:2",
	ArchiveRunner: "registry.example/a/runner-archive:v0.7.3-test.1@sha256:3",
	Dashboard:     "registry.example/a/dashboard:v0.7.3-test.1@sha256:4",
	Created:       time.Date(2026, 7, 1, 12, 30, 15, 0, time.UTC),
}

func packaged(t *testing.T) map[string]string {
	t.Helper()
	content, err := Package("../..", release)
	if err != nil {
		t.Fatal(err)
	}
	files, created, err := archive.ReadTarGzip(content)
	if err != nil || !created.Equal(release.Created) {
		t.Fatalf("created at %s: %v", created, err)
	}
	found := map[string]string{}
	for _, file := range files {
		found[file.Path] = string(file.Content)
	}
	again, err := Package("../..", release)
	if err != nil || !bytes.Equal(content, again) {
		t.Errorf("the second archive differs: %v", err)
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
	for _, line := range []string{
		"version: 0.7.3-test.1", "appVersion: v0.7.3-test.1", "      image: " + release.Manager, "      image: " + release.Runner,
	} {
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
		"no Chart.yaml":        {"", "the chart has no Chart.yaml among its 1 files"},
		"another version":      {"name: a\nversion: 1.0.0\n", `the line "version: 0.0.0-dev" is not in Chart.yaml exactly once`},
		"no place for a image": {"name: a\nversion: 0.0.0-dev\nappVersion: v0.0.0-dev\n", `the line "image: ghcr.io/everynode/manager:v0.0.0-dev" is not`},
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
			if _, err := Package(root, release); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %s", err, tt.want)
			}
		})
	}
}
