// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/everynode/everynode/internal/outcome"
)

// maxResultsFile is the size in bytes at which the results file stops growing. Only the first outcome.MaxInputBytes are
// read. The rest is a reserve for careless scripts, whose write would otherwise fail. RLIMIT_FSIZE would be exact, but
// would also apply to every other file that the script writes.
const maxResultsFile = 4 << 20

// newMemfd returns a file in memory. It needs no writable file system on the node and disappears with the last process
// that has it open. Its memory counts for the cgroup of the pod.
func newMemfd(name string) (*os.File, error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	// If sysctl vm.memfd_noexec is 2, a memfd must be marked as not executable. Kernels before 6.3 do not know the
	// flag.
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) {
		fd, err = unix.MemfdCreate(name, flags)
	}
	if err != nil {
		return nil, fmt.Errorf("creating a file in memory: %w", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// newScriptFile returns a file with the script's text that cannot be modified any more.
func newScriptFile(text string) (*os.File, error) {
	f, err := newMemfd("everynode-script")
	if err != nil {
		return nil, err
	}
	if _, err := f.WriteString(text); err != nil {
		return nil, fmt.Errorf("storing the script: %w", err)
	}
	if err := seal(f, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE); err != nil {
		return nil, fmt.Errorf("sealing the script: %w", err)
	}
	return f, nil
}

// boundResultsFile stops the growth of a results file that is already too large: its writer gets EPERM, instead of an
// out-of-memory kill of the pod. It is called a few times a second while a script runs. The limit is not exact, but
// each call costs only one fstat.
func boundResultsFile(f *os.File) error {
	info, err := f.Stat()
	if err != nil || info.Size() < maxResultsFile {
		return err
	}
	if err = seal(f, unix.F_SEAL_GROW); errors.Is(err, unix.EINVAL) { // on a disk, and not in memory
		return f.Truncate(maxResultsFile)
	}
	return err
}

// readResults returns what the script wrote. If there is more than outcome reads, it returns one byte more, so that
// outcome can detect this.
func readResults(f *os.File) ([]byte, error) {
	b, err := io.ReadAll(io.NewSectionReader(f, 0, outcome.MaxInputBytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading the results: %w", err)
	}
	return b, nil
}

func seal(f *os.File, seals int) error {
	_, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals)
	return err
}
