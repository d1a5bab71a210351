// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/test/install"
	"github.com/everynode/everynode/test/s3"
)

// archive starts a server that is compatible with S3 where the nodes of the cluster can reach it, at the address of its API
// server, and returns what the Secret of the manager must have.
func (w *world) archive() (*s3.Server, map[string]string) {
	w.T.Helper()
	config, err := real.RESTConfig()
	must(w.T, err)
	apiServer, err := url.Parse(config.Host)
	must(w.T, err)
	listener, err := net.Listen("tcp", net.JoinHostPort(apiServer.Hostname(), "0"))
	must(w.T, err)
	address := listener.Addr().String()
	must(w.T, listener.Close())
	root, err := install.Root()
	must(w.T, err)
	dir := w.T.TempDir()
	certificate, ca := authority(w.T, net.ParseIP(apiServer.Hostname()))
	key, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	must(w.T, err)
	files := map[string][]byte{
		"tls.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]}),
		"tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
	}
	for name, content := range files {
		must(w.T, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	server, err := s3.Start(w.Ctx, s3.Options{
		Root:        root,
		Dir:         dir,
		Address:     address,
		CA:          []byte(ca),
		Certificate: filepath.Join(dir, "tls.crt"),
		Key:         filepath.Join(dir, "tls.key"),
	})
	must(w.T, err)
	w.T.Cleanup(func() { must(w.T, server.Stop()) })
	return server, map[string]string{
		"url": "s3://" + server.Bucket + "/e2e", "endpoint": server.Endpoint, "region": s3.Region, "ca.crt": ca,
		"access-key-id": s3.AccessKeyID, "secret-access-key": s3.SecretAccessKey,
	}
}

// setArchive gives the manager this Secret; nil for none. A new pod of the manager has it at once, an old one after a
// minute.
func setArchive(ctx context.Context, data map[string]string) error {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: install.Namespace, Name: "everynode-archive"}, StringData: data}
	if err := client.IgnoreNotFound(admin.Delete(ctx, secret.DeepCopy())); err != nil {
		return err
	}
	if data != nil {
		if err := admin.Create(ctx, secret); err != nil {
			return err
		}
	}
	if _, err := install.Kubectl(
		ctx,
		real,
		"",
		"-n",
		install.Namespace,
		"rollout",
		"restart",
		"deployment",
		install.Deployment,
	); err != nil {
		return err
	}
	_, err := install.Kubectl(
		ctx,
		real,
		"",
		"-n",
		install.Namespace,
		"rollout",
		"status",
		"deployment",
		install.Deployment,
		"--timeout=90s",
	)
	return err
}

// object returns the object that a location names.
func (w *world) object(server *s3.Server, location string) string {
	w.T.Helper()
	key, found := strings.CutPrefix(location, "s3://"+server.Bucket+"/")
	if !found {
		w.T.Fatalf("the location is %s", location)
	}
	code, content, err := server.Do(w.Ctx, http.MethodGet, key, nil)
	if err != nil || code != http.StatusOK {
		w.T.Fatalf("getting %s: %d %v", key, code, err)
	}
	return string(content)
}

func archives(s *v1alpha1.NodeJobSpec) { s.Task.Output.Archive = v1alpha1.ArchiveAlways }

// TestTheOutputOfANodeIsInItsArchive : it is not parallel, because it restarts the manager.
func TestTheOutputOfANodeIsInItsArchive(t *testing.T) {
	w := newWorld(t)
	server, secret := w.archive()
	w.job("waits", "echo waited", onNode2, archives)
	c := w.Condition("waits", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonArchiveNotConfigured)
	wantText(t, c.Message, "the file url is missing or empty")

	must(t, admin.Create(w.Ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "password"}, StringData: map[string]string{"password": "open-sesame"},
	}))
	t.Cleanup(func() { must(t, setArchive(context.Background(), nil)) })
	must(t, setArchive(w.Ctx, secret))
	waited := w.Done("waits", "node-2")
	if got := w.object(server, waited.Archives[0].Location); got != "waited\n" {
		t.Errorf("the archive has %q", got)
	}

	// 5 MB, with the least memory that a task can have. The page cache of the file must not end it.
	const lines = 500_000
	w.job(
		"prints",
		fmt.Sprintf(`echo "the password is $PASSWORD" >&2; seq -f '%%09.0f' %d`, lines),
		onNode2,
		archives,
		func(s *v1alpha1.NodeJobSpec) {
			s.Task.Output.Record = v1alpha1.OutputNone
			s.Task.Resources = &v1alpha1.TaskResources{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("32Mi")}}
			s.Task.Env = []v1alpha1.EnvVar{{Name: "PASSWORD", ValueFrom: &v1alpha1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: "password"}, Key: "password",
			}}}}
		},
	)
	rec := w.Done("prints", "node-2")
	if len(rec.Archives) != 1 || !rec.Archives[0].Stored || rec.Archives[0].Dropped != 0 || rec.Message != "" {
		t.Fatalf("the record has the message %q and the archives %+v", rec.Message, rec.Archives)
	}
	const masked = "the password is ***\n" // somewhere, because each stream has a pipe of its own
	var want strings.Builder
	for i := range lines {
		fmt.Fprintf(&want, "%09d\n", i+1)
	}
	location := rec.Archives[0].Location
	got := w.object(server, location)
	if strings.Replace(got, masked, "", 1) != want.String() || len(got) != len(masked)+want.Len() ||
		rec.Archives[0].Bytes != int64(len(got)) {
		t.Errorf("the archive has %d bytes, want %d: %.80q", len(got), len(masked)+want.Len(), got)
	}
	if prefix := fmt.Sprintf(
		"s3://%s/e2e/%s/prints/%s/node-2/",
		server.Bucket,
		w.Namespace,
		rec.Revision,
	); !strings.HasPrefix(
		location,
		prefix,
	) {
		t.Errorf("the location is %s", location)
	}
	w.NoPods()
	said := w.say("logs", "prints", "--node", "node-2")
	wantText(t, said.err, "-- node-2: "+w.plain(location)+", ", "aws s3 cp "+w.plain(location)+" -")
	wantText(t, w.say("explain", "prints", "node-2").out, "Archive ", w.plain(location))

	w.job("fails", "echo broken; exit 3", onNode2, archives, func(s *v1alpha1.NodeJobSpec) {
		s.Retry.Limit = new(int32(0))
		s.Rollback = &v1alpha1.RollbackSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "echo restored"}}
	})
	w.Eventually("the rollback is recorded", func() error {
		if on := w.On("fails", "node-2"); on.Record == nil || on.Record.Rollback == nil {
			return fmt.Errorf("the record is %+v", on.Record)
		}
		return nil
	})
	failed := w.On("fails", "node-2").Record
	if len(failed.Archives) != 2 || failed.Archives[0].Phase != "task" || failed.Archives[1].Phase != "rollback" {
		t.Fatalf("the archives are %+v", failed.Archives)
	}
	for i, want := range []string{"broken\n", "restored\n"} {
		if got := w.object(server, failed.Archives[i].Location); got != want {
			t.Errorf("the archive has %q, want %q", got, want)
		}
	}

	// The server is gone. The task succeeds nevertheless.
	must(t, server.Stop())
	w.job("alone", "echo alone", onNode2, archives)
	alone := w.Done("alone", "node-2")
	if len(alone.Archives) != 1 || alone.Archives[0].Stored || !strings.Contains(alone.Archives[0].Error, "connection refused") ||
		alone.Archives[0].Error == record.NotReported {
		t.Errorf("the archives are %+v", alone.Archives)
	}
}
