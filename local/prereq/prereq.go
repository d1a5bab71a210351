// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package prereq finds out up front what a machine lacks for a real node, and installs it where that
// is possible: as root on Debian and its like.
package prereq

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/everynode/everynode/local/internal/filelock"
)

// Requirement is one thing a machine must have.
type Requirement struct {
	// What is needed, and what for, in a person's words.
	What string
	// Package is the name of the Debian package that brings it.
	Package string
	present func(context.Context) bool
}

// ForNodes lists what running real nodes needs on the host.
func ForNodes() []Requirement {
	return []Requirement{
		{"the program nft (kube-proxy sets up services with it)", "nftables", program("nft")},
		{"libseccomp (runc refuses ordinary pods without it)", "libseccomp2", library("libseccomp.so.2")},
		{"the programs of procps (tasks call sysctl, pgrep and pkill on nodes)", "procps", program("pkill")},
	}
}

// ForBuildingRunc lists what compiling runc needs, which happens once.
func ForBuildingRunc() []Requirement {
	return []Requirement{
		{"a C compiler (runc has C in it)", "gcc", program("gcc")},
		{"the C library's headers", "libc6-dev", file("/usr/include/stdlib.h")},
		{"pkg-config (to find libseccomp)", "pkg-config", program("pkg-config")},
		{"libseccomp's headers", "libseccomp-dev", pkgConfig("libseccomp")},
	}
}

// ForBrowser lists what the tests of web pages need.
func ForBrowser() []Requirement {
	return []Requirement{
		{"the browser Chromium (tests show the dashboard in it)", "chromium", program("chromium")},
		{"the program pgrep (tests find the API server with it)", "procps", program("pgrep")},
	}
}

// ForAccessibility lists what the tests of the accessibility of web pages need.
func ForAccessibility() []Requirement {
	return []Requirement{{"the program npm (it installs the rules for accessibility, axe-core)", "npm", program("npm")}}
}

// ForNetworkTests lists what tests on real nodes need that change links and routes.
func ForNetworkTests() []Requirement {
	return []Requirement{{"the program ip (tests cut nodes off with it)", "iproute2", program("ip")}}
}

// Missing returns the requirements that the machine does not meet.
func Missing(ctx context.Context, requirements []Requirement) []Requirement {
	var missing []Requirement
	for _, r := range requirements {
		if !r.present(ctx) {
			missing = append(missing, r)
		}
	}
	return missing
}

// Ensure installs what is missing, or names all of it in one error when it cannot.
func Ensure(ctx context.Context, progress io.Writer, requirements []Requirement) error {
	missing := Missing(ctx, requirements)
	if len(missing) == 0 {
		return nil
	}
	if !canInstall() {
		return explain(missing, "it can only be installed from here as root on Debian, Ubuntu or the like")
	}
	// Another process may be installing the same: apt-get does not wait for one that reads the lists of packages.
	unlock, err := filelock.Lock(ctx, lockFile)
	if err != nil {
		return explain(missing, fmt.Sprintf("installing it failed: %v", err))
	}
	defer unlock()
	if missing = Missing(ctx, missing); len(missing) == 0 {
		return nil
	}
	packages := packagesOf(missing)
	fmt.Fprintf(progress, "installing %s with apt-get …\n", strings.Join(packages, ", "))
	start := time.Now()
	if out, err := install(ctx, packages); err != nil {
		return explain(missing, fmt.Sprintf("installing it failed: %v\n%s", err, out))
	}
	if missing = Missing(ctx, requirements); len(missing) > 0 {
		return explain(missing, "it is still missing after apt-get installed the packages")
	}
	fmt.Fprintf(progress, "installed %s in %ds\n", strings.Join(packages, ", "), int(time.Since(start).Seconds()+0.5))
	return nil
}

// lockFile is locked while packages are installed. Only root can write to its folder.
const lockFile = "/run/everynode-prereq.lock"

func canInstall() bool {
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		return false
	}
	_, err := exec.LookPath("apt-get")
	return err == nil
}

func packagesOf(missing []Requirement) []string {
	var packages []string
	for _, r := range missing {
		packages = append(packages, r.Package)
	}
	slices.Sort(packages)
	return slices.Compact(packages)
}

func explain(missing []Requirement, why string) error {
	var b strings.Builder
	b.WriteString("this machine lacks what is needed:\n")
	for _, r := range missing {
		fmt.Fprintf(&b, "  - %s: Debian package %s\n", r.What, r.Package)
	}
	fmt.Fprintf(&b, "%s.\nInstall it with: apt-get install %s", why, strings.Join(packagesOf(missing), " "))
	return errors.New(b.String())
}

// install refreshes the package lists first: on a new machine they are empty or too old to be served.
func install(ctx context.Context, packages []string) (output string, err error) {
	args := append([]string{"install", "-y", "-q", "--no-install-recommends"}, packages...)
	for _, argv := range [][]string{{"update", "-q"}, args} {
		cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-o", "DPkg::Lock::Timeout=120"}, argv...)...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		out, err := cmd.CombinedOutput()
		if err != nil && argv[0] == "install" {
			return string(out), err
		}
	}
	return "", nil
}

func program(name string) func(context.Context) bool {
	return func(context.Context) bool {
		if _, err := exec.LookPath(name); err == nil {
			return true
		}
		// Not everyone's PATH has the administrator's folders; a node's has.
		for _, dir := range []string{"/usr/local/sbin", "/usr/sbin", "/sbin"} {
			if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
				return true
			}
		}
		return false
	}
}

func file(path string) func(context.Context) bool {
	return func(context.Context) bool {
		_, err := os.Stat(path)
		return err == nil
	}
}

func library(name string) func(context.Context) bool {
	return func(context.Context) bool {
		for _, pattern := range []string{"/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/", "/lib/*/", "/usr/lib/*/"} {
			if found, err := filepath.Glob(pattern + name); err == nil && len(found) > 0 {
				return true
			}
		}
		return false
	}
}

func pkgConfig(name string) func(context.Context) bool {
	return func(ctx context.Context) bool {
		return exec.CommandContext(ctx, "pkg-config", "--exists", name).Run() == nil
	}
}
