// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/spdx/tools-golang/spdx"
)

const sbomSuffix = ".spdx.json"

// writeSBOM writes what is linked into an artifact, on any of its platforms.
func (b *build) writeSBOM(a *artifact) error {
	d := sbom(&b.Options, a)
	content, err := json.Marshal(d)
	if err != nil {
		return err
	}
	// A different document has a different namespace.
	d.DocumentNamespace = fmt.Sprintf("%s/spdx/%s-%s-%.8x", Repository, a.name, b.Version, sha256.Sum256(content))
	content, err = json.MarshalIndent(d, "", "  ")
	if err != nil {
		return err
	}
	return b.write(a.name+sbomSuffix, append(content, '\n'))
}

func sbom(o *Options, a *artifact) *spdx.Document {
	const documentID, programID = "DOCUMENT", "program"
	program := a.programs[0]
	d := &spdx.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: documentID, DocumentName: a.name + "-" + o.Version,
		CreationInfo: &spdx.CreationInfo{
			Created: o.Created.Format(time.RFC3339),
			Creators: []spdx.Creator{
				{CreatorType: "Organization", Creator: "Everynode"}, {CreatorType: "Tool", Creator: "everynode-release-" + o.Version},
			},
		},
		Packages:      []*spdx.Package{newPackage(programID, program, o.Version, "Apache-2.0", modulePath+"@"+o.Version+"#cmd/"+program)},
		Relationships: []*spdx.Relationship{newRelationship(documentID, spdx.RelationshipDescribes, programID)},
	}
	d.Packages[0].PackageDownloadLocation = "git+" + Repository + "@" + o.Revision
	for _, m := range a.modules {
		id := spdx.ElementID("module-" + notInIDs.ReplaceAllString(m.path, "-"))
		version := strings.TrimPrefix(m.version, "go") // of the standard library
		d.Packages = append(d.Packages, newPackage(id, m.path, version, strings.Join(m.licenses, " AND "), m.path+"@"+version))
		d.Relationships = append(d.Relationships, newRelationship(programID, spdx.RelationshipDependsOn, id))
	}
	return d
}

// notInIDs matches what an SPDX identifier may not contain.
var notInIDs = regexp.MustCompile(`[^0-9A-Za-z.-]`)

func newPackage(id spdx.ElementID, name, version, license, purl string) *spdx.Package {
	const unknown = "NOASSERTION"
	return &spdx.Package{
		PackageName: name, PackageSPDXIdentifier: id, PackageVersion: version, PackageDownloadLocation: unknown, PackageCopyrightText: unknown,
		PackageLicenseConcluded: license, PackageLicenseDeclared: license,
		PackageExternalReferences: []*spdx.PackageExternalReference{
			{Category: spdx.CategoryPackageManager, RefType: spdx.PackageManagerPURL, Locator: "pkg:golang/" + purl},
		},
	}
}

func newRelationship(from spdx.ElementID, kind string, to spdx.ElementID) *spdx.Relationship {
	return &spdx.Relationship{RefA: spdx.DocElementID{ElementRefID: from}, Relationship: kind, RefB: spdx.DocElementID{ElementRefID: to}}
}
