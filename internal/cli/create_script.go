// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/console"
	"github.com/everynode/everynode/internal/runner/contract"
	"github.com/everynode/everynode/internal/script"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

func newCreateScriptCommand(f *console.Factory) *cobra.Command {
	o := &createOptions{Factory: f}
	var file, check, rollback string
	var onReboot bool
	cmd := &cobra.Command{
		Use:     "script NAME -f FILE",
		Short:   "A script that runs once on every node, of now and later",
		Example: "  kubectl everynode create script tune-disks -n node-setup -f tune.sh --check check.sh --rollback undo.sh --promote-to canary",
		Args:    console.ExactArgs(1, "the name of the NodeJob"),
		RunE: func(_ *cobra.Command, args []string) error {
			if file == "" {
				return cmdutil.Failf(cmdutil.ExitUsage, "which script? Give -f FILE, or -f - for standard input")
			}
			job := &v1alpha1.NodeJob{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeJob"}}
			job.Spec.Rerun.OnReboot = onReboot
			for _, s := range []struct {
				path string
				put  func(string)
			}{
				{file, func(text string) { job.Spec.Task.Script = text }},
				{check, func(text string) {
					job.Spec.Task.Check = &v1alpha1.CheckSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: text}}
				}},
				{rollback, func(text string) {
					job.Spec.Rollback = &v1alpha1.RollbackSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: text}}
				}},
			} {
				if s.path == "" {
					continue
				}
				content, err := o.ReadFile(s.path, s.path, contract.MaxScriptBytes)
				if err != nil {
					return err
				}
				if !isText(content) || strings.TrimSpace(string(content)) == "" {
					return cmdutil.Failf(cmdutil.ExitUsage, "%s is no script: it has no text in UTF-8", s.path)
				}
				if problem := script.Problem(string(content)); problem != "" {
					return cmdutil.Failf(cmdutil.ExitUsage, "%s %s", s.path, problem)
				}
				s.put(string(content))
			}
			if err := o.finish(job, args[0]); err != nil {
				return err
			}
			return o.writeManifest("Runs a script once on every node, of now and later.", job)
		},
	}
	o.addFlags(cmd)
	cmd.Flags().StringVarP(&file, "filename", "f", "", "the script; - for standard input")
	cmd.Flags().StringVar(&check, "check", "", "a script that checks the result")
	cmd.Flags().StringVar(&rollback, "rollback", "", "a script that undoes it")
	cmd.Flags().BoolVar(&onReboot, "on-reboot", false, "run again after each reboot")
	return cmd
}
