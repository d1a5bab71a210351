// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"encoding/pem"
	"errors"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/task"
)

// folderWith returns a directory with files.
func folderWith(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func with(files map[string]string, name, value string) map[string]string {
	changed := map[string]string{name: value}
	for key, content := range files {
		if key != name {
			changed[key] = content
		}
	}
	return changed
}

var bucket = map[string]string{
	"url": "s3://outputs/cluster-1\n", "endpoint": "https://s3.example.com:9000\n", "region": "eu-central-1",
	"access-key-id": "AKID\n", "secret-access-key": "secret-1\n",
}

const prefixMistake = "the file url is not of the form s3://BUCKET/PREFIX"

func TestOpen(t *testing.T) {
	tests := map[string]struct {
		files          map[string]string
		base, location string
		wantErr        string
	}{
		"a bucket": {files: bucket, base: "https://s3.example.com:9000/outputs/cluster-1/", location: "s3://outputs/cluster-1/"},
		"a bucket of AWS": {
			files: with(
				bucket,
				"endpoint",
				"",
			),
			base:     "https://s3.eu-central-1.amazonaws.com/outputs/cluster-1/",
			location: "s3://outputs/cluster-1/",
		},
		"a bucket of AWS without a region": {
			files: with(
				with(bucket, "endpoint", ""),
				"region",
				"",
			),
			base:     "https://s3.us-east-1.amazonaws.com/outputs/cluster-1/",
			location: "s3://outputs/cluster-1/",
		},
		"a bucket without a prefix": {
			files:    with(bucket, "url", "s3://outputs"),
			base:     "https://s3.example.com:9000/outputs/",
			location: "s3://outputs/",
		},
		"an endpoint in a folder": {
			files:    with(bucket, "endpoint", "http://s3.example.com/a/"),
			base:     "http://s3.example.com/a/outputs/cluster-1/",
			location: "s3://outputs/cluster-1/",
		},
		"another server": {
			files:    map[string]string{"url": "https://logs.example.com/everynode"},
			base:     "https://logs.example.com/everynode/",
			location: "https://logs.example.com/everynode/",
		},
		"another server, at its root": {
			files:    map[string]string{"url": "http://10.0.0.1:8080"},
			base:     "http://10.0.0.1:8080/",
			location: "http://10.0.0.1:8080/",
		},

		"no URL": {
			files:   with(bucket, "url", " \n"),
			wantErr: "the file url is missing or empty: write the URL of the archive to it",
		},
		"another scheme": {
			files:   map[string]string{"url": "ftp://logs.example.com/secret"},
			wantErr: "the file url is not a URL that begins with https://, http:// or s3://",
		},
		"a user in the URL": {
			files:   map[string]string{"url": "https://a:secret@logs.example.com"},
			wantErr: "without user, query and fragment",
		},
		"a query": {
			files:   map[string]string{"url": "https://logs.example.com/a?sig=secret"},
			wantErr: "without user, query and fragment",
		},
		"a host with a command": {
			files:   map[string]string{"url": "https://a;reboot/b"},
			wantErr: "the file url has a host with special characters",
		},
		"a fragment": {
			files:   map[string]string{"url": "https://logs.example.com/a#secret"},
			wantErr: "without user, query and fragment",
		},
		"a folder above": {
			files:   map[string]string{"url": "https://logs.example.com/a/../secret"},
			wantErr: "each part of the path must begin with a letter or digit",
		},
		"an escape": {
			files:   map[string]string{"url": "https://logs.example.com/a%20secret"},
			wantErr: "each part of the path",
		},
		"a URL that is too long": {
			files:   map[string]string{"url": "https://logs.example.com/" + strings.Repeat("a", 300)},
			wantErr: "with at most 256 bytes",
		},
		"keys for another server": {
			files:   with(bucket, "url", "https://logs.example.com"),
			wantErr: "the file endpoint is for URLs that begin with s3://",
		},
		"an invalid bucket":           {files: with(bucket, "url", "s3://Outputs/a"), wantErr: prefixMistake},
		"no bucket":                   {files: with(bucket, "url", "s3:///a"), wantErr: prefixMistake},
		"an empty part of the prefix": {files: with(bucket, "url", "s3://outputs/a//b"), wantErr: prefixMistake},
		"no key":                      {files: with(bucket, "access-key-id", ""), wantErr: "the file access-key-id is missing or empty"},
		"no secret key": {
			files:   with(bucket, "secret-access-key", ""),
			wantErr: "the file secret-access-key is missing or empty",
		},
		"an invalid region":            {files: with(bucket, "region", "secret 1"), wantErr: "the file region is not the name of a region"},
		"an endpoint without a scheme": {files: with(bucket, "endpoint", "secret.example.com"), wantErr: "the file endpoint is not a URL"},
		"certificates that are none": {
			files:   with(bucket, "ca.crt", "secret"),
			wantErr: "the file ca.crt: it contains no certificate in PEM format",
		},
		"a file that is too long": {
			files:   with(bucket, "ca.crt", strings.Repeat("a", maxFileBytes+1)),
			wantErr: "the file ca.crt has more than 32768 bytes",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s, err := (&Config{Directory: folderWith(t, tt.files)}).Open()
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) || strings.Contains(err.Error(), "secret-1") ||
					strings.Contains(err.Error(), "sig=secret") {
					t.Errorf("the error is %v, want %q", err, tt.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if s.base != tt.base || s.location != tt.location {
				t.Errorf("the archive is %s, shown as %s", s.base, s.location)
			}
		})
	}
}

func TestExposed(t *testing.T) {
	for name, tt := range map[string]struct {
		files map[string]string
		want  bool
	}{
		"a bucket by https":         {bucket, false},
		"a bucket by http":          {with(bucket, "endpoint", "http://s3.example.com"), true},
		"another server by http":    {map[string]string{"url": "http://10.0.0.1:8080"}, false},
		"files that cannot be read": {nil, false},
	} {
		if got := (&Config{Directory: folderWith(t, tt.files)}).Exposed(); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestWithoutADirectoryThereIsNoArchive(t *testing.T) {
	if _, err := (&Config{}).Open(); !errors.Is(err, ErrNone) {
		t.Errorf("the error is %v", err)
	}
}

func TestCertificatesArePassedOn(t *testing.T) {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	s, err := (&Config{Directory: folderWith(t, with(bucket, "ca.crt", ca))}).Open()
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Attempt(t.Context(), &v1alpha1.NodeJob{}, &task.Attempt{Phase: task.Task, NodeName: "n"}, time.Now())
	if err != nil || got.CA != strings.TrimSpace(ca) {
		t.Errorf("the certificates are %q, %v", got.CA, err)
	}
}

var now = time.Date(2026, 7, 1, 12, 0, 5, 999, time.UTC)

func job(seconds int32) *v1alpha1.NodeJob {
	j := &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: "node-setup", Name: "disk"}}
	j.Spec.Task.Output.Archive, j.Spec.Task.TimeoutSeconds = v1alpha1.ArchiveAlways, &seconds
	return j
}

// TestAttempt : TestAnArchiveOfS3 in test/s3 shows that a server accepts the signature.
func TestAttempt(t *testing.T) {
	const key = "node-setup/disk/0123456789/node-1.example.com/20260701T120005Z-task-2.log"
	attempt := &task.Attempt{Phase: task.Task, Revision: "0123456789", NodeName: "node-1.example.com", Number: 2}
	tests := map[string]struct {
		files    map[string]string
		seconds  int32
		location string
		url      string
		query    url.Values
	}{
		"a bucket": {
			bucket, 600, "s3://outputs/cluster-1/" + key, "https://s3.example.com:9000/outputs/cluster-1/" + key,
			url.Values{
				"X-Amz-Algorithm": {"AWS4-HMAC-SHA256"}, "X-Amz-Credential": {"AKID/20260701/eu-central-1/s3/aws4_request"},
				// 5 minutes before, in case that the clock of the server is behind.
				"X-Amz-Date": {"20260701T115505Z"},
				// The timeout of 600 s, 60 s each for the upload and the kubelet, and 10 minutes for clocks that differ.
				"X-Amz-Expires": {"1320"}, "X-Amz-SignedHeaders": {"host;if-none-match"},
			},
		},
		"credentials for a session": {
			with(
				bucket,
				"session-token",
				"session/+=",
			),
			86400,
			"s3://outputs/cluster-1/" + key,
			"https://s3.example.com:9000/outputs/cluster-1/" + key,
			url.Values{
				"X-Amz-Algorithm": {
					"AWS4-HMAC-SHA256",
				},
				"X-Amz-Credential":     {"AKID/20260701/eu-central-1/s3/aws4_request"},
				"X-Amz-Date":           {"20260701T115505Z"},
				"X-Amz-Expires":        {"87120"},
				"X-Amz-SignedHeaders":  {"host;if-none-match"},
				"X-Amz-Security-Token": {"session/+="},
			},
		},
		"another server": {
			map[string]string{"url": "https://logs.example.com/a"},
			600,
			"https://logs.example.com/a/" + key,
			"https://logs.example.com/a/" + key,
			url.Values{},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s, err := (&Config{Directory: folderWith(t, tt.files), MaxBytes: 1 << 20, UploadTime: 30 * time.Second}).Open()
			if err != nil {
				t.Fatal(err)
			}
			got, err := s.Attempt(t.Context(), job(tt.seconds), attempt, now)
			if err != nil {
				t.Fatal(err)
			}
			signed, err := url.Parse(got.URL)
			if err != nil {
				t.Fatal(err)
			}
			query := signed.Query()
			signature := query.Get("X-Amz-Signature")
			query.Del("X-Amz-Signature")
			delete(query, "x-id")
			if diff := cmp.Diff(tt.query, query); diff != "" || (len(signature) == 64) != (len(tt.query) > 0) {
				t.Errorf("the signature is %q, the query (-want +got):\n%s", signature, diff)
			}
			signed.RawQuery = ""
			if signed.String() != tt.url || got.Location != tt.location || got.MaxBytes != 1<<20 || got.UploadTime != 30*time.Second {
				t.Errorf("the URL is %s, and the archive %+v", signed, got)
			}
			if strings.Contains(got.URL, "secret-1") {
				t.Error("the URL contains the secret key")
			}
		})
	}
}

func TestASignatureIsForOneObject(t *testing.T) {
	s, err := (&Config{Directory: folderWith(t, bucket)}).Open()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, a := range []task.Attempt{
		{Phase: task.Task, NodeName: "node-1", Number: 1}, {Phase: task.Task, NodeName: "node-2", Number: 1},
		{Phase: task.Rollback, NodeName: "node-1", Number: 1}, {Phase: task.Task, NodeName: "node-1", Number: 2},
	} {
		got, err := s.Attempt(t.Context(), job(60), &a, now)
		if err != nil {
			t.Fatal(err)
		}
		_, signature, _ := strings.Cut(got.URL, "X-Amz-Signature=")
		if seen[signature] || seen[got.Location] {
			t.Errorf("%+v has the signature or the location of another one: %s", a, got.URL)
		}
		seen[signature], seen[got.Location] = true, true
	}
}
