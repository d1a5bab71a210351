// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

const sbomSuffix = ".spdx.json"

// document is an SPDX document. Source: https://spdx.github.io/spdx-spec/v2.3/.
type document struct {
	SPDXVersion       string         `json:"spdxVersion"`
	DataLicense       string         `json:"dataLicense"`
	SPDXID            string         `json:"SPDXID"`
	Name              string         `json:"name"`
	DocumentNamespace string         `json:"documentNamespace"`
	CreationInfo      creationInfo   `json:"creationInfo"`
	Packages          []spdxPackage  `json:"packages"`
	Relationships     []relationship `json:"relationships"`
}

type creationInfo struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type spdxPackage struct {
	Name             string        `json:"name"`
	SPDXID           string        `json:"SPDXID"`
	VersionInfo      string        `json:"versionInfo"`
	DownloadLocation string        `json:"downloadLocation"`
	FilesAnalyzed    bool          `json:"filesAnalyzed"`
	LicenseConcluded string        `json:"licenseConcluded"`
	LicenseDeclared  string        `json:"licenseDeclared"`
	CopyrightText    string        `json:"copyrightText"`
	ExternalRefs     []externalRef `json:"externalRefs"`
}

type externalRef struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type relationship struct {
	Element string `json:"spdxElementId"`
	Type    string `json:"relationshipType"`
	Related string `json:"relatedSpdxElement"`
}

const documentID, programID = "SPDXRef-DOCUMENT", "SPDXRef-program"

// writeSBOM writes what is linked into a program, on any of its platforms.
func writeSBOM(o *Options, p *program) error {
	d := sbom(o, p)
	content, err := json.Marshal(d)
	if err != nil {
		return err
	}
	hash := sha256.Sum256(content) // a different document has a different namespace
	d.DocumentNamespace = fmt.Sprintf("%s/spdx/%s-%s-%s", Repository, p.sbom, o.Version, hex.EncodeToString(hash[:8]))
	content, err = json.MarshalIndent(d, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(o.Dir, p.sbom+sbomSuffix), append(content, '\n'), 0o644)
}

func sbom(o *Options, p *program) *document {
	d := &document{
		SPDXVersion: "SPDX-2.3", DataLicense: "CC0-1.0", SPDXID: documentID, Name: p.sbom + "-" + o.Version,
		CreationInfo: creationInfo{Created: o.Created.Format(time.RFC3339), Creators: []string{"Organization: Everynode", "Tool: everynode-release-" + o.Version}},
		Packages: []spdxPackage{
			newPackage(programID, p.name, o.Version, "git+"+Repository+"@"+o.Revision, "Apache-2.0", "pkg:golang/"+modulePath+"@"+o.Version+"#cmd/"+p.name),
		},
		Relationships: []relationship{{documentID, "DESCRIBES", programID}},
	}
	for _, m := range p.modules {
		id := "SPDXRef-module-" + notInIDs.ReplaceAllString(m.path, "-")
		version := strings.TrimPrefix(m.version, "go") // of the standard library
		d.Packages = append(d.Packages, newPackage(id, m.path, version, "NOASSERTION", strings.Join(m.licenses, " AND "), "pkg:golang/"+m.path+"@"+version))
		d.Relationships = append(d.Relationships, relationship{programID, "DEPENDS_ON", id})
	}
	return d
}

// notInIDs matches what an SPDX identifier may not contain.
var notInIDs = regexp.MustCompile(`[^0-9A-Za-z.-]`)

func newPackage(id, name, version, location, license, purl string) spdxPackage {
	return spdxPackage{
		Name: name, SPDXID: id, VersionInfo: version, DownloadLocation: location, LicenseConcluded: license, LicenseDeclared: license,
		CopyrightText: "NOASSERTION", ExternalRefs: []externalRef{{"PACKAGE-MANAGER", "purl", purl}},
	}
}
