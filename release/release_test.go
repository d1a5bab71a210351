// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Of the release that the tests make: for the platform of this machine only, because another platform takes minutes.
const (
	testVersion  = "v0.7.3-test.1"
	testRevision = "0123456789abcdef0123456789abcdef01234567"
	testRegistry = "registry.example/everynode"
)

var (
	testCreated  = time.Date(2026, 7, 1, 12, 30, 15, 0, time.UTC)
	testPlatform = "linux/" + runtime.GOARCH
)

func testOptions(root, dir string) Options {
	return Options{
		Root: root, Dir: dir, Version: testVersion, Revision: testRevision, Created: testCreated, Registry: testRegistry,
		Platforms: []string{testPlatform},
	}
}

var shared struct {
	once sync.Once
	dir  string
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.dir != "" {
		_ = os.RemoveAll(shared.dir)
	}
	os.Exit(code)
}

// built returns the folder of a release, which no test may change. It is made once.
func built(t *testing.T) string {
	t.Helper()
	shared.once.Do(func() {
		shared.dir, shared.err = os.MkdirTemp("", "everynode-release-test-") //nolint:usetesting // t.TempDir ends with the first test
		if shared.err == nil {
			shared.err = Build(context.Background(), testOptions("..", filepath.Join(shared.dir, "dist")))
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return filepath.Join(shared.dir, "dist")
}

func read(t *testing.T, path ...string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// digests returns the hash of each file below a folder.
func digests(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			found[name] = fmt.Sprintf("%x", sha256.Sum256(read(t, dir, name)))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestASecondReleaseFromAnotherFolderIsTheSame releases a copy of the checkout, without its history, in another time zone.
func TestASecondReleaseFromAnotherFolderIsTheSame(t *testing.T) {
	first := built(t)
	checkout := filepath.Join(t.TempDir(), "another folder")
	list := exec.CommandContext(t.Context(), "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = ".."
	files, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.SplitSeq(strings.Trim(string(files), "\x00"), "\x00") {
		target := filepath.Join(checkout, name)
		content, err := os.ReadFile(filepath.Join("..", name))
		if os.IsNotExist(err) {
			continue // deleted, and not committed
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(target, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := testOptions(checkout, filepath.Join(t.TempDir(), "dist"))
	o.Created = o.Created.In(time.FixedZone("elsewhere", 7200)).Add(time.Millisecond)
	t.Setenv("GOFLAGS", "-ldflags=-X=github.com/everynode/everynode/internal/version.version=v9.9.9")
	t.Setenv("GOAMD64", "v3")
	if err := Build(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(digests(t, first), digests(t, o.Dir)); diff != "" {
		t.Errorf("-first +second\n%s", diff)
	}
}

func TestChecksumsAreThoseOfAllFilesForDownload(t *testing.T) {
	dir := built(t)
	want := map[string]string{}
	for name, digest := range digests(t, dir) {
		if !strings.HasPrefix(name, ImagesFolder+"/") && name != ChecksumsFile && name != NotesFile {
			want[name] = digest
		}
	}
	got := map[string]string{}
	for line := range strings.Lines(string(read(t, dir, ChecksumsFile))) {
		digest, name, found := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		if !found {
			t.Fatalf("the line %q is not in the format of sha256sum", line)
		}
		got[name] = digest
	}
	if diff := cmp.Diff(want, got); diff != "" || len(got) < 7 {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestInvalidReleasesAreRefused(t *testing.T) {
	occupied := t.TempDir()
	if err := os.WriteFile(filepath.Join(occupied, "letter.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		change func(*Options)
		want   string
	}{
		"a version without v": {
			func(o *Options) { o.Version = "0.1.0" },
			`the version "0.1.0" is not a semantic version: write it as v0.1.0 or v0.1.0-rc.1`,
		},
		"a version with metadata": {
			func(o *Options) { o.Version = "v0.1.0+dirty" },
			`the version "v0.1.0+dirty" is not a semantic version`,
		},
		"a folder with other files": {
			func(o *Options) { o.Dir = occupied },
			"has files that are not of a release: empty it, or choose another folder",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o := testOptions("..", t.TempDir())
			tt.change(&o)
			if err := Build(t.Context(), o); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %s", err, tt.want)
			}
		})
	}
	if _, err := os.Stat(filepath.Join(occupied, "letter.txt")); err != nil {
		t.Error(err)
	}
}

// printed runs a program, and returns what it prints.
func printed(t *testing.T, binary []byte, args ...string) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the programs are for Linux")
	}
	file := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(file, binary, 0o700); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), file, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(bytes.TrimSpace(out))
}

func TestOnlySomePlatforms(t *testing.T) {
	tests := map[string]struct {
		list            string
		images, plugins []string
		err             string
	}{
		"an empty list is all platforms": {"", []string{"linux/amd64", "linux/arm64"}, Platforms, ""},
		"an image is only for Linux": {
			"darwin/arm64,linux/amd64",
			[]string{"linux/amd64"},
			[]string{"darwin/arm64", "linux/amd64"},
			"",
		},
		"a platform that does not exist": {"linux/arm", nil, nil, `the platform "linux/arm" is not one of [darwin/amd64 `},
		"no platform of an image": {
			"darwin/arm64",
			nil,
			nil,
			"no image is for any of the platforms darwin/arm64: add one of [linux/amd64 linux/arm64]",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o := Options{Version: testVersion}
			err := o.Only(tt.list)
			if (err == nil) != (tt.err == "") || err != nil && !strings.HasPrefix(err.Error(), tt.err) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
			if err != nil {
				return
			}
			if err := o.complete(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(
				[][]string{tt.images, tt.plugins},
				[][]string{imagesOf(&o)[0].platforms, pluginOf(&o).platforms},
			); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}
