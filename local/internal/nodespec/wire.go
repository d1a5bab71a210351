// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package nodespec

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"
)

// Operations. The keeper answers OpReboot; the init program answers the rest.
const (
	OpPing   = "ping"
	OpReboot = "reboot"
	OpStop   = "stop"
	OpStart  = "start"
	OpKill   = "kill"
	OpExec   = "exec"
	OpWrite  = "write"
	OpImport = "import"
)

// Request is one line of JSON; each connection carries one.
type Request struct {
	Op      string   `json:"op"`
	Service string   `json:"service,omitempty"`
	Argv    []string `json:"argv,omitempty"`
	Stdin   []byte   `json:"stdin,omitempty"`
	Path    string   `json:"path,omitempty"`
	Data    []byte   `json:"data,omitempty"`
	Mode    uint32   `json:"mode,omitempty"`
}

// Response answers a Request.
type Response struct {
	Error    string `json:"error,omitempty"`
	BootID   string `json:"bootID,omitempty"`
	Stdout   []byte `json:"stdout,omitempty"`
	Stderr   []byte `json:"stderr,omitempty"`
	ExitCode int    `json:"exitCode,omitempty"`
}

// socketPath addresses a socket through its folder's descriptor, because a socket's path may have
// only 107 characters and state folders are longer than that.
func socketPath(dir, name string) (path string, done func(), err error) {
	folder, err := os.Open(dir)
	if err != nil {
		return "", nil, err
	}
	return "/proc/self/fd/" + strconv.Itoa(int(folder.Fd())) + "/" + name, func() { folder.Close() }, nil
}

// Listen makes a socket in dir, in place of one that an earlier process left.
func Listen(dir, name string) (*net.UnixListener, error) {
	path, done, err := socketPath(dir, name)
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", name, err)
	}
	defer done()
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("listening on %s: %w", name, err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", name, err)
	}
	// The path is only valid in this process: nothing may be unlinked by it later.
	listener.SetUnlinkOnClose(false)
	return listener, nil
}

// Call sends one request to a node's socket and waits for the answer or the end of ctx.
func Call(ctx context.Context, dir, socket string, request Request) (*Response, error) {
	path, done, err := socketPath(dir, socket)
	if err != nil {
		return nil, fmt.Errorf("asking the node to %s: %w", request.Op, err)
	}
	defer done()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("asking the node to %s: %w", request.Op, err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := json.NewEncoder(conn).Encode(request); err != nil {
		return nil, fmt.Errorf("asking the node to %s: %w", request.Op, err)
	}
	response := &Response{}
	if err := json.NewDecoder(conn).Decode(response); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, fmt.Errorf("asking the node to %s: %w", request.Op, err)
	}
	if response.Error != "" {
		return response, fmt.Errorf("asking the node to %s: %s", request.Op, response.Error)
	}
	return response, nil
}

// Serve answers requests until the listener is closed.
func Serve(listener *net.UnixListener, answer func(Request) Response) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			var request Request
			if json.NewDecoder(conn).Decode(&request) != nil {
				return
			}
			// It is not an error for the node if a caller has disconnected.
			_ = json.NewEncoder(conn).Encode(answer(request))
		}()
	}
}
