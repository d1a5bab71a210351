// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// MaxImages limits Record.Images.
const MaxImages = 8

// ImageDigest returns the digest at the end of the imageID of a container's status; "" if it has none.
func ImageDigest(imageID string) string {
	const algorithm = "sha256:"
	i := strings.LastIndex(imageID, algorithm)
	if i < 0 || !isDigest(imageID[i+len(algorithm):]) {
		return ""
	}
	return imageID[i:]
}

// Images are the digests of images, by the names of containers.
type Images map[string]string

// UnmarshalJSON drops what it cannot read, as that of Attempts does.
func (i *Images) UnmarshalJSON(b []byte) error {
	var all map[string]any
	if json.Unmarshal(b, &all) != nil {
		all = nil
	}
	*i = nil
	for name, digest := range all {
		if digest, is := digest.(string); is {
			if *i == nil {
				*i = Images{}
			}
			(*i)[name] = digest
		}
	}
	return nil
}

// bounded returns the images with valid names and digests.
func (i Images) bounded() Images {
	var bounded Images
	for _, name := range slices.Sorted(maps.Keys(i)) {
		if digest := i[name]; len(validation.IsDNS1123Label(name)) == 0 && ImageDigest(digest) == digest && digest != "" && len(bounded) < MaxImages {
			if bounded == nil {
				bounded = Images{}
			}
			bounded[name] = digest
		}
	}
	return bounded
}
