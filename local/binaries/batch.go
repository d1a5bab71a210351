// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/everynode/everynode/local/internal/filelock"
)

const (
	// modulesAtOnce is how many modules are built at once: while one downloads or links, the other one compiles.
	modulesAtOnce = 2
	// progressEvery is the interval of the lines that say how far a build is.
	progressEvery = 15 * time.Second
)

// batch are programs that one go build makes.
type batch struct {
	jobs []job
	// part is the position among all batches, such as "2/6".
	part string
}

// batchesOf groups programs by all that is an argument or the environment of go build. The order is that of the first
// program of each batch.
func batchesOf(jobs []job) []batch {
	var batches []batch
	for _, j := range jobs {
		at := slices.IndexFunc(batches, func(b batch) bool {
			first := b.jobs[0]
			return first.dir == j.dir && first.key == j.key && first.tags == j.tags && first.ldflags == j.ldflags && first.cgo == j.cgo
		})
		if at < 0 {
			at, batches = len(batches), append(batches, batch{})
		}
		batches[at].jobs = append(batches[at].jobs, j)
	}
	return batches
}

// label names the programs and their version.
func (b *batch) label() string {
	names := make([]string, 0, len(b.jobs))
	for _, j := range b.jobs {
		names = append(names, j.name)
	}
	return strings.TrimSpace(strings.Join(names, ", ") + " " + b.jobs[0].version)
}

// ensure builds the programs that no other process builds first.
func (b *batch) ensure(ctx context.Context, progress io.Writer, cache string) error {
	dir := filepath.Join(cache, b.jobs[0].key)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("creating the cache of programs: %w", err)
	}
	unlock, err := filelock.Lock(ctx, dir+".lock")
	if err != nil {
		return fmt.Errorf("waiting for another build: %w", err)
	}
	defer unlock()
	b.jobs = slices.DeleteFunc(b.jobs, func(j job) bool { return exists(j.path(cache)) })
	if len(b.jobs) == 0 {
		return nil
	}
	if b.jobs[0].from != "" {
		return b.download(ctx, progress, dir)
	}
	start := time.Now()
	fmt.Fprintf(progress, "building %s (%s) …\n", b.label(), b.part)
	if err := b.build(ctx, progress, dir); err != nil {
		return err
	}
	fmt.Fprintf(progress, "built %s (%s) in %s\n", b.label(), b.part, seconds(time.Since(start)))
	return nil
}

// build compiles into a folder of its own and renames: a program in the cache is always complete.
func (b *batch) build(ctx context.Context, progress io.Writer, dir string) error {
	temp, err := os.MkdirTemp(dir, ".build-")
	if err != nil {
		return fmt.Errorf("creating a folder to build in: %w", err)
	}
	defer os.RemoveAll(temp)
	compiled := &packages{}
	cmd := b.command(ctx, "build", "-v", "-ldflags", b.jobs[0].ldflags, "-o", temp+string(filepath.Separator))
	cmd.Stdout, cmd.Stderr = compiled, compiled
	stop := b.report(ctx, progress, compiled)
	err = cmd.Run()
	stop()
	if ctx.Err() != nil {
		return fmt.Errorf("building %s: %w", b.label(), ctx.Err())
	}
	if err != nil {
		return fmt.Errorf("building %s: %w\n%s", b.label(), err, tail(compiled.errors(), 30))
	}
	for _, j := range b.jobs {
		if err := os.Rename(filepath.Join(temp, executable(j.pkg)), filepath.Join(dir, j.name)); err != nil {
			return fmt.Errorf("building %s: %w", j.name, err)
		}
	}
	return nil
}

// command is a command of go about the packages of the batch, with the flags that decide what is compiled.
func (b *batch) command(ctx context.Context, verb string, args ...string) *exec.Cmd {
	first := b.jobs[0]
	args = slices.Concat([]string{verb}, strings.Fields(buildFlags), args)
	if first.tags != "" {
		args = append(args, "-tags", first.tags)
	}
	for _, j := range b.jobs {
		args = append(args, j.pkg)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = first.dir
	cgo := "CGO_ENABLED=0"
	if first.cgo {
		cgo = "CGO_ENABLED=1"
	}
	// Unless the caller has other settings, the compiler collects garbage only when it needs this much memory: on two cores,
	// builds take an eighth less time than with GOGC=400.
	collect := []string{"GOGC=off", "GOMEMLIMIT=1GiB"}
	// A workspace or module flags of the caller would replace the pinned versions.
	cmd.Env = slices.Concat(collect, os.Environ(), []string{cgo, "GOWORK=off", "GOFLAGS="})
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// report writes a line about a build now and then, until it is stopped.
func (b *batch) report(ctx context.Context, progress io.Writer, compiled *packages) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		start, ticker, total := time.Now(), time.NewTicker(progressEvery), 0
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			if total == 0 {
				total = b.packages(ctx)
			}
			if ctx.Err() == nil {
				fmt.Fprintf(progress, "  %s: %d of at most %d packages after %s\n", b.label(), compiled.count.Load(), total, seconds(time.Since(start)))
			}
		}
	})
	return func() { cancel(); done.Wait() }
}

// packages is the number of packages that the programs consist of; 0 if it is not known.
func (b *batch) packages(ctx context.Context) int {
	out, err := b.command(ctx, "list", "-deps").Output()
	if err != nil {
		return 0
	}
	return bytes.Count(out, []byte("\n"))
}

// majorVersion is the last element of the import path of a module from version 2 on.
var majorVersion = regexp.MustCompile(`^v[0-9]+$`)

// executable is the name that go build gives to a program.
func executable(pkg string) string {
	if majorVersion.MatchString(path.Base(pkg)) {
		pkg = path.Dir(pkg)
	}
	return path.Base(pkg)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.0fs", d.Seconds()) }

// packages collects what go build -v prints: a line for each package that is compiled, and errors.
type packages struct {
	count atomic.Int64
	mu    sync.Mutex
	text  bytes.Buffer
}

func (p *packages) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count.Add(int64(bytes.Count(b, []byte("\n"))))
	return p.text.Write(b)
}

// importPath is a line that names a package and says nothing else.
var importPath = regexp.MustCompile(`^[\w.~-]+(/[\w.~-]+)*$`)

// errors are the lines that are more than the name of a package.
func (p *packages) errors() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var lines []string
	for scanner := bufio.NewScanner(&p.text); scanner.Scan(); {
		if !importPath.MatchString(scanner.Text()) {
			lines = append(lines, scanner.Text())
		}
	}
	return strings.Join(lines, "\n")
}

// lineWriter lets several goroutines write lines.
type lineWriter struct {
	mu sync.Mutex
	to io.Writer
}

func (w *lineWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(b)
}
