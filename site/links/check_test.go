// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	const repository = "https://example.com/repo"
	for name, test := range map[string]struct{ link, want string }{
		"a page":                            {`<a href="/site/other/">`, ""},
		"a part of a page":                  {`<a href="../other/#part">`, ""},
		"a part of the same page":           {`<a href="#top">`, ""},
		"another site":                      {`<a href="https://example.org/">`, ""},
		"the canonical address":             {`<link rel="canonical" href="http://localhost/site/page/">`, ""},
		"a file of the repository":          {`<a href="https://example.com/repo/blob/main/file.yaml#L1">`, ""},
		"a missing page":                    {`<a href="/site/none/">`, "no such page"},
		"a missing part":                    {`<a href="../other/#none">`, `no heading with the anchor "none"`},
		"a missing part of the same page":   {`<a href="#none">`, `no heading with the anchor "none"`},
		"a missing picture":                 {`<img src="/site/none.png">`, "no such page or file"},
		"a missing file of the repository":  {`<a href="https://example.com/repo/blob/main/none.yaml">`, "the repository has no such file"},
		"a script of another host":          {`<script src="https://example.org/x.js"></script>`, "loaded from another host"},
		"a style sheet of another host":     {`<link rel="stylesheet" href="//example.org/x.css">`, "loaded from another host"},
		"an address outside of the site":    {`<img src="/picture.png">`, "loaded from another host"},
		"an address that cannot be parsed":  {`<a href="http://[">`, "missing ']'"},
		"a folder without a page, no slash": {`<a href="/site/page">`, "no such page or file"},
	} {
		t.Run(name, func(t *testing.T) {
			root, dir := t.TempDir(), t.TempDir()
			write(t, filepath.Join(root, "file.yaml"), "")
			write(t, filepath.Join(dir, "other", "index.html"), `<h2 id="part">`)
			write(t, filepath.Join(dir, "page", "index.html"), `<h1 id="top"></h1>`+test.link)
			s, err := readSite(dir, "http://localhost/site/")
			if err != nil {
				t.Fatal(err)
			}
			checked, broken := s.check(root, repository)
			got := strings.Join(broken, "\n")
			if checked != 1 || (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
				t.Errorf("%d links, broken: %q, want %q", checked, got, test.want)
			}
		})
	}
}

func write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
