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

// ContentHash returns a hash of the content of an object, mixed with the object's UID. Many users may read revisions,
// because they are labels. Without the UID of a Secret, they must not be able to test guesses of its content.
func ContentHash(uid types.UID, data map[string][]byte) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s\n", uid)
	for _, key := range slices.Sorted(maps.Keys(data)) {
		fmt.Fprintf(h, "%d %s %d ", len(key), key, len(data[key]))
		h.Write(data[key])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Source is what a NodeJob executes, including the contents of referenced ConfigMaps.
type Source struct {
	// Script, Check, Rollback and Expires are texts. Script is "" for a command or a template, the others are "" if there are
	// none.
	Script   string
	Check    string
	Rollback string
	Expires  string
	// Inputs are hashes of the objects of Inputs, in the same order, and Files of those of FilesOf.
	Inputs, Files []Hashes
}

const (
	// revisionDigits is the length of a revision, as long as no other work has the same digits.
	revisionDigits = 10
	// longRevisionDigits is the length otherwise. With 160 bits, a collision cannot be found.
	longRevisionDigits = 40
)

// Revision returns the short hash of what is executed: 10 characters, valid as a label value. The same revision is the
// same work, unless an author has searched for a collision: see LongRevision.
func Revision(spec *v1alpha1.NodeJobSpec, src Source) string {
	return Digest(spec, src)[:revisionDigits]
}

// LongRevision returns the revision of work whose short revision other work already has.
func LongRevision(digest string) string { return digest[:longRevisionDigits] }

// Digest returns the SHA-256 of what is executed, in hexadecimal digits. It does not depend on where a script comes
// from, nor on where, how fast or how long it runs, or what happens on failure. So neither the rollback nor spec.expires is part of it.
func Digest(spec *v1alpha1.NodeJobSpec, src Source) string {
	// New fields must have omitempty: a digest that changes for unchanged NodeJobs would run every task again on every
	// node when Everynode is upgraded.
	executed := struct {
		Script           string                  `json:"script,omitempty"`
		Command          []string                `json:"command,omitempty"`
		Interpreter      []string                `json:"interpreter,omitempty"`
		Env              []v1alpha1.EnvVar       `json:"env,omitempty"`
		Template         *corev1.PodTemplateSpec `json:"template,omitempty"`
		Check            string                  `json:"check,omitempty"`
		CheckInterpreter []string                `json:"checkInterpreter,omitempty"`
		Contents         []string                `json:"contents,omitempty"`
		Files            []v1alpha1.FilesSource  `json:"files,omitempty"`
		FileContents     []string                `json:"fileContents,omitempty"`
	}{
		Script:      src.Script,
		Command:     spec.Task.Command,
		Interpreter: spec.Task.Interpreter,
		Env:         spec.Task.Env,
		Template:    spec.Task.Template,
		Check:       src.Check,
		Contents:    contentHashes(src.Inputs),

		Files:        spec.Task.Files,
		FileContents: contentHashes(src.Files),
	}
	if spec.Task.Check != nil {
		executed.CheckInterpreter = spec.Task.Check.Interpreter
	}
	b, err := json.Marshal(executed)
	if err != nil {
		// Only API types and strings, which were decoded from JSON.
		panic(fmt.Sprintf("encoding a task: %v", err))
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func contentHashes(all []Hashes) []string {
	var hashes []string
	for _, of := range all {
		hashes = append(hashes, of.Content)
	}
	return hashes
}
