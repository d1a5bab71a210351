// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/everynode/everynode/internal/ui/cmdutil"
)

// What --save writes may contain secrets, so only the user may read it.
const (
	saveDirMode  = 0o700
	saveFileMode = 0o600
)

// saver writes the output of the nodes into a directory while it arrives. It keeps neither output nor open files. A nil
// saver writes nothing.
type saver struct {
	dir  string
	root *os.Root
	// files are the names of the files that exist, by node.
	files map[string]string
	// err is the first error, after which the output is incomplete. broken are the nodes whose output is incomplete.
	err    error
	broken map[string]bool
}

// checkSaveDir rejects a directory that has files. They would be mixed with those of the run.
func checkSaveDir(dir string) error {
	if dir == "" {
		return nil
	}
	d, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return cmdutil.Failf(cmdutil.ExitUsage, "opening the directory of --save: %w", err)
	}
	defer func() { _ = d.Close() }()
	switch _, err := d.ReadDir(1); {
	case err == nil:
		return cmdutil.Failf(cmdutil.ExitUsage, "the directory %s of --save is not empty: name a new one, or remove what it contains", dir)
	case !errors.Is(err, io.EOF):
		return cmdutil.Failf(cmdutil.ExitUsage, "reading the directory of --save: %w", err)
	}
	return nil
}

// newSaver creates the directory; it returns nil without one.
func newSaver(dir string) (*saver, error) {
	if dir == "" {
		return nil, nil
	}
	if err := os.MkdirAll(dir, saveDirMode); err != nil {
		return nil, cmdutil.Failf(cmdutil.ExitUsage, "creating the directory of --save: %w", err)
	}
	if err := checkSaveDir(dir); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, cmdutil.Failf(cmdutil.ExitUsage, "opening the directory of --save: %w", err)
	}
	return &saver{dir: dir, root: root, files: map[string]string{}, broken: map[string]bool{}}, nil
}

// add appends a piece of output to the file of a node. With an empty piece, it only creates the file.
func (s *saver) add(node string, data []byte) {
	if s == nil || s.broken[node] {
		return // a file with a gap would look complete
	}
	name := fileName(node)
	if err := s.appendTo(name, data); err != nil {
		s.broken[node] = true
		s.fail(fmt.Errorf("writing the output of node %s: %w", node, err))
		return
	}
	s.files[node] = name
}

// fail notes the first error.
func (s *saver) fail(err error) {
	if s.err == nil {
		s.err = err
	}
}

// appendTo opens the file for each piece: there may be thousands of nodes, and fewer files that a process may open.
func (s *saver) appendTo(name string, data []byte) error {
	f, err := s.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, saveFileMode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// replace writes a whole file. If it is interrupted, the file has its old content.
func (s *saver) replace(name string, content []byte) {
	if err := s.replaceFile(name, content); err != nil {
		s.fail(fmt.Errorf("writing %s: %w", name, err))
	}
}

func (s *saver) replaceFile(name string, content []byte) error {
	temporary := "." + name + ".tmp"
	f, err := s.root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, saveFileMode)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		_ = s.root.Remove(temporary)
		return err
	}
	return s.root.Rename(temporary, name)
}

// close releases the directory.
func (s *saver) close() {
	if s != nil {
		_ = s.root.Close()
	}
}

// saveIndex writes the index of what is saved.
func (r *running) saveIndex(over bool) {
	if r.saved == nil {
		return
	}
	for _, n := range r.nodes {
		if n.ran() && n.State.Final() {
			r.saved.add(n.Name, nil) // a command that printed nothing has an empty file
		}
	}
	content, err := r.savedRun(over).encode()
	if err != nil {
		r.saved.fail(err)
		return
	}
	r.saved.replace(indexFile, content)
}
