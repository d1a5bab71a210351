// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

func TestPluginArchive(t *testing.T) {
	name := "kubectl-everynode_v0.7.3-test.1_linux_" + testPlatform.Arch + ".tar.gz"
	uncompressed, err := gzip.NewReader(bytes.NewReader(read(t, built(t), name)))
	if err != nil {
		t.Fatal(err)
	}
	files, order := untar(t, uncompressed)
	isPage := func(name string) bool {
		return strings.HasPrefix(name, "man/man1/kubectl-everynode") && strings.HasSuffix(name, ".1")
	}
	if files["man/man1/kubectl-everynode-status.1"].header == nil {
		t.Error("the man page of status is missing")
	}
	if diff := cmp.Diff([]string{"man", "man/man1", "LICENSE", "THIRD-PARTY-LICENSES.txt", "kubectl-everynode"}, slices.DeleteFunc(order, isPage)); diff != "" {
		t.Errorf("files: -want +got\n%s", diff)
	}
	for name, f := range files {
		if h := f.header; h.Uid != 0 || h.Gid != 0 || h.Uname != "" || h.Gname != "" || !h.ModTime.Equal(testCreated) {
			t.Errorf("%s belongs to %d:%d (%q, %q), changed at %s", name, h.Uid, h.Gid, h.Uname, h.Gname, h.ModTime)
		}
	}
	if mode := files["kubectl-everynode"].header.Mode; mode != 0o755 {
		t.Errorf("the mode of the plugin is %o", mode)
	}
	if got := printed(t, files["kubectl-everynode"].data, "version", "--client"); got != "client  "+testVersion {
		t.Errorf("the plugin prints %q", got)
	}
}

func TestKrewManifest(t *testing.T) {
	dir := built(t)
	var manifest krewPlugin
	if err := yaml.UnmarshalStrict(read(t, dir, KrewFile), &manifest); err != nil {
		t.Fatal(err)
	}
	archive := "kubectl-everynode_v0.7.3-test.1_linux_" + testPlatform.Arch + ".tar.gz"
	want := []krewPlatform{{
		Selector: krewSelector{map[string]string{"os": "linux", "arch": testPlatform.Arch}},
		URI:      "https://github.com/everynode/everynode/releases/download/v0.7.3-test.1/" + archive,
		SHA256:   fmt.Sprintf("%x", sha256.Sum256(read(t, dir, archive))),
		Bin:      "kubectl-everynode",
	}}
	if diff := cmp.Diff(want, manifest.Spec.Platforms); diff != "" {
		t.Errorf("platforms: -want +got\n%s", diff)
	}
	if manifest.Metadata.Name != "everynode" || manifest.Spec.Version != testVersion {
		t.Errorf("the plugin is %s %s", manifest.Metadata.Name, manifest.Spec.Version)
	}
	// krew's guideline: at most about 50 characters, without a period.
	if short := manifest.Spec.ShortDescription; len(short) > 50 || strings.HasSuffix(short, ".") {
		t.Errorf("the short description is %q", short)
	}
}

// TestPluginArchives has programs that are not programs, because other platforms take minutes to build.
func TestPluginArchives(t *testing.T) {
	tests := map[string]struct {
		platform Platform
		bin      string
		want     string
	}{
		"an archive for Windows is a zip file": {Platform{"windows", "arm64"}, "kubectl-everynode.exe", "kubectl-everynode_v0.7.3-test.1_windows_arm64.zip"},
		"another archive is a tar file":        {Platform{"darwin", "amd64"}, "kubectl-everynode", "kubectl-everynode_v0.7.3-test.1_darwin_amd64.tar.gz"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o := testOptions("..", t.TempDir())
			bin := t.TempDir() + "/" + tt.bin
			if err := os.WriteFile(bin, []byte("a program"), 0o600); err != nil {
				t.Fatal(err)
			}
			p := &program{name: "kubectl-everynode", files: map[Platform]string{tt.platform: bin}, license: []byte("license")}
			got, first, err := pluginArchive(&o, p, tt.platform)
			if err != nil || got != tt.want {
				t.Fatalf("archive %s, %v", got, err)
			}
			if _, second, err := pluginArchive(&o, p, tt.platform); err != nil || !bytes.Equal(first, second) {
				t.Errorf("the second archive differs: %v", err)
			}
		})
	}
}
