// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Command links checks a built site: each link to a page of the site, to a part of a page, and to a file of the repository has a target,
// and no page loads anything from another host. It requests nothing. The exit code is 1 if a check fails.
//
//	links [-base URL] [-repository URL] ROOT SITE
//
// ROOT is the folder of the repository, and SITE that of the built site.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	base := flag.String("base", "http://localhost:1313/", "the address with which the site was built")
	repository := flag.String("repository", "https://github.com/everynode/everynode", "the address of the repository")
	flag.Parse()
	if flag.NArg() != 2 {
		fmt.Fprintln(os.Stderr, "usage: links [-base URL] [-repository URL] ROOT SITE")
		os.Exit(2)
	}
	s, err := readSite(flag.Arg(1), *base)
	if err != nil {
		fmt.Fprintln(os.Stderr, "links: reading the site:", err)
		os.Exit(1)
	}
	checked, broken := s.check(flag.Arg(0), *repository)
	for _, problem := range broken {
		fmt.Fprintln(os.Stderr, problem)
	}
	fmt.Printf("%d links on %d pages, %d broken\n", checked, len(s.pages), len(broken))
	if len(broken) > 0 || checked == 0 {
		os.Exit(1)
	}
}
