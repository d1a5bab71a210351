// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPluginArchive(t *testing.T) {
	name := "kubectl-everynode_v0.7.3-test.1_linux_" + runtime.GOARCH + ".tar.gz"
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
	if diff := cmp.Diff(
		[]string{"LICENSE", "THIRD-PARTY-LICENSES.txt", "kubectl-everynode", "man", "man/man1"},
		slices.DeleteFunc(order, isPage),
	); diff != "" {
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

// TestKrewManifest has krew validate the manifest, and install the plugin from the archive, whose SHA-256 it checks.
func TestKrewManifest(t *testing.T) {
	dir := built(t)
	manifest, archive := filepath.Join(dir, KrewFile), "kubectl-everynode_v0.7.3-test.1_linux_"+runtime.GOARCH+".tar.gz"
	content := string(read(t, dir, KrewFile))
	for _, want := range []string{
		"  version: " + testVersion + "\n",
		"    uri: https://github.com/everynode/everynode/releases/download/v0.7.3-test.1/" + archive + "\n",
	} {
		if !strings.Contains(content, want) {
			t.Errorf("the manifest does not contain %q:\n%s", want, content)
		}
	}
	// krew's guideline: at most about 50 characters, without a period.
	if short := regexp.MustCompile(`shortDescription: (.*)`).FindStringSubmatch(content)[1]; len(short) > 50 ||
		strings.HasSuffix(short, ".") {
		t.Errorf("the short description is %q", short)
	}
	root := t.TempDir()
	for _, args := range [][]string{
		{"validate-krew-manifest", "-skip-install", "-manifest=" + manifest},
		{"krew", "install", "--manifest=" + manifest, "--archive=" + filepath.Join(dir, archive)},
	} {
		cmd := exec.CommandContext(t.Context(), "go", append([]string{"-C", "../tools/krew", "tool"}, args...)...)
		cmd.Env = append(os.Environ(), "KREW_ROOT="+root, "KREW_NO_UPGRADE_CHECK=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", args[0], err, out)
		}
	}
	installed := filepath.Join(root, "bin", "kubectl-everynode")
	if out, err := exec.CommandContext(t.Context(), installed, "version", "--client").
		CombinedOutput(); err != nil ||
		!strings.Contains(string(out), testVersion) {
		t.Errorf("the installed plugin: %v\n%s", err, out)
	}
}

// TestPluginArchives has programs that are not programs, because other platforms take minutes to build.
func TestPluginArchives(t *testing.T) {
	tests := map[string]struct {
		platform string
		bin      string
		want     string
		files    []string
	}{
		"an archive for Windows is a zip file": {
			"windows/arm64",
			"kubectl-everynode.exe",
			"kubectl-everynode_v0.7.3-test.1_windows_arm64.zip",
			[]string{
				"LICENSE 644 license",
				"THIRD-PARTY-LICENSES.txt 644 kubectl-everynode contains the following third-party software.\n",
				"kubectl-everynode.exe 755 a program",
			},
		},
		"another archive is a tar file": {"darwin/amd64", "kubectl-everynode", "kubectl-everynode_v0.7.3-test.1_darwin_amd64.tar.gz", nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := &build{Options: testOptions(t.TempDir(), t.TempDir()), work: t.TempDir()}
			write := func(content string, path ...string) {
				file := filepath.Join(path...)
				if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(content), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			write("license", b.Root, "LICENSE")
			write("a page", b.Root, "docs", "reference", "man", "kubectl-everynode.1")
			write("a program", b.work, tt.platform, tt.bin)
			b.plugin = pluginOf(&b.Options)
			got, first, err := b.archivePlugin(tt.platform)
			if err != nil || got.Name != tt.want || got.Bin != tt.bin || got.SHA256 != fmt.Sprintf("%x", sha256.Sum256(first)) {
				t.Fatalf("archive %+v, %v", got, err)
			}
			if _, second, err := b.archivePlugin(tt.platform); err != nil || !bytes.Equal(first, second) {
				t.Errorf("the second archive differs: %v", err)
			}
			if tt.files != nil {
				checkZip(t, first, tt.files)
			}
		})
	}
}

// checkZip checks the names, modes, times and contents of the files of a ZIP archive.
func checkZip(t *testing.T, archive []byte, want []string) {
	t.Helper()
	r, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range r.File {
		data, err := fs.ReadFile(r, f.Name)
		if err != nil {
			t.Fatal(err)
		}
		if !f.Modified.Equal(testCreated) {
			t.Errorf("%s changed at %s", f.Name, f.Modified)
		}
		got = append(got, fmt.Sprintf("%s %o %s", f.Name, f.Mode(), data))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
