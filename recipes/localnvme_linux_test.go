// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package recipes

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// disk makes a disk of 32 MiB, which DISKS matches, and returns its device and the file behind it.
func (r *root) disk(name string) (device, file string) {
	r.t.Helper()
	file = r.write(name+".img", "")
	if err := os.Truncate(file, 32<<20); err != nil {
		r.t.Fatal(err)
	}
	out, err := exec.Command("losetup", "--find", "--show", file).CombinedOutput()
	if err != nil {
		r.t.Skipf("needs loop devices: %v: %s", err, out)
	}
	device = strings.TrimSpace(string(out))
	r.t.Cleanup(func() { _ = exec.Command("losetup", "--detach", device).Run() })
	r.mkdir("by-id")
	for _, link := range []string{"nvme-" + name, "nvme-" + name + "_1"} { // udev makes more than one name
		if err := os.Symlink(device, filepath.Join(r.dir, "by-id", link)); err != nil {
			r.t.Fatal(err)
		}
	}
	return device, file
}

// nvmeNode is a node with systemd, whose mounts are gone after each run, as after a boot.
func nvmeNode(t *testing.T) *root {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: disks and mounts")
	}
	for _, tool := range []string{"losetup", "blkid", "findmnt", "mkfs.ext4", "systemd-escape", "unshare"} {
		if _, err := exec.LookPath(tool); err != nil {
			if _, err := os.Stat("/usr/sbin/" + tool); err != nil {
				t.Skipf("needs %s", tool)
			}
		}
	}
	r := newRoot(t, "local-nvme.yaml", "/run/systemd/system", "/etc/systemd/system", "/run/everynode-local-nvme")
	for _, folder := range []string{"run/systemd/system", "etc/systemd/system", "data"} {
		r.mkdir(folder)
	}
	r.env["DISKS"], r.env["MOUNT"] = r.dir+"/by-id/nvme-*", r.dir+"/data"
	r.program("systemctl", `echo "$*" >> "$ROOT/systemctl"
unit="$ROOT/etc/systemd/system/$(systemd-escape -p --suffix=mount "$MOUNT")"
case "$1" in
start) [ "$2" != "${unit##*/}" ] || mount "$(readlink -f "$ROOT"/by-id/nvme-one)" "$(sed -n s/^Where=//p "$unit")" ;;
enable) : > "$unit.enabled" ;;
is-enabled) [ -e "$unit.enabled" ] ;;
esac`)
	r.program("systemd-run", `after=
for option; do
	case "$option" in --property=ExecStopPost=*) after=${option#--property=ExecStopPost=} ;; esac
	case "$option" in --*) shift ;; *) break ;; esac
done
code=0
"$@" || code=$?
$after
exit $code`)
	return r
}

// asBooted runs scripts one after the other in a mount namespace of its own.
func asBooted(scripts ...string) string {
	quoted := make([]string, 0, len(scripts))
	for _, script := range scripts {
		quoted = append(quoted, "sh -c '"+strings.ReplaceAll(script, "'", `'\''`)+"'")
	}
	return "unshare --mount --propagation private sh -c '" + strings.ReplaceAll(strings.Join(quoted, " && "), "'", `'\''`) + "'"
}

// TestLocalNVMe formats an empty disk once, and mounts it with what was in the folder.
func TestLocalNVMe(t *testing.T) {
	r := nvmeNode(t)
	_, file := r.disk("one")
	r.write("data/layer/file", "kept")
	task, check := r.job.Spec.Task.Script, r.job.Spec.Task.Check.Script
	shows := `cat "$MOUNT/layer/file" && [ "$(findmnt -n -o FSTYPE --mountpoint "$MOUNT")" = ext4 ]`
	if code, _, out := r.run(asBooted(check)); code != 1 || !strings.Contains(out, "nothing is mounted on") {
		t.Errorf("before the task, the check ends with %d: %s", code, out)
	}
	if results := r.succeeds(asBooted(task, check, shows, task, check)); results["formatted"] != "no" {
		t.Errorf("the second run reports %v", results)
	}
	services := r.read("systemctl")
	stopped, started := strings.Index(services, "stop kubelet containerd\n"), strings.LastIndex(services, "start kubelet containerd\n")
	if stopped < 0 || started < stopped || strings.Count(services, "stop ") != 1 || !strings.Contains(services, "start "+r.unit()+"\n") {
		t.Errorf("the services were not stopped once, and started again: %s", services)
	}
	unit := r.read("etc/systemd/system/" + r.unit())
	for _, line := range []string{"Before=local-fs.target containerd.service crio.service docker.service kubelet.service", "What=/dev/disk/by-label/local-nvme", "WantedBy=local-fs.target"} {
		if !strings.Contains(unit, "\n"+line+"\n") {
			t.Errorf("the unit has no line %q:\n%s", line, unit)
		}
	}

	// After a boot without its mount, the disk is used as it is. After a stop of the machine it is empty.
	r.write("data/layer/file", "newer")
	if results := r.succeeds(asBooted(task, check)); results["formatted"] != "no" {
		t.Errorf("after a boot, it reports %v", results)
	}
	if err := os.WriteFile(file, make([]byte, 32<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	if results := r.succeeds(asBooted(task, check, shows)); results["formatted"] != "yes" {
		t.Errorf("with an empty disk, it reports %v", results)
	}
}

func (r *root) unit() string {
	out, err := exec.Command("systemd-escape", "-p", "--suffix=mount", r.env["MOUNT"]).Output()
	if err != nil {
		r.t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// TestLocalNVMeFormatsOnlyEmptyDisks checks that not one byte of another disk changes.
func TestLocalNVMeFormatsOnlyEmptyDisks(t *testing.T) {
	shell := func(script string) func(r *root, device string) {
		return func(r *root, device string) {
			r.t.Helper()
			cmd := exec.Command("/bin/sh", "-euc", script)
			cmd.Env = append(os.Environ(), "DISK="+device, "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
			if out, err := cmd.CombinedOutput(); err != nil {
				r.t.Fatalf("%v: %s", err, out)
			}
		}
	}
	// A table with one partition of Linux, at block 2048, with 4096 blocks.
	const mbr = `{
	printf '\000\000\000\000\203\000\000\000\000\010\000\000\000\020\000\000'
	head -c 48 /dev/zero
	printf '\125\252'
} | dd of="$DISK" bs=1 seek=446 conv=notrunc status=none`
	for name, tt := range map[string]struct {
		prepare func(r *root, device string)
		want    string
	}{
		"a file system":                 {shell(`mkfs.ext4 -q "$DISK"`), "is not empty, and never formatted then. It has: TYPE=ext4 USAGE=filesystem"},
		"a file system with our label":  {shell(`mkfs.ext2 -q -L local-nvme "$DISK"`), "TYPE=ext2"},
		"swap":                          {shell(`mkswap -q "$DISK"`), "TYPE=swap"},
		"a partition table":             {shell(mbr), "PTTYPE=dos"},
		"data of an unknown program":    {shell(`printf 'my database' | dd of="$DISK" bs=4096 seek=9 conv=notrunc status=none`), "has data without a known signature"},
		"a second disk":                 {func(r *root, _ string) { r.disk("two") }, "2 disks match DISKS"},
		"no disk":                       {func(r *root, _ string) { r.env["DISKS"] = r.dir + "/none-*" }, "0 disks match DISKS"},
		"a node without systemd":        {func(r *root, _ string) { _ = os.Remove(r.dir + "/run/systemd/system") }, "systemd does not run this node"},
		"a tool that is missing":        {func(r *root, _ string) { r.env["FILESYSTEM"] = "other" }, "this node has no mkfs.other"},
		"a folder that ends with slash": {func(r *root, _ string) { r.env["MOUNT"] += "/" }, "use a path that begins with / and does not end with it"},
	} {
		t.Run(name, func(t *testing.T) {
			r := nvmeNode(t)
			device, file := r.disk("one")
			tt.prepare(r, device)
			before, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			r.fails(asBooted(r.job.Spec.Task.Script), tt.want)
			if after, err := os.ReadFile(file); err != nil || !bytes.Equal(before, after) {
				t.Errorf("the disk has changed: %v", err)
			}
			if got := r.read("systemctl"); got != "" {
				t.Errorf("systemctl was run: %s", got)
			}
		})
	}
}

// TestLocalNVMeStartsTheServicesAgain covers a copy that fails.
func TestLocalNVMeStartsTheServicesAgain(t *testing.T) {
	r := nvmeNode(t)
	r.disk("one")
	r.write("data/layer/file", "kept")
	r.program("cp", "exit 1")
	r.fails(asBooted(r.job.Spec.Task.Script), "journalctl -u everynode-local-nvme says why")
	if got := r.read("systemctl"); !strings.HasSuffix(got, "stop kubelet containerd\nstart kubelet containerd\n") {
		t.Errorf("systemctl was run: %s", got)
	}
	r.fails(
		asBooted(`mkdir "$MOUNT/pod" && mount -t tmpfs none "$MOUNT/pod"`, r.job.Spec.Task.Script),
		"other file systems are mounted below",
	)
	r.env["STOP"] = ""
	r.fails(asBooted(r.job.Spec.Task.Script), "is not empty: name the services that use it in STOP")
}
