// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
)

// buildFlags are the same for every program: no local paths in them, and no version control stamp,
// which would differ between checkouts. Programs are linked without debug information, so it is not compiled either. Flags
// that decide what is compiled are those of the Makefile, so that common packages are compiled once.
const buildFlags = "-trimpath -buildvcs=false -mod=readonly -gcflags=all=-dwarf=false"

// helpers are this module's own programs.
var helpers = []string{"everynode-node", "everynode-pause"}

func helperDirs() []string {
	dirs := make([]string, 0, len(helpers))
	for _, name := range helpers {
		dirs = append(dirs, filepath.Join("cmd", name))
	}
	return dirs
}

// job is one program to build: by recipe, or from this module.
type job struct {
	name, version string
	dir           string // where go build runs
	key           string // the folder of the cache that the program is built into
	pkg           string
	tags, ldflags string
	cgo           bool
	from          string // the address that the program is downloaded from; "" if it is built
}

// Ensure builds those of the named programs (all, without a name) that the cache lacks, for a minor version of
// Kubernetes, and returns the folder that has them. Progress gets one line per program built and none when nothing is
// missing. Two processes never build the same program: the second waits and then finds the work done.
func Ensure(ctx context.Context, progress io.Writer, kubernetes string, names ...string) (string, error) {
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	key, jobs, err := plan(ctx, kubernetes, names)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, key)
	if jobs = slices.DeleteFunc(jobs, func(j job) bool { return exists(filepath.Join(dir, j.name)) }); len(jobs) == 0 {
		return dir, nil
	}
	if err := buildAll(ctx, progress, cache, jobs); err != nil {
		return "", err
	}
	return dir, gather(cache, dir, jobs)
}

// EnsureHelpers builds this module's own programs: the supervisor of a node and the pause program.
func EnsureHelpers(ctx context.Context, progress io.Writer) (string, error) {
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	source, goVersion, err := inputs(ctx)
	if err != nil {
		return "", err
	}
	key, err := helperKey(source, goVersion)
	if err != nil {
		return "", err
	}
	jobs := make([]job, 0, len(helpers))
	for _, name := range helpers {
		jobs = append(jobs, job{name: name, dir: source, key: key, pkg: "./cmd/" + name, ldflags: "-s -w"})
	}
	return filepath.Join(cache, key), buildAll(ctx, progress, cache, jobs)
}

// Missing names those of the programs that the cache lacks.
func Missing(ctx context.Context, kubernetes string, names ...string) ([]string, error) {
	cache, err := cacheDir()
	if err != nil {
		return nil, err
	}
	_, jobs, err := plan(ctx, kubernetes, names)
	if err != nil {
		return nil, err
	}
	var missing []string
	for _, j := range jobs {
		if !exists(j.path(cache)) {
			missing = append(missing, j.name)
		}
	}
	return missing, nil
}

// inputs finds this module's source and the Go release: what is built depends on them.
func inputs(ctx context.Context) (source, goVersion string, err error) {
	if source, err = SourceDir(); err != nil {
		return "", "", err
	}
	goVersion, err = toolchain(ctx)
	return source, goVersion, err
}

// plan returns the key of the folder that has all programs of a Kubernetes version, and how the named ones are built.
func plan(ctx context.Context, kubernetes string, names []string) (key string, jobs []job, err error) {
	if kubernetes, err = ResolveKubernetes(kubernetes); err != nil {
		return "", nil, err
	}
	selected, err := selectRecipes(names)
	if err != nil {
		return "", nil, err
	}
	source, goVersion, err := inputs(ctx)
	if err != nil {
		return "", nil, err
	}
	keys, err := moduleKeys(source, goVersion, kubernetes)
	if err != nil {
		return "", nil, err
	}
	from := os.Getenv(DownloadVariable)
	if folder := kubernetesModule + "-" + kubernetes; from != "" {
		keys[folder] = downloadedKey(keys[folder])
	}
	for _, r := range selected {
		dir := filepath.Join(source, "binaries", r.folder(kubernetes))
		version, err := pinnedVersion(filepath.Join(dir, "go.mod"), r.versionOf)
		if err != nil {
			return "", nil, err
		}
		j := job{
			name: r.name, version: version, dir: dir, key: keys[r.folder(kubernetes)],
			pkg: r.pkg, tags: r.tags, cgo: r.cgo, ldflags: r.linkFlags(version),
		}
		if r.module == kubernetesModule {
			j.from = from
		}
		jobs = append(jobs, j)
	}
	return clusterKey(kubernetes, keys), jobs, nil
}

// buildAll builds the programs that the cache lacks: those of a module with one go build, so that their packages are compiled
// once and their links overlap, and two modules at a time.
func buildAll(ctx context.Context, progress io.Writer, cache string, jobs []job) error {
	batches := batchesOf(slices.DeleteFunc(slices.Clone(jobs), func(j job) bool { return exists(j.path(cache)) }))
	lines := &lineWriter{to: progress}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(modulesAtOnce)
	for i := range batches {
		batches[i].part = fmt.Sprintf("%d/%d", i+1, len(batches))
		group.Go(func() error { return batches[i].ensure(ctx, lines, cache) })
	}
	return group.Wait()
}

// gather links programs into one folder: an API server for tests and a node expect their programs beside each other.
func gather(cache, dir string, jobs []job) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("creating the cache of programs: %w", err)
	}
	for _, j := range jobs {
		// A symbolic link would lead nowhere on a node, which sees only this folder.
		if err := os.Link(j.path(cache), filepath.Join(dir, j.name)); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("linking a program in the cache: %w", err)
		}
	}
	return nil
}

// path is where the program is kept.
func (j job) path(cache string) string { return filepath.Join(cache, j.key, j.name) }

func toolchain(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOVERSION").Output()
	if errors.Is(err, exec.ErrNotFound) {
		return "", errors.New("finding the go command: the programs of a local cluster are built from source; install Go")
	}
	if err != nil {
		return "", fmt.Errorf("asking for the Go version: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if len(all) > lines {
		all = all[len(all)-lines:]
	}
	return strings.Join(all, "\n")
}
