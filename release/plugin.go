// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing/fstest"
)

const pluginName = "kubectl-everynode"

// pluginOf returns the plugin of a release.
func pluginOf(o *Options) *artifact {
	return &artifact{name: pluginName, programs: []string{pluginName}, platforms: o.Platforms}
}

// pluginArchive is an archive of the plugin, as krew describes it.
// Source: https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/.
type pluginArchive struct{ OS, Arch, Name, SHA256, Bin string }

// writePlugin writes the archives of the plugin, and the manifest with which krew installs them.
func (b *build) writePlugin() error {
	var archives []pluginArchive
	for _, platform := range b.plugin.platforms {
		archive, content, err := b.archivePlugin(platform)
		if err != nil {
			return err
		}
		if err := b.write(archive.Name, content); err != nil {
			return err
		}
		archives = append(archives, archive)
	}
	return b.render(KrewFile, "krew.yaml", map[string]any{"Archives": archives})
}

// archivePlugin returns the archive of the plugin for a platform.
func (b *build) archivePlugin(platform string) (archive pluginArchive, content []byte, err error) {
	goos, arch, _ := strings.Cut(platform, "/")
	archive = pluginArchive{OS: goos, Arch: arch, Name: fmt.Sprintf("%s_%s_%s_%s.tar.gz", pluginName, b.Version, goos, arch), Bin: pluginName}
	files, err := b.contents(b.plugin, platform, "")
	if err != nil {
		return archive, nil, err
	}
	var out bytes.Buffer
	if goos == "windows" {
		archive.Name, archive.Bin = strings.TrimSuffix(archive.Name, ".tar.gz")+".zip", archive.Bin+".exe"
		zipped := zip.NewWriter(&out)
		err = errors.Join(zipped.AddFS(files), zipped.Close())
	} else {
		err = errors.Join(b.addManPages(files), writeTarGzip(&out, files))
	}
	archive.SHA256 = fmt.Sprintf("%x", sha256.Sum256(out.Bytes()))
	return archive, out.Bytes(), err
}

// addManPages adds the man pages of the plugin.
func (b *build) addManPages(files fstest.MapFS) error {
	pages, err := filepath.Glob(filepath.Join(b.Root, "docs", "reference", "man", "*.1"))
	if err != nil {
		return err
	}
	if len(pages) == 0 {
		return errors.New("docs/reference/man has no man page: run make generate")
	}
	for _, page := range pages {
		content, err := os.ReadFile(page)
		if err != nil {
			return err
		}
		b.add(files, "man/man1/"+filepath.Base(page), 0o644, content)
	}
	return nil
}

// writeTarGzip writes a compressed archive. Its header has no name and no time.
func writeTarGzip(w io.Writer, files fs.FS) error {
	compressed, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	return errors.Join(writeTar(compressed, files), compressed.Close())
}
