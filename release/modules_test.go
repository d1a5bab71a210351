// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spdx/tools-golang/spdx"
)

const mit = `MIT License

Copyright (c) 2020 The Authors

Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation
files (the "Software"), to deal in the Software without restriction, including without limitation the rights to use, copy,
modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit persons to whom the Software
is furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES
OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE
LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR
IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
`

const gpl = `This program is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License as
published by the Free Software Foundation, either version 3 of the License, or (at your option) any later version.

This program is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY; without even the implied warranty of
MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the GNU General Public License for more details.

You should have received a copy of the GNU General Public License along with this program. If not, see <https://www.gnu.org/licenses/>.
`

func TestLicenses(t *testing.T) {
	tests := map[string]struct {
		texts map[string]string
		want  []string
		err   string
	}{
		"an allowed license":        {map[string]string{"LICENSE": mit}, []string{"MIT"}, ""},
		"a notice is not a license": {map[string]string{"LICENSE": mit, "NOTICE": "Made by us."}, []string{"MIT"}, ""},
		"a license that is not allowed": {
			map[string]string{"LICENSE": mit, "sub/COPYING": gpl},
			nil,
			"example.com/m v1.0.0: the license GPL-3.0-or-later in sub/COPYING is not allowed (allowed: Apache-2.0, ",
		},
		"a text that is not known": {
			map[string]string{"LICENSE.md": "You may use this on Sundays only."},
			nil,
			"example.com/m v1.0.0: only 0% of LICENSE.md is the text of a known license",
		},
		"a known license with conditions": {
			map[string]string{"LICENSE": mit + strings.Repeat("You must not use this for anything that the authors dislike. ", 20)},
			nil,
			"of LICENSE is the text of a known license",
		},
		"a module without a license": {map[string]string{"NOTICE": mit}, nil, "example.com/m v1.0.0: the module has no license file"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			modules, err := allowed(map[string]*module{"example.com/m": {path: "example.com/m", version: "v1.0.0", texts: tt.texts}})
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
			if diff := cmp.Diff(tt.want, modules[0].licenses); diff != "" {
				t.Errorf("licenses: -want +got\n%s", diff)
			}
		})
	}
}

func TestSBOM(t *testing.T) {
	tests := map[string]struct{ with, without []string }{
		"manager": {
			[]string{"everynode", "stdlib", "k8s.io/client-go", "github.com/prometheus/client_golang"},
			[]string{"github.com/spf13/cobra"},
		},
		"runner": {
			[]string{"everynode-runner", "stdlib", "golang.org/x/sys"},
			[]string{"k8s.io/client-go", "golang.org/x/crypto/x509roots/fallback"},
		},
		"runner-archive": {
			[]string{"everynode-runner", "stdlib", "golang.org/x/sys", "golang.org/x/crypto/x509roots/fallback"},
			[]string{"k8s.io/client-go"},
		},
		"kubectl-everynode": {[]string{"kubectl-everynode", "stdlib", "github.com/spf13/cobra"}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var d spdx.Document
			if err := json.Unmarshal(read(t, built(t), name+sbomSuffix), &d); err != nil {
				t.Fatal(err)
			}
			ids := []spdx.ElementID{"DOCUMENT"}
			var names []string
			for _, p := range d.Packages {
				if slices.Contains(ids, p.PackageSPDXIdentifier) || p.PackageVersion == "" || p.PackageLicenseConcluded == "" ||
					len(p.PackageExternalReferences) != 1 {
					t.Errorf("incomplete or repeated: %+v", p)
				}
				ids, names = append(ids, p.PackageSPDXIdentifier), append(names, p.PackageName)
			}
			for _, r := range d.Relationships {
				if !slices.Contains(ids, r.RefA.ElementRefID) || !slices.Contains(ids, r.RefB.ElementRefID) {
					t.Errorf("a package of %+v is missing", r)
				}
			}
			if len(d.Relationships) != len(d.Packages) {
				t.Errorf("%d packages have %d relationships", len(d.Packages), len(d.Relationships))
			}
			for _, want := range tt.with {
				if !slices.Contains(names, want) {
					t.Errorf("%s is missing", want)
				}
			}
			for _, other := range tt.without {
				if slices.Contains(names, other) {
					t.Errorf("%s is not linked", other)
				}
			}
			if d.CreationInfo.Created != "2026-07-01T12:30:15Z" {
				t.Errorf("created at %s", d.CreationInfo.Created)
			}
		})
	}
}

func TestEqualLicensesAppearOnce(t *testing.T) {
	a := &artifact{programs: []string{"program"}, modules: []*module{
		{path: "example.com/a", version: "v1.0.0", texts: map[string]string{"LICENSE": mit}},
		{path: "example.com/b", version: "v2.0.0", texts: map[string]string{"LICENSE": mit, "NOTICE": "Made by us."}},
	}}
	got := string(a.notices())
	if strings.Count(got, "Permission is hereby granted") != 1 ||
		!strings.Contains(got, "\nexample.com/a v1.0.0 (LICENSE)\nexample.com/b v2.0.0 (LICENSE)\n") {
		t.Errorf("notices:\n%s", got)
	}
	if !strings.Contains(got, "\nexample.com/b v2.0.0 (NOTICE)\n") || !strings.Contains(got, "\nMade by us.\n") {
		t.Errorf("notices without a NOTICE file:\n%s", got)
	}
}
