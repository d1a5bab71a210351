// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/everynode/everynode/internal/cli/text"
)

// named derives the name of a NodeJob from another name: "vm.max_map_count" becomes "vm-max-map-count".
func named(s string) string {
	return strings.Trim(notInNames.ReplaceAllString(strings.ToLower(s), "-"), "-")
}

var (
	notInNames = regexp.MustCompile(`[^a-z0-9]+`)
	// sysctlName matches what the recipe accepts: a path in /proc/sys with dots.
	sysctlName = regexp.MustCompile(`^[a-z0-9_-]+(\.[A-Za-z0-9_-]+)+$`)
	// registryHost matches a host with an optional port, as in the names of images.
	registryHost = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?(:[0-9]{1,5})?$`)
	fileMode     = regexp.MustCompile(`^[0-7]{3,4}$`)
	fileOwner    = regexp.MustCompile(`^[A-Za-z0-9._-]+(:[A-Za-z0-9._-]+)?$`)
)

func newCreateSysctlCommand(f *Factory) *cobra.Command {
	o := &createOptions{Factory: f}
	var onReboot bool
	cmd := &cobra.Command{
		Use:   "sysctl NAME AT-LEAST",
		Short: "Raise a kernel setting where it is too low, now and for every boot",
		Long: `Raise a kernel setting that is one number where it is too low, now and for every boot to come (recipes/kernel-setting.yaml).
Where it is high enough nothing is changed.`,
		Example: "  kubectl everynode create sysctl vm.max_map_count 262144 -n node-setup\n  kubectl everynode create sysctl net.core.somaxconn 16384 -n node-setup -l pool=web",
		Args:    exactArgs(2, "a setting and a number"),
		RunE: func(_ *cobra.Command, args []string) error {
			setting, least := args[0], args[1]
			if !sysctlName.MatchString(setting) {
				return Failf(ExitUsage, "%q is no kernel setting: give its name with dots, such as vm.max_map_count", setting)
			}
			if n, err := strconv.ParseUint(least, 10, 63); err != nil || strconv.FormatUint(n, 10) != least {
				return Failf(ExitUsage, "%q is no number: the recipe raises settings that are one number", least)
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
	cmd.Flags().BoolVar(&onReboot, "on-reboot", false, "look again after each boot, where /etc does not last")
	return cmd
}

func newCreateCertificateCommand(f *Factory) *cobra.Command {
	o := &createOptions{Factory: f}
	var file, registry, wanted string
	cmd := &cobra.Command{
		Use:   "ca-certificate NAME --cert FILE [--registry HOST]",
		Short: "Have nodes trust a certificate authority of your own",
		Long: `Have nodes trust a certificate authority of your own. With --registry, containerd trusts it for that registry only, and
nothing is restarted (recipes/ca-certificate-containerd.yaml). Without, the whole node does, and containerd is restarted
(recipes/ca-certificate-system.yaml).`,
		Example: "  kubectl everynode create ca-certificate shop-ca -n node-setup --cert ca.pem --registry registry.example:5000\n  kubectl everynode create ca-certificate shop-ca -n node-setup --cert ca.pem --wanted example.com/ca-certificate=wanted",
		Args:    exactArgs(1, "a name for the certificate"),
		RunE: func(_ *cobra.Command, args []string) error {
			if file == "" {
				return Failf(ExitUsage, "which certificate? Give --cert FILE, in PEM form")
			}
			content, err := o.readFile(file, 64<<10)
			if err != nil {
				return err
			}
			certificates, err := certificatesIn(content)
			if err != nil {
				return Failf(ExitUsage, "%s: %w", file, err)
			}
			if registry != "" {
				return o.registryCertificate(args[0], registry, wanted, string(content))
			}
			if certificates != 1 {
				return Failf(ExitUsage, "%s has %d certificates: the trust store of a node takes one in each file, so write a NodeJob for each", file, certificates)
			}
			return o.systemCertificate(args[0], wanted, string(content))
		},
	}
	o.addFlags(cmd)
	cmd.Flags().StringVar(&file, "cert", "", "the certificate, in PEM form; - for standard input")
	cmd.Flags().StringVar(&registry, "registry", "", "the registry to trust, as HOST or HOST:PORT")
	cmd.Flags().StringVar(&wanted, "wanted", "", "a label KEY=VALUE by which nodes ask for it, and that is taken off when it is done")
	return cmd
}

func certificatesIn(content []byte) (int, error) {
	n := 0
	for rest := content; ; n++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return 0, fmt.Errorf("it has a %s: only certificates belong there", block.Type)
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return 0, fmt.Errorf("reading certificate %d: %w", n+1, err)
		}
	}
	if n == 0 {
		return 0, fmt.Errorf("it has no certificate in PEM form, which begins with -----BEGIN CERTIFICATE-----")
	}
	return n, nil
}

func (o *createOptions) registryCertificate(name, registry, wanted, certificate string) error {
	switch {
	case !registryHost.MatchString(registry):
		return Failf(ExitUsage, "%q is no registry: give its host, and its port if it has one, as in the names of images", registry)
	case wanted != "":
		return Failf(ExitUsage, "--wanted is for a certificate that the whole node trusts: leave --registry out, or choose nodes with -l")
	}
	job, _, err := recipe("ca-certificate-containerd.yaml")
	if err != nil {
		return err
	}
	setEnv(job, "REGISTRY", registry)
	setEnv(job, "CERTIFICATE", certificate)
	if err := o.finish(job, name); err != nil {
		return err
	}
	return o.writeManifest(fmt.Sprintf("Has containerd trust the registry %s by a certificate authority of your own.", registry), job)
}

func (o *createOptions) systemCertificate(name, wanted, certificate string) error {
	job, _, err := recipe("ca-certificate-system.yaml")
	if err != nil {
		return err
	}
	key, value, _ := strings.Cut(wanted, "=")
	switch {
	case wanted == "":
		job.Spec.RemoveLabels = nil
		job.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/os": "linux"}}
	case o.selector != "":
		return Failf(ExitUsage, "give --wanted or -l, not both")
	case len(validation.IsQualifiedName(key)) > 0 || len(validation.IsValidLabelValue(value)) > 0 || value == "":
		return Failf(ExitUsage, "--wanted %s is no label: give KEY=VALUE, such as example.com/ca-certificate=wanted", wanted)
	default:
		job.Spec.RemoveLabels = []string{key}
		job.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
	}
	setEnv(job, "NAME", name)
	setEnv(job, "CERTIFICATE", certificate)
	if len(validation.IsDNS1123Label(name)) > 0 {
		return Failf(ExitUsage, "%q cannot be the name of a certificate's file: lower case letters, digits and '-'", name)
	}
	if err := o.finish(job, name); err != nil {
		return err
	}
	return o.writeManifest("Has the whole node trust a certificate authority of your own, and restarts containerd.", job)
}

// maxFile is the approximate size that fits into the environment of the pod, in base64.
const maxFile = 90 << 10

func newCreateFileCommand(f *Factory) *cobra.Command {
	o := &createOptions{Factory: f}
	var from, mode, owner string
	cmd := &cobra.Command{
		Use:   "file PATH --from FILE",
		Short: "Put a file on every node, with checksum, mode and owner",
		Long: `Put a file on every node, with checksum, mode and owner, in one step that leaves either the old file or the new one
(recipes/drop-file.yaml). Its content is in a ConfigMap beside the NodeJob.`,
		Example: "  kubectl everynode create file /etc/logrotate.d/shop --from shop.conf -n node-setup --mode 0644",
		Args:    exactArgs(1, "the whole path of the file on the node"),
		RunE: func(_ *cobra.Command, args []string) error {
			target := args[0]
			switch {
			case !path.IsAbs(target) || path.Clean(target) != target || target == "/" || text.Safe(target) != target:
				return Failf(ExitUsage, "%q must be the whole path of a file on the node, such as /etc/logrotate.d/shop", target)
			case from == "":
				return Failf(ExitUsage, "which content? Give --from FILE, or --from - for standard input")
			case !fileMode.MatchString(mode):
				return Failf(ExitUsage, "--mode %s: give it in octal, such as 0644", mode)
			case !fileOwner.MatchString(owner):
				return Failf(ExitUsage, "--owner %s: give USER or USER:GROUP", owner)
			}
			content, err := o.readFile(from, maxFile)
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
