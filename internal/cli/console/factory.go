// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package console is how the commands of kubectl everynode talk to their user: kubeconfig, flags and arguments, completion,
// confirmation and output.
package console

import (
	"os"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/cli/term"
	"github.com/everynode/everynode/internal/clock"
	"github.com/everynode/everynode/internal/text"
	"github.com/everynode/everynode/internal/ui/cmdutil"
	"github.com/everynode/everynode/internal/version"
)

// Factory provides what the commands share: input and output, access to the cluster, and the clock.
type Factory struct {
	genericiooptions.IOStreams
	Config *genericclioptions.ConfigFlags
	// Now returns the time of the API server. After returns a channel that receives after a duration.
	Now   func() time.Time
	After func(time.Duration) <-chan time.Time
	// Getenv reads the environment.
	Getenv func(string) string
}

// NewFactory returns a Factory for the user's kubeconfig.
func NewFactory(streams genericiooptions.IOStreams) *Factory {
	server := clock.New(time.Now) //nolint:forbidigo // the one clock of the command line
	f := &Factory{
		IOStreams: streams,
		Config:    genericclioptions.NewConfigFlags(true).WithDiscoveryBurst(300),
		Now:       server.Now,
		After:     time.After, //nolint:forbidigo // and its alarm
		Getenv:    os.Getenv,
	}
	f.Config.WithWrapConfigFn(func(c *rest.Config) *rest.Config {
		c.Wrap(server.Wrap)
		return c
	})
	return f
}

// For returns a Factory for the same cluster, user and clock, with other streams. A change of its configuration does not change
// that of f.
func (f *Factory) For(streams genericiooptions.IOStreams) *Factory {
	other := *f
	other.IOStreams = streams
	other.Config = genericclioptions.NewConfigFlags(true).WithDiscoveryBurst(300).WithWrapConfigFn(f.Config.WrapConfigFn)
	from, to := pflag.NewFlagSet("", pflag.ContinueOnError), pflag.NewFlagSet("", pflag.ContinueOnError)
	f.Config.AddFlags(from)
	other.Config.AddFlags(to)
	from.VisitAll(func(flag *pflag.Flag) {
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			_ = to.Lookup(flag.Name).Value.(pflag.SliceValue).Replace(list.GetSlice()) // the same flag of the same version
			return
		}
		_ = to.Lookup(flag.Name).Value.Set(flag.Value.String()) // it is a value that this flag has printed
	})
	return &other
}

// Namespace returns the namespace that the user selected.
func (f *Factory) Namespace() (string, error) {
	namespace, _, err := f.Config.ToRawKubeConfigLoader().Namespace()
	return namespace, cmdutil.Explain(err)
}

// RESTConfig returns the configuration of the client. It disables client-side throttling, because the API server has
// its own.
func (f *Factory) RESTConfig() (*rest.Config, error) {
	config, err := f.Config.ToRESTConfig()
	if err != nil {
		return nil, cmdutil.Explain(err)
	}
	if raw, err := f.Config.ToRawKubeConfigLoader().RawConfig(); err == nil && len(raw.Clusters) == 0 && *f.Config.APIServer == "" && isGuess(config.Host) {
		return nil, cmdutil.Failf(cmdutil.ExitUsage, "%s", cmdutil.NoCluster)
	}
	config.QPS = -1
	config.UserAgent = "kubectl-everynode/" + version.String()
	return config, nil
}

// isGuess reports whether the address of an API server is the default of the kubectl loader when none is configured.
func isGuess(host string) bool { return host == "localhost:8080" || host == "http://localhost:8080" }

// Client returns a client that reads and writes API objects. Its writes wait for the API server to load the schemas of its
// policies.
func (f *Factory) Client() (client.WithWatch, error) {
	config, err := f.RESTConfig()
	if err != nil {
		return nil, err
	}
	c, err := cmdutil.NewClient(config)
	if err != nil {
		return nil, err
	}
	return patientClient{WithWatch: c, after: f.After, tell: f.Tell}, nil
}

// Target returns the key of the NodeJob with this name in the namespace that the user selected, and a client.
func (f *Factory) Target(name string) (client.ObjectKey, client.WithWatch, error) {
	namespace, err := f.Namespace()
	if err != nil {
		return client.ObjectKey{}, nil, err
	}
	c, err := f.Client()
	return client.ObjectKey{Namespace: namespace, Name: name}, c, err
}

// Pods returns a client that reads the logs of pods, which the other client cannot read.
func (f *Factory) Pods(namespace string) (corev1client.PodInterface, error) {
	config, err := f.RESTConfig()
	if err != nil {
		return nil, err
	}
	return cmdutil.NewPods(config, namespace)
}

// Terminal returns the terminal of the data output.
func (f *Factory) Terminal() term.Terminal { return term.Of(f.Out, f.Getenv) }

// Say writes lines to the data output, wrapped to the width of the terminal.
func (f *Factory) Say(lines ...text.Line) error {
	_, err := f.Out.Write([]byte(text.Print(lines, f.Terminal().Options())))
	return err
}

// Tell writes lines to the other output, wrapped to the width of its terminal.
func (f *Factory) Tell(lines ...text.Line) {
	_, _ = f.ErrOut.Write([]byte(text.Print(lines, term.Of(f.ErrOut, f.Getenv).Options())))
}
