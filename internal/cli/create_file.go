// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"path"
	"regexp"

	"github.com/spf13/cobra"

	"github.com/everynode/everynode/internal/cli/console"
	"github.com/everynode/everynode/internal/text"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

// maxFile is the approximate size that fits into the environment of the pod, in base64.
const maxFile = 90 << 10

var (
	fileMode  = regexp.MustCompile(`^[0-7]{3,4}$`)
	fileOwner = regexp.MustCompile(`^[A-Za-z0-9._-]+(:[A-Za-z0-9._-]+)?$`)
)

func newCreateFileCommand(f *console.Factory) *cobra.Command {
	o := &createOptions{Factory: f}
	var from, mode, owner string
	cmd := &cobra.Command{
		Use:   "file PATH --from FILE",
		Short: "Put a file on every node, with checksum, mode and owner",
		Long: `Put a file on every node, with checksum, mode and owner, in one step that leaves either the old file or the new one
(recipes/drop-file.yaml). Its content is in a ConfigMap beside the NodeJob.`,
		Example: "  kubectl everynode create file /etc/logrotate.d/shop --from shop.conf -n node-setup --mode 0644",
		Args:    console.ExactArgs(1, "the whole path of the file on the node"),
		RunE: func(_ *cobra.Command, args []string) error {
			target := args[0]
			switch {
			case !path.IsAbs(target) || path.Clean(target) != target || target == "/" || text.Safe(target) != target:
				return cmdutil.Failf(cmdutil.ExitUsage, "%q must be the whole path of a file on the node, such as /etc/logrotate.d/shop", target)
			case from == "":
				return cmdutil.Failf(cmdutil.ExitUsage, "which content? Give --from FILE, or --from - for standard input")
			case !fileMode.MatchString(mode):
				return cmdutil.Failf(cmdutil.ExitUsage, "--mode %s: give it in octal, such as 0644", mode)
			case !fileOwner.MatchString(owner):
				return cmdutil.Failf(cmdutil.ExitUsage, "--owner %s: give USER or USER:GROUP", owner)
			}
			content, err := o.ReadFile(from, from, maxFile)
			if err != nil {
				return err
			}
			return o.createFile(target, mode, owner, content)
		},
	}
	o.addFlags(cmd)
	cmd.Flags().StringVar(&from, "from", "", "the file here whose content it is to have; - for standard input")
	cmd.Flags().StringVar(&mode, "mode", "0644", "its mode on the node")
	cmd.Flags().StringVar(&owner, "owner", "root:root", "its owner on the node")
	return cmd
}

func (o *createOptions) createFile(target, mode, owner string, content []byte) error {
	job, config, err := recipe("drop-file.yaml")
	if err != nil {
		return err
	}
	sum := sha256.Sum256(content)
	data, encoding := string(content), "text"
	if !isText(content) {
		data, encoding = base64.StdEncoding.EncodeToString(content), "base64"
	}
	for name, value := range map[string]string{
		"FILE": target, "MODE": mode, "OWNER": owner, "ENCODING": encoding, "SHA256": hex.EncodeToString(sum[:]),
	} {
		setEnv(job, name, value)
	}
	if err := o.finish(job, named(path.Base(target))); err != nil {
		return err
	}
	// Each NodeJob has a ConfigMap with its own name, because two files must not share one.
	config.Namespace, config.Name = job.Namespace, job.Name
	config.Data = map[string]string{"content": data}
	for i := range job.Spec.Task.Env {
		if e := &job.Spec.Task.Env[i]; e.ValueFrom != nil && e.ValueFrom.ConfigMapKeyRef != nil {
			e.ValueFrom.ConfigMapKeyRef.Name = job.Name
		}
	}
	return o.writeManifest("Puts "+target+" on every node.", config, job)
}
