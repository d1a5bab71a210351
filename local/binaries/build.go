// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/everynode/everynode/local/internal/filelock"
)

// buildFlags are the same for every program: no local paths in them, and no version control stamp,
// which would differ between checkouts.
const buildFlags = "-trimpath -buildvcs=false -mod=readonly"

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
	pkg           string
	tags, ldflags string
	cgo           bool
}

// locate finds this module's source, and the key of the cache's folder for what is built from it.
func locate(ctx context.Context, keyOf func(source, goVersion string) (string, error)) (source, key string, err error) {
	if source, err = SourceDir(); err != nil {
		return "", "", err
	}
	goVersion, err := toolchain(ctx)
	if err != nil {
		return "", "", err
	}
	key, err = keyOf(source, goVersion)
	return source, key, err
}

// Ensure builds those of the named programs (all, without a name) that the cache lacks and returns
// the folder that holds them. Progress gets one line per program built and none when nothing is
// missing. Two processes never build at once: the second waits and then finds the work done.
func Ensure(ctx context.Context, progress io.Writer, names ...string) (string, error) {
	selected, err := selectRecipes(names)
	if err != nil {
		return "", err
	}
	source, key, err := locate(ctx, pinnedKey)
	if err != nil {
		return "", err
	}
	jobs := make([]job, 0, len(selected))
	for _, r := range selected {
		dir := filepath.Join(source, "binaries", r.module)
		version, err := pinnedVersion(filepath.Join(dir, "go.mod"), r.versionOf)
		if err != nil {
			return "", err
		}
		jobs = append(jobs, job{
			name: r.name, version: version, dir: dir, pkg: r.pkg, tags: r.tags, cgo: r.cgo, ldflags: r.linkFlags(version),
		})
	}
	return buildAll(ctx, progress, key, jobs)
}

// EnsureHelpers builds this module's own programs: the supervisor of a node and the pause program.
func EnsureHelpers(ctx context.Context, progress io.Writer) (string, error) {
	source, key, err := locate(ctx, helperKey)
	if err != nil {
		return "", err
	}
	jobs := make([]job, 0, len(helpers))
	for _, name := range helpers {
		jobs = append(jobs, job{name: name, dir: source, pkg: "./cmd/" + name, ldflags: "-s -w"})
	}
	return buildAll(ctx, progress, key, jobs)
}

// Missing names those of the programs that the cache lacks.
func Missing(ctx context.Context, names ...string) ([]string, error) {
	selected, err := selectRecipes(names)
	if err != nil {
		return nil, err
	}
	_, key, err := locate(ctx, pinnedKey)
	if err != nil {
		return nil, err
	}
	cache, err := cacheDir()
	if err != nil {
		return nil, err
	}
	var missing []string
	for _, r := range selected {
		if !exists(filepath.Join(cache, key, r.name)) {
			missing = append(missing, r.name)
		}
	}
	return missing, nil
}

func buildAll(ctx context.Context, progress io.Writer, key string, jobs []job) (string, error) {
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, key)
	missing := func() []job {
		var out []job
		for _, j := range jobs {
			if !exists(filepath.Join(dir, j.name)) {
				out = append(out, j)
			}
		}
		return out
	}
	if len(missing()) == 0 {
		return dir, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("creating the cache of programs: %w", err)
	}
	unlock, err := filelock.Lock(ctx, filepath.Join(cache, key+".lock"))
	if err != nil {
		return "", fmt.Errorf("waiting for another build: %w", err)
	}
	defer unlock()
	todo := missing()
	for i, j := range todo {
		start := time.Now()
		label := strings.TrimSpace(j.name + " " + j.version)
		fmt.Fprintf(progress, "building %s (%d/%d) …\n", label, i+1, len(todo))
		if err := j.build(ctx, dir); err != nil {
			return "", err
		}
		fmt.Fprintf(progress, "built %s in %ds\n", label, int(time.Since(start).Seconds()+0.5))
	}
	return dir, nil
}

// build compiles to a name of its own and renames: a program in the cache is always whole.
func (j job) build(ctx context.Context, dir string) error {
	temp := filepath.Join(dir, fmt.Sprintf(".%s.%d", j.name, os.Getpid()))
	defer os.Remove(temp)
	args := append([]string{"build"}, strings.Fields(buildFlags)...)
	if j.tags != "" {
		args = append(args, "-tags", j.tags)
	}
	args = append(args, "-ldflags", j.ldflags, "-o", temp, j.pkg)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = j.dir
	cgo := "CGO_ENABLED=0"
	if j.cgo {
		cgo = "CGO_ENABLED=1"
	}
	// A workspace or module flags of the caller would replace the pinned versions.
	cmd.Env = append(os.Environ(), cgo, "GOWORK=off", "GOFLAGS=")
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return fmt.Errorf("building %s: %w", j.name, ctx.Err())
	}
	if err != nil {
		return fmt.Errorf("building %s: %w\n%s", j.name, err, tail(string(out), 30))
	}
	if err := os.Rename(temp, filepath.Join(dir, j.name)); err != nil {
		return fmt.Errorf("building %s: %w", j.name, err)
	}
	return nil
}

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
