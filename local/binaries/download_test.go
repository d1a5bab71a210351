// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// released serves files in the layout of https://dl.k8s.io, for this machine's platform.
func released(t *testing.T, files map[string]string) string {
	t.Helper()
	prefix := "/release/v1.36.3/bin/" + runtime.GOOS + "/" + runtime.GOARCH + "/"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		content, ok := files[strings.TrimPrefix(r.URL.Path, prefix)]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(content))
	}))
	t.Cleanup(server.Close)
	return server.URL + "/release"
}

func TestReleasedProgramsAreDownloaded(t *testing.T) {
	const program = "the program"
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte(program)))
	tests := map[string]struct {
		files   map[string]string
		wantErr string
	}{
		"the checksum is that of the server":    {map[string]string{"kubelet": program, "kubelet.sha256": sum}, ""},
		"the checksum has the name of the file": {map[string]string{"kubelet": program, "kubelet.sha256": sum + "  kubelet\n"}, ""},
		"the program was changed":               {map[string]string{"kubelet": program + "!", "kubelet.sha256": sum}, "has the SHA-256"},
		"there is no program":                   {map[string]string{"kubelet.sha256": sum}, "404 Not Found"},
		"there is no checksum":                  {map[string]string{"kubelet": program}, "kubelet.sha256: 404 Not Found"},
		"the checksum is a page": {
			map[string]string{"kubelet": program, "kubelet.sha256": "<html>"},
			"does not begin with a SHA-256",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			cache := t.TempDir()
			jobs := []job{{name: "kubelet", version: "v1.36.3", key: "kubernetes-1.36-0-downloaded", from: released(t, tt.files)}}
			var progress bytes.Buffer
			err := buildAll(t.Context(), &progress, cache, jobs)
			path := jobs[0].path(cache)
			if tt.wantErr == "" {
				content, readErr := os.ReadFile(path)
				info, statErr := os.Stat(path)
				if err != nil || readErr != nil || statErr != nil || string(content) != program || info.Mode().Perm() != 0o755 {
					t.Errorf("%v, %v, %v, the content is %q", err, readErr, statErr, content)
				}
				if want := "downloading kubelet v1.36.3 (1/1, program 1 of 1) …\n"; progress.String() != want {
					t.Errorf("the progress is %q, not %q", progress.String(), want)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.wantErr) || !strings.Contains(err.Error(), "without "+DownloadVariable) {
				t.Errorf("the error is %v", err)
			}
			entries, readErr := os.ReadDir(filepath.Dir(path))
			if readErr != nil || len(entries) > 0 {
				t.Errorf("the cache has %v, %v", entries, readErr)
			}
		})
	}
}

func TestDownloadedProgramsAreNotMistakenForBuiltOnes(t *testing.T) {
	built, jobs, err := plan(t.Context(), "1.36", []string{"etcd", "kubelet"})
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(DownloadVariable, "https://dl.k8s.io/release")
	downloaded, instead, err := plan(t.Context(), "1.36", []string{"etcd", "kubelet"})
	if err != nil {
		t.Fatal(err)
	}
	if built == downloaded || jobs[1].key == instead[1].key {
		t.Errorf("the folders are %s and %s", jobs[1].key, instead[1].key)
	}
	if jobs[0].key != instead[0].key || instead[0].from != "" {
		t.Errorf("etcd is not built: %+v", instead[0])
	}
	if want := "https://dl.k8s.io/release/" + instead[1].version + "/bin/" + runtime.GOOS + "/" + runtime.GOARCH + "/kubelet"; instead[1].url() != want {
		t.Errorf("the address is %s, not %s", instead[1].url(), want)
	}
}
