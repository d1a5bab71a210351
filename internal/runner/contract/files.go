// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
)

// FilesInArguments is what the runner replaces by the path of the files in a command and in an interpreter, as Kubernetes does with
// variables that it knows.
const FilesInArguments = "$(" + EnvFiles + ")"

// FilesDir is where the container of the runner has the folders of files.
const FilesDir = "/everynode-files"

// MaxFolderBytes limits the files of a folder from a ConfigMap or a Secret, as the API server limits the object.
const MaxFolderBytes = 1 << 20

// Files are the files of a task in the container of the runner.
type Files struct {
	// Dir contains the folders.
	Dir string `json:"dir"`
	// Folders are all folders that must be there.
	Folders []Folder `json:"folders"`
}

// Folder is a folder of files.
type Folder struct {
	Name string `json:"name"`
	// Image is true if the folder is an image, which is named by its digest. The container runtime compares that.
	Image bool `json:"image,omitempty"`
	// Hash is FolderHash of the files that the manager has read. The kubelet mounts what has the name of the object at that time, so the
	// runner compares a copy, and uses the copy. It is "" for an image only.
	Hash string `json:"hash,omitempty"`
	// Secret is true if the contents of the files are masked in the output. Then Salt is the salt of Hash.
	Secret bool   `json:"secret,omitempty"`
	Salt   string `json:"salt,omitempty"`
}

// saltedIterations make a salted hash take some 100 ms: many users may read pods, and must not be able to test guesses of a password
// in a Secret. Source: OWASP Password Storage Cheat Sheet, which recommends this order of magnitude for PBKDF2 with SHA-256.
const saltedIterations = 300_000

// FolderHash returns a hash of the files of a folder, by their paths in it. salt is "" if the content is not secret.
func FolderHash(files map[string][]byte, salt string) string {
	h := sha256.New()
	for _, path := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(h, "%d %s %d ", len(path), path, len(files[path]))
		h.Write(files[path])
	}
	sum := h.Sum(nil)
	if salt != "" {
		var err error
		if sum, err = pbkdf2.Key(sha256.New, string(sum), []byte(salt), saltedIterations, sha256.Size); err != nil {
			panic(err) // the sizes are constant
		}
	}
	return hex.EncodeToString(sum)
}
