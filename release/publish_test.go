// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"bytes"
	"compress/gzip"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/everynode/everynode/release/chart"
)

// TestPublish publishes to another registry than the release was made for.
func TestPublish(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	prefix := strings.TrimPrefix(server.URL, "http://") + "/mirror/everynode"
	dir := filepath.Join(t.TempDir(), "dist")
	if err := os.CopyFS(dir, os.DirFS(built(t))); err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, image := range []string{"manager", "runner", "runner-archive"} {
		_, descriptor := indexOf(t, dir, image)
		want = append(want, prefix+"/"+image+":"+testVersion+"@"+descriptor.Digest.String())
	}
	chartReference := ""
	for _, attempt := range []string{"the first time", "again"} {
		got, err := Publish(t.Context(), dir, prefix+"/")
		if err != nil {
			t.Fatal(err)
		}
		got, chartReference = got[:len(got)-1], got[len(got)-1]
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", attempt, diff)
		}
	}
	for _, reference := range want {
		tagged, digest, _ := strings.Cut(reference, "@")
		tag, err := name.NewTag(tagged)
		if err != nil {
			t.Fatal(err)
		}
		for _, ref := range []name.Reference{tag, tag.Digest(digest)} {
			index, err := remote.Index(ref)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := index.Digest(); err != nil || got.String() != digest {
				t.Errorf("%s is %s, %v", ref, got, err)
			}
			if err := validate.Index(index); err != nil {
				t.Errorf("%s: %v", ref, err)
			}
		}
		for _, file := range []string{NotesFile, ImagesFile, InstallFile, InstallNoGatesFile} {
			content := string(read(t, dir, file))
			if !strings.Contains(content, reference) || strings.Contains(content, testRegistry) {
				t.Errorf("%s does not refer to the registry:\n%s", file, content)
			}
		}
	}
	checkChart(t, dir, prefix, chartReference, want)
	before := string(read(t, dir, ChecksumsFile))
	if err := writeChecksums(dir); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(read(t, dir, ChecksumsFile)), before); diff != "" {
		t.Errorf("the checksums are not those of the new files:\n%s", diff)
	}
}

// checkChart checks that a registry has the chart of a release, as helm expects it, and that the chart has these images.
func checkChart(t *testing.T, dir, prefix, reference string, images []string) {
	t.Helper()
	tagged, digest, _ := strings.Cut(reference, "@")
	if want := prefix + "/charts/everynode:" + strings.TrimPrefix(testVersion, "v"); tagged != want {
		t.Errorf("the chart is %s, want %s", tagged, want)
	}
	tag, err := name.NewTag(tagged)
	if err != nil {
		t.Fatal(err)
	}
	artifact, err := remote.Image(tag)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := artifact.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := artifact.Digest(); err != nil || got.String() != digest {
		t.Errorf("%s is %s, %v", tag, got, err)
	}
	if manifest.Config.MediaType != "application/vnd.cncf.helm.config.v1+json" || len(manifest.Layers) != 1 ||
		manifest.Layers[0].MediaType != "application/vnd.cncf.helm.chart.content.v1.tar+gzip" {
		t.Fatalf("the manifest is not that of a chart: %+v", manifest)
	}
	config, err := artifact.RawConfigFile()
	if err != nil || !strings.Contains(string(config), `"version":"0.7.3-test.1"`) {
		t.Errorf("the configuration is not that of the chart: %s, %v", config, err)
	}
	layer, err := artifact.LayerByDigest(manifest.Layers[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	content, err := layer.Compressed()
	if err != nil {
		t.Fatal(err)
	}
	pulled, err := io.ReadAll(content)
	if err != nil || !bytes.Equal(pulled, read(t, dir, chart.FileName(testVersion))) {
		t.Errorf("the chart in the registry is not that of the release: %v", err)
	}
	description := chartYAML(t, pulled)
	for _, image := range images {
		if !strings.Contains(description, image) || strings.Contains(description, testRegistry) {
			t.Errorf("the chart does not refer to the registry:\n%s", description)
		}
	}
}

// chartYAML returns the file Chart.yaml of a chart.
func chartYAML(t *testing.T, content []byte) string {
	t.Helper()
	uncompressed, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	files, _ := untar(t, uncompressed)
	for name, f := range files {
		if !f.header.ModTime.Equal(testCreated) {
			t.Errorf("%s changed at %s", name, f.header.ModTime)
		}
	}
	description := string(files["everynode/Chart.yaml"].data)
	if description == "" {
		t.Fatal("the archive has no Chart.yaml")
	}
	return description
}

func TestNothingIsPublishedWithoutARelease(t *testing.T) {
	if _, err := Publish(
		t.Context(),
		t.TempDir(),
		"registry.example/everynode",
	); err == nil ||
		!strings.Contains(err.Error(), "make release writes it") {
		t.Errorf("error %v", err)
	}
}
