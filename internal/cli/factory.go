// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/term"
	"github.com/everynode/everynode/internal/cli/text"
	"github.com/everynode/everynode/internal/clock"
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

// Namespace returns the namespace that the user selected.
func (f *Factory) Namespace() (string, error) {
	namespace, _, err := f.Config.ToRawKubeConfigLoader().Namespace()
	return namespace, Explain(err)
}

// RESTConfig returns the configuration of the client. It disables client-side throttling, because the API server has
// its own.
func (f *Factory) RESTConfig() (*rest.Config, error) {
	config, err := f.Config.ToRESTConfig()
	if err != nil {
		return nil, Explain(err)
	}
	if raw, err := f.Config.ToRawKubeConfigLoader().RawConfig(); err == nil && len(raw.Clusters) == 0 && *f.Config.APIServer == "" && isGuess(config.Host) {
		return nil, Failf(ExitUsage, "%s", noCluster)
	}
	config.QPS = -1
	config.UserAgent = "kubectl-everynode/" + version.String()
	return config, nil
}

// isGuess reports whether the address of an API server is the default of the kubectl loader when none is configured.
func isGuess(host string) bool { return host == "localhost:8080" || host == "http://localhost:8080" }

// Client returns a client that reads and writes API objects.
func (f *Factory) Client() (client.WithWatch, error) {
	config, err := f.RESTConfig()
	if err != nil {
		return nil, err
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme, Mapper: mapper()})
	return c, Explain(err)
}

// Pods returns a client that reads the logs of pods, which the other client cannot read.
func (f *Factory) Pods(namespace string) (corev1client.PodInterface, error) {
	config, err := f.RESTConfig()
	if err != nil {
		return nil, err
	}
	c, err := corev1client.NewForConfig(config)
	if err != nil {
		return nil, Explain(err)
	}
	return c.Pods(namespace), nil
}

// Terminal returns the terminal of the data output.
func (f *Factory) Terminal() term.Terminal { return term.Of(f.Out, f.Getenv) }

// Print writes human-readable lines to the data output.
func (f *Factory) Print(lines []text.Line) error {
	_, err := f.Out.Write([]byte(text.Print(lines, f.Terminal().Options())))
	return err
}

// Tell writes progress messages to the other output, not to the data output.
func (f *Factory) Tell(lines ...text.Line) {
	_, _ = f.ErrOut.Write([]byte(text.Print(lines, term.Of(f.ErrOut, f.Getenv).Options())))
}

var scheme = newScheme()

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(v1alpha1.AddToScheme(s))
	return s
}

// mapper maps the few kinds that the commands use. A full discovery would cost more requests than most commands need.
func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	core := schema.GroupVersion{Version: "v1"}
	for kind, scope := range map[schema.GroupVersionKind]meta.RESTScope{
		v1alpha1.GroupVersion.WithKind("NodeJob"):                     meta.RESTScopeNamespace,
		v1alpha1.GroupVersion.WithKind("NodeGuard"):                   meta.RESTScopeNamespace,
		core.WithKind("Node"):                                         meta.RESTScopeRoot,
		core.WithKind("Pod"):                                          meta.RESTScopeNamespace,
		core.WithKind("ConfigMap"):                                    meta.RESTScopeNamespace,
		core.WithKind("Secret"):                                       meta.RESTScopeNamespace,
		core.WithKind("Namespace"):                                    meta.RESTScopeRoot,
		core.WithKind("Event"):                                        meta.RESTScopeNamespace,
		{Group: "apps", Version: "v1", Kind: "Deployment"}:            meta.RESTScopeNamespace,
		{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"}: meta.RESTScopeNamespace,
	} {
		m.Add(kind, scope)
	}
	return m
}
