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
func (a *attempt) openFiles() error {
	if a.Files == nil {
		return nil
	}
	opened := make(chan error)
	go onOwnThread(func() {
		err := a.copyFolders()
		if err == nil {
			a.files, err = openTree(a.Files.Dir)
		}
		opened <- err
		select {} // the mounts of the copies end with their namespace, and that with this thread
	})
	return <-opened
}

// copyFolders replaces the folders of ConfigMaps and Secrets by copies in memory that are what the manager has read. The kubelet mounts
// what has the name of the object when the pod starts, and updates it while the pod runs. The copies are in a mount namespace of the
// calling thread.
func (a *attempt) copyFolders() error {
	if err := errors.Join(unix.Unshare(unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, "")); err != nil {
		return namespaceError(fmt.Errorf("preparing the copy of task.files: %w", err))
	}
	for _, folder := range a.Files.Folders {
		if err := a.checkFolder(folder); err != nil {
			return &failure{outcome.ReasonBadConfiguration, err}
		}
		if folder.Image {
			continue
		}
		copied, err := readFolder(filepath.Join(a.Files.Dir, folder.Name))
		if err == nil && contract.FolderHash(copied.content, folder.Salt) != folder.Hash {
			err = errors.New("the object has changed meanwhile")
		}
		if err != nil {
			return &failure{outcome.ReasonFilesChanged, fmt.Errorf(
				"the folder %q of task.files does not have the content that the manager has read, so nothing runs in this pod: %w", folder.Name, err)}
		}
		if err := copied.mount(filepath.Join(a.Files.Dir, folder.Name)); err != nil {
			return fmt.Errorf("copying the folder %q of task.files: %w", folder.Name, err)
		}
		if folder.Secret {
			a.mask(copied)
		}
	}
	return nil
}

// openTree opens a copy of a mount and of all mounts below it, in which programs can be executed: a container runtime may mount an image
// without that. The copy belongs to no mount namespace, and ends when it is closed. A kernel before 5.12 makes no copy.
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
// mounts an empty folder.
func (a *attempt) checkFolder(folder contract.Folder) error {
	switch entries, err := os.ReadDir(filepath.Join(a.Files.Dir, folder.Name)); {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("reading the folder %q of task.files: %w", folder.Name, err)
	case len(entries) == 0:
		return fmt.Errorf("the folder %q of task.files has no files in this pod, so nothing runs. Check that its source is not empty, and that the cluster supports it", folder.Name)
	case folder.Image != (folder.Hash == ""):
		return fmt.Errorf("the folder %q of task.files has no hash to compare, so nothing runs. Everynode's manager sets it", folder.Name)
	}
	return nil
}

// folderCopy is a folder of files in memory.
type folderCopy struct {
	content map[string][]byte
	modes   map[string]fs.FileMode
}

// readFolder reads the files of a volume. A kubelet has them in a folder that it replaces as a whole, with symbolic links to it.
func readFolder(dir string) (folderCopy, error) {
	read := folderCopy{map[string][]byte{}, map[string]fs.FileMode{}}
	if current, err := filepath.EvalSymlinks(filepath.Join(dir, "..data")); err == nil {
		dir = current
	}
	left := int64(contract.MaxFolderBytes)
	return read, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if left -= info.Size(); err != nil || !info.Mode().IsRegular() || left < 0 {
			return fmt.Errorf("%s is not a file of at most %d bytes in all", entry.Name(), contract.MaxFolderBytes)
		}
		read.modes[name] = info.Mode().Perm()
		read.content[name], err = os.ReadFile(path)
		return err
	})
}

// mount mounts the copy on a folder, read-only.
func (c folderCopy) mount(dir string) error {
	const flags = unix.MS_NOSUID | unix.MS_NODEV
	if err := unix.Mount("everynode-files", dir, "tmpfs", flags, "mode=0755"); err != nil {
		return err
	}
	for name, content := range c.content {
		path := filepath.Join(dir, name)
		err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, content, 0o600), os.Chmod(path, c.modes[name]))
		if err != nil {
			return err
		}
	}
	return unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY|flags, "")
}

// mask adds the content of the files to what is masked in the output.
func (a *attempt) mask(files folderCopy) {
	for _, content := range files.content {
		if len(content) <= maxMaskedFileBytes {
			a.Secrets = append(a.Secrets, string(content))
		}
	}
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
