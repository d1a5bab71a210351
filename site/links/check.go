// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/net/html"
)

// site is a built site.
type site struct {
	dir   string
	base  *url.URL
	pages map[string]*page // by their paths in dir, such as docs/gate/index.html
}

// page is what the check reads of a page.
type page struct {
	ids   map[string]bool
	links []link
}

// link is an address that a page has. The browser requests those that are loaded without a click.
type link struct {
	address string
	loaded  bool
}

// readSite reads all pages of a folder. The address of the site is that of the folder, and ends with a slash.
func readSite(dir, base string) (*site, error) {
	parsed, err := url.Parse(base)
	if err != nil {
		return nil, err
	}
	s := &site{dir: dir, base: parsed, pages: map[string]*page{}}
	return s, filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(name) != ".html" {
			return err
		}
		p, err := readPage(name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		relative, err := filepath.Rel(dir, name)
		s.pages[filepath.ToSlash(relative)] = p
		return err
	})
}

func readPage(name string) (*page, error) {
	file, err := os.Open(name) //nolint:gosec // a file of the folder that is checked
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	root, err := html.Parse(file)
	if err != nil {
		return nil, err
	}
	p := &page{ids: map[string]bool{}}
	for node := range root.Descendants() {
		for _, attribute := range node.Attr {
			switch attribute.Key {
			case "id":
				p.ids[attribute.Val] = true
			case "href":
				p.links = append(p.links, link{attribute.Val, node.Data == "link" && !has(node, "rel", "canonical")})
			case "src":
				p.links = append(p.links, link{attribute.Val, true})
			}
		}
	}
	return p, nil
}

func has(node *html.Node, key, value string) bool {
	return slices.ContainsFunc(node.Attr, func(a html.Attribute) bool { return a.Key == key && a.Val == value })
}

// check returns how many links the pages have, and one line for each that is broken, in the order of pages.
func (s *site) check(root, repository string) (checked int, broken []string) {
	for name, p := range s.pages {
		for _, l := range p.links {
			checked++
			if problem := s.problem(name, l, root, repository); problem != "" {
				broken = append(broken, fmt.Sprintf("%s: %s: %s", name, l.address, problem))
			}
		}
	}
	slices.Sort(broken)
	return checked, slices.Compact(broken)
}

// problem says what is wrong with a link of a page, or is empty.
func (s *site) problem(name string, l link, root, repository string) string {
	to, err := s.base.Parse(strings.TrimSuffix(name, "index.html"))
	if err == nil {
		to, err = to.Parse(l.address)
	}
	switch {
	case err != nil:
		return err.Error()
	case to.Host == s.base.Host && strings.HasPrefix(to.Path, s.base.Path):
		return s.missing(strings.TrimPrefix(to.Path, s.base.Path), to.Fragment)
	case l.loaded:
		return "is loaded from another host: serve it from this site"
	}
	if file, ok := inRepository(to, repository); ok {
		if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(file))); err != nil {
			return "the repository has no such file"
		}
	}
	return ""
}

// missing says what does not exist of a path and a fragment of the site, or is empty.
func (s *site) missing(name, fragment string) string {
	if name == "" || strings.HasSuffix(name, "/") {
		name += "index.html"
	}
	p := s.pages[name]
	if p == nil {
		if info, err := os.Stat(filepath.Join(s.dir, filepath.FromSlash(name))); err != nil || info.IsDir() {
			return "the site has no such page or file"
		}
		return ""
	}
	if fragment != "" && !p.ids[fragment] {
		return fmt.Sprintf("%s has no heading with the anchor %q", name, fragment)
	}
	return ""
}

// inRepository returns the path of the file that an address shows, if it is one of the repository.
func inRepository(to *url.URL, repository string) (string, bool) {
	rest, ok := strings.CutPrefix(to.Scheme+"://"+to.Host+to.Path, repository+"/blob/")
	if !ok {
		return "", false
	}
	_, file, ok := strings.Cut(rest, "/")
	return path.Clean(file), ok
}
