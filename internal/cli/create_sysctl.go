// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/everynode/everynode/internal/cli/console"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

var (
	// sysctlName matches what the recipe accepts: a path in /proc/sys with dots.
	sysctlName = regexp.MustCompile(`^[a-z0-9_-]+(\.[A-Za-z0-9_-]+)+$`)
	// sysctlValue is one line of words with single spaces between them, as the recipe compares them.
	sysctlValue = regexp.MustCompile(`^[!-~]+( [!-~]+)*$`)
)

func newCreateSysctlCommand(f *console.Factory) *cobra.Command {
	o := &createOptions{Factory: f}
	var onReboot, atLeast bool
	cmd := &cobra.Command{
		Use:   "sysctl NAME=VALUE",
		Short: "Set a kernel parameter, now and at every boot",
		Long: `Set a kernel parameter to a value, now and at every boot (recipes/kernel-setting.yaml). The value is set on every node,
also where it is higher. With --at-least, a node whose value is already as high is not changed.`,
		Example: `  kubectl everynode create sysctl vm.swappiness=10 -n node-setup -l pool=db
  kubectl everynode create sysctl net.ipv4.tcp_rmem="4096 131072 6291456" -n node-setup
  kubectl everynode create sysctl vm.max_map_count=262144 --at-least -n node-setup`,
		Args: console.ExactArgs(1, "a parameter and its value, such as vm.swappiness=10"),
		RunE: func(_ *cobra.Command, args []string) error {
			setting, value, given := strings.Cut(args[0], "=")
			switch {
			case !given:
				return cmdutil.Failf(cmdutil.ExitUsage, "%q has no value: give NAME=VALUE, such as vm.swappiness=10", args[0])
			case !sysctlName.MatchString(setting):
				return cmdutil.Failf(cmdutil.ExitUsage, "%q is not a kernel parameter: give its name with dots, such as vm.max_map_count", setting)
			case !sysctlValue.MatchString(value):
				return cmdutil.Failf(cmdutil.ExitUsage, "%q is not a value of a kernel parameter: give printable ASCII characters, with single spaces between words", value)
			}
			said, onlyRaise := fmt.Sprintf("Sets %s to %s, now and at every boot.", setting, value), "no"
			if atLeast {
				if n, err := strconv.ParseUint(value, 10, 63); err != nil || strconv.FormatUint(n, 10) != value {
					return cmdutil.Failf(cmdutil.ExitUsage, "--at-least needs a number, not %q", value)
				}
				said, onlyRaise = fmt.Sprintf("Raises %s to %s where it is lower, now and at every boot.", setting, value), "yes"
			}
			job, _, err := recipe("kernel-setting.yaml")
			if err != nil {
				return err
			}
			setEnv(job, "SETTING", setting)
			setEnv(job, "VALUE", value)
			setEnv(job, "ONLY_RAISE", onlyRaise)
			job.Spec.Rerun.OnReboot = onReboot
			if err := o.finish(job, named(setting)); err != nil {
				return err
			}
			return o.writeManifest(said, job)
		},
	}
	o.addFlags(cmd)
	cmd.Flags().BoolVar(&atLeast, "at-least", false, "raise the value where it is lower, and change no node where it is as high")
	cmd.Flags().BoolVar(&onReboot, "on-reboot", false, "run again after each boot, for nodes whose /etc is not persistent")
	return cmd
}
