// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/everynode/everynode/internal/cli/console"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

// registryHost matches a host with an optional port, as in the names of images.
var registryHost = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?(:[0-9]{1,5})?$`)

func newCreateCertificateCommand(f *console.Factory) *cobra.Command {
	o := &createOptions{Factory: f}
	var file, registry, wanted string
	cmd := &cobra.Command{
		Use:   "ca-certificate NAME --cert FILE [--registry HOST]",
		Short: "Have nodes trust a certificate authority of your own",
		Long: `Have nodes trust a certificate authority of your own. With --registry, containerd trusts it for that registry only, and
nothing is restarted (recipes/ca-certificate-containerd.yaml). Without, the whole node does, and containerd is restarted
(recipes/ca-certificate-system.yaml).`,
		Example: "  kubectl everynode create ca-certificate shop-ca -n node-setup --cert ca.pem --registry registry.example:5000\n  kubectl everynode create ca-certificate shop-ca -n node-setup --cert ca.pem --wanted example.com/ca-certificate=wanted",
		Args:    console.ExactArgs(1, "a name for the certificate"),
		RunE: func(_ *cobra.Command, args []string) error {
			if file == "" {
				return cmdutil.Failf(cmdutil.ExitUsage, "which certificate? Give --cert FILE, in PEM form")
			}
			content, err := o.ReadFile(file, file, 64<<10)
			if err != nil {
				return err
			}
			certificates, err := certificatesIn(content)
			if err != nil {
				return cmdutil.Failf(cmdutil.ExitUsage, "%s: %w", file, err)
			}
			if registry != "" {
				return o.registryCertificate(args[0], registry, wanted, string(content))
			}
			if certificates != 1 {
				return cmdutil.Failf(cmdutil.ExitUsage, "%s has %d certificates: the trust store of a node takes one in each file, so write a NodeJob for each", file, certificates)
			}
			return o.systemCertificate(args[0], wanted, string(content))
		},
	}
	o.addFlags(cmd)
	cmd.Flags().StringVar(&file, "cert", "", "the certificate, in PEM form; - for standard input")
	cmd.Flags().StringVar(&registry, "registry", "", "the registry to trust, as HOST or HOST:PORT")
	cmd.Flags().StringVar(&wanted, "wanted", "", "a label KEY=VALUE with which nodes request it, and that is removed after success")
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
		return cmdutil.Failf(cmdutil.ExitUsage, "%q is no registry: give its host, and its port if it has one, as in the names of images", registry)
	case wanted != "":
		return cmdutil.Failf(cmdutil.ExitUsage, "--wanted is for a certificate that the whole node trusts: leave --registry out, or choose nodes with -l")
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
		job.Spec.Nodes.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/os": "linux"}}
	case o.selector != "":
		return cmdutil.Failf(cmdutil.ExitUsage, "give --wanted or -l, not both")
	case len(validation.IsQualifiedName(key)) > 0 || len(validation.IsValidLabelValue(value)) > 0 || value == "":
		return cmdutil.Failf(cmdutil.ExitUsage, "--wanted %s is no label: give KEY=VALUE, such as example.com/ca-certificate=wanted", wanted)
	default:
		job.Spec.RemoveLabels = []string{key}
		job.Spec.Nodes.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
	}
	setEnv(job, "NAME", name)
	setEnv(job, "CERTIFICATE", certificate)
	if len(validation.IsDNS1123Label(name)) > 0 {
		return cmdutil.Failf(cmdutil.ExitUsage, "%q cannot be the name of a certificate's file: lower case letters, digits and '-'", name)
	}
	if err := o.finish(job, name); err != nil {
		return err
	}
	return o.writeManifest("Has the whole node trust a certificate authority of your own, and restarts containerd.", job)
}
