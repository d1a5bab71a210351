// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/internal/ui/cmdutil"
)

// ExactArgs accepts exactly n arguments. The error says that the command takes what.
func ExactArgs(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return cmdutil.Failf(cmdutil.ExitUsage, "%s takes %s, and got %s. See: %s --help", cmd.CommandPath(), what, countArguments(len(args)), cmd.CommandPath())
		}
		return nil
	}
}

// AtLeastOneArg accepts one or more arguments. The error says that the command takes what.
func AtLeastOneArg(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmdutil.Failf(cmdutil.ExitUsage, "%s takes %s. See: %s --help", cmd.CommandPath(), what, cmd.CommandPath())
		}
		return nil
	}
}

func countArguments(n int) string {
	if n == 1 {
		return "1 argument"
	}
	return fmt.Sprintf("%d arguments", n)
}

// ParseNumberOrPercent parses the value of a flag: a number from least, or a percentage from least to 100.
func ParseNumberOrPercent(flag, value string, least int) (intstr.IntOrString, error) {
	v := intstr.Parse(value)
	n := v.IntValue()
	if v.Type == intstr.String {
		var err error
		if n, err = intstr.GetScaledValueFromIntOrPercent(&v, 100, false); err != nil || n > 100 {
			n = -1
		}
	}
	if n < least {
		return v, cmdutil.Failf(cmdutil.ExitUsage, "%s %s: give a number from %d, or a percentage from %d%% to 100%%", flag, value, least, least)
	}
	return v, nil
}
