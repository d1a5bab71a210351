// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/everynode/everynode/internal/seal"
	"github.com/everynode/everynode/internal/uninstall"
)

func TestSealKey(t *testing.T) {
	stored := bytes.Repeat([]byte{5}, seal.KeyBytes)
	with := func(data map[string][]byte) *corev1.Secret {
		secret := uninstall.SealSecret()
		secret.Data = data
		return secret
	}
	tests := map[string]struct {
		secret *corev1.Secret
		// conflicts is how often another manager is faster.
		conflicts int
		want      []byte // nil for any other key than zero
		wantError string
	}{
		"the stored key":                       {secret: with(map[string][]byte{"key": stored}), want: stored},
		"a new installation gets a key":        {secret: with(nil)},
		"another manager is adding its key":    {secret: with(nil), conflicts: 1},
		"a Secret that is missing is an error": {wantError: "config/rbac/seal.yaml"},
		"a key of another size is an error": {
			secret:    with(map[string][]byte{"key": []byte("short")}),
			wantError: "kubectl -n everynode-system patch secret everynode-seal",
		},
		"a Secret that cannot be written": {secret: with(nil), conflicts: 10, wantError: "no key"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			builder := fake.NewClientBuilder()
			if tt.secret != nil {
				builder = builder.WithObjects(tt.secret)
			}
			c := builder.WithInterceptorFuncs(interceptor.Funcs{Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
				if tt.conflicts--; tt.conflicts >= 0 {
					return apierrors.NewConflict(schema.GroupResource{Resource: "secrets"}, o.GetName(), nil)
				}
				return c.Update(ctx, o, opts...)
			}}).
				Build()
			key, err := sealKey(t.Context(), c)
			if tt.wantError != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantError) {
					t.Fatalf("error %v, want one that contains %q", err, tt.wantError)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if tt.want != nil && !bytes.Equal(key[:], tt.want) {
				t.Errorf("key %v, want %v", key, tt.want)
			}
			if again, err := sealKey(t.Context(), c); err != nil || again != key || key == (seal.Key{}) {
				t.Errorf("the next manager has the key %v (%v), this one %v", again, err, key)
			}
		})
	}
}
