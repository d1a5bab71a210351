// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// SourceVariable names the folder "local" of a checkout, for programs that were built with
// -trimpath and are not run from inside one.
const SourceVariable = "EVERYNODE_LOCAL_SOURCE"

// CacheVariable names the folder of the cache, instead of the user's cache folder.
const CacheVariable = "EVERYNODE_CACHE"

// SourceDir finds this module in a checkout: the programs are built from the go.mod files in it.
func SourceDir() (string, error) {
	var candidates []string
	if dir := os.Getenv(SourceVariable); dir != "" {
		candidates = append(candidates, dir)
	}
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		candidates = append(candidates, filepath.Dir(filepath.Dir(file)))
	}
	if dir, err := os.Getwd(); err == nil {
		for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
			candidates = append(candidates, dir, filepath.Join(dir, "local"))
		}
	}
	for _, dir := range candidates {
		if _, err := os.Stat(filepath.Join(dir, "binaries", "etcd", "go.mod")); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("finding the folder local/ of an Everynode checkout: run inside one, or set %s", SourceVariable)
}

// cacheDir is where built programs are kept.
func cacheDir() (string, error) {
	if dir := os.Getenv(CacheVariable); dir != "" {
		return filepath.Join(dir, "bin"), nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding the cache folder (set %s instead): %w", CacheVariable, err)
	}
	return filepath.Join(dir, "everynode", "bin"), nil
}

// pinnedVersion reads the version of a module out of a go.mod.
func pinnedVersion(goMod, module string) (string, error) {
	data, err := os.ReadFile(goMod)
	if err != nil {
		return "", fmt.Errorf("reading the pinned version of %s: %w", module, err)
	}
	found := regexp.MustCompile(`(?m)^(?:require)?\s*` + regexp.QuoteMeta(module) + ` (v\S+)`).FindSubmatch(data)
	if found == nil {
		return "", fmt.Errorf("reading the pinned version of %s: %s does not require it", module, goMod)
	}
	return string(found[1]), nil
}

// moduleKey names the cache folder of the programs of one module: it changes with each version, checksum, build flag, Go
// release or platform, so that a stale program is never used. It does not change with other modules, so that clusters of
// different Kubernetes versions share the programs that do not depend on it.
func moduleKey(source, goVersion, kubernetes, folder string) (string, error) {
	sum := sha256.New()
	fmt.Fprintln(sum, goVersion, runtime.GOOS, runtime.GOARCH, buildFlags)
	for _, r := range recipes {
		if r.folder(kubernetes) == folder {
			fmt.Fprintf(sum, "%+v\n", r)
		}
	}
	for _, file := range []string{"go.mod", "go.sum"} {
		if err := hashFile(sum, source, filepath.Join(source, "binaries", folder, file)); err != nil {
			return "", err
		}
	}
	return folder + "-" + hex.EncodeToString(sum.Sum(nil))[:16], nil
}

// moduleKeys returns the key of each module's folder of a Kubernetes version, by the folder's name.
func moduleKeys(source, goVersion, kubernetes string) (map[string]string, error) {
	keys := map[string]string{}
	for _, r := range recipes {
		folder := r.folder(kubernetes)
		if keys[folder] != "" {
			continue
		}
		key, err := moduleKey(source, goVersion, kubernetes, folder)
		if err != nil {
			return nil, err
		}
		keys[folder] = key
	}
	return keys, nil
}

// clusterKey names the cache folder that has all programs of a cluster of one Kubernetes version.
func clusterKey(kubernetes string, moduleKeys map[string]string) string {
	sum := sha256.New()
	for _, folder := range slices.Sorted(maps.Keys(moduleKeys)) {
		fmt.Fprintln(sum, moduleKeys[folder])
	}
	return "cluster-" + kubernetes + "-" + hex.EncodeToString(sum.Sum(nil))[:16]
}

// helperKey names the cache folder of this module's own programs: it changes with their sources.
func helperKey(source, goVersion string) (string, error) {
	sum := sha256.New()
	fmt.Fprintln(sum, goVersion, runtime.GOOS, runtime.GOARCH, buildFlags)
	files := []string{filepath.Join(source, "go.mod"), filepath.Join(source, "go.sum")}
	for _, dir := range append([]string{"internal"}, helperDirs()...) {
		err := filepath.WalkDir(filepath.Join(source, dir), func(path string, entry fs.DirEntry, err error) error {
			if err == nil && !entry.IsDir() && strings.HasSuffix(path, ".go") {
				files = append(files, path)
			}
			return err
		})
		if err != nil {
			return "", fmt.Errorf("listing the sources of the helpers: %w", err)
		}
	}
	for _, file := range files {
		if err := hashFile(sum, source, file); err != nil {
			return "", err
		}
	}
	return "helpers-" + hex.EncodeToString(sum.Sum(nil))[:16], nil
}

func hashFile(sum hash.Hash, source, file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("hashing the build inputs: %w", err)
	}
	name, err := filepath.Rel(source, file)
	if err != nil {
		return fmt.Errorf("hashing the build inputs: %w", err)
	}
	fmt.Fprintf(sum, "%s %d\n", filepath.ToSlash(name), len(data))
	sum.Write(data)
	return nil
}
