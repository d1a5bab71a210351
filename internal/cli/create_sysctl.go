// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"regexp"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/everynode/everynode/internal/cli/cmdutil"
)

// sysctlName matches what the recipe accepts: a path in /proc/sys with dots.
var sysctlName = regexp.MustCompile(`^[a-z0-9_-]+(\.[A-Za-z0-9_-]+)+$`)

func newCreateSysctlCommand(f *cmdutil.Factory) *cobra.Command {
	o := &createOptions{Factory: f}
	var onReboot bool
	cmd := &cobra.Command{
		Use:   "sysctl NAME AT-LEAST",
		Short: "Raise a kernel setting where it is too low, now and for every boot",
		Long: `Raise a kernel setting that is one number where it is too low, now and for every boot to come (recipes/kernel-setting.yaml).
Where it is high enough nothing is changed.`,
		Example: "  kubectl everynode create sysctl vm.max_map_count 262144 -n node-setup\n  kubectl everynode create sysctl net.core.somaxconn 16384 -n node-setup -l pool=web",
		Args:    cmdutil.ExactArgs(2, "a setting and a number"),
		RunE: func(_ *cobra.Command, args []string) error {
			setting, least := args[0], args[1]
			if !sysctlName.MatchString(setting) {
				return cmdutil.Failf(cmdutil.ExitUsage, "%q is no kernel setting: give its name with dots, such as vm.max_map_count", setting)
			}
			if n, err := strconv.ParseUint(least, 10, 63); err != nil || strconv.FormatUint(n, 10) != least {
				return cmdutil.Failf(cmdutil.ExitUsage, "%q is no number: the recipe raises settings that are one number", least)
			}
			job, _, err := recipe("kernel-setting.yaml")
			if err != nil {
				return err
			}
			setEnv(job, "SETTING", setting)
			setEnv(job, "AT_LEAST", least)
			job.Spec.Rerun.OnReboot = onReboot
			if err := o.finish(job, named(setting)); err != nil {
				return err
			}
			return o.writeManifest(fmt.Sprintf("Raises %s to %s where it is lower, now and for every boot to come.", setting, least), job)
		},
	}
	o.addFlags(cmd)
	cmd.Flags().BoolVar(&onReboot, "on-reboot", false, "run again after each boot, for nodes whose /etc is not persistent")
	return cmd
}
