// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package record_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/everynode/everynode/internal/nodejob/record"
)

// TestOnlyDigestsOfImagesAreRecorded records what a kubelet may report, and what a client may have written to a node.
func TestOnlyDigestsOfImagesAreRecorded(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0a", 32)
	for id, want := range map[string]string{
		"registry.example/app@" + digest:               digest,
		"docker-pullable://registry.example@" + digest: digest,
		digest:             digest,
		"":                 "",
		"app:1.0":          "",
		digest + "0":       "",
		digest + "\n":      "",
		"sha256:" + "0A=2": "",
	} {
		if got := record.ImageDigest(id); got != want {
			t.Errorf("the digest of %q is %q, want %q", id, got, want)
		}
	}

	images := record.Images{"app": digest, "a b": digest, "other": "app@" + digest, "none": ""}
	for i := range 20 {
		images[fmt.Sprintf("n%02d", i)] = digest
	}
	got, err := record.Decode(record.Encode(record.Record{Revision: "r", Outcome: record.Succeeded, Images: images}))
	want := record.Images{"app": digest}
	for i := range record.MaxImages - 1 {
		want[fmt.Sprintf("n%02d", i)] = digest
	}
	if err != nil || !maps.Equal(got.Images, want) {
		t.Errorf("the record has %v, want %v (%v)", got.Images, want, err)
	}
	if got, err := record.Decode(`{"revision":"r","outcome":"Succeeded","images":["a"],"podUID":""}`); err != nil || got.Images != nil {
		t.Errorf("a list of images is read as %v (%v)", got.Images, err)
	}
}
