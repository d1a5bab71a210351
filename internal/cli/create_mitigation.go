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
)

var (
	// moduleName matches what the recipe accepts.
	moduleName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,56}$`)
	// kernelRelease matches the beginning of what uname -r prints.
	kernelRelease = regexp.MustCompile(`^[0-9]+(\.[0-9]+)+([-.+~_][A-Za-z0-9.+~_-]*)?$`)
)

// maxModules limits the modules of a mitigation.
const maxModules = 64

// mitigation are the options of the command.
type mitigation struct {
	*createOptions
	modules       []string
	unlessInUse   bool
	kernel, until string
}

func newCreateMitigationCommand(f *console.Factory) *cobra.Command {
	o := &mitigation{createOptions: &createOptions{Factory: f}}
	cmd := &cobra.Command{
		Use:   "mitigation NAME --deny-module MODULE,... --until-kernel RELEASE",
		Short: "Deny kernel modules until a fixed kernel runs, or until a time",
		Long: `Deny kernel modules until a fixed kernel runs, on each node, or until a time, on all of them
(recipes/module-mitigation.yaml). Loaded modules are unloaded. The task fails where one is in use; with --unless-in-use,
such a node is left alone, and its result is denied=no. A node that reboots into the fixed kernel, or a later one, gets
its modules back. The releases are compared as sort -V orders them, so they should be of one series of kernels.`,
		Example: `  kubectl everynode create mitigation deny-esp --deny-module esp4,esp6 --unless-in-use --until-kernel 6.12.85 -n node-setup
  kubectl everynode create mitigation deny-tls --deny-module tls --until 2027-01-31T00:00:00Z -n node-setup`,
		Args: console.ExactArgs(1, "a name for the mitigation, such as deny-esp"),
		RunE: func(_ *cobra.Command, args []string) error { return o.write(args[0]) },
	}
	o.addFlags(cmd)
	cmd.Flags().StringSliceVar(&o.modules, "deny-module", nil, "the kernel modules, as modprobe names them: at most 64")
	cmd.Flags().BoolVar(&o.unlessInUse, "unless-in-use", false, "leave a node alone on which one of the modules is in use")
	cmd.Flags().StringVar(&o.kernel, "until-kernel", "", "the first release of the kernel that is fixed, as uname -r prints it")
	cmd.Flags().StringVar(&o.until, "until", "", "the time after which no node needs the mitigation, such as 2027-01-31T00:00:00Z")
	return cmd
}

// write writes the manifest.
func (o *mitigation) write(name string) error {
	if err := o.validate(); err != nil {
		return err
	}
	job, _, err := recipe("module-mitigation.yaml")
	if err != nil {
		return err
	}
	unlessInUse, ends := "no", []string{}
	if o.unlessInUse {
		unlessInUse = "yes"
	}
	if o.until != "" {
		at, err := time.Parse(time.RFC3339, o.until)
		if err != nil {
			return cmdutil.Failf(cmdutil.ExitUsage, "--until %s is not a time: give one such as 2027-01-31T00:00:00Z", o.until)
		}
		job.Spec.Expires.At = &metav1.Time{Time: at.UTC()}
		ends = append(ends, at.UTC().Format(time.RFC3339))
	}
	if o.kernel == "" {
		job.Spec.Expires.Check = nil
		setEnv(job, "FIXED_KERNEL", "fixed")
	} else {
		setEnv(job, "FIXED_KERNEL", o.kernel)
		ends = append([]string{"the kernel is " + o.kernel + " or later"}, ends...)
	}
	setEnv(job, "MODULES", strings.Join(o.modules, " "))
	setEnv(job, "UNLESS_IN_USE", unlessInUse)
	if err := o.finish(job, name); err != nil {
		return err
	}
	return o.writeManifest(fmt.Sprintf("Denies %s until %s.", cmdutil.JoinNames(o.modules), strings.Join(ends, ", or ")), job)
}

// validate checks the options.
func (o *mitigation) validate() error {
	switch {
	case len(o.modules) == 0:
		return cmdutil.Failf(cmdutil.ExitUsage, "which modules? Give --deny-module, such as --deny-module esp4,esp6")
	case len(o.modules) > maxModules:
		return cmdutil.Failf(cmdutil.ExitUsage, "--deny-module has %d modules, and at most %d are allowed: write a second mitigation", len(o.modules), maxModules)
	case o.kernel == "" && o.until == "":
		return cmdutil.Failf(cmdutil.ExitUsage, "when does it end? Give --until-kernel with the first release that is fixed, such as 6.12.85, or --until with a time")
	case o.kernel != "" && !kernelRelease.MatchString(o.kernel):
		return cmdutil.Failf(cmdutil.ExitUsage, "--until-kernel %q is not the release of a kernel: give one as uname -r prints it, such as 6.12.85", o.kernel)
	}
	for _, module := range o.modules {
		if !moduleName.MatchString(module) {
			return cmdutil.Failf(cmdutil.ExitUsage, "--deny-module %q is not the name of a kernel module: give it as modprobe does, such as esp4", module)
		}
	}
	return nil
}
