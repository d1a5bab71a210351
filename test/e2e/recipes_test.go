// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/local/cluster"
)

// TestRecipeKernelSetting sets the current value plus one, since that may be more than the value in the recipe.
func TestRecipeKernelSetting(t *testing.T) {
	t.Parallel()
	changesTheKernel(t)
	w := newWorld(t)
	const proc, conf = "/proc/sys/vm/max_map_count", "/etc/sysctl.d/zz-everynode-vm.max_map_count.conf"
	was, err := strconv.Atoi(w.sh("node-2", "cat "+proc))
	must(t, err)
	t.Cleanup(func() { w.sh("node-2", fmt.Sprintf("echo %d > %s; rm -f %s", was, proc, conf)) })

	r := w.recipe("kernel-setting.yaml", onNode2, w.with("VALUE", strconv.Itoa(was+1)))
	if rec := w.Done(r.job, "node-2"); rec.Results["found"] != strconv.Itoa(was) || rec.Results["was"] != strconv.Itoa(was) {
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
	if rec := r.again("node-2"); rec.Results["found"] != strconv.Itoa(was+1) || rec.Results["was"] != strconv.Itoa(was) {
		t.Errorf("the record is %+v", rec)
	}
	want(was + 1)
	// A higher number is a new revision, and the value from before is not forgotten.
	first := w.Done(r.job, "node-2")
	w.patch(
		r.job,
		`{"spec":{"task":{"env":[{"name":"SETTING","value":"vm.max_map_count"},{"name":"VALUE","value":"%d"},{"name":"ONLY_RAISE","value":"yes"}]}}}`,
		was+2,
	)
	r.another("node-2", first)
	want(was + 2)
	r.takenBack("node-2")
	if got := w.sh("node-2", "cat "+proc); got != strconv.Itoa(was) {
		t.Errorf("vm.max_map_count is %s, want %d again", got, was)
	}
	w.wantMissing("node-2", conf)
}

// TestRecipeKernelSettingWhereItIsHighEnough also covers a value that cannot be persisted, with a setting that each node has separately.
func TestRecipeKernelSettingWhereItIsHighEnough(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.join(cluster.NodeOptions{})
	const proc = "/proc/sys/net/core/somaxconn"
	was := w.sh(node, "cat "+proc)
	r := w.recipe("kernel-setting.yaml", onNodes(node), w.with("SETTING", "net.core.somaxconn"), w.with("VALUE", "100"))
	wantText(t, w.Done(r.job, node).Message, "which is enough")
	w.wantMissing(node, "/etc/sysctl.d/zz-everynode*")
	r.takenBack(node)

	// To exactly a lower value, and to several numbers.
	for setting, value := range map[string]string{"net.core.somaxconn": "101", "net.ipv4.ip_local_port_range": "30000 40000"} {
		proc := "/proc/sys/" + strings.ReplaceAll(setting, ".", "/")
		was := w.sh(node, "cat "+proc)
		r = w.recipe("kernel-setting.yaml", onNodes(node), w.with("SETTING", setting), w.with("VALUE", value), w.with("ONLY_RAISE", "no"))
		w.Done(r.job, node)
		if got := strings.Join(strings.Fields(w.sh(node, "cat "+proc)), " "); got != value {
			t.Errorf("%s is %s, want %s", setting, got, value)
		}
		if got := w.sh(node, "tail -n1 /etc/sysctl.d/zz-everynode-"+setting+".conf"); got != setting+" = "+value {
			t.Errorf("the file says %q, want %s = %s", got, setting, value)
		}
		r.takenBack(node)
		if got := w.sh(node, "cat "+proc); strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(was), " ") {
			t.Errorf("%s is %s, want %s again", setting, got, was)
		}
		w.wantMissing(node, "/etc/sysctl.d/zz-everynode*")
	}

	w.sh(node, "mkdir -p /etc/sysctl.d && mount -t tmpfs -o ro none /etc/sysctl.d")
	r = w.recipe("kernel-setting.yaml", onNodes(node), onceOnly, w.with("SETTING", "net.core.somaxconn"), w.with("VALUE", "65000"))
	wantText(t, w.failed(r.job, node).Message, "/etc/sysctl.d cannot be written on this node")
	if got := w.sh(node, "cat "+proc); got != was {
		t.Errorf("net.core.somaxconn is %s, want %s still", got, was)
	}
	w.patch(
		r.job,
		`{"spec":{"task":{"env":[{"name":"SETTING","value":"vm.no_such_thing"},{"name":"VALUE","value":"1"},{"name":"ONLY_RAISE","value":"yes"}]}}}`,
	)
	w.Eventually("the wrong name is reported", func() error {
		if rec := w.On(r.job, node).Record; rec == nil || !strings.Contains(rec.Message, "no vm.no_such_thing") {
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
	if rec := w.Done(r.job, "node-2"); rec.Results["changed"] != "yes" {
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
	if rec := w.Done(r.job, node); rec.Results["dir"] != dir {
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

	// A file that another tool has written is not changed.
	w.sh(node, "mkdir -p /etc/containerd/certs.d/registry.example && echo '# mine' > /etc/containerd/certs.d/registry.example/hosts.toml")
	r = w.recipe("ca-certificate-containerd.yaml", onNodes(node), onceOnly)
	wantText(t, w.failed(r.job, node).Message, "hosts.toml is not managed by this NodeJob")
	r.takenBack(node)
	if got := w.sh(node, "cat /etc/containerd/certs.d/registry.example/hosts.toml"); got != "# mine" {
		t.Errorf("the file is %q", got)
	}
}

// systemTrust says why the trust store of the nodes, which is that of the machine, cannot be changed.
func (w *world) systemTrust() {
	w.T.Helper()
	if out := w.sh("node-2", "command -v update-ca-certificates update-ca-trust || true"); out == "" {
		w.T.Skip("the machine has neither update-ca-certificates nor update-ca-trust, and so have its nodes")
	}
}

// TestRecipeCACertificateSystem installs a certificate after containerd has read the trust store, so containerd must be
// restarted during the run. The node requests it by the label of the recipe.
func TestRecipeCACertificateSystem(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.systemTrust()
	node := w.join(cluster.NodeOptions{Labels: map[string]string{"example.com/ca-certificate": "wanted"}})
	registry := w.registry()
	w.notPulled(w.pull(node, registry.address+"/probe:1"), "x509")
	before := w.sh(node, "pgrep -x containerd")

	// The other test of this recipe has nodes with the same label.
	mine := func(s *v1alpha1.NodeJobSpec) { s.Nodes.Selector.MatchLabels["world"] = w.Namespace }
	r := w.recipe("ca-certificate-system.yaml", mine, w.with("CERTIFICATE", registry.ca))
	rec := w.Done(r.job, node)
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
	// The next attempt completes one that ended between the certificate and the restart.
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
	w.Done(r.job, node)
	wantText(t, r.worked(), "condition met", "/etc/containerd/certs.d/docker.io")
	w.pulled(w.pull(node, "docker.io/library/probe:1"))
	mirror.wantServed("/v2/library/probe/manifests/1")
	// A mirror below a path, without a trailing slash or with one.
	first := w.Done(r.job, node)
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
	w.T.Helper()
	w.Eventually("the NodeJob is changed", func() error {
		job := w.Get(name)
		for _, change := range changes {
			change(&job.Spec)
		}
		return admin.Update(w.Ctx, &job)
	})
}

// TestRecipeDropFile replaces a file that is there already, and puts it back.
func TestRecipeDropFile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const file = "/etc/logrotate.d/shop"
	state := "/var/lib/everynode/" + w.Namespace
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
	if rec := w.Done(r.job, "node-2"); rec.Results["changed"] != "yes" || len(rec.Results["sha256"]) != 64 {
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
	must(t, admin.Patch(w.Ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "drop-file"}},
		mergePatch(`{"data":{"content":%q}}`, base64.StdEncoding.EncodeToString(content))))
	r = w.recipe("drop-file.yaml", onNode2, w.with("ENCODING", "base64"), w.with("SHA256", ""), w.with("MODE", "0400"),
		func(s *v1alpha1.NodeJobSpec) {
			s.Task.Inputs = []v1alpha1.ContentRef{{Kind: v1alpha1.ContentConfigMap, Name: "drop-file"}}
		})
	first := w.Done(r.job, "node-2")
	if got := w.sh("node-2", "base64 < "+file+"; stat -c %a "+file); got != base64.StdEncoding.EncodeToString(content)+"\n400" {
		t.Errorf("the file is %q", got)
	}
	// Without a checksum the ConfigMap's content is the revision.
	must(t, admin.Patch(w.Ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "drop-file"}},
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

// TestRecipeOptInLabelIsTakenOff checks that the label of the node template is removed when the node is done, and that
// setting it again reruns the task.
func TestRecipeOptInLabelIsTakenOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.systemTrust()
	const label = "example.com/ca-certificate"
	node := w.join(cluster.NodeOptions{Labels: map[string]string{label: "wanted"}})
	other := w.join(cluster.NodeOptions{})
	mine := func(s *v1alpha1.NodeJobSpec) { s.Nodes.Selector.MatchLabels["world"] = w.Namespace }
	r := w.recipe("ca-certificate-system.yaml", mine)
	first := w.Done(r.job, node)
	w.complete(r.job)
	if value, there := w.node(node).Labels[label]; there {
		t.Errorf("the node has the label %s=%s still", label, value)
	}
	r.worked()
	if on := w.On(r.job, other); on.Present {
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
	rec := w.Done(r.job, "node-2")
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

// TestRecipeRebootWhenRequired has one node that requests a reboot, and one that does not. The time for which a node
// must be Ready after the reboot is shorter than in the recipe.
func TestRecipeRebootWhenRequired(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const label = "example.com/reboot-when-required"
	asks := w.join(cluster.NodeOptions{Labels: map[string]string{label: "yes"}})
	fine := w.join(cluster.NodeOptions{Labels: map[string]string{label: "yes"}})
	w.sh(asks, "touch /run/reboot-required")
	before := map[string]string{asks: w.node(asks).Status.NodeInfo.BootID, fine: w.node(fine).Status.NodeInfo.BootID}
	labels := map[string]string{"app": "web"}
	must(t, admin.Create(w.Ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "web"},
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
		s.Nodes.Selector.MatchLabels["world"] = w.Namespace
		s.Maintenance.Reboot.MinReadySeconds = new(int32(2))
	})
	w.Done(r.job, fine)
	rec := w.Done(r.job, asks)
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

// TestRecipePruneNode removes an image that no container uses, and no other, and old logs.
func TestRecipePruneNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.join(cluster.NodeOptions{})
	registry := w.registry()
	certs := "/etc/containerd/certs.d/" + registry.address
	w.sh(node, "mkdir -p "+certs+" && printf '%s' '"+registry.ca+"' > "+certs+"/ca.crt")
	const images = "ctr -n k8s.io images ls -q"
	image := registry.address + "/probe:1"
	w.pulled(w.pull(node, image))
	const old, recent = "/var/log/old.log.1", "/var/log/recent.log.1"
	w.sh(node, "mkdir -p /var/log && head -c 8192 /dev/zero > "+old+" && cp "+old+" "+recent+" && touch -d '30 days ago' "+old)
	before := w.sh(node, images)
	wantText(t, before, image, pauseImage)
	w.kubectl("-n", w.Namespace, "delete", "pod", "--all", "--force", "--grace-period=0")
	w.Eventually("no container uses the image", func() error {
		if out := w.sh(node, "ctr -n k8s.io containers ls"); strings.Contains(out, image) {
			return errors.New(out)
		}
		return nil
	})

	r := w.recipe("prune-node.yaml", onNodes(node))
	first := w.Done(r.job, node)
	wantText(t, r.worked(), "condition met", first.Results["prunable-bytes"])
	if bytes, err := strconv.Atoi(first.Results["images-bytes"]); err != nil || bytes == 0 || first.Results["logs-bytes"] != "8192" {
		t.Errorf("the results are %v", first.Results)
	}
	if after := w.sh(node, images); after != before {
		t.Errorf("a dry run left the images %q of %q", after, before)
	}
	w.patchEnv(r.job, w.with("DRY_RUN", "no"))
	if rec := r.another(node, first); rec.Results["freed-bytes"] != first.Results["prunable-bytes"] || rec.Results["prunable-bytes"] != "" {
		t.Errorf("the results are %v, and a dry run had %v", rec.Results, first.Results)
	}
	after := w.sh(node, images+"; ls /var/log")
	if strings.Contains(after, image) || strings.Contains(after, "old.log.1") {
		t.Errorf("the node still has %s", after)
	}
	wantText(t, after, pauseImage, "recent.log.1")
	r.takenBack(node)
}

// TestRecipeNodeAudit makes a finding, and repairs it.
func TestRecipeNodeAudit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.join(cluster.NodeOptions{})
	const kubeconfig, label = "/etc/kubernetes/kubelet.conf", "example.com/audit-findings"
	findings := func() []string { return strings.Fields(w.node(node).Annotations[label]) }
	w.sh(node, "chmod 644 "+kubeconfig)
	r := w.recipe("node-audit.yaml", onNodes(node))
	first := w.Done(r.job, node)
	wantText(t, r.worked(), "condition met", "kubelet-kubeconfig")
	found := findings()
	if !slices.Contains(found, "kubelet-kubeconfig") || strconv.Itoa(len(found)) != w.node(node).Labels[label] {
		t.Errorf("the findings are %v, and the label says %s", found, w.node(node).Labels[label])
	}
	w.sh(node, "chmod 600 "+kubeconfig)
	w.unlabel(r.job, node)
	if r.another(node, first); slices.Contains(findings(), "kubelet-kubeconfig") {
		t.Errorf("the findings are still %v", findings())
	}
	r.takenBack(node)
	if _, there := w.node(node).Labels[label]; there {
		t.Error("the node still has the label")
	}
}

// TestRecipeHugePages does not run in parallel: huge pages are a setting of the whole machine. A node that has the pages is not
// cordoned; on another one, the run continues while its kubelet restarts.
func TestRecipeHugePages(t *testing.T) {
	changesTheKernel(t)
	w := newWorld(t)
	const proc, resource = "/proc/sys/vm/nr_hugepages", corev1.ResourceName("hugepages-2Mi")
	node := w.join(cluster.NodeOptions{Labels: map[string]string{"example.com/huge-pages": "wanted"}})
	was, err := strconv.Atoi(w.sh(node, "cat "+proc))
	must(t, err)
	t.Cleanup(func() { w.sh("node-2", fmt.Sprintf("echo %d > %s", was, proc)) })
	before := w.sh(node, "pgrep -x kubelet")
	mine := func(s *v1alpha1.NodeJobSpec) { s.Nodes.Selector.MatchLabels["world"] = w.Namespace }
	pages := strconv.Itoa(was + 2)
	r := w.recipe("huge-pages.yaml", mine, w.with("PAGES", pages))
	rec := w.Done(r.job, node)
	if rec.Attempts != 1 || rec.Results["restarted"] != "yes" || rec.Results["was"] != strconv.Itoa(was) {
		t.Errorf("the record is %+v", rec)
	}
	if after := w.sh(node, "pgrep -x kubelet"); after == before {
		t.Error("the kubelet was not restarted")
	}
	counts := func(pages int) {
		t.Helper()
		w.Eventually(fmt.Sprintf("the kubelet counts %d pages", pages), func() error {
			got := w.node(node).Status.Capacity[resource]
			if got.Value() != int64(pages)<<21 {
				return fmt.Errorf("it counts %s", got.String())
			}
			return nil
		})
	}
	counts(was + 2)
	wantText(t, r.worked(), "condition met")
	if w.node(node).Spec.Unschedulable {
		t.Error("the node is cordoned")
	}
	before = w.sh(node, "pgrep -x kubelet")
	if rec := r.again(node); !rec.IsAlreadyDone() {
		t.Errorf("the record is %+v", rec)
	}
	if after := w.sh(node, "pgrep -x kubelet"); after != before {
		t.Error("the kubelet was restarted again")
	}
	r.takenBack(node)
	if got := w.sh(node, "cat "+proc); got != strconv.Itoa(was) {
		t.Errorf("%s pages are reserved, want %d again", got, was)
	}
	counts(was)
	w.wantMissing(node, "/etc/sysctl.d/zz-everynode-hugepages.conf")
}

// wantReverted waits until a node has reverted and is Ready again.
func (w *world) wantReverted(job, node string) {
	w.T.Helper()
	if rec := w.failed(job, node); rec.Reason != v1alpha1.ReasonReverted {
		w.T.Errorf("the record is %+v", rec)
	}
	w.Eventually("the node is Ready", func() error { return isReady(w.node(node)) })
	w.NoPods()
}

// shortWindow lets a node that is cut off revert as early as the API permits.
func shortWindow(s *v1alpha1.NodeJobSpec) {
	s.Confirm.TimeoutSeconds = new(int32(task.MinConfirmSeconds))
}

// TestRecipeFirewall changes good rules to rules that cut the node off.
func TestRecipeFirewall(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.join(cluster.NodeOptions{})
	wantNoTable := func() {
		t.Helper()
		if tables := w.sh(node, "nft list tables inet"); strings.Contains(tables, "everynode") {
			t.Errorf("the tables are %s", tables)
		}
	}
	const table = "nft list table inet everynode_firewall"
	r := w.recipe("firewall.yaml", onNodes(node), shortWindow)
	w.Done(r.job, node)
	wantText(t, r.worked(), "condition met")
	once := w.sh(node, table)
	wantText(t, once, "tcp dport { 111, 10255 } drop")
	r.again(node)
	if twice := w.sh(node, table); twice != once {
		t.Errorf("the table is\n%s\n--- before:\n%s", twice, once)
	}
	w.patch(
		r.job,
		`{"spec":{"task":{"env":[{"name":"RULES","value":%q}]}}}`,
		"chain input { type filter hook input priority -300; policy drop; }",
	)
	w.wantReverted(r.job, node)
	wantNoTable()
	w.wantNothingKept(node)
	w.patch(
		r.job,
		`{"spec":{"task":{"env":[{"name":"RULES","value":%q}]}}}`,
		"chain input { type filter hook input priority filter; policy accept; }",
	)
	w.Done(r.job, node)
	r.takenBack(node)
	wantNoTable()

	r = w.recipe("firewall.yaml", onNodes(node), w.with("RULES", "no rules"), onceOnly)
	wantText(t, w.failed(r.job, node).Message, "nft rejects RULES: nothing was changed")
	r.takenBack(node)
}

// TestRecipeKubeletConfiguration changes a good value to one with which the kubelet does not start.
func TestRecipeKubeletConfiguration(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node := w.join(cluster.NodeOptions{})
	counts := func(want int64) {
		t.Helper()
		w.Eventually(fmt.Sprintf("the kubelet allows %d pods", want), func() error {
			pods := w.node(node).Status.Capacity[corev1.ResourcePods]
			if got := pods.Value(); got != want {
				return fmt.Errorf("it allows %d", got)
			}
			return nil
		})
	}
	configuration := func() string {
		return w.sh(node, `cat "$(tr '\0' '\n' < /proc/$(pgrep -x kubelet)/cmdline | sed -n 's/^--config=//p')"`)
	}
	before := configuration()
	counts(110)
	r := w.recipe("kubelet-configuration.yaml", onNodes(node), shortWindow)
	w.Done(r.job, node)
	counts(150)
	wantText(t, r.worked(), "condition met")
	pid := w.sh(node, "pgrep -x kubelet")
	wantText(t, r.again(node).Message, "the kubelet is not restarted")
	if after := w.sh(node, "pgrep -x kubelet"); after != pid {
		t.Error("the kubelet was restarted again")
	}
	w.patch(r.job, `{"spec":{"task":{"env":[{"name":"FIELD","value":"maxPods"},{"name":"VALUE","value":"["}]}}}`)
	w.wantReverted(r.job, node)
	counts(110)
	if now := configuration(); now != before {
		t.Errorf("the configuration is\n%s\n--- before:\n%s", now, before)
	}
	w.wantNothingKept(node)
	r.takenBack(node)
	w.wantMissing(node, "/etc/kubernetes/*everynode*")
}

// TestRecipeModuleMitigation does not run in parallel, because it kills the manager: between the start of a check, which waits at a
// FIFO, and the rollback. Files stand for the release of the kernel and the loaded modules, and no module has this name.
func TestRecipeModuleMitigation(t *testing.T) {
	w := newWorld(t)
	old, fixed := w.join(cluster.NodeOptions{}), w.join(cluster.NodeOptions{})
	release := w.markFile() + ".release"
	w.sh(old, "echo 6.12.86 > "+release)
	w.sh(fixed, "echo 6.12.87 > "+release)
	modules := w.markFile() + ".modules"
	w.sh(old, "echo esp4 28672 0 - Live 0x0 > "+modules)
	conf := "/etc/modprobe.d/everynode-" + w.Namespace + "-deny-esp.conf"
	r := w.recipe("module-mitigation.yaml", onNodes(old, fixed), w.with("MODULES", "everynode_test"),
		w.with("RELEASE_FILE", release), w.with("LOADED_MODULES", modules))
	if rec := w.Done(r.job, old); rec.Outcome != record.Succeeded || rec.Results["in-effect"] != "yes" {
		t.Errorf("the record is %+v", rec)
	}
	expired := func(node string) {
		t.Helper()
		w.Eventually("the mitigation has expired on "+node, func() error {
			if on := w.On(r.job, node); on.Record == nil || on.Record.Outcome != record.Expired || on.Label != on.Record.Revision {
				return fmt.Errorf("it carries label %q and record %+v", on.Label, on.Record)
			}
			return nil
		})
	}
	expired(fixed)
	wantText(t, r.worked(), "condition met", `in-effect`)
	wantText(t, w.sh(old, "cat "+conf), "install everynode_test /bin/false")
	w.wantMissing(fixed, conf)
	message := func(want string) {
		t.Helper()
		w.Eventually("the status says: "+want, func() error {
			if c := w.Condition(r.job, v1alpha1.ConditionComplete, metav1.ConditionTrue, ""); !strings.Contains(c.Message, want) {
				return errors.New(c.Message)
			}
			return nil
		})
	}
	message("2 of 2 nodes are done; needed on 1 of 2 nodes")

	w.sh(old, fmt.Sprintf("rm %[1]s; mkfifo %[1]s", release))
	must(t, real.RebootReady(w.Ctx, old))
	if pod := w.runningPod(old); pod.Labels[v1alpha1.PhaseLabel] != string(task.CheckExpires) {
		t.Errorf("a %s runs after the reboot", pod.Labels[v1alpha1.PhaseLabel])
	}
	w.killManager()
	w.sh(old, "cat "+conf+"; echo 6.12.87 > "+release)
	expired(old)
	w.wantMissing(old, conf)
	message("needed on no node: the NodeJob can be deleted")
	r.takenBack(old, fixed)
}
