// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Command program prints a NodeJob. It is a module of its own in its test, as the program of a user is.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/everynode/everynode/api/v1alpha1"
)

func main() {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	job := &v1alpha1.NodeJob{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeJob"},
		ObjectMeta: metav1.ObjectMeta{Name: "hello", Namespace: "node-setup"},
	}
	job.Spec.Task.Script = "echo hello"
	if !scheme.Recognizes(job.GroupVersionKind()) {
		fmt.Fprintln(os.Stderr, "the scheme does not have", job.GroupVersionKind())
		os.Exit(1)
	}
	if err := json.NewEncoder(os.Stdout).Encode(job); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
