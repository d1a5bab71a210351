// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package requirements

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/uninstall"
)

const (
	// maxObject limits an object, in bytes of JSON.
	maxObject = 256 << 10

	// maxExpression limits an expression in a message, in bytes.
	maxExpression = 200
)

// account sends requests as the ServiceAccount everynode-requirements, which has no permissions but those that an administrator grants.
// The API server answers with the permissions of this account only, whatever the manager may do itself.
type account struct{ *rest.RESTClient }

func newAccount(manager *rest.Config) (account, error) {
	config := rest.CopyConfig(manager)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + uninstall.Namespace + ":" + uninstall.Requirements,
	}
	config.UserAgent = "everynode-requirements"
	config.ContentConfig = rest.ContentConfig{
		NegotiatedSerializer: serializer.NewCodecFactory(runtime.NewScheme()).WithoutConversion(),
		ContentType:          runtime.ContentTypeJSON,
	}
	config.QPS, config.DisableCompression, config.WarningHandler = -1, true, rest.NoWarnings{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return bounded{next} })
	c, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return account{}, fmt.Errorf("making a client for the ServiceAccount %s: %w", uninstall.Requirements, err)
	}
	return account{c}, nil
}

// errTooLarge means that a response is larger than maxResponse.
var errTooLarge = errors.New("the response is too large")

// bounded reads at most maxResponse bytes of a response.
type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := b.RoundTripper.RoundTrip(request)
	if err == nil {
		response.Body = &boundedBody{ReadCloser: response.Body, left: maxResponse}
	}
	return response, err
}

type boundedBody struct {
	io.ReadCloser
	left int
}

func (b *boundedBody) Read(p []byte) (n int, err error) {
	if b.left < 0 {
		return 0, errTooLarge
	}
	n, err = b.ReadCloser.Read(p[:min(len(p), b.left+1)])
	b.left -= n
	return n, err
}

// askObject returns why an expression is not true; "" if it is true.
func (c *Checker) askObject(ctx context.Context, r *v1alpha1.RequiredObject) (why string, err error) {
	program, err := compile(r.Expression)
	if err != nil {
		return "", err
	}
	body, err := c.account.read(ctx, r)
	if err != nil {
		return "", err
	}
	defer c.evaluations.enter()()
	object := map[string]any{}
	if err := utiljson.Unmarshal(body, &object); err != nil {
		return "", problemf("the API server does not return %s as JSON", nameOf(r))
	}
	isTrue, err := evaluate(context.WithoutCancel(ctx), program, object, nameOf(r))
	if err != nil || isTrue {
		return "", err
	}
	return fmt.Sprintf("the expression is false for %s: %s", nameOf(r), line(r.Expression, maxExpression)), nil
}

func nameOf(r *v1alpha1.RequiredObject) string {
	name := r.Name
	if r.Namespace != "" {
		name = r.Namespace + "/" + name
	}
	return line(r.Kind+" "+name, maxMessage/2)
}

// read returns an object as JSON.
func (a account) read(ctx context.Context, r *v1alpha1.RequiredObject) ([]byte, error) {
	gv, err := schema.ParseGroupVersion(r.APIVersion)
	if err != nil || slices.ContainsFunc([]string{gv.Group, gv.Version, r.Name, r.Namespace}, isUnsafe) {
		return nil, invalidf("object.apiVersion, object.namespace and object.name must be names of Kubernetes")
	}
	resource, err := a.resourceOf(ctx, gv, r)
	if err != nil {
		return nil, err
	}
	path := schema.GroupResource{Group: gv.Group, Resource: resource}
	if path == (schema.GroupResource{Resource: "secrets"}) {
		return nil, invalidf("object.kind: a Secret cannot be read")
	}
	request := a.Get().AbsPath(pathOf(gv)...).Resource(resource).Name(r.Name)
	if r.Namespace != "" {
		request.Namespace(r.Namespace)
	}
	body, err := request.Do(ctx).Raw()
	switch {
	case apierrors.IsForbidden(err):
		return nil, problemf("the ServiceAccount %s in %s may not get %s %s: an administrator must grant it (%s)",
			uninstall.Requirements, uninstall.Namespace, path, strings.TrimPrefix(nameOf(r), r.Kind+" "), grantDocs)
	case apierrors.IsNotFound(err):
		return nil, problemf("%s does not exist", nameOf(r))
	case errors.Is(err, errTooLarge), len(body) > maxObject:
		return nil, problemf("%s is larger than %d KiB, so it is not evaluated", nameOf(r), maxObject>>10)
	case err != nil:
		return nil, fmt.Errorf("getting %s: %w", nameOf(r), err)
	}
	return body, nil
}

// grantDocs says how an administrator grants the permission to read an object.
const grantDocs = "docs/nodedisruptionbudget.md#permission-to-read-an-object"

// resourceOf returns the resource of a kind, as the API server names both.
func (a account) resourceOf(ctx context.Context, gv schema.GroupVersion, r *v1alpha1.RequiredObject) (string, error) {
	all, err := a.resources(ctx, gv)
	if err != nil {
		return "", err
	}
	kind := line(r.Kind, maxMessage/4)
	i := slices.IndexFunc(all, func(known metav1.APIResource) bool {
		return known.Kind == r.Kind && len(validation.IsDNS1035Label(known.Name)) == 0 // those of subresources have a slash
	})
	switch {
	case i < 0:
		return "", problemf("the API server does not know %s in %s: install it, or correct object.apiVersion and object.kind, in upper and lower case as in kubectl api-resources",
			kind, line(r.APIVersion, maxMessage/4))
	case all[i].Namespaced && r.Namespace == "":
		return "", invalidf("object.namespace: set it, because %s is namespaced", kind)
	case !all[i].Namespaced && r.Namespace != "":
		return "", invalidf("object.namespace: remove it, because %s is cluster-scoped", kind)
	}
	return all[i].Name, nil
}

// resources returns the resources of an API; none if the API server does not know it.
func (a account) resources(ctx context.Context, gv schema.GroupVersion) ([]metav1.APIResource, error) {
	body, err := a.Get().AbsPath(pathOf(gv)...).Do(ctx).Raw()
	switch {
	case apierrors.IsForbidden(err):
		return nil, problemf("the manager may not act as the ServiceAccount %s in %s: apply config/rbac of its version", uninstall.Requirements, uninstall.Namespace)
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading the resources of %s: %w", gv, err)
	}
	var list metav1.APIResourceList
	if err := utiljson.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("reading the resources of %s: %w", gv, err)
	}
	return list.APIResources, nil
}

func pathOf(gv schema.GroupVersion) []string {
	if gv.Group == "" {
		return []string{"/api", gv.Version}
	}
	return []string{"/apis", gv.Group, gv.Version}
}

// isUnsafe reports whether a name would change the meaning of a path.
func isUnsafe(name string) bool {
	return name != "" && len(rest.IsValidPathSegmentName(name)) > 0
}
