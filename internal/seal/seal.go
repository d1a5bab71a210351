// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package seal marks what the manager has written into objects that users of a namespace can write too: the status of
// NodeJobs and NodeGuards, and the metadata of pods. A seal is a digest with the key of the installation, which only the
// manager can read. What has no valid seal is no order. Admission policies refuse such writes already; the seal holds
// where they are not installed. It is pure.
//
// A seal does not show when it was written: who may write an object can restore an earlier sealed state of the same object.
package seal

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

// KeyBytes is the size of a Key.
const KeyBytes = 32

// digestBytes is how much of a digest a seal has: 128 bits.
const digestBytes = 16

// Key is the secret of an installation. The zero Key is for tests.
type Key [KeyBytes]byte

// Digest returns a digest of texts as 32 hexadecimal digits. purpose separates the uses of the key.
func (k Key) Digest(purpose string, texts ...string) string {
	mac := hmac.New(sha256.New, k[:])
	for _, text := range append([]string{purpose}, texts...) {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(text)))
		mac.Write(size[:])
		mac.Write([]byte(text))
	}
	return hex.EncodeToString(mac.Sum(nil)[:digestBytes])
}

// NodeJob returns the seal of the status of a NodeJob.
func (k Key) NodeJob(job *v1alpha1.NodeJob) string {
	status := job.Status
	status.ControllerState.Seal = ""
	return k.status("NodeJob", job, &status)
}

// NodeGuard returns the seal of the status of a NodeGuard.
func (k Key) NodeGuard(guard *v1alpha1.NodeGuard) string {
	status := guard.Status
	status.ControllerState.Seal = ""
	return k.status("NodeGuard", guard, &status)
}

// status returns the seal of a status. It belongs to the UID, so it is not valid for another object.
func (k Key) status(kind string, o metav1.Object, status any) string {
	text, err := json.Marshal(status)
	if err != nil {
		panic(err) // types of the API always marshal
	}
	// A text that is cut within a character is stored with a replacement character, which is encoded in another way.
	text = bytes.ReplaceAll(text, []byte(`\ufffd`), []byte("\uFFFD"))
	return k.Digest("status", kind, string(o.GetUID()), string(text))
}

// OpenNodeJob reports whether the manager has written the status of a NodeJob. If not, it removes the status.
func (k Key) OpenNodeJob(job *v1alpha1.NodeJob) bool {
	if hmac.Equal([]byte(k.NodeJob(job)), []byte(job.Status.ControllerState.Seal)) {
		return true
	}
	job.Status = v1alpha1.NodeJobStatus{}
	return false
}

// OpenNodeGuard reports whether the manager has written the status of a NodeGuard. If not, it removes the status.
func (k Key) OpenNodeGuard(guard *v1alpha1.NodeGuard) bool {
	if hmac.Equal([]byte(k.NodeGuard(guard)), []byte(guard.Status.ControllerState.Seal)) {
		return true
	}
	guard.Status = v1alpha1.NodeGuardStatus{}
	return false
}

// Pod returns the seal of a pod that the manager creates: of its name, its node, its controller, and all labels and
// annotations of Everynode, except those that the manager changes later.
func (k Key) Pod(pod *corev1.Pod) string {
	owner := ""
	if ref := metav1.GetControllerOf(pod); ref != nil {
		owner = string(ref.UID)
	}
	texts := []string{pod.Namespace, pod.Name, pod.Spec.NodeName, owner}
	for _, all := range []map[string]string{pod.Labels, pod.Annotations} {
		keys := slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(key string) bool { return !sealed(key) })
		for _, key := range keys {
			texts = append(texts, key, all[key])
		}
		texts = append(texts, "")
	}
	return k.Digest("pod", texts...)
}

// sealed reports whether a key of a pod is part of its seal.
func sealed(key string) bool {
	return strings.HasPrefix(key, v1alpha1.Group+"/") && key != v1alpha1.SealAnnotation && key != v1alpha1.RecordedAnnotation &&
		key != v1alpha1.ConfirmedAnnotation && key != v1alpha1.EndedReleaseAnnotation
}

// SealPod sets the seal of a pod.
func (k Key) SealPod(pod *corev1.Pod) {
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[v1alpha1.SealAnnotation] = k.Pod(pod)
}

// MadePod reports whether the manager has created a pod, and the pod still is what the manager has created.
func (k Key) MadePod(pod *corev1.Pod) bool {
	return hmac.Equal([]byte(k.Pod(pod)), []byte(pod.Annotations[v1alpha1.SealAnnotation]))
}

// Seat returns the seal of a seat: of its name, its node and what it says about its node. Its group, which may change, is not part of
// it.
func (k Key) Seat(pod *corev1.Pod) string {
	return k.Digest("seat", pod.Namespace, pod.Name, pod.Spec.NodeName, pod.Annotations[v1alpha1.SeatNodeAnnotation], pod.Annotations[v1alpha1.SeatReturnedAnnotation])
}

// SealSeat sets the seal of a seat.
func (k Key) SealSeat(pod *corev1.Pod) {
	pod.Annotations[v1alpha1.SealAnnotation] = k.Seat(pod)
}

// MadeSeat reports whether the manager has created a seat.
func (k Key) MadeSeat(pod *corev1.Pod) bool {
	return hmac.Equal([]byte(k.Seat(pod)), []byte(pod.Annotations[v1alpha1.SealAnnotation]))
}
