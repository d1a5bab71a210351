// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cmdutil

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
)

// Scheme has the kinds of Kubernetes and of Everynode.
var Scheme = newScheme()

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
		v1alpha1.GroupVersion.WithKind("NodeJob"):          meta.RESTScopeNamespace,
		v1alpha1.GroupVersion.WithKind("NodeGuard"):        meta.RESTScopeNamespace,
		core.WithKind("Node"):                              meta.RESTScopeRoot,
		core.WithKind("Pod"):                               meta.RESTScopeNamespace,
		core.WithKind("ConfigMap"):                         meta.RESTScopeNamespace,
		core.WithKind("ServiceAccount"):                    meta.RESTScopeNamespace,
		core.WithKind("Secret"):                            meta.RESTScopeNamespace,
		core.WithKind("Namespace"):                         meta.RESTScopeRoot,
		core.WithKind("Event"):                             meta.RESTScopeNamespace,
		{Group: "apps", Version: "v1", Kind: "Deployment"}: meta.RESTScopeNamespace,
		{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}:                 meta.RESTScopeRoot,
		{Group: "authorization.k8s.io", Version: "v1", Kind: "SelfSubjectAccessReview"}:                  meta.RESTScopeRoot,
		{Group: "authentication.k8s.io", Version: "v1", Kind: "SelfSubjectReview"}:                       meta.RESTScopeRoot,
		{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingAdmissionPolicyBinding"}: meta.RESTScopeRoot,
		{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"}:                                    meta.RESTScopeNamespace,
	} {
		m.Add(kind, scope)
	}
	return m
}

// NewClient returns a client for the kinds that the commands use.
func NewClient(config *rest.Config) (client.WithWatch, error) {
	c, err := client.NewWithWatch(config, client.Options{Scheme: Scheme, Mapper: mapper()})
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
