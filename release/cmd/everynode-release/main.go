// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Command everynode-release makes a release from the checkout, and publishes its images: docs/releasing.md. It also installs the
// checkout into a cluster.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"time"

	"github.com/everynode/everynode/release"
	"github.com/everynode/everynode/release/quickstart"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	err := execute(ctx, os.Args[1:])
	cancel()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "everynode-release:", err)
		os.Exit(1)
	}
}

func execute(ctx context.Context, args []string) error {
	if len(args) > 0 {
		switch args[0] {
		case "build":
			return build(ctx, args[1:])
		case "publish":
			return publish(ctx, args[1:])
		case "install":
			return install(ctx, args[1:])
		}
	}
	return errors.New("give a command: build, publish or install")
}

func build(ctx context.Context, args []string) error {
	var o release.Options
	var uncommitted bool
	set := flag.NewFlagSet("build", flag.ContinueOnError)
	set.StringVar(&o.Root, "root", ".", "the `folder` of the checkout")
	set.StringVar(&o.Dir, "dir", "dist", "the `folder` for the files")
	set.StringVar(&o.Version, "version", "", "the `version`, such as v0.1.0")
	set.StringVar(&o.Registry, "registry", release.DefaultRegistry, "the `prefix` of the images in the manifests")
	set.Func("platforms", "build only for these `platforms`, such as linux/amd64,darwin/arm64 (default all)", o.Only)
	set.BoolVar(&uncommitted, "uncommitted", false, "release also what is not committed, to try it")
	if err := parse(set, args); err != nil {
		return err
	}
	if o.Version == "" {
		return errors.New("no version is given: make release VERSION=v0.1.0")
	}
	if err := describe(ctx, &o, uncommitted); err != nil {
		return err
	}
	if err := release.Build(ctx, o); err != nil {
		return err
	}
	fmt.Printf("%s is complete in %s: %s has its images, and %s the checksums of its files\n", o.Version, o.Dir, release.ImagesFile, release.ChecksumsFile)
	return nil
}

func parse(set *flag.FlagSet, args []string) error {
	if err := set.Parse(args); err != nil {
		return err
	}
	if set.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", set.Arg(0))
	}
	return nil
}

// describe adds the commit of the checkout. The commit must be what the version names, and all that is released.
func describe(ctx context.Context, o *release.Options, uncommitted bool) error {
	changed, err := git(ctx, o.Root, "status", "--porcelain")
	if err != nil {
		return err
	}
	if changed != "" && !uncommitted {
		return fmt.Errorf("the checkout has changes that are not committed: commit or remove them\n%s", changed)
	}
	head, err := git(ctx, o.Root, "show", "-s", "--format=%H %cI", "HEAD")
	if err != nil {
		return err
	}
	revision, created, _ := strings.Cut(head, " ")
	o.Revision = revision
	if o.Created, err = time.Parse(time.RFC3339, created); err != nil {
		return fmt.Errorf("reading the time of the commit: %w", err)
	}
	// Without the tag, this is a trial, or a release whose tag follows.
	tagged, err := git(ctx, o.Root, "for-each-ref", "--format=%(if)%(*objectname)%(then)%(*objectname)%(else)%(objectname)%(end)", "refs/tags/"+o.Version)
	if err != nil {
		return err
	}
	if tagged != "" && tagged != o.Revision {
		return fmt.Errorf("the tag %s is the commit %s, and the checkout is %s: check out the tag, or choose another version", o.Version, tagged, o.Revision)
	}
	return nil
}

func git(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", dir}, args...)...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("running git %s: %w\n%s", strings.Join(args, " "), err, errs.Bytes())
	}
	return strings.TrimSpace(string(out)), nil
}

func publish(ctx context.Context, args []string) error {
	set := flag.NewFlagSet("publish", flag.ContinueOnError)
	dir := set.String("dir", "dist", "the `folder` of the release")
	registry := set.String("registry", release.DefaultRegistry, "the `prefix` of the images")
	if err := parse(set, args); err != nil {
		return err
	}
	references, err := release.Publish(ctx, *dir, *registry)
	for _, reference := range references {
		fmt.Println(reference)
	}
	return err
}

func install(ctx context.Context, args []string) error {
	o := quickstart.Options{In: os.Stdin, Out: os.Stdout}
	set := flag.NewFlagSet("install", flag.ContinueOnError)
	set.StringVar(&o.Release.Root, "root", ".", "the `folder` of the checkout")
	set.StringVar(&o.Release.Dir, "dir", "dist", "the `folder` for the files")
	set.StringVar(&o.Plugin, "plugin", "kubectl-everynode", "the `file` for the plugin")
	set.StringVar(&o.Registry, "registry", "", "the `prefix` of the images, if the nodes pull them")
	set.BoolVar(&o.Yes, "yes", false, "do not ask for confirmation")
	if err := parse(set, args); err != nil {
		return err
	}
	if err := describe(ctx, &o.Release, true); err != nil {
		return err
	}
	return quickstart.Install(ctx, o)
}
