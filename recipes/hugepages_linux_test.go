// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package recipes

import (
	"os"
	"testing"
)

// hugePagesNode is a node whose kernel has room for some pages, and whose kubelet is a folder of /proc.
func hugePagesNode(t *testing.T, reserved, room string) *root {
	t.Helper()
	r := newRoot(t, "huge-pages.yaml", "/proc/", "/etc/sysctl.d", "/run/everynode-huge-pages", "/run/systemd/system")
	r.write("proc/sys/vm/nr_hugepages", reserved+"\n")
	r.write("room", room)
	r.write("proc/sys/vm/drop_caches", "")
	for _, folder := range []string{"run/systemd/system", "proc/1/ns", "proc/7/ns", "proc/50/ns"} {
		r.mkdir(folder)
	}
	for _, process := range []string{"1", "7", "50"} {
		for _, namespace := range []string{"pid", "mnt"} {
			of := namespace + ":[1]"
			if process == "7" { // a container that has the node's processes
				of = namespace + ":[2]"
			}
			if err := os.Symlink(of, r.dir+"/proc/"+process+"/ns/"+namespace); err != nil {
				t.Fatal(err)
			}
		}
		r.write("proc/"+process+"/comm", map[string]string{"1": "systemd\n", "7": "kubelet\n", "50": "kubelet\n"}[process])
		r.write("proc/"+process+"/status", "Name:\tx\nUid:\t0\t0\t0\t0\n")
	}
	// Reading the file shows no more pages than the kernel has room for.
	r.program("cat", `case "$1" in
*/nr_hugepages) read -r n < "$1"; read -r room < "$ROOT/room" || :; if [ "$n" -gt "$room" ]; then n=$room; fi; echo "$n" ;;
*) exec /bin/cat "$@" ;;
esac`)
	r.program("systemctl", `echo "$*" >> "$ROOT/systemctl"; mv "$ROOT/proc/50" "$ROOT/proc/51"`)
	r.program("sync", ":")
	return r
}

// TestHugePages reserves pages, restarts the kubelet once, and takes everything back.
func TestHugePages(t *testing.T) {
	r := hugePagesNode(t, "3", "9999")
	task, check := r.job.Spec.Task.Script, r.job.Spec.Task.Check.Script
	r.fails(check, "3 of 512 pages are reserved")
	if results := r.succeeds(task); results["was"] != "3" || results["pages"] != "512" || results["restarted"] != "yes" {
		t.Errorf("it reports %v", results)
	}
	if got := r.read("proc/sys/vm/nr_hugepages"); got != "512\n" {
		t.Errorf("%q pages are reserved", got)
	}
	if got := r.read("etc/sysctl.d/zz-everynode-hugepages.conf"); got != "# was 3\nvm.nr_hugepages = 512\n" {
		t.Errorf("the file is %q", got)
	}
	r.succeeds(check)

	// A second run restarts nothing, unless an earlier one ended before the restart.
	if results := r.succeeds(task); results["was"] != "3" || results["restarted"] != "no" || r.read("systemctl") != "restart kubelet\n" {
		t.Errorf("it reports %v, and ran systemctl %q", results, r.read("systemctl"))
	}
	r.write("run/everynode-huge-pages.pending", "")
	r.fails(check, "the kubelet has not counted them")
	if err := os.Rename(r.dir+"/proc/51", r.dir+"/proc/50"); err != nil {
		t.Fatal(err)
	}
	if results := r.succeeds(task); results["restarted"] != "yes" {
		t.Errorf("it reports %v", results)
	}
	r.succeeds(check)
	if err := os.Rename(r.dir+"/proc/51", r.dir+"/proc/50"); err != nil {
		t.Fatal(err)
	}

	r.succeeds(r.job.Spec.Rollback.Script, "EVERYNODE_ROLLBACK_FOR=Deletion")
	if got := r.read("proc/sys/vm/nr_hugepages") + r.read("etc/sysctl.d/zz-everynode-hugepages.conf"); got != "3\n" {
		t.Errorf("after the rollback: %q", got)
	}
	if got := r.read("systemctl"); got != "restart kubelet\nrestart kubelet\nrestart kubelet\n" {
		t.Errorf("systemctl was run: %q", got)
	}
}

// TestHugePagesFail checks that a task that cannot work leaves the node as it was.
func TestHugePagesFail(t *testing.T) {
	for name, tt := range map[string]struct {
		prepare func(r *root)
		want    string
	}{
		"too little memory in one piece": {func(r *root) { r.write("room", "100") }, "the kernel has only 100 of 512 pages in its free memory, and has 3 again"},
		"no kubelet of its own":          {func(r *root) { _ = os.RemoveAll(r.dir + "/proc/50") }, "no kubelet process was found"},
		"pages that are no number":       {func(r *root) { r.env["PAGES"] = "1Gi" }, "PAGES is '1Gi': use a number"},
	} {
		t.Run(name, func(t *testing.T) {
			r := hugePagesNode(t, "3", "9999")
			tt.prepare(r)
			r.fails(r.job.Spec.Task.Script, tt.want)
			if got := r.read(
				"proc/sys/vm/nr_hugepages",
			) + r.read(
				"etc/sysctl.d/zz-everynode-hugepages.conf",
			) + r.read(
				"systemctl",
			); got != "3\n" {
				t.Errorf("it leaves %q", got)
			}
		})
	}
}

// TestHugePagesCheckIsNoAnswer checks that a check that cannot read the number says neither yes nor no.
func TestHugePagesCheckIsNoAnswer(t *testing.T) {
	r := hugePagesNode(t, "3", "9999")
	if err := os.Remove(r.dir + "/proc/sys/vm/nr_hugepages"); err != nil {
		t.Fatal(err)
	}
	if code, _, out := r.run(r.job.Spec.Task.Check.Script); code != 3 {
		t.Errorf("exit code %d: %s; want 3", code, out)
	}
}
