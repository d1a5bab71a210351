// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
)

// served are the resources of the server.
var served = []metav1.APIResource{
	resource("", "v1", "Node", "nodes", false),
	resource("", "v1", "Namespace", "namespaces", false),
	resource("", "v1", "Pod", "pods", true),
	resource("", "v1", "ConfigMap", "configmaps", true),
	resource("", "v1", "Secret", "secrets", true),
	resource("apps", "v1", "DaemonSet", "daemonsets", true),
	resource("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", true),
	resource("events.k8s.io", "v1", "Event", "events", true),
	resource(v1alpha1.Group, v1alpha1.GroupVersion.Version, "NodeJob", "nodejobs", true),
	resource(v1alpha1.Group, v1alpha1.GroupVersion.Version, "NodeGuard", "nodeguards", true),
	resource(v1alpha1.Group, v1alpha1.GroupVersion.Version, "NodeDisruptionBudget", "nodedisruptionbudgets", false),
}

func resource(group, version, kind, name string, namespaced bool) metav1.APIResource {
	return metav1.APIResource{
		Group: group, Version: version, Kind: kind, Name: name, Namespaced: namespaced,
		Verbs: metav1.Verbs{"get", "list", "watch", "create", "update", "patch", "delete"},
	}
}

// Config returns the configuration of a client of the server. The client uses no network.
func (s *Server) Config() *rest.Config {
	return &rest.Config{
		Host: "https://server.invalid", QPS: -1, Transport: transport{s},
		ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON, AcceptContentTypes: runtime.ContentTypeJSON},
	}
}

type transport struct{ *Server }

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if t.isDown() {
		return nil, errDown
	}
	var body []byte
	if req.Body != nil {
		var err error
		if body, err = io.ReadAll(req.Body); err != nil {
			return nil, err
		}
	}
	c := call{Server: t.Server, req: req, query: req.URL.Query(), body: body}
	if found := discover(req.URL.Path); found != nil {
		return c.respond(found, nil)
	}
	if err := c.parse(); err != nil {
		return c.respond(nil, err)
	}
	if c.query.Get("watch") != "" {
		return c.watch()
	}
	o, err := c.do() //nolint:contextcheck // the request has the context
	if errors.Is(err, errDown) || err != nil && req.Context().Err() != nil {
		return nil, err
	}
	return c.respond(o, err)
}

// discover returns what the server has at a path of the discovery API; nil if it is another path.
func discover(path string) any {
	switch parts := strings.Split(strings.Trim(path, "/"), "/"); {
	case path == "/api":
		return &metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}
	case path == "/apis":
		return groups()
	case parts[0] == "api" && len(parts) == 2:
		return resources("", parts[1])
	case parts[0] == "apis" && len(parts) == 3:
		return resources(parts[1], parts[2])
	}
	return nil
}

func groups() *metav1.APIGroupList {
	all := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	for _, r := range served {
		if r.Group != "" && !slices.ContainsFunc(all.Groups, func(g metav1.APIGroup) bool { return g.Name == r.Group }) {
			all.Groups = append(all.Groups, group(r))
		}
	}
	return all
}

func group(r metav1.APIResource) metav1.APIGroup {
	version := metav1.GroupVersionForDiscovery{GroupVersion: r.Group + "/" + r.Version, Version: r.Version}
	return metav1.APIGroup{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"},
		Name:     r.Group, Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version,
	}
}

func resources(group, version string) *metav1.APIResourceList {
	list := &metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: schema.GroupVersion{Group: group, Version: version}.String(),
	}
	for _, r := range served {
		if r.Group == group {
			list.APIResources = append(list.APIResources, r)
		}
	}
	return list
}

// call is one request.
type call struct {
	*Server
	req   *http.Request
	query url.Values
	body  []byte

	resource  metav1.APIResource
	namespace string
	name      string
	part      string
}

// parse reads the path: /api/v1 or /apis/GROUP/VERSION, then [/namespaces/NAMESPACE]/RESOURCE[/NAME[/PART]].
func (c *call) parse() error {
	parts := strings.Split(strings.Trim(c.req.URL.Path, "/"), "/")
	group := ""
	if parts[0] == "apis" {
		group, parts = parts[1], parts[1:]
	}
	parts = parts[2:]
	if len(parts) > 2 && parts[0] == "namespaces" {
		c.namespace, parts = parts[1], parts[2:]
	}
	i := slices.IndexFunc(served, func(r metav1.APIResource) bool { return r.Group == group && r.Name == parts[0] })
	if i < 0 {
		return apierrors.NewNotFound(schema.GroupResource{Group: group, Resource: parts[0]}, "")
	}
	c.resource = served[i]
	if len(parts) > 1 {
		c.name = parts[1]
	}
	if len(parts) > 2 {
		c.part = parts[2]
	}
	return nil
}

func (c *call) key() key {
	return key{c.resource.Kind, client.ObjectKey{Namespace: c.namespace, Name: c.name}}
}

func (c *call) kind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: c.resource.Group, Version: c.resource.Version, Kind: c.resource.Kind}
}

// empty returns a new object of the kind of the resource.
func (c *call) empty() client.Object {
	o, err := c.Scheme.New(c.kind())
	if err != nil {
		panic(err) // the scheme has all kinds that are served
	}
	return o.(client.Object)
}

// decode reads the object of the request.
func (c *call) decode() (client.Object, error) {
	o := c.empty()
	err := json.Unmarshal(c.body, o)
	o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return o, err
}

// do returns the response to a request that is not a watch.
func (c *call) do() (any, error) {
	switch {
	case c.resource.Kind == "Event":
		return c.event()
	case c.req.Method == http.MethodGet && c.name != "":
		return c.get()
	case c.req.Method == http.MethodGet:
		return c.list()
	case c.req.Method == http.MethodPost && c.part == "eviction":
		return c.evict()
	case c.req.Method == http.MethodPost:
		return c.create()
	case c.req.Method == http.MethodDelete:
		return c.remove()
	}
	return c.change()
}

// event tells an event, and does not store it.
func (c *call) event() (any, error) {
	var e eventsv1.Event
	if err := json.Unmarshal(c.body, &e); err != nil || c.req.Method != http.MethodPost {
		return nil, errors.Join(err, notFound(c.key()))
	}
	c.Told(e.Reason, e.Regarding.Kind+" "+e.Regarding.Name, e.Note)
	return &e, nil
}

func (c *call) get() (any, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.objects[c.key()]
	if o == nil {
		return nil, notFound(c.key())
	}
	return c.as(o), nil
}

func (c *call) list() (any, error) {
	selects, err := c.selector()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	list := struct {
		metav1.TypeMeta `json:",inline"`
		metav1.ListMeta `json:"metadata"`
		Items           []runtime.Object `json:"items"`
	}{Items: []runtime.Object{}}
	list.Kind, list.APIVersion = c.resource.Kind+"List", schema.GroupVersion{Group: c.resource.Group, Version: c.resource.Version}.String()
	list.ResourceVersion = strconv.Itoa(c.version)
	for _, o := range c.sorted(c.resource.Kind) {
		if selects(o) {
			list.Items = append(list.Items, c.as(o))
		}
	}
	return &list, nil
}

// selector returns what the request selects.
func (c *call) selector() (func(client.Object) bool, error) {
	byLabel, err := labels.Parse(c.query.Get("labelSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	byField, err := fields.ParseSelector(c.query.Get("fieldSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return func(o client.Object) bool {
		of := fields.Set{"metadata.name": o.GetName(), "metadata.namespace": o.GetNamespace()}
		if pod, is := o.(*corev1.Pod); is {
			of["spec.nodeName"] = pod.Spec.NodeName
		}
		return (c.namespace == "" || o.GetNamespace() == c.namespace) && byLabel.Matches(labels.Set(o.GetLabels())) && byField.Matches(of)
	}, nil
}

func (c *call) evict() (any, error) {
	var e policyv1.Eviction
	if err := json.Unmarshal(c.body, &e); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if e.DeleteOptions == nil {
		e.DeleteOptions = &metav1.DeleteOptions{}
	}
	return success, c.request(c.req.Context(), "evict", c.key(), func() error {
		if pod, is := c.objects[c.key()].(*corev1.Pod); is {
			c.Evicting(pod)
		}
		return c.Server.evict(c.key(), e.DeleteOptions)
	})
}

var success = &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess}

func (c *call) create() (any, error) {
	o, err := c.decode()
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	o.SetNamespace(c.namespace)
	err = c.request(c.req.Context(), "create", keyOf(o), func() error {
		if c.query.Get("dryRun") != "" {
			return nil
		}
		return c.Server.create(o)
	})
	return c.as(o), err
}

func (c *call) remove() (any, error) {
	var options metav1.DeleteOptions
	if len(c.body) > 0 {
		if err := json.Unmarshal(c.body, &options); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	return success, c.request(c.req.Context(), "delete", c.key(), func() error { return c.Server.remove(c.key(), &options) })
}

// change is a patch or an update.
func (c *call) change() (after any, err error) {
	var sent client.Object
	if c.req.Method == http.MethodPut {
		if sent, err = c.decode(); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	verb := strings.ToLower(c.req.Method) + c.part
	err = c.request(c.req.Context(), verb, c.key(), func() error {
		var o client.Object
		if sent != nil {
			o, err = c.update(c.key(), sent, c.part)
		} else {
			o, err = c.patch(c.key(), types.PatchType(c.req.Header.Get("Content-Type")), c.body, c.part)
		}
		if err == nil {
			after = c.as(o)
		}
		return err
	})
	return after, err
}

// as returns a copy of an object as the request has asked for it: all of it, or its metadata.
func (c *call) as(o client.Object) client.Object {
	o = o.DeepCopyObject().(client.Object)
	o.GetObjectKind().SetGroupVersionKind(c.kind())
	if !strings.Contains(c.req.Header.Get("Accept"), "as=PartialObjectMetadata") {
		return o
	}
	only := &metav1.PartialObjectMetadata{ObjectMeta: *field(o, "ObjectMeta").Addr().Interface().(*metav1.ObjectMeta)}
	only.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata"))
	return only
}

// respond returns a response with an object or an error.
func (c *call) respond(o any, err error) (*http.Response, error) {
	code, header := http.StatusOK, http.Header{}
	if c.req.Method == http.MethodPost {
		code = http.StatusCreated
	}
	if err != nil {
		var is apierrors.APIStatus
		if !errors.As(err, &is) {
			is = apierrors.NewInternalError(err)
		}
		status := is.Status()
		status.Kind, status.APIVersion = "Status", "v1"
		if d := status.Details; d != nil && d.RetryAfterSeconds > 0 {
			header.Set("Retry-After", strconv.Itoa(int(d.RetryAfterSeconds)))
		}
		o, code = &status, int(status.Code)
	}
	body, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("encoding a response: %w", err)
	}
	return c.response(code, header, io.NopCloser(bytes.NewReader(body))), nil
}

func (c *call) response(code int, header http.Header, body io.ReadCloser) *http.Response {
	header.Set("Content-Type", runtime.ContentTypeJSON)
	header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Body: body, ContentLength: -1, Request: c.req,
	}
}
