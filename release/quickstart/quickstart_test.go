// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package quickstart

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"

	"github.com/everynode/everynode/release"
)

// fakeCluster answers as kubectl, and as the programs that make local clusters.
type fakeCluster struct {
	context, minor          string
	nodes, pods, deployment string // JSON
	forbidden               string // a resource
	missing                 string // a program that is not installed
	applyError              string
}

const (
	readyDeployment = `{"spec":{"replicas":1},"status":{"replicas":1,"updatedReplicas":1,"availableReplicas":1}}`
	newDeployment   = `{"spec":{"replicas":1,"selector":{"matchLabels":{"a":"b"}},"template":{"spec":{"containers":[{"image":"new"}]}}},` +
		`"status":{"replicas":2,"updatedReplicas":1,"availableReplicas":1}}`
)

func nodeJSON(name, extra string) string {
	return fmt.Sprintf(
		`{"metadata":{"name":%q,"labels":{%s}},"spec":{},"status":{"nodeInfo":{"operatingSystem":"linux","architecture":"amd64"}}}`,
		name,
		extra,
	)
}

const kindNode = `{"metadata":{"name":"n"},"spec":{"providerID":"kind://docker/dev/dev-control-plane"},` +
	`"status":{"nodeInfo":{"operatingSystem":"linux","architecture":"amd64"}}}`

// start writes the programs to a folder that is all of PATH, and returns the file with the commands that they got.
func (f *fakeCluster) start(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	calls := filepath.Join(dir, "calls")
	script := `#!/bin/sh
echo "${0##*/} $*" >> ` + calls + `
case "${0##*/} $*" in
"kubectl config current-context") echo '` + f.context + `';;
*"config view"*) echo '{"clusters":[{"cluster":{"server":"https://192.0.2.1"}}]}';;
*" version -o json") echo '{"serverVersion":{"major":"1","minor":"` + f.minor + `","gitVersion":"v1.` + f.minor + `.0"}}';;
*"get nodes"*) echo '{"items":[` + f.nodes + `]}';;
*"can-i create ` + f.forbidden + `"*) echo "no - as RBAC says"; exit 1;;
*"can-i"*) echo yes;;
*"get deployment"*) echo '` + f.deployment + `';;
*"get pods"*) echo '{"items":[` + f.pods + `]}';;
*" apply "*) [ -z "` + f.applyError + `" ] || { echo "` + f.applyError + `" >&2; exit 1; };;
esac
`
	for _, program := range []string{"kubectl", "kind", "k3d", "minikube", "go"} {
		if program == f.missing {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, program), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
	return calls
}

// fakeBuild writes a release with one image for amd64.
func fakeBuild(_ context.Context, o release.Options) error {
	image, err := random.Image(10, 1)
	if err != nil {
		return err
	}
	index := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{
		Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}},
	})
	path, err := layout.Write(filepath.Join(o.Dir, release.ImagesFolder, "manager"), empty.Index)
	if err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	reference := "ghcr.io/everynode/manager:" + o.Version + "@" + digest.String()
	errs := []error{path.AppendIndex(index)}
	for _, file := range []string{release.ImagesFile, release.InstallFile, release.InstallNoGatesFile} {
		errs = append(errs, os.WriteFile(filepath.Join(o.Dir, file), []byte(reference+"\n"), 0o600))
	}
	return errors.Join(errs...)
}

func newInstaller(t *testing.T) (*installer, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer
	o := Options{Plugin: "/plugin", In: strings.NewReader("y\n"), Out: &out}
	o.Release = release.Options{Root: "/checkout", Dir: t.TempDir(), Revision: strings.Repeat("0", 40)}
	return &installer{Options: o, build: fakeBuild, plugin: func(context.Context, string, string, string) error { return nil }}, &out
}

func quickly(t *testing.T) {
	t.Helper()
	wasTimeout, wasInterval := timeout, interval
	timeout, interval = 2*time.Second, 10*time.Millisecond
	t.Cleanup(func() { timeout, interval = wasTimeout, wasInterval })
}

func TestImagesAreLoadedWithTheToolOfTheCluster(t *testing.T) {
	tests := map[string]struct {
		context, minor, nodes, want, file string
	}{
		"kind, also with a context of another name": {"mine", "37", kindNode, "kind load image-archive %s --name dev", release.InstallFile},
		"k3d": {"k3d-dev", "36", nodeJSON("k3d-dev-server-0", ""), "k3d image import %s --cluster dev", release.InstallFile},
		"minikube": {
			"dev", "35+", nodeJSON("dev", `"minikube.k8s.io/name":"dev"`), "minikube image load %s --profile dev",
			release.InstallNoGatesFile,
		},
		"a cluster of everynode-local": {
			"everynode-local-dev", "34", nodeJSON("node-1", ""),
			"go -C /checkout/local run ./cmd/everynode-local load-image %s --name dev", release.InstallNoGatesFile,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := fakeCluster{context: tt.context, minor: tt.minor, nodes: tt.nodes, forbidden: "nothing", deployment: readyDeployment}
			calls := f.start(t)
			i, out := newInstaller(t)
			if err := i.install(t.Context()); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(calls)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{
				fmt.Sprintf(tt.want, filepath.Join(i.Release.Dir, "images.tar")),
				"kubectl --context " + tt.context + " apply -f " + filepath.Join(i.Release.Dir, tt.file),
			} {
				if !strings.Contains(string(got), want+"\n") {
					t.Errorf("no command %q in\n%s", want, got)
				}
			}
			for _, want := range []string{`server     "https://192.0.2.1"`, "/plugin status max-map-count"} {
				if !strings.Contains(out.String(), want) {
					t.Errorf("%q is not printed:\n%s", want, out)
				}
			}
		})
	}
}

// TestTheArchiveHasTheImagesOfTheManifest would fail if the nodes were given other names than the manifest has.
func TestTheArchiveHasTheImagesOfTheManifest(t *testing.T) {
	dir := t.TempDir()
	if err := fakeBuild(t.Context(), release.Options{Dir: dir, Version: "v0.0.0-trial"}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "images.tar")
	if err := release.Archive(dir, "linux/arm64", file); err == nil || !strings.Contains(err.Error(), "was not made for this platform") {
		t.Errorf("for another platform: %v", err)
	}
	if err := release.Archive(dir, "linux/amd64", file); err != nil {
		t.Fatal(err)
	}
	manifest, err := os.ReadFile(filepath.Join(dir, release.InstallFile))
	if err != nil {
		t.Fatal(err)
	}
	image := strings.TrimSpace(string(manifest))
	if !strings.HasPrefix(image, "localhost/everynode/manager:v0.0.0-trial-") || strings.Contains(image, "@") {
		t.Errorf("the manifest has %s", image)
	}
	archive, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	for reader := tar.NewReader(archive); ; {
		header, err := reader.Next()
		if err != nil {
			t.Fatalf("no image %s: %v", image, err)
		}
		if header.Name != "manifest.json" {
			continue
		}
		content, err := io.ReadAll(reader)
		if err != nil || !strings.Contains(string(content), `"RepoTags":["`+image+`"]`) {
			t.Errorf("the archive has %s, %v, want %s", content, err, image)
		}
		return
	}
}

func TestWhatIsRefused(t *testing.T) {
	good := fakeCluster{context: "kind-dev", minor: "37", nodes: kindNode, forbidden: "nothing", deployment: readyDeployment}
	waiting := func(image, reason string) string {
		return fmt.Sprintf(`{"metadata":{"name":"p"},"spec":{"containers":[{"image":%q}]},`+
			`"status":{"conditions":[{"status":"False","reason":"Unschedulable","message":"0/1 nodes"}],`+
			`"containerStatuses":[{"state":{"waiting":{"reason":%q,"message":"why"}}}]}}`, image, reason)
	}
	tests := map[string]struct {
		change  func(f *fakeCluster, i *installer)
		want    string
		applied bool
	}{
		"a cluster that needs a registry": {
			func(f *fakeCluster, _ *installer) { f.nodes = nodeJSON("n", "") },
			"make install REGISTRY=registry.example.com/everynode",
			false,
		},
		"a name that is an option": {
			func(f *fakeCluster, _ *installer) { f.nodes = nodeJSON("n", `"minikube.k8s.io/name":"--all"`) },
			"make install REGISTRY=",
			false,
		},
		"an old version": {func(f *fakeCluster, _ *installer) { f.minor = "33" }, "Everynode supports 1.34 to 1.37", false},
		"a new version":  {func(f *fakeCluster, _ *installer) { f.minor = "38" }, "Everynode supports 1.34 to 1.37", false},
		"no nodes":       {func(f *fakeCluster, _ *installer) { f.nodes = "" }, "has no node with Linux", false},
		"an architecture": {
			func(f *fakeCluster, _ *installer) { f.nodes = strings.Replace(kindNode, "amd64", "s390x", 1) },
			`architecture "s390x"`,
			false,
		},
		"several architectures": {
			func(f *fakeCluster, _ *installer) { f.nodes += "," + strings.Replace(kindNode, "amd64", "arm64", 1) },
			"give a registry",
			false,
		},
		"no rights": {
			func(f *fakeCluster, _ *installer) { f.forbidden = "deployments.apps" },
			"you may not create deployments.apps in this cluster",
			false,
		},
		"no answer": {
			func(_ *fakeCluster, i *installer) { i.In = strings.NewReader("") },
			"nothing was changed: answer y, or set YES=1",
			false,
		},
		"another answer": {func(_ *fakeCluster, i *installer) { i.In = strings.NewReader("no\n") }, "nothing was changed", false},
		"kind is not installed": {
			func(f *fakeCluster, _ *installer) { f.missing = "kind" },
			"kind is not installed, or not in PATH",
			false,
		},
		"no kubectl": {
			func(f *fakeCluster, _ *installer) { f.missing = "kubectl" },
			"kubectl is not installed, or not in PATH",
			false,
		},
		"apply fails": {func(f *fakeCluster, _ *installer) { f.applyError = "is forbidden" }, "is forbidden", true},
		"an image cannot be pulled": {func(f *fakeCluster, _ *installer) {
			f.deployment, f.pods = newDeployment, waiting("old", "CrashLoopBackOff")+","+waiting("new", "ImagePullBackOff")
		}, `pod "p" does not start: ImagePullBackOff: "why"`, true},
		"the manager fails": {func(f *fakeCluster, _ *installer) {
			f.deployment, f.pods = newDeployment, waiting("new", "CrashLoopBackOff")
		}, "logs deployment/everynode-manager", true},
		"the pod waits": {func(f *fakeCluster, _ *installer) {
			f.deployment, f.pods = newDeployment, waiting("new", "ContainerCreating")
		}, `pod "p": Unschedulable: "0/1 nodes"`, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			quickly(t)
			f := good
			i, _ := newInstaller(t)
			tt.change(&f, i)
			built := false
			i.build = func(ctx context.Context, o release.Options) error {
				built = true
				return fakeBuild(ctx, o)
			}
			calls := f.start(t)
			err := i.install(t.Context())
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %s", err, tt.want)
			}
			got, err := os.ReadFile(calls)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
			if built != tt.applied {
				t.Errorf("built: %t, want %t", built, tt.applied)
			}
			if applied := strings.Contains(string(got), " apply "); applied != tt.applied {
				t.Errorf("applied: %t, want %t\n%s", applied, tt.applied, got)
			}
		})
	}
}
