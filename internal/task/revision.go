// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
)

// ContentHash is what the content of an object counts as. It is mixed with the object's UID: revisions are
// labels that many may read, and whoever does not know the UID of a Secret must not be able to try out what is in it.
func ContentHash(uid types.UID, data map[string][]byte) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s\n", uid)
	for _, key := range slices.Sorted(maps.Keys(data)) {
		fmt.Fprintf(h, "%d %s %d ", len(key), key, len(data[key]))
		h.Write(data[key])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// MaxScriptBytes bounds a script from a ConfigMap as the API bounds an inline one. A script travels
// in an environment variable of the pod, of which Linux allows 128 KiB: so the pod runs exactly the
// content that its revision was computed from, which a mounted ConfigMap could not promise.
const MaxScriptBytes = 65536

// Source is what a NodeJob executes, with the contents of referenced ConfigMaps in place.
type Source struct {
	// Script, Verify and Rollback are texts; Script is "" for a command or a template, the others when there are none.
	Script   string
	Verify   string
	Rollback string
	// Contents are hashes of the objects of rerun.onChangeOf, in its order.
	Contents []string
}

const (
	// revisionDigits of a digest are the revision, as long as no other work has the same.
	revisionDigits = 10
	// longRevisionDigits are the revision otherwise. With 160 bits, other work of the same revision cannot be found.
	longRevisionDigits = 40
)

// Revision is the short hash of what is executed: 10 characters, valid as a label's value. Same
// revision, same work, unless an author has searched for other work of the same hash: see LongRevision.
func Revision(spec *v1alpha1.NodeJobSpec, src Source) string {
	return Digest(spec, src)[:revisionDigits]
}

// LongRevision is the revision of work whose short one is taken by other work.
func LongRevision(digest string) string { return digest[:longRevisionDigits] }

// Digest is the SHA-256 of what is executed, in hexadecimal digits. It does not depend on where a script comes from,
// nor on who runs it, how fast, how long, or what happens on failure: so the rollback is no part of it.
func Digest(spec *v1alpha1.NodeJobSpec, src Source) string {
	// Fields are only ever added here with omitempty: a value that changes for unchanged NodeJobs
	// would run every task again on every node when Everynode is upgraded.
	executed := struct {
		Script            string                  `json:"script,omitempty"`
		Command           []string                `json:"command,omitempty"`
		Interpreter       []string                `json:"interpreter,omitempty"`
		Env               []corev1.EnvVar         `json:"env,omitempty"`
		Template          *corev1.PodTemplateSpec `json:"template,omitempty"`
		Verify            string                  `json:"verify,omitempty"`
		VerifyInterpreter []string                `json:"verifyInterpreter,omitempty"`
		Contents          []string                `json:"contents,omitempty"`
	}{
		Script:      src.Script,
		Command:     spec.Task.Command,
		Interpreter: spec.Task.Interpreter,
		Env:         spec.Task.Env,
		Template:    spec.Task.Template,
		Verify:      src.Verify,
		Contents:    src.Contents,
	}
	if spec.Verify != nil {
		executed.VerifyInterpreter = spec.Verify.Interpreter
	}
	b, err := json.Marshal(executed)
	if err != nil {
		// Only API types and strings: they came from JSON.
		panic(fmt.Sprintf("encoding a task: %v", err))
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// ShortHash is ten hexadecimal digits of a text, as names and revisions have them.
func ShortHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])[:10]
}
