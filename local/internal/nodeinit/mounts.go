// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package nodeinit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/everynode/everynode/local/internal/nodespec"
)

// enterRoot makes the node's own root file system and moves into it. All mounts are made in the
// node's mount namespace: they vanish with its last process and never show on the host.
func enterRoot(spec *nodespec.Spec) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("cutting off the host's mounts: %w", err)
	}
	root := filepath.Join(spec.Dir, nodespec.RootDir)
	options := fmt.Sprintf("lowerdir=/,upperdir=%s,workdir=%s",
		filepath.Join(spec.Dir, nodespec.UpperDir), filepath.Join(spec.Dir, nodespec.WorkDir))
	if err := unix.Mount("overlay", root, "overlay", 0, options); err != nil {
		return fmt.Errorf("mounting the node's root (the state folder must be on a plain file system, not an overlay): %w", err)
	}
	for _, step := range []func(*nodespec.Spec, string) error{kernelMounts, deviceMounts, ownMounts} {
		if err := step(spec, root); err != nil {
			return err
		}
	}
	return pivot(root)
}

// mountAt mounts a file system, making the folder for it.
func mountAt(source, target, kind string, flags uintptr, options string) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return fmt.Errorf("mounting %s: %w", target, err)
	}
	if err := unix.Mount(source, target, kind, flags, options); err != nil {
		return fmt.Errorf("mounting %s: %w", target, err)
	}
	return nil
}

// bind shows a folder of the host in the node.
func bind(source, target string, flags uintptr) error {
	if err := mountAt(source, target, "", unix.MS_BIND|flags&unix.MS_REC, ""); err != nil {
		return err
	}
	if flags&unix.MS_RDONLY == 0 {
		return nil
	}
	if err := unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|flags, ""); err != nil {
		return fmt.Errorf("mounting %s read-only: %w", target, err)
	}
	return nil
}

func kernelMounts(spec *nodespec.Spec, root string) error {
	const hardened = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := mountAt("proc", filepath.Join(root, "proc"), "proc", hardened, ""); err != nil {
		return err
	}
	if err := mountAt("sysfs", filepath.Join(root, "sys"), "sysfs", hardened, ""); err != nil {
		return err
	}
	if err := bind("/sys/fs/cgroup", filepath.Join(root, "sys/fs/cgroup"), unix.MS_REC); err != nil {
		return err
	}
	bootID := filepath.Join(root, "proc/sys/kernel/random/boot_id")
	if err := unix.Mount(filepath.Join(spec.Dir, nodespec.BootIDFile), bootID, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("setting the node's boot ID: %w", err)
	}
	return coverUUID(spec, root)
}

// coverUUID gives the node a system UUID of its own: machines with firmware tables name one for all
// nodes, and the kubelet reports it.
func coverUUID(spec *nodespec.Spec, root string) error {
	uuid := filepath.Join(root, "sys/class/dmi/id/product_uuid")
	if _, err := os.Stat(uuid); err != nil {
		return nil //nolint:nilerr // a machine without firmware tables has nothing to cover
	}
	if err := unix.Mount(filepath.Join(spec.Dir, nodespec.UUIDFile), uuid, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("setting the node's system UUID: %w", err)
	}
	return nil
}

// deviceMounts gives the node the harmless devices only, and its own terminals and shared memory.
func deviceMounts(_ *nodespec.Spec, root string) error {
	dev := filepath.Join(root, "dev")
	if err := mountAt("tmpfs", dev, "tmpfs", unix.MS_NOSUID, "mode=755,size=64k"); err != nil {
		return err
	}
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty", "kmsg", "fuse", "net/tun"} {
		if err := bindDevice(dev, name); err != nil {
			return fmt.Errorf("making device %s: %w", name, err)
		}
	}
	if err := mountAt("devpts", filepath.Join(dev, "pts"), "devpts", unix.MS_NOSUID|unix.MS_NOEXEC,
		"newinstance,ptmxmode=0666,mode=0620"); err != nil {
		return err
	}
	if err := mountAt("shm", filepath.Join(dev, "shm"), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777"); err != nil {
		return err
	}
	if err := mountAt("mqueue", filepath.Join(dev, "mqueue"), "mqueue", unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
		return err
	}
	for name, target := range map[string]string{
		"ptmx": "pts/ptmx", "fd": "/proc/self/fd",
		"stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
	} {
		if err := os.Symlink(target, filepath.Join(dev, name)); err != nil {
			return fmt.Errorf("making device %s: %w", name, err)
		}
	}
	return nil
}

// bindDevice shows a device of the host, where it has it, in the node's folder of devices.
func bindDevice(dev, name string) error {
	if _, err := os.Stat("/dev/" + name); err != nil {
		return nil //nolint:nilerr // not every machine has every device
	}
	target := filepath.Join(dev, name)
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(target, nil, 0o666); err != nil {
		return err
	}
	return unix.Mount("/dev/"+name, target, "", unix.MS_BIND, "")
}

// ownMounts are the node's volatile folders and those that must be on a plain file system.
func ownMounts(spec *nodespec.Spec, root string) error {
	for path, options := range map[string]string{"run": "mode=755", "tmp": "mode=1777"} {
		if err := mountAt("tmpfs", filepath.Join(root, path), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Join(root, "run/lock"), 0o1777); err != nil {
		return fmt.Errorf("making /run/lock: %w", err)
	}
	for _, b := range []struct {
		source, target string
		flags          uintptr
	}{
		{filepath.Join(spec.Dir, nodespec.DataDir, "containerd"), "var/lib/containerd", 0},
		{filepath.Join(spec.Dir, nodespec.DataDir, "kubelet"), "var/lib/kubelet", 0},
		{filepath.Join(spec.Dir, nodespec.LogDir), nodespec.LogPath, 0},
		{spec.Programs, nodespec.ProgramsPath, unix.MS_RDONLY},
		{spec.Programs, nodespec.CNIBinPath, unix.MS_RDONLY},
		{spec.Images, nodespec.ImagesPath, unix.MS_RDONLY},
	} {
		if err := bind(b.source, filepath.Join(root, b.target), b.flags); err != nil {
			return err
		}
	}
	hidden := filepath.Join(root, spec.StateRoot)
	if _, err := os.Stat(hidden); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return mountAt("tmpfs", hidden, "tmpfs", unix.MS_RDONLY, "size=4k")
}

// pivot makes root the root of the namespace and unmounts the root of the host.
func pivot(root string) error {
	if err := unix.Chdir(root); err != nil {
		return fmt.Errorf("entering the node's root: %w", err)
	}
	// The old root is mounted on top of the new one and then unmounted, so no folder is necessary for it.
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("entering the node's root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("letting go of the host's root: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return fmt.Errorf("entering the node's root: %w", err)
	}
	// Pods may ask for mounts to propagate; within the node only, since the host was cut off above.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("sharing the node's mounts with its pods: %w", err)
	}
	return nil
}
