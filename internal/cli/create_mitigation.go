// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/cli/console"
	"github.com/everynode/everynode/internal/ui/cmdutil"
	"github.com/everynode/everynode/recipes"
)

var (
	// moduleName matches what the recipe accepts.
	moduleName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,56}$`)
	// kernelRelease matches the beginning of what uname -r prints, and kernelSeries its first two numbers.
	kernelRelease = regexp.MustCompile(`^[0-9]+(\.[0-9]+)+([-.+~_][A-Za-z0-9.+~_-]*)?$`)
	kernelSeries  = regexp.MustCompile(`^[0-9]+\.[0-9]+$`)
	cveID         = regexp.MustCompile(`^(?i:cve)-[0-9]{4}-[0-9]{4,}$`)
)

// maxValues limits the modules of a mitigation, and its releases.
const maxValues = 64

// mitigation are the options of the command.
type mitigation struct {
	*createOptions
	modules, kernels []string
	unlessInUse      bool
	series, until    string
}

func newCreateMitigationCommand(f *console.Factory) *cobra.Command {
	o := &mitigation{createOptions: &createOptions{Factory: f}}
	cmd := &cobra.Command{
		Use:   "mitigation NAME|CVE [--deny-module MODULE,...] [--until-kernel RELEASE,...]",
		Short: "Deny kernel modules until a fixed kernel runs, or until a time",
		Long: `Deny kernel modules until a fixed kernel runs, on each node, or until a time, on all of them
(recipes/module-mitigation.yaml). Loaded modules are unloaded. The task fails where one is in use; with --unless-in-use,
only the others are denied there, its result is in-effect=no, and the node is looked at again each hour. A node that
reboots into a fixed kernel gets its modules back.

The modules and fixed releases of some vulnerabilities are known (recipes/cves/catalog.yaml): give the CVE. They are those of
kernel.org: where the kernel of a distribution has the fix under another number, add its release with --until-kernel.

Each release of --until-kernel counts for kernels of its series, such as 6.12, as sort -V orders them, and if it ends in a
word, such as 6.8.0-110-generic, only for kernels that end in this word. Kernels of other series stay mitigated, except
from --until-series on.`,
		Example: `  kubectl everynode create mitigation CVE-2026-31431 -n node-setup
  kubectl everynode create mitigation deny-esp --deny-module esp4,esp6 --unless-in-use --until-kernel 6.6.138,6.12.87 -n node-setup
  kubectl everynode create mitigation deny-tls --deny-module tls --until 2027-01-31T00:00:00Z -n node-setup`,
		Args: console.ExactArgs(1, "a CVE, such as CVE-2026-31431, or a name for the mitigation, such as deny-esp"),
		RunE: func(_ *cobra.Command, args []string) error { return o.write(args[0]) },
	}
	o.addFlags(cmd)
	cmd.Flags().StringSliceVar(&o.modules, "deny-module", nil, "the kernel modules, as modprobe names them: at most 64")
	cmd.Flags().BoolVar(&o.unlessInUse, "unless-in-use", false, "on a node that uses one of the modules, deny only the others")
	cmd.Flags().StringSliceVar(&o.kernels, "until-kernel", nil, "the first fixed release of each series of kernels, as uname -r prints it: at most 64")
	cmd.Flags().StringVar(&o.series, "until-series", "", "the first series of which all kernels are fixed, such as 7.1")
	cmd.Flags().StringVar(&o.until, "until", "", "the time after which no node needs the mitigation, such as 2027-01-31T00:00:00Z")
	return cmd
}

// write writes the manifest.
func (o *mitigation) write(name string) error {
	what, err := o.fill(name)
	if err != nil {
		return err
	}
	if err := o.validate(); err != nil {
		return err
	}
	job, err := recipe("module-mitigation.yaml")
	if err != nil {
		return err
	}
	var ends []string
	if len(o.kernels) > 0 || o.series != "" {
		ends = append(ends, "a fixed kernel runs")
	} else {
		job.Spec.Expires.Check = nil
	}
	if o.until != "" {
		at, err := time.Parse(time.RFC3339, o.until)
		switch {
		case err != nil:
			return cmdutil.Failf(cmdutil.ExitUsage, "--until %s is not a time: give one such as 2027-01-31T00:00:00Z", o.until)
		case !at.After(o.Now()):
			return cmdutil.Failf(cmdutil.ExitUsage, "--until %s is in the past: no node would be protected", o.until)
		}
		job.Spec.Expires.At = &metav1.Time{Time: at.UTC()}
		ends = append(ends, at.UTC().Format(time.RFC3339))
	}
	unlessInUse := "no"
	if o.unlessInUse {
		unlessInUse = "yes"
	}
	setEnv(job, "MODULES", strings.Join(o.modules, " "))
	setEnv(job, "UNLESS_IN_USE", unlessInUse)
	setEnv(job, "FIXED_KERNELS", strings.Join(o.kernels, " "))
	setEnv(job, "FIXED_SERIES", o.series)
	if err := o.finish(job, strings.ToLower(name)); err != nil {
		return err
	}
	return o.writeManifest(fmt.Sprintf("Denies %s until %s.%s", cmdutil.JoinNames(o.modules), strings.Join(ends, ", or "), what), job)
}

// fill adds what the catalog says of a CVE, unless modules are given, and returns a sentence about it.
func (o *mitigation) fill(name string) (what string, err error) {
	if !cveID.MatchString(name) || len(o.modules) > 0 {
		return "", nil
	}
	cves, err := recipes.CVEs()
	if err != nil {
		return "", err
	}
	var known []string
	for _, cve := range cves {
		if strings.EqualFold(cve.ID, name) {
			o.modules, o.kernels = cve.Modules, append(cve.FixedKernels, o.kernels...)
			if o.series == "" {
				o.series = cve.FixedSeries
			}
			return fmt.Sprintf(" %s (%s). Nodes lose: %s. Fixed releases: %s, %s. Modules: %s, %s.",
				cve.ID, cve.Name, cve.Loses, cve.FixedSource, cve.FixedDate, cve.MitigationSource, cve.MitigationDate), nil
		}
		known = append(known, cve.ID)
	}
	return "", cmdutil.Failf(cmdutil.ExitUsage,
		"%s is not in the catalog, which has %s. Say what the advisory of your vendor says: kubectl everynode create mitigation %s --deny-module MODULE,... --until-kernel RELEASE,...",
		strings.ToUpper(name), cmdutil.JoinNames(known), strings.ToLower(name))
}

// validate checks the options.
func (o *mitigation) validate() error {
	switch {
	case len(o.modules) == 0:
		return cmdutil.Failf(cmdutil.ExitUsage, "which modules? Give --deny-module, such as --deny-module esp4,esp6")
	case len(o.kernels) == 0 && o.series == "" && o.until == "":
		return cmdutil.Failf(cmdutil.ExitUsage, "when does it end? Give --until-kernel with the first fixed releases, such as 6.6.138,6.12.87, or --until with a time")
	case o.series != "" && !kernelSeries.MatchString(o.series):
		return cmdutil.Failf(cmdutil.ExitUsage, "--until-series %q is not a series of kernels: give its first two numbers, such as 7.1", o.series)
	}
	if err := validateEach("--until-kernel", o.kernels, kernelRelease, "the release of a kernel: give one as uname -r prints it, such as 6.12.87"); err != nil {
		return err
	}
	return validateEach("--deny-module", o.modules, moduleName, "the name of a kernel module: give it as modprobe does, such as esp4")
}

// validateEach checks the number of values and each of them.
func validateEach(flag string, values []string, pattern *regexp.Regexp, what string) error {
	if len(values) > maxValues {
		return cmdutil.Failf(cmdutil.ExitUsage, "%s has %d values, and at most %d are allowed: write a second mitigation", flag, len(values), maxValues)
	}
	for _, value := range values {
		if !pattern.MatchString(value) {
			return cmdutil.Failf(cmdutil.ExitUsage, "%s %q is not %s", flag, value, what)
		}
	}
	return nil
}
