// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cmdutil

import (
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/uninstall"
)

// Scheme has the kinds of Kubernetes and of Everynode.
var Scheme = newScheme()

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(v1alpha1.AddToScheme(s))
	return s
}

// NewClient returns a client for the kinds that the commands use. A full discovery would cost more requests than most commands need.
func NewClient(config *rest.Config) (client.WithWatch, error) {
	c, err := client.NewWithWatch(config, client.Options{Scheme: Scheme, Mapper: uninstall.Mapper()})
	return c, Explain(err)
}

// NewPods returns a client that reads the logs of pods.
func NewPods(config *rest.Config, namespace string) (corev1client.PodInterface, error) {
	c, err := corev1client.NewForConfig(config)
	if err != nil {
		return nil, Explain(err)
	}
	return c.Pods(namespace), nil
}
