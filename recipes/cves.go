// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package recipes

import (
	_ "embed"
	"fmt"

	"sigs.k8s.io/yaml"
)

//go:embed cves/catalog.yaml
var catalog []byte

// A CVE is a vulnerability in modules of the kernel, with what module-mitigation.yaml needs to mitigate it.
type CVE struct {
	// ID is its number, such as CVE-2026-31431, and Name what people call it.
	ID   string `json:"id"`
	Name string `json:"name"`
	// Modules are denied, and Loses is what a node cannot do then.
	Modules []string `json:"modules"`
	Loses   string   `json:"loses"`
	// FixedKernels are the first fixed releases, each of its series. FixedSeries is the first series that is fixed from its beginning on.
	FixedKernels []string `json:"fixedKernels"`
	FixedSeries  string   `json:"fixedSeries"`
	// The sources are addresses, and the dates days, such as 2026-05-08.
	FixedSource      string `json:"fixedSource"`
	FixedDate        string `json:"fixedDate"`
	MitigationSource string `json:"mitigationSource"`
	MitigationDate   string `json:"mitigationDate"`
}

// CVEs are the vulnerabilities of the catalog.
func CVEs() ([]CVE, error) {
	var cves []CVE
	if err := yaml.UnmarshalStrict(catalog, &cves); err != nil {
		return nil, fmt.Errorf("reading the catalog of CVEs: %w", err)
	}
	return cves, nil
}
