// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"errors"
	"io"

	"golang.org/x/sys/unix"
)

// receive reads from the pipe and counts, which nothing can observe apart.
func (p *pump) receive(chunk []byte) (n int, err error) {
	conn, err := p.from.SyscallConn()
	if err != nil {
		return 0, err
	}
	waitErr := conn.Read(func(fd uintptr) bool {
		p.receiving.Lock()
		defer p.receiving.Unlock()
		for {
			if n, err = unix.Read(int(fd), chunk); !errors.Is(err, unix.EINTR) {
				break
			}
		}
		p.received += max(n, 0)
		return !errors.Is(err, unix.EAGAIN)
	})
	switch {
	case waitErr != nil:
		return 0, waitErr
	case err != nil:
		return 0, err
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// printed returns how many bytes the scripts have written until now, including those that are still in the pipe.
func (p *pump) printed() int {
	p.receiving.Lock()
	defer p.receiving.Unlock()
	waiting := 0
	// Not Fd, which would make the pipe block.
	if conn, err := p.from.SyscallConn(); err == nil {
		_ = conn.Control(func(fd uintptr) {
			if n, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ); err == nil { // also called FIONREAD
				waiting = n
			}
		})
	}
	return p.received + waiting
}
