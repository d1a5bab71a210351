// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package cgroups makes and removes a node's control group, in every hierarchy of the host: the
// several ones of version 1, the single one of version 2, or both side by side.
package cgroups

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// System is the child group that holds a node's own daemons. In version 2 a group with children
// that use controllers may hold no process itself, so they cannot be in the node's group.
const System = "system"

type hierarchy struct {
	mount   string
	unified bool
	cpuset  bool
}

// hierarchies lists where control groups are mounted.
func hierarchies() ([]hierarchy, error) {
	data, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, fmt.Errorf("listing control group hierarchies: %w", err)
	}
	var found []hierarchy
	seen := map[string]bool{}
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) < 4 || seen[fields[1]] || !strings.HasPrefix(fields[1], "/sys/fs/cgroup") {
			continue
		}
		switch fields[2] {
		case "cgroup2":
			found = append(found, hierarchy{mount: fields[1], unified: true})
		case "cgroup":
			options := strings.Split(fields[3], ",")
			h := hierarchy{mount: fields[1]}
			for _, option := range options {
				h.cpuset = h.cpuset || option == "cpuset"
			}
			found = append(found, h)
		}
		seen[fields[1]] = true
	}
	if len(found) == 0 {
		return nil, errors.New("listing control group hierarchies: none is mounted below /sys/fs/cgroup")
	}
	return found, nil
}

// Create makes the group and its System child in every hierarchy, level by level.
func Create(group string) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		current := h.mount
		for part := range strings.SplitSeq(group+"/"+System, "/") {
			if h.unified {
				if err := delegate(current); err != nil {
					return err
				}
			}
			parent := current
			current = filepath.Join(current, part)
			if err := os.Mkdir(current, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("creating a control group: %w", err)
			}
			if h.cpuset {
				if err := inheritCpuset(parent, current); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// delegate hands all of a group's controllers on to its children, as version 2 wants it done at each
// level. In the side-by-side layout there are usually none.
func delegate(dir string) error {
	data, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return fmt.Errorf("reading the controllers of a control group: %w", err)
	}
	for controller := range strings.FieldsSeq(string(data)) {
		err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+controller), 0o644)
		// Some controllers cannot be delegated (rdma, misc, cpu with real-time tasks about); the
		// kubelet names the one it misses, if it needs it.
		if errors.Is(err, syscall.EBUSY) {
			return fmt.Errorf("delegating control group controllers in %s: it holds processes itself; "+
				"run in a group whose processes were moved to a child: %w", dir, err)
		}
	}
	return nil
}

// inheritCpuset fills a new cpuset group: in version 1 it starts empty and then takes no process.
func inheritCpuset(parent, child string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(parent, file))
		if err != nil {
			return fmt.Errorf("filling a cpuset group: %w", err)
		}
		if err := os.WriteFile(filepath.Join(child, file), value, 0o644); err != nil {
			return fmt.Errorf("filling a cpuset group: %w", err)
		}
	}
	return nil
}

// Enter moves the calling process, with its threads, into the group's System child.
func Enter(group string) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		file := filepath.Join(h.mount, group, System, "cgroup.procs")
		if err := os.WriteFile(file, []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
			return fmt.Errorf("entering a control group: %w", err)
		}
	}
	return nil
}

// Kill ends every process in the group and its subgroups, regardless of who started it.
func Kill(group string) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		err := filepath.WalkDir(filepath.Join(h.mount, group), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.IsDir() {
				return ignoreGone(err)
			}
			data, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
			for text := range strings.FieldsSeq(string(data)) {
				if pid, err := strconv.Atoi(text); err == nil && pid > 1 && pid != os.Getpid() {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			}
			return ignoreGone(err)
		})
		if err != nil {
			return fmt.Errorf("killing the processes of a control group: %w", err)
		}
	}
	return nil
}

// Remove deletes the group and all below it in every hierarchy. A dying process keeps its group
// busy for a moment, so it is tried until the limit.
func Remove(group string, limit time.Duration) error {
	deadline := time.Now().Add(limit)
	for {
		left, err := remove(group)
		if err != nil || len(left) == 0 {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("removing control groups: still in use: %s", strings.Join(left, ", "))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Clear removes all groups that an earlier boot left below the node's, but for System, which the
// keeper is in. A machine boots with none, and the kubelet spends seconds on each that it finds.
func Clear(group string, limit time.Duration) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		entries, err := os.ReadDir(filepath.Join(h.mount, group))
		if err != nil {
			return fmt.Errorf("clearing a control group: %w", err)
		}
		for _, entry := range entries {
			if !entry.IsDir() || entry.Name() == System {
				continue
			}
			if err := Remove(group+"/"+entry.Name(), limit); err != nil {
				return err
			}
		}
	}
	return nil
}

func remove(group string) (left []string, err error) {
	all, err := hierarchies()
	if err != nil {
		return nil, err
	}
	for _, h := range all {
		var dirs []string
		err := filepath.WalkDir(filepath.Join(h.mount, group), func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				dirs = append(dirs, path)
			}
			return ignoreGone(err)
		})
		if err != nil {
			return nil, fmt.Errorf("removing control groups: %w", err)
		}
		for _, dir := range slices.Backward(dirs) {
			if err := syscall.Rmdir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
				left = append(left, dir)
			}
		}
	}
	return left, nil
}

// Existing lists the folders of the group that are still there.
func Existing(group string) []string {
	all, err := hierarchies()
	if err != nil {
		return nil
	}
	var found []string
	for _, h := range all {
		if _, err := os.Stat(filepath.Join(h.mount, group)); err == nil {
			found = append(found, filepath.Join(h.mount, group))
		}
	}
	return found
}

func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
		return nil
	}
	return err
}
