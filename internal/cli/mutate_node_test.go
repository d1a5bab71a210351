// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAPatchContainsOnlyTheChange(t *testing.T) {
	node := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "u", ResourceVersion: "7"}}
	for want, change := range map[string]nodeChange{
		`{"metadata":{"labels":{"k":null},"resourceVersion":"7","uid":"u"}}`:      {labels: map[string]*string{"k": nil}},
		`{"metadata":{"labels":{"k":"v"},"resourceVersion":"7","uid":"u"}}`:       {labels: map[string]*string{"k": new("v")}},
		`{"metadata":{"annotations":{"k":null},"resourceVersion":"7","uid":"u"}}`: {annotations: map[string]*string{"k": nil}},
	} {
		got, err := change.patch(node)
		if err != nil || string(got) != want {
			t.Errorf("%s (%v), want %s", got, err, want)
		}
	}
}
