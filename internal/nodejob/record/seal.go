// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

// sealSuffix follows the namespace in the prefix of a seal's key. The API server does not allow kubelets to write
// labels below node-restriction.kubernetes.io, even on their own nodes. Source: k8s.io/kubernetes
// plugin/pkg/admission/noderestriction, getForbiddenLabels.
const sealSuffix = ".everynode.node-restriction.kubernetes.io"

// SealKey is the key of the label that holds the seal of a record, by the record's key. A kubelet cannot write this
// label, so a node cannot forge a record.
func SealKey(key string) string {
	prefix, name, _ := strings.Cut(key, "/")
	return strings.TrimSuffix(prefix, "."+v1alpha1.Group) + sealSuffix + "/" + name
}

// IsSealKey reports whether a label has a key as of SealKey.
func IsSealKey(label string) bool {
	prefix, _, _ := strings.Cut(label, "/")
	return strings.HasSuffix(prefix, sealSuffix)
}

// Seal returns the value of the label that authenticates an encoded record: 40 hexadecimal digits of its SHA-256.
func Seal(encoded string) string {
	sum := sha256.Sum256([]byte(encoded))
	return hex.EncodeToString(sum[:20])
}

// sealed reports whether the labels of a node authenticate an encoded record under key.
func sealed(labels map[string]string, key, encoded string) bool {
	return labels[SealKey(key)] == Seal(encoded)
}

// SetOn sets a record and its seal on a node, as the manager's patches do.
func SetOn(node metav1.Object, key string, r Record) {
	labels, annotations := cloneMap(node.GetLabels()), cloneMap(node.GetAnnotations())
	encoded := Encode(r)
	annotations[key], labels[SealKey(key)] = encoded, Seal(encoded)
	node.SetLabels(labels)
	node.SetAnnotations(annotations)
}
