// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/seal"
	"github.com/everynode/everynode/internal/uninstall"
)

// sealKeyField is the field of the Secret that contains the key.
const sealKeyField = "key"

// sealKeyTries is how often the Secret is read while another manager writes it.
const sealKeyTries = 3

// sealSecret is the Secret with the key of the installation.
type sealSecret struct {
	key seal.Key
	// owner makes the Secret the controller of an object.
	owner metav1.OwnerReference
}

// readSeal returns the key of the installation, and the Secret as an owner.
func readSeal(ctx context.Context, c client.Client) (sealSecret, error) {
	key, err := sealKey(ctx, c)
	if err != nil {
		return sealSecret{}, err
	}
	secret, yes := uninstall.SealSecret(), true
	if err := c.Get(ctx, client.ObjectKeyFromObject(secret), secret); err != nil {
		return sealSecret{}, fmt.Errorf("getting Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return sealSecret{key, metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: secret.Name, UID: secret.UID, Controller: &yes}}, nil
}

// sealKey returns the key of the installation from the Secret everynode-seal. The installation contains the Secret without a
// key, and the first manager that reads it adds one: so no tool that applies the installation knows the key.
func sealKey(ctx context.Context, c client.Client) (key seal.Key, err error) {
	for range sealKeyTries {
		secret := uninstall.SealSecret()
		if err := c.Get(ctx, client.ObjectKeyFromObject(secret), secret); err != nil {
			return key, fmt.Errorf("getting Secret %s/%s, which is part of the installation (config/rbac/seal.yaml): %w", secret.Namespace, secret.Name, err)
		}
		switch stored := secret.Data[sealKeyField]; len(stored) {
		case seal.KeyBytes:
			copy(key[:], stored)
			return key, nil
		case 0:
		default:
			return key, fmt.Errorf("the key in Secret %s/%s has %d bytes, want %d: remove it, and the manager creates another one: kubectl -n %s patch secret %s --type=json -p '[{\"op\":\"remove\",\"path\":\"/data/%s\"}]'",
				secret.Namespace, secret.Name, len(stored), seal.KeyBytes, secret.Namespace, secret.Name, sealKeyField)
		}
		if err = addSealKey(ctx, c, secret); err != nil && !apierrors.IsConflict(err) {
			return key, fmt.Errorf("adding a key to Secret %s/%s: %w", secret.Namespace, secret.Name, err)
		}
	}
	return key, fmt.Errorf("no key in Secret everynode-seal after %d tries: %w", sealKeyTries, err)
}

// addSealKey adds a random key under the resource version of the Secret.
func addSealKey(ctx context.Context, c client.Client, secret *corev1.Secret) error {
	key := make([]byte, seal.KeyBytes)
	_, _ = rand.Read(key) // it never fails
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	secret.Data[sealKeyField] = key
	return c.Update(ctx, secret)
}
