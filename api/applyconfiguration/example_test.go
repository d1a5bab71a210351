// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package applyconfiguration_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"

	ac "github.com/everynode/everynode/api/applyconfiguration/api/v1alpha1"
	"github.com/everynode/everynode/api/v1alpha1"
)

// nodeJobs is a typed client for NodeJobs.
type nodeJobs = gentype.ClientWithListAndApply[*v1alpha1.NodeJob, *v1alpha1.NodeJobList, *ac.NodeJobApplyConfiguration]

// newNodeJobs returns a client for the NodeJobs of a namespace.
func newNodeJobs(config *rest.Config, namespace string) (*nodeJobs, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.GroupVersion, config.APIPath = &v1alpha1.GroupVersion, "/apis"
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, err
	}
	return gentype.NewClientWithListAndApply[*v1alpha1.NodeJob, *v1alpha1.NodeJobList, *ac.NodeJobApplyConfiguration](
		"nodejobs", client, runtime.NewParameterCodec(scheme), namespace,
		func() *v1alpha1.NodeJob { return &v1alpha1.NodeJob{} }, func() *v1alpha1.NodeJobList { return &v1alpha1.NodeJobList{} },
	), nil
}

// This program applies a NodeJob on the server side: it owns the fields that it names, and the API server fills in the others.
func Example() {
	server := httptest.NewServer(http.HandlerFunc(anAPIServer)) // instead of a cluster
	defer server.Close()
	jobs, err := newNodeJobs(&rest.Config{Host: server.URL}, "node-setup")
	if err != nil {
		fmt.Println(err)
		return
	}
	job := ac.NodeJob("max-map-count", "node-setup").WithSpec(ac.NodeJobSpec().
		WithNodes(ac.NodesSpec().WithSelector(metav1ac.LabelSelector().WithMatchLabels(map[string]string{"pool": "db"}))).
		WithTask(ac.TaskSpec().WithScript("sysctl -w vm.max_map_count=262144")))
	applied, err := jobs.Apply(context.Background(), job, metav1.ApplyOptions{FieldManager: "example"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(applied.Name, "is applied")
	// Output:
	// PATCH /apis/everynode.dev/v1alpha1/namespaces/node-setup/nodejobs/max-map-count?fieldManager=example&force=false
	// {"kind":"NodeJob","apiVersion":"everynode.dev/v1alpha1","metadata":{"name":"max-map-count","namespace":"node-setup"},"spec":{"nodes":{"selector":{"matchLabels":{"pool":"db"}}},"task":{"script":"sysctl -w vm.max_map_count=262144"}}}
	// max-map-count is applied
}

// anAPIServer prints the request and answers with its object.
func anAPIServer(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	fmt.Println(r.Method, r.URL)
	fmt.Println(string(body))
	w.Header().Set("Content-Type", "application/json")
	if _, err := w.Write(body); err != nil {
		fmt.Println(err)
	}
}
