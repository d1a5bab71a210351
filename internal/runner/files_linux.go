// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/everynode/everynode/internal/outcome"
	"github.com/everynode/everynode/internal/runner/contract"
)

// maxMaskedFileBytes is the size of the largest file of a Secret whose content is masked: that of an environment variable.
const maxMaskedFileBytes = 128 << 10

// openFiles opens the folder with the files of the task. A script on the node opens it by a path in /proc that leads to our descriptor,
// and from there into the mounts of the container. So nothing is mounted or copied on the node, and the path ends with the runner.
func (a *attempt) openFiles() (err error) {
	if a.Files == nil {
		return nil
	}
	for _, folder := range a.Files.Folders {
		if err := a.checkFolder(folder); err != nil {
			return &failure{outcome.ReasonBadConfiguration, err}
		}
	}
	if a.files, err = openTree(a.Files.Dir); err != nil {
		return fmt.Errorf("opening the folder of task.files: %w", err)
	}
	return nil
}

// openTree opens a copy of a mount and of all mounts below it, in which programs can be executed: a container runtime may mount an image
// without that. The copy belongs to no mount namespace, and ends when it is closed. A kernel before 5.12, or a runner without privileges,
// makes no copy.
func openTree(dir string) (*os.File, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return os.Open(dir)
	}
	executable := unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_NOEXEC}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &executable); err != nil {
		_ = unix.Close(fd)
		return os.Open(dir)
	}
	return os.NewFile(uintptr(fd), dir), nil
}

// checkFolder makes sure that a folder has files. An API server or a kubelet that does not know a kind of volume leaves it out, or
// mounts an empty folder. It also reads what has to be masked.
func (a *attempt) checkFolder(folder contract.Folder) error {
	path := filepath.Join(a.Files.Dir, folder.Name)
	switch entries, err := os.ReadDir(path); {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("reading the folder %q of task.files: %w", folder.Name, err)
	case len(entries) == 0:
		return fmt.Errorf("the folder %q of task.files has no files in this pod, so nothing runs. Check that its source is not empty, and that the cluster supports it", folder.Name)
	}
	if !folder.Secret {
		return nil
	}
	return filepath.WalkDir(path, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		if info, err := entry.Info(); err != nil || info.Size() > maxMaskedFileBytes {
			return err
		}
		content, err := os.ReadFile(path)
		a.Secrets = append(a.Secrets, string(content))
		return err
	})
}

// withFiles returns the script with the path of the files in its command and its interpreter.
func (s Script) withFiles(path string) Script {
	for _, argv := range []*[]string{&s.Command, &s.Interpreter} {
		*argv = slices.Clone(*argv)
		for i := range *argv {
			(*argv)[i] = strings.ReplaceAll((*argv)[i], contract.FilesInArguments, path)
		}
	}
	return s
}
