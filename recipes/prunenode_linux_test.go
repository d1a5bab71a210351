// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package recipes

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// What the two programs print, with images that a container uses, that are pinned, and that nothing uses.
const (
	containersOfCtr = `CONTAINER    IMAGE                               RUNTIME
0a1          registry.example/used:1             io.containerd.runc.v2
0a2          sha256:cccc                         io.containerd.runc.v2
`
	imagesOfCtr = `REF                         TYPE                                       DIGEST      SIZE      PLATFORMS    LABELS
registry.example/old:1      application/vnd.oci.image.manifest.v1+json sha256:a1   2.0 KiB   linux/amd64  io.cri-containerd.image=managed
registry.example/old@sha256:a1 application/vnd.oci.image.manifest.v1+json sha256:a1 2.0 KiB  linux/amd64  io.cri-containerd.image=managed
registry.example/used:1     application/vnd.oci.image.manifest.v1+json sha256:b1   1.5 MiB   linux/amd64  io.cri-containerd.image=managed
registry.example/id:1       application/vnd.oci.image.manifest.v1+json sha256:c1   1.5 MiB   linux/amd64  io.cri-containerd.image=managed
sha256:cccc                 application/vnd.oci.image.manifest.v1+json sha256:c1   1.5 MiB   linux/amd64  io.cri-containerd.image=managed
registry.example/pause:1    application/vnd.oci.image.manifest.v1+json sha256:d1   300 B     linux/amd64  io.cri-containerd.image=managed,io.cri-containerd.pinned=pinned
sha256:dddd                 application/vnd.oci.image.manifest.v1+json sha256:d1   300 B     linux/amd64  io.cri-containerd.image=managed
registry.example/older:1    application/vnd.oci.image.manifest.v1+json sha256:e1   48 B      linux/amd64  io.cri-containerd.image=managed
`
	containersOfCrictl = `{
  "containers": [
    {
      "id": "0a1",
      "image": {
        "annotations": {},
        "image": "sha256:b1"
      },
      "imageId": "sha256:b1",
      "imageRef": "registry.example/used@sha256:b2"
    }
  ]
}`
	imagesOfCrictl = `{
  "images": [
    {
      "id": "sha256:a1",
      "pinned": false,
      "repoDigests": [
        "registry.example/old@sha256:a2"
      ],
      "repoTags": [],
      "size": "2048",
      "spec": null
    },
    {
      "id": "sha256:bb",
      "pinned": false,
      "repoDigests": [
        "registry.example/used@sha256:b2"
      ],
      "repoTags": [
        "registry.example/used:1"
      ],
      "size": "1000000"
    },
    {
      "id": "sha256:d1",
      "pinned": true,
      "repoTags": [
        "registry.example/pause:1"
      ],
      "size": "300"
    },
    {
      "id": "sha256:e1",
      "repoTags": [
        "registry.example/older:1"
      ],
      "size": "48",
      "pinned": false
    }
  ]
}`
)

// TestPruneNode counts first, and then removes the same.
func TestPruneNode(t *testing.T) {
	for name, program := range map[string]struct {
		containers, images, script string
		want                       []string
	}{
		"ctr": {containersOfCtr, imagesOfCtr, `[ "$1 $2" = "-n k8s.io" ]; shift 2
case "$1 $2" in "containers ls") cat "$ROOT/containers" ;; "images ls") cat "$ROOT/images" ;; *) echo "$*" >> "$ROOT/removed" ;; esac`,
			[]string{"images rm --sync registry.example/old:1 registry.example/old@sha256:a1", "images rm --sync registry.example/older:1"}},
		"crictl": {containersOfCrictl, imagesOfCrictl, `case "$1" in ps) cat "$ROOT/containers" ;; images) cat "$ROOT/images" ;; *) echo "$*" >> "$ROOT/removed" ;; esac`,
			[]string{"rmi sha256:a1", "rmi sha256:e1"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRoot(t, "prune-node.yaml", "/var/log")
			r.instead = append(r.instead, ":/usr/sbin:/sbin:/usr/local/bin", "") // the machine may have the other program
			r.write("containers", program.containers)
			r.write("images", program.images)
			r.program(name, program.script)
			r.env["JOURNAL_MAX_MB"] = "1"
			kept, gone := r.logs()

			counted := r.succeeds(r.job.Spec.Task.Script)
			want := map[string]string{
				"images-bytes":   "2096",
				"journal-bytes":  "1048576",
				"logs-bytes":     "16384",
				"prunable-bytes": "1067056",
			}
			if !maps.Equal(counted, want) {
				t.Errorf("it counts %v, want %v", counted, want)
			}
			r.wantFiles(append(kept, gone...), nil)
			if got := r.read("removed"); got != "" {
				t.Errorf("a dry run removed %q", got)
			}

			r.env["DRY_RUN"] = "no"
			want["freed-bytes"] = want["prunable-bytes"]
			delete(want, "prunable-bytes")
			if freed := r.succeeds(r.job.Spec.Task.Script); !maps.Equal(freed, want) {
				t.Errorf("it frees %v, want %v", freed, want)
			}
			r.wantFiles(kept, gone)
			removed := r.read("removed")
			for _, line := range program.want {
				if !strings.Contains(removed, line+"\n") {
					t.Errorf("removed %q, want %q", removed, line)
				}
			}
			if n := strings.Count(removed, "\n"); n != len(program.want) {
				t.Errorf("removed %q, want %d images", removed, len(program.want))
			}
		})
	}
}

// logs makes files, and returns those to keep and those to remove.
func (r *root) logs() (kept, gone []string) {
	r.t.Helper()
	const days = 24 * time.Hour
	for path, file := range map[string]struct {
		kilobytes int
		age       time.Duration
		gone      bool
	}{
		"/var/log/journal/id/system.journal":          {512, 90 * days, false}, // it is written to
		"/var/log/journal/id/system@new.journal":      {512, 1 * days, false},
		"/var/log/journal/id/system@surplus.journal":  {512, 2 * days, true},
		"/var/log/journal/id/system@too-old.journal~": {512, 20 * days, true},
		"/var/log/syslog":                             {8, 20 * days, false},
		"/var/log/syslog.1":                           {8, 2 * days, false},
		"/var/log/syslog.2.gz":                        {8, 20 * days, true},
		"/var/log/app/app.log-20260101":               {8, 20 * days, true},
		"/var/log/pods/ns_pod_uid/c/0.log.gz":         {8, 20 * days, false},
		"/var/log/containers/x.log.1":                 {8, 20 * days, false},
	} {
		name := r.write(path, strings.Repeat("x", file.kilobytes*1024))
		at := time.Now().Add(-file.age)
		if err := os.Chtimes(name, at, at); err != nil {
			r.t.Fatal(err)
		}
		if file.gone {
			gone = append(gone, path)
		} else {
			kept = append(kept, path)
		}
	}
	// A link to a folder with an old log, and one with the name of an old log, are left alone with what they name.
	kept = append(kept, "/elsewhere/old.gz", "/var/log/link.gz")
	old := r.write("/elsewhere/old.gz", "x")
	at := time.Now().Add(-90 * days)
	for _, err := range []error{
		os.Chtimes(old, at, at), os.Symlink(r.dir+"/elsewhere", r.dir+"/var/log/folder"), os.Symlink(old, r.dir+"/var/log/link.gz"),
	} {
		if err != nil {
			r.t.Fatal(err)
		}
	}
	return kept, gone
}

func (r *root) wantFiles(there, missing []string) {
	r.t.Helper()
	for _, path := range there {
		if _, err := os.Lstat(filepath.Join(r.dir, path)); err != nil {
			r.t.Errorf("%s is gone: %v", path, err)
		}
	}
	for _, path := range missing {
		if _, err := os.Lstat(filepath.Join(r.dir, path)); err == nil {
			r.t.Errorf("%s is still there", path)
		}
	}
}

// TestPruneNodeRefuses checks that nothing is removed if a program fails or a value is wrong.
func TestPruneNodeRefuses(t *testing.T) {
	r := newRoot(t, "prune-node.yaml", "/var/log")
	r.instead = append(r.instead, ":/usr/sbin:/sbin:/usr/local/bin", "")
	_, gone := r.logs()
	r.env["DRY_RUN"] = "no"
	for _, tt := range []struct{ sentence, name, value, want string }{
		{"days that are no number", "MAX_AGE_DAYS", "2w", "MAX_AGE_DAYS is '2w': use a number"},
		{"a size with a unit", "JOURNAL_MAX_MB", "500M", "JOURNAL_MAX_MB is '500M': use a number"},
		{"neither yes nor no", "DRY_RUN", "false", "DRY_RUN is 'false': use yes or no"},
		{"the runtime does not answer", "DRY_RUN", "no", "connection refused"},
	} {
		t.Run(tt.sentence, func(t *testing.T) {
			r.program("ctr", `echo "connection refused" >&2; exit 1`)
			before := r.env[tt.name]
			r.env[tt.name] = tt.value
			r.fails(r.job.Spec.Task.Script, tt.want)
			r.wantFiles(gone, nil)
			r.env[tt.name] = before
			if before == "" {
				delete(r.env, tt.name)
			}
		})
	}
}
