// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"testing"
)

// TestCertificatesOfMozillaAreUsedInAnImageWithoutCertificates reads them as in the image of the manager.
func TestCertificatesOfMozillaAreUsedInAnImageWithoutCertificates(t *testing.T) {
	pool, err := mozilla()
	if err != nil {
		t.Fatal(err)
	}
	if n := len(pool.Subjects()); n < 50 { //nolint:staticcheck // these are not those of the system
		t.Errorf("there are %d", n)
	}
}
