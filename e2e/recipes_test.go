package e2e_test

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/e2e/install"
	"github.com/everynode/everynode/internal/record"
	"github.com/everynode/everynode/local/cluster"
)

// The recipes are tested as they are in recipes/: each test applies the file itself, in a namespace of its
// own, and takes it back with the commands that the file names. A test changes only what it must, and says
// so: the nodes, since the nodes of the cluster are shared; and what is anybody's to change, such as the
// address of a registry and its certificate.

// recipe is a file of recipes/ that was applied.
type recipe struct {
	w    *world
	text string
	// job is the name of its NodeJob.
	job string
}

// recipe applies a file of recipes/ with changes to the NodeJob in it.
func (w *world) recipe(file string, changes ...func(*v1alpha1.NodeJobSpec)) recipe {
	w.t.Helper()
	root, err := install.Root()
	must(w.t, err)
	text, err := os.ReadFile(filepath.Join(root, "recipes", file))
	must(w.t, err)
	r := recipe{w: w, text: string(text)}
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	decoder := serializer.NewCodecFactory(admin.Scheme()).UniversalDeserializer()
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return r
		}
		must(w.t, err)
		decoded, _, err := decoder.Decode(document, nil, nil)
		must(w.t, err)
		object := decoded.(client.Object)
		object.SetNamespace(w.namespace)
		if job, ok := object.(*v1alpha1.NodeJob); ok {
			r.job = job.Name
			for _, change := range changes {
				change(&job.Spec)
			}
		}
		must(w.t, client.IgnoreAlreadyExists(admin.Create(w.ctx, object)))
	}
}

// with sets a variable that the recipe has.
func (w *world) with(name, value string) func(*v1alpha1.NodeJobSpec) {
	return func(s *v1alpha1.NodeJobSpec) {
		w.t.Helper()
		i := slices.IndexFunc(s.Task.Env, func(e corev1.EnvVar) bool { return e.Name == name })
		if i < 0 {
			w.t.Fatalf("the recipe has no variable %s", name)
		}
		s.Task.Env[i] = corev1.EnvVar{Name: name, Value: value}
	}
}

// onceOnly: a test of a failure need not wait for the retries.
func onceOnly(s *v1alpha1.NodeJobSpec) { s.Retry.Limit = new(int32(0)) }

// commands are those that the comment of the file gives in the paragraph that begins so.
func (r recipe) commands(paragraph string) []string {
	var commands []string
	found := false
	for line := range strings.Lines(r.text) {
		line = strings.TrimRight(line, "\n")
		command, indented := strings.CutPrefix(line, "#   ")
		switch {
		case strings.HasPrefix(line, "# "+paragraph):
			found = true
		case found && indented:
			commands = append(commands, strings.ReplaceAll(command, "node-setup", r.w.namespace))
		case found && line == "#" || !strings.HasPrefix(line, "#"):
			return commands
		}
	}
	return commands
}

// asWritten runs these commands, as somebody does who copies them.
func (r recipe) asWritten(paragraph string) string {
	r.w.t.Helper()
	commands := r.commands(paragraph)
	if len(commands) == 0 {
		r.w.t.Fatalf("the recipe has no commands below %q", paragraph)
	}
	var printed strings.Builder
	for _, command := range commands {
		cmd := exec.CommandContext(r.w.ctx, "/bin/sh", "-c", command)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+real.Kubeconfig(), "PATH="+filepath.Dir(real.Kubectl())+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			r.w.t.Fatalf("%s: %v\n%s", command, err, out)
		}
		printed.Write(out)
	}
	return printed.String()
}

// worked runs what the file says under "See that it worked".
func (r recipe) worked() string { r.w.t.Helper(); return r.asWritten("See that it worked") }

// takenBack runs what the file says under "Take it back".
func (r recipe) takenBack(nodes ...string) {
	r.w.t.Helper()
	r.asWritten("Take it back")
	r.w.gone(r.job, nodes...)
	r.w.noPods()
}

// again runs the recipe once more on a node that is done, and returns what is on record then.
func (r recipe) again(node string) record.Record {
	r.w.t.Helper()
	first := r.w.done(r.job, node)
	r.w.unlabel(r.job, node)
	return r.another(node, first)
}

// another waits until another run than the given one is on record.
func (r recipe) another(node string, than record.Record) record.Record {
	r.w.t.Helper()
	var rec record.Record
	r.w.eventually(r.job+" ran again on "+node, func() error {
		if rec = r.w.done(r.job, node); rec.PodUID == than.PodUID {
			return errors.New("the record is the first")
		}
		return nil
	})
	return rec
}

// wantMissing checks that a file is not on the node.
func (w *world) wantMissing(node, path string) {
	w.t.Helper()
	if out := w.sh(node, "ls -d "+path+" 2>&1 || true"); !strings.Contains(out, "No such file") {
		w.t.Errorf("%s is on %s: %s", path, node, out)
	}
}

// TestRecipeKernelSetting does not run beside others: vm.max_map_count is the machine's. The number is one
// more than the machine has, since that may be more than the recipe asks for.
func TestRecipeKernelSetting(t *testing.T) {
	w := newWorld(t)
	const proc, conf = "/proc/sys/vm/max_map_count", "/etc/sysctl.d/zz-everynode-vm.max_map_count.conf"
	was, err := strconv.Atoi(w.sh("node-2", "cat "+proc))
	must(t, err)
	t.Cleanup(func() { w.sh("node-2", fmt.Sprintf("echo %d > %s; rm -f %s", was, proc, conf)) })

	r := w.recipe("kernel-setting.yaml", onNode2, w.with("AT_LEAST", strconv.Itoa(was+1)))
	if rec := w.done(r.job, "node-2"); rec.Results["found"] != strconv.Itoa(was) {
		t.Errorf("the record is %+v", rec)
	}
	wantText(t, r.worked(), "condition met", `"found":"`+strconv.Itoa(was)+`"`)
	want := func(value int) {
		t.Helper()
		if got := w.sh("node-2", "cat "+proc); got != strconv.Itoa(value) {
			t.Errorf("vm.max_map_count is %s, want %d", got, value)
		}
		if got, want := w.sh("node-2", "cat "+conf), fmt.Sprintf("# was %d\nvm.max_map_count = %d", was, value); got != want {
			t.Errorf("the file is %q, want %q", got, want)
		}
	}
	want(was + 1)
	if rec := r.again("node-2"); rec.Results["found"] != strconv.Itoa(was+1) {
		t.Errorf("the record is %+v", rec)
	}
	want(was + 1)
	// A higher number is a new revision, and the value from before is not forgotten.
	first := w.done(r.job, "node-2")
	w.patch(r.job, `{"spec":{"task":{"env":[{"name":"SETTING","value":"vm.max_map_count"},{"name":"AT_LEAST","value":"%d"}]}}}`, was+2)
	r.another("node-2", first)
	want(was + 2)
	r.takenBack("node-2")
	if got := w.sh("node-2", "cat "+proc); got != strconv.Itoa(was) {
		t.Errorf("vm.max_map_count is %s, want %d again", got, was)
	}
	w.wantMissing("node-2", conf)
}

// TestRecipeKernelSettingWhereItIsHighEnough and where it cannot be kept, with a setting that is the node's own.
func TestRecipeKernelSettingWhereItIsHighEnough(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.join(cluster.NodeOptions{})
	const proc = "/proc/sys/net/core/somaxconn"
	was := w.sh(node, "cat "+proc)
	r := w.recipe("kernel-setting.yaml", onNodes(node), w.with("SETTING", "net.core.somaxconn"), w.with("AT_LEAST", "100"))
	wantText(t, w.done(r.job, node).Message, "which is enough")
	w.wantMissing(node, "/etc/sysctl.d/zz-everynode*")
	r.takenBack(node)

	w.sh(node, "mkdir -p /etc/sysctl.d && mount -t tmpfs -o ro none /etc/sysctl.d")
	r = w.recipe("kernel-setting.yaml", onNodes(node), onceOnly, w.with("SETTING", "net.core.somaxconn"), w.with("AT_LEAST", "65000"))
	wantText(t, w.failed(r.job, node).Message, "/etc/sysctl.d cannot be written on this node")
	if got := w.sh(node, "cat "+proc); got != was {
		t.Errorf("net.core.somaxconn is %s, want %s still", got, was)
	}
	w.patch(r.job, `{"spec":{"task":{"env":[{"name":"SETTING","value":"vm.no_such_thing"},{"name":"AT_LEAST","value":"1"}]}}}`)
	w.eventually("the wrong name is told", func() error {
		if rec := w.on(r.job, node).Record; rec == nil || !strings.Contains(rec.Message, "no vm.no_such_thing") {
			return fmt.Errorf("the record is %+v", rec)
		}
		return nil
	})
}

// TestRecipeCACertificateDocker : there is no Docker on the nodes, so the file is looked at.
func TestRecipeCACertificateDocker(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const dir = "/etc/docker/certs.d/registry.example"
	r := w.recipe("ca-certificate-docker.yaml", onNode2)
	if rec := w.done(r.job, "node-2"); rec.Results["changed"] != "yes" {
		t.Errorf("the record is %+v", rec)
	}
	wantText(t, r.worked(), "condition met")
	if got := w.sh("node-2", "stat -c '%a %U' "+dir+"/ca.crt"); got != "644 root" {
		t.Errorf("the file is %s", got)
	}
	block, _ := pem.Decode([]byte(w.sh("node-2", "cat "+dir+"/ca.crt")))
	certificate, err := x509.ParseCertificate(block.Bytes)
	must(t, err)
	if !certificate.IsCA {
		t.Errorf("the certificate is of %s, and no CA's", certificate.Subject)
	}
	if rec := r.again("node-2"); rec.Results["changed"] != "no" {
		t.Errorf("the record is %+v", rec)
	}
	r.takenBack("node-2")
	w.wantMissing("node-2", dir)
}

// TestRecipeCACertificateContainerd pulls from a registry with a certificate of its own, before and after.
func TestRecipeCACertificateContainerd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.join(cluster.NodeOptions{})
	registry := w.registry()
	w.notPulled(w.pull(node, registry.address+"/probe:1"), "x509")
	before := w.sh(node, "pgrep -x containerd")

	r := w.recipe("ca-certificate-containerd.yaml", onNodes(node), w.with("REGISTRY", registry.address), w.with("CERTIFICATE", registry.ca))
	dir := "/etc/containerd/certs.d/" + registry.address
	if rec := w.done(r.job, node); rec.Results["dir"] != dir {
		t.Errorf("the record is %+v", rec)
	}
	wantText(t, r.worked(), "condition met")
	w.pulled(w.pull(node, registry.address+"/probe:2"))
	registry.wantServed("/v2/probe/manifests/2")
	if after := w.sh(node, "pgrep -x containerd"); after != before {
		t.Error("containerd was restarted")
	}
	r.again(node)
	r.takenBack(node)
	w.wantMissing(node, dir)
	w.notPulled(w.pull(node, registry.address+"/probe:3"), "x509")

	// What somebody else has written is left alone.
	w.sh(node, "mkdir -p /etc/containerd/certs.d/registry.example && echo '# mine' > /etc/containerd/certs.d/registry.example/hosts.toml")
	r = w.recipe("ca-certificate-containerd.yaml", onNodes(node), onceOnly)
	wantText(t, w.failed(r.job, node).Message, "hosts.toml is not this NodeJob's")
	r.takenBack(node)
	if got := w.sh(node, "cat /etc/containerd/certs.d/registry.example/hosts.toml"); got != "# mine" {
		t.Errorf("the file is %q", got)
	}
}

// systemTrust says why the trust store of the nodes, which is that of the machine, cannot be changed.
func (w *world) systemTrust() {
	w.t.Helper()
	if out := w.sh("node-2", "command -v update-ca-certificates update-ca-trust || true"); out == "" {
		w.t.Skip("the machine has neither update-ca-certificates nor update-ca-trust, and so have its nodes")
	}
}

// TestRecipeCACertificateSystem : containerd has read the trust store before the certificate comes, so that it
// has to be restarted in the middle of the run. The node asks for it by the label of the recipe.
func TestRecipeCACertificateSystem(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.systemTrust()
	node := w.join(cluster.NodeOptions{Labels: map[string]string{"example.com/ca-certificate": "wanted"}})
	registry := w.registry()
	w.notPulled(w.pull(node, registry.address+"/probe:1"), "x509")
	before := w.sh(node, "pgrep -x containerd")

	// The other test of this recipe has nodes with the same label.
	mine := func(s *v1alpha1.NodeJobSpec) { s.NodeSelector.MatchLabels["world"] = w.namespace }
	r := w.recipe("ca-certificate-system.yaml", mine, w.with("CERTIFICATE", registry.ca))
	rec := w.done(r.job, node)
	if rec.Attempts != 1 || rec.Results["restarted"] != "yes" {
		t.Errorf("the record is %+v", rec)
	}
	w.complete(r.job)
	if after := w.sh(node, "pgrep -x containerd"); after == before {
		t.Error("containerd was not restarted")
	}
	w.pulled(w.pull(node, registry.address+"/probe:2"))
	registry.wantServed("/v2/probe/manifests/2")

	before = w.sh(node, "pgrep -x containerd")
	if rec := r.again(node); rec.Results["restarted"] != "no" {
		t.Errorf("the record is %+v", rec)
	}
	// An attempt that ended between the certificate and the restart is made good by the next.
	w.sh(node, "touch /run/everynode-example-ca.pending")
	if rec := r.again(node); rec.Results["restarted"] != "yes" {
		t.Errorf("the record is %+v", rec)
	}
	if after := w.sh(node, "pgrep -x containerd"); after == before {
		t.Error("containerd was not restarted")
	}

	r.takenBack(node)
	w.notPulled(w.pull(node, registry.address+"/probe:3"), "x509")
	w.wantMissing(node, "/run/everynode-example-ca.pending")
}

// TestRecipeRegistryMirror pulls an image of Docker Hub, which no node can reach, from a mirror.
func TestRecipeRegistryMirror(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.join(cluster.NodeOptions{})
	mirror := w.registry()
	r := w.recipe("registry-mirror.yaml", onNodes(node),
		w.with("MIRROR", "https://"+mirror.address), w.with("MIRROR_CERTIFICATE", mirror.ca))
	w.done(r.job, node)
	wantText(t, r.worked(), "condition met", "/etc/containerd/certs.d/docker.io")
	w.pulled(w.pull(node, "docker.io/library/probe:1"))
	mirror.wantServed("/v2/library/probe/manifests/1")
	// A mirror below a path, without a trailing slash or with one.
	first := w.done(r.job, node)
	w.patchEnv(r.job, w.with("MIRROR", "https://"+mirror.address+"/v2/hub/"), w.with("MIRROR_CERTIFICATE", mirror.ca))
	r.another(node, first)
	w.pulled(w.pull(node, "docker.io/library/probe:2"))
	mirror.wantServed("/v2/hub/library/probe/manifests/2")
	r.takenBack(node)
	w.wantMissing(node, "/etc/containerd/certs.d/docker.io")

	// A containerd that is configured in the old way would not look at the file.
	w.sh(node, `sed -i 's|config_path = .*|mirrors."docker.io".endpoint = ["https://old.example"]|' /etc/containerd/config.toml`)
	r = w.recipe("registry-mirror.yaml", onNodes(node), onceOnly)
	wantText(t, w.failed(r.job, node).Message, "containerd has no config_path here")
	w.wantMissing(node, "/etc/containerd/certs.d/docker.io")
}

// patchEnv changes variables of a NodeJob that is there.
func (w *world) patchEnv(name string, changes ...func(*v1alpha1.NodeJobSpec)) {
	w.t.Helper()
	w.eventually("the NodeJob is changed", func() error {
		job := w.get(name)
		for _, change := range changes {
			change(&job.Spec)
		}
		return admin.Update(w.ctx, &job)
	})
}

// TestRecipeDropFile replaces a file that is there already, and puts it back.
func TestRecipeDropFile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const file = "/etc/logrotate.d/shop"
	state := "/var/lib/everynode/" + w.namespace
	t.Cleanup(func() { w.sh("node-2", "rm -rf "+file+" "+state) })
	w.sh("node-2", "mkdir -p /etc/logrotate.d && echo old > "+file+" && chmod 600 "+file)

	// A checksum that does not fit: nothing is changed.
	r := w.recipe("drop-file.yaml", onNode2, onceOnly, w.with("SHA256", strings.Repeat("0", 64)))
	wantText(t, w.failed(r.job, "node-2").Message, "the content has the checksum", "nothing was changed")
	if got := w.sh("node-2", "cat "+file+"; ls -A /etc/logrotate.d | grep everynode || true"); got != "old" {
		t.Errorf("the file is %q", got)
	}
	r.takenBack("node-2")

	r = w.recipe("drop-file.yaml", onNode2)
	if rec := w.done(r.job, "node-2"); rec.Results["changed"] != "yes" || len(rec.Results["sha256"]) != 64 {
		t.Errorf("the record is %+v", rec)
	}
	wantText(t, r.worked(), "condition met", "sha256")
	wantText(t, w.sh("node-2", "cat "+file), "/var/log/shop/*.log {", "    rotate 7")
	if got := w.sh("node-2", "stat -c '%a %U %G' "+file); got != "644 root root" {
		t.Errorf("the file is %s", got)
	}
	w.sh("node-2", "chmod 666 "+file)
	if rec := r.again("node-2"); rec.Results["changed"] != "no" {
		t.Errorf("the record is %+v", rec)
	}
	if got := w.sh("node-2", "stat -c %a "+file); got != "644" {
		t.Errorf("the file has mode %s", got)
	}
	r.takenBack("node-2")
	if got := w.sh("node-2", "cat "+file+"; stat -c %a "+file); got != "old\n600" {
		t.Errorf("the file is %q", got)
	}
	w.wantMissing("node-2", state)

	// A file that was not there, of bytes that are no text, without a checksum.
	w.sh("node-2", "rm "+file)
	content := []byte{0, 0xff, '\n', '$', '$', 0x80}
	must(t, admin.Patch(w.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "drop-file"}},
		mergePatch(`{"data":{"content":%q}}`, base64.StdEncoding.EncodeToString(content))))
	r = w.recipe("drop-file.yaml", onNode2, w.with("ENCODING", "base64"), w.with("SHA256", ""), w.with("MODE", "0400"),
		func(s *v1alpha1.NodeJobSpec) {
			s.Rerun.OnChangeOf = []v1alpha1.ContentRef{{Kind: v1alpha1.ContentConfigMap, Name: "drop-file"}}
		})
	first := w.done(r.job, "node-2")
	if got := w.sh("node-2", "base64 < "+file+"; stat -c %a "+file); got != base64.StdEncoding.EncodeToString(content)+"\n400" {
		t.Errorf("the file is %q", got)
	}
	// Without a checksum the ConfigMap's content is the revision.
	must(t, admin.Patch(w.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "drop-file"}},
		mergePatch(`{"data":{"content":"bmV3Cg=="}}`)))
	if rec := r.another("node-2", first); rec.Results["changed"] != "yes" {
		t.Errorf("the record is %+v", rec)
	}
	if got := w.sh("node-2", "cat "+file); got != "new" {
		t.Errorf("the file is %q", got)
	}
	r.takenBack("node-2")
	w.wantMissing("node-2", file)
}

// registry is a registry on the machine, with a certificate of an authority of its own. It holds one image
// under every name.
type registry struct {
	w       *world
	address string
	// ca is the certificate of the authority.
	ca string

	image  v1.Image
	mu     sync.Mutex
	served []string
}

// registry starts a registry where the nodes of the cluster, and nobody else, can reach it: at the address of
// its API server.
func (w *world) registry() *registry {
	w.t.Helper()
	config, err := real.RESTConfig()
	must(w.t, err)
	server, err := url.Parse(config.Host)
	must(w.t, err)
	listener, err := net.Listen("tcp", net.JoinHostPort(server.Hostname(), "0"))
	must(w.t, err)
	r := &registry{w: w, address: listener.Addr().String()}
	// An image that no node has: containerd would not ask for what it has.
	file, err := images.Runner.ConfigFile()
	must(w.t, err)
	file = file.DeepCopy()
	file.Config.Labels = map[string]string{"registry": r.address}
	r.image, err = mutate.ConfigFile(images.Runner, file)
	must(w.t, err)
	certificate, ca := authority(w.t, net.ParseIP(server.Hostname()))
	r.ca = ca
	https := httptest.NewUnstartedServer(r)
	https.Config.ErrorLog = log.New(io.Discard, "", 0) // nodes that do not trust it are part of the tests
	https.Listener.Close()
	https.Listener = listener
	https.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	https.StartTLS()
	w.t.Cleanup(https.Close)
	return r
}

// authority makes a CA, and a certificate for an address that it has signed.
func authority(t *testing.T, address net.IP) (server tls.Certificate, caPEM string) {
	t.Helper()
	template := func(serial int64, name string) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
			BasicConstraintsValid: true,
		}
	}
	sign := func(cert, parent *x509.Certificate, key, by *ecdsa.PrivateKey) []byte {
		der, err := x509.CreateCertificate(rand.Reader, cert, parent, &key.PublicKey, by)
		must(t, err)
		return der
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	ca := template(time.Now().UnixNano(), "a test of Everynode")
	ca.IsCA, ca.KeyUsage = true, x509.KeyUsageCertSign
	leaf := template(2, address.String())
	leaf.IPAddresses, leaf.ExtKeyUsage = []net.IP{address}, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	caPEM = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: sign(ca, ca, caKey, caKey)}))
	return tls.Certificate{Certificate: [][]byte{sign(leaf, ca, key, caKey)}, PrivateKey: key}, caPEM
}

// ServeHTTP is as much of the distribution protocol as a pull needs.
func (r *registry) ServeHTTP(response http.ResponseWriter, request *http.Request) {
	r.mu.Lock()
	r.served = append(r.served, request.URL.Path)
	r.mu.Unlock()
	path := strings.TrimSuffix(request.URL.Path, "/")
	parts := strings.Split(path, "/")
	var body []byte
	var err error
	switch {
	case path == "/v2":
	case len(parts) > 3 && parts[len(parts)-2] == "manifests":
		var digest v1.Hash
		if digest, err = r.image.Digest(); err == nil {
			response.Header().Set("Docker-Content-Digest", digest.String())
			response.Header().Set("Content-Type", "application/vnd.docker.distribution.manifest.v2+json")
			body, err = r.image.RawManifest()
		}
	case len(parts) > 3 && parts[len(parts)-2] == "blobs":
		response.Header().Set("Content-Type", "application/octet-stream")
		body, err = r.blob(parts[len(parts)-1])
	default:
		err = errors.New("no such path")
	}
	if err != nil {
		http.Error(response, err.Error(), http.StatusNotFound)
		return
	}
	response.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = response.Write(body) // who has gone needs no answer
}

func (r *registry) blob(digest string) ([]byte, error) {
	if config, err := r.image.ConfigName(); err == nil && config.String() == digest {
		return r.image.RawConfigFile()
	}
	hash, err := v1.NewHash(digest)
	if err != nil {
		return nil, err
	}
	layer, err := r.image.LayerByDigest(hash)
	if err != nil {
		return nil, err
	}
	content, err := layer.Compressed()
	if err != nil {
		return nil, err
	}
	defer content.Close()
	return io.ReadAll(content)
}

func (r *registry) wantServed(path string) {
	r.w.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.served, path) {
		r.w.t.Errorf("the registry was not asked for %s, but for %q", path, r.served)
	}
}

// pull makes a pod whose image the node has to pull.
func (w *world) pull(node, image string) *corev1.Pod {
	w.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: fmt.Sprintf("pull-%d", serial.Add(1))},
		Spec: corev1.PodSpec{
			NodeName: node, RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: new(int64(1)),
			Containers: []corev1.Container{{Name: "x", Image: image, Args: []string{"--version"}}},
		},
	}
	must(w.t, admin.Create(w.ctx, pod))
	return pod
}

// pulled waits until the image was pulled and has run.
func (w *world) pulled(pod *corev1.Pod) {
	w.t.Helper()
	w.eventually(pod.Spec.Containers[0].Image+" is pulled and runs", func() error {
		must(w.t, admin.Get(w.ctx, client.ObjectKeyFromObject(pod), pod))
		if pod.Status.Phase != corev1.PodSucceeded {
			return fmt.Errorf("the pod is %+v", pod.Status)
		}
		return nil
	})
}

// notPulled waits until the pull has failed with these words, and ends the attempts.
func (w *world) notPulled(pod *corev1.Pod, words string) {
	w.t.Helper()
	w.eventually(pod.Spec.Containers[0].Image+" cannot be pulled: "+words, func() error {
		must(w.t, admin.Get(w.ctx, client.ObjectKeyFromObject(pod), pod))
		for _, c := range pod.Status.ContainerStatuses {
			if c.State.Waiting != nil && strings.Contains(c.State.Waiting.Message, words) {
				return nil
			}
		}
		return fmt.Errorf("the pod is %+v", pod.Status)
	})
	must(w.t, admin.Delete(w.ctx, pod))
}

// TestRecipeOptInLabelIsTakenOff : the label of the node template is gone when the node is done, and setting it
// again runs the task again.
func TestRecipeOptInLabelIsTakenOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.systemTrust()
	const label = "example.com/ca-certificate"
	node := w.join(cluster.NodeOptions{Labels: map[string]string{label: "wanted"}})
	other := w.join(cluster.NodeOptions{})
	mine := func(s *v1alpha1.NodeJobSpec) { s.NodeSelector.MatchLabels["world"] = w.namespace }
	r := w.recipe("ca-certificate-system.yaml", mine)
	first := w.done(r.job, node)
	w.complete(r.job)
	if value, there := w.node(node).Labels[label]; there {
		t.Errorf("the node has the label %s=%s still", label, value)
	}
	r.worked()
	if on := w.on(r.job, other); on.Present {
		t.Errorf("a node without the label carries label %q and record %+v", on.Label, on.Record)
	}
	// The restart of containerd in mid-run, which is all that the task does, is not repeated.
	w.kubectl("label", "node", node, label+"=wanted")
	if rec := r.another(node, first); rec.Results["restarted"] != "no" {
		t.Errorf("the record is %+v", rec)
	}
	w.complete(r.job)
	if _, there := w.node(node).Labels[label]; there {
		t.Error("the node has the label still, after it was set again")
	}
	r.takenBack(node)
}

// TestRecipeNodeFacts looks for the same facts on the Node and on the node.
func TestRecipeNodeFacts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.recipe("node-facts.yaml", onNode2)
	rec := w.done(r.job, "node-2")
	wantText(t, r.worked(), "condition met", rec.Results["kernel"], rec.Results["cpu"])
	live := w.node("node-2")
	want := regexp.MustCompile(`[^A-Za-z0-9._-]`).ReplaceAllString(w.sh("node-2", "uname -r"), "-")
	if got := live.Labels["example.com/kernel"]; got != want {
		t.Errorf("the kernel is %q, want %q", got, want)
	}
	published := map[string]string{
		"kernel": live.Labels["example.com/kernel"], "disk": live.Labels["example.com/disk"],
		"cpu": live.Annotations["example.com/cpu"], "microcode": live.Annotations["example.com/microcode"],
	}
	for fact, value := range published {
		if value != rec.Results[fact] {
			t.Errorf("%s is %q on the Node, and the task has reported %q", fact, value, rec.Results[fact])
		}
	}
	if got := w.sh("node-2", "sed -n 's/^microcode[[:space:]]*: //p' /proc/cpuinfo | head -n 1"); got != published["microcode"] {
		t.Errorf("the microcode is %q, want %q", published["microcode"], got)
	}
	if disk := published["disk"]; disk != "" && !slices.Contains([]string{"nvme", "ssd", "hdd"}, disk) {
		t.Errorf("the kind of disk is %q", disk)
	}
	r.takenBack("node-2")
	live = w.node("node-2")
	for _, key := range []string{"kernel", "disk", "cpu", "microcode"} {
		key = "example.com/" + key
		if live.Labels[key]+live.Annotations[key] != "" {
			t.Errorf("the Node has %s still", key)
		}
	}
}

// TestRecipeRebootWhenRequired : one node asks for a reboot and has one, another does not and has none. The
// time for which a node must be Ready after it is shorter than in the recipe.
func TestRecipeRebootWhenRequired(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const label = "example.com/reboot-when-required"
	asks := w.join(cluster.NodeOptions{Labels: map[string]string{label: "yes"}})
	fine := w.join(cluster.NodeOptions{Labels: map[string]string{label: "yes"}})
	w.sh(asks, "touch /run/reboot-required")
	before := map[string]string{asks: w.node(asks).Status.NodeInfo.BootID, fine: w.node(fine).Status.NodeInfo.BootID}
	labels := map[string]string{"app": "web"}
	must(t, admin.Create(w.ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				NodeSelector:                  map[string]string{"kubernetes.io/hostname": asks},
				TerminationGracePeriodSeconds: new(int64(1)),
				Containers:                    []corev1.Container{{Name: "pause", Image: pauseImage}},
			}},
		},
	}))
	web := w.runs("web", asks)
	r := w.recipe("reboot-when-required.yaml", func(s *v1alpha1.NodeJobSpec) {
		s.NodeSelector.MatchLabels["world"] = w.namespace
		s.Disruption.ReadySeconds = new(int32(2))
	})
	w.done(r.job, fine)
	rec := w.done(r.job, asks)
	if rec.Results["reboot"] != "true" {
		t.Errorf("the record is %+v", rec)
	}
	w.complete(r.job)
	for node, boot := range before {
		live := w.node(node)
		if rebooted := live.Status.NodeInfo.BootID != boot; rebooted != (node == asks) {
			t.Errorf("%s was rebooted: %v", node, rebooted)
		}
		if live.Spec.Unschedulable {
			t.Errorf("%s is cordoned", node)
		}
		if _, there := live.Labels[label]; there {
			t.Errorf("%s has the label still", node)
		}
	}
	w.wantMissing(asks, "/run/reboot-required")
	if again := w.runs("web", asks); again.UID == web.UID {
		t.Error("the node was rebooted with its pods on it")
	}
	wantText(t, r.worked(), "condition met", "No resources found")
	r.takenBack(asks, fine)
}
