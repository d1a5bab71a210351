// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package s3_test

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/manager/archive"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/runner/contract"
	"github.com/everynode/everynode/internal/runner/upload"
	"github.com/everynode/everynode/test/install"
	"github.com/everynode/everynode/test/s3"
)

// TestAnArchiveOfS3 uploads to a real server as a pod does, with URLs that the manager has signed.
func TestAnArchiveOfS3(t *testing.T) {
	t.Parallel()
	root, err := install.Root()
	must(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	address := listener.Addr().String()
	must(t, listener.Close())
	server, err := s3.Start(t.Context(), s3.Options{Root: root, Dir: t.TempDir(), Address: address})
	must(t, err)
	t.Cleanup(func() { must(t, server.Stop()) })

	files := map[string]string{
		"url": "s3://" + server.Bucket + "/production", "endpoint": server.Endpoint, "region": s3.Region,
		"access-key-id": s3.AccessKeyID, "secret-access-key": s3.SecretAccessKey,
	}
	// sign returns the URL and the key of the n-th attempt. change is made to the files of the archive.
	sign := func(n int32, now time.Time, change map[string]string) (url, key string) {
		t.Helper()
		dir := t.TempDir()
		for name, content := range files {
			if other, ok := change[name]; ok {
				content = other
			}
			must(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
		}
		store, err := (&archive.Config{Directory: dir, MaxBytes: 1 << 20, UploadTime: time.Minute}).Open()
		must(t, err)
		job := &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: "node-setup", Name: "disk"}}
		got, err := store.Attempt(
			t.Context(),
			job,
			&task.Attempt{Phase: task.Task, Revision: "0123456789", NodeName: "node-1.example.com", Number: n},
			now,
		)
		must(t, err)
		return got.URL, strings.TrimPrefix(got.Location, "s3://"+server.Bucket+"/")
	}
	put := func(url, content string) contract.UploadAnswer {
		t.Helper()
		request := &contract.UploadRequest{URL: url, Milliseconds: 20_000, Sections: []contract.Section{{Bytes: int64(len(content))}}}
		return upload.Run(t.Context(), request, strings.NewReader(content))
	}
	now := time.Now()
	tests := map[string]struct {
		now     time.Time
		change  map[string]string
		url     func(string) string
		content string
		want    string // the error; "" if it is stored
	}{
		"an output":                        {now: now, content: "one\ntwo\n"},
		"an output of some MB":             {now: now, content: strings.Repeat("0123456789abcdef", 300_000)},
		"an output that is empty":          {now: now},
		"a clock that is 4 minutes ahead":  {now: now.Add(4 * time.Minute), content: "a"},
		"a clock that is 4 minutes behind": {now: now.Add(-4 * time.Minute), content: "a"},
		"a URL that has expired":           {now: now.Add(-time.Hour), content: "a", want: "the response is 403 Forbidden (AccessDenied)"},
		"a secret key that is wrong": {
			now:     now,
			change:  map[string]string{"secret-access-key": "other"},
			content: "a",
			want:    "the response is 403 Forbidden (SignatureDoesNotMatch)",
		},
		"a key that does not exist": {
			now:     now,
			change:  map[string]string{"access-key-id": "OTHER"},
			content: "a",
			want:    "the response is 404 Not Found (XAdminUserNotFound)",
		},
		"a bucket that does not exist": {
			now:     now,
			change:  map[string]string{"url": "s3://missing"},
			content: "a",
			want:    "the response is 404 Not Found (NoSuchBucket)",
		},
		"a URL that was changed to another node": {
			now:     now,
			url:     func(url string) string { return strings.Replace(url, "node-1.example.com", "node-2.example.com", 1) },
			content: "a",
			want:    "the response is 403 Forbidden (SignatureDoesNotMatch)",
		},
		"a URL that was changed to be valid for longer": {
			now:     now,
			url:     func(url string) string { return strings.Replace(url, "X-Amz-Expires=", "X-Amz-Expires=1", 1) },
			content: "a",
			want:    "the response is 403 Forbidden (SignatureDoesNotMatch)",
		},
		"a URL without its signature": {now: now, url: func(url string) string { url, _, _ = strings.Cut(url, "?"); return url },
			content: "a", want: "the response is 403 Forbidden (AccessDenied)"},
	}
	var n int32
	for name, tt := range tests {
		n++
		t.Run(name, func(t *testing.T) {
			url, key := sign(n, tt.now, tt.change)
			if tt.url != nil {
				url = tt.url(url)
			}
			got := put(url, tt.content)
			if got.Stored != (tt.want == "") || got.Error != tt.want {
				t.Errorf("the answer is %+v, want %q", got, tt.want)
			}
			code, content, err := server.Do(t.Context(), http.MethodGet, key, nil)
			must(t, err)
			if tt.want != "" && code != http.StatusNotFound {
				t.Errorf("the archive has it: %d", code)
			}
			if tt.want == "" && (code != http.StatusOK || string(content) != tt.content) {
				t.Errorf("the archive has %d bytes, want %d: %d", len(content), len(tt.content), code)
			}
		})
	}

	t.Run("a URL writes once", func(t *testing.T) {
		url, key := sign(101, now, nil)
		if got := put(url, "first"); !got.Stored {
			t.Fatal(got.Error)
		}
		if got := put(url, "second"); got.Stored || !strings.Contains(got.Error, "412 Precondition Failed") {
			t.Errorf("the second answer is %+v", got)
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url, strings.NewReader("without the header"))
		must(t, err)
		response, err := http.DefaultClient.Do(request)
		must(t, err)
		must(t, response.Body.Close())
		if response.StatusCode != http.StatusForbidden {
			t.Errorf("without the header, the response is %s", response.Status)
		}
		if _, content, err := server.Do(t.Context(), http.MethodGet, key, nil); err != nil || string(content) != "first" {
			t.Errorf("the archive has %q: %v", content, err)
		}
	})

	t.Run("a URL allows only to write", func(t *testing.T) {
		url, _ := sign(100, now, nil)
		if got := put(url, "a"); !got.Stored {
			t.Fatal(got.Error)
		}
		for _, method := range []string{http.MethodGet, http.MethodDelete, http.MethodHead} {
			request, err := http.NewRequestWithContext(t.Context(), method, url, nil)
			must(t, err)
			response, err := http.DefaultClient.Do(request)
			must(t, err)
			must(t, response.Body.Close())
			if response.StatusCode != http.StatusForbidden {
				t.Errorf("%s: the response is %s", method, response.Status)
			}
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
