// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package nodeinit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/everynode/everynode/local/internal/nodespec"
)

// answer carries out one request of the library.
func (n *node) answer(request nodespec.Request) nodespec.Response {
	switch request.Op {
	case nodespec.OpPing:
		id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
		return nodespec.Response{BootID: strings.TrimSpace(string(id)), Error: text(err)}
	case nodespec.OpExec:
		return n.exec(request)
	case nodespec.OpWrite:
		return nodespec.Response{Error: text(write(request))}
	case nodespec.OpImport:
		return nodespec.Response{Error: text(n.images.importMissing())}
	}
	s := n.services[request.Service]
	if s == nil {
		return nodespec.Response{Error: fmt.Sprintf("no service %q for request %q", request.Service, request.Op)}
	}
	switch request.Op {
	case nodespec.OpStop:
		s.want(false)
	case nodespec.OpStart:
		s.want(true)
	case nodespec.OpKill:
		return nodespec.Response{Error: text(s.kill())}
	default:
		return nodespec.Response{Error: fmt.Sprintf("unknown request %q", request.Op)}
	}
	return nodespec.Response{}
}

// exec runs a command in the node and returns what it printed.
func (n *node) exec(request nodespec.Request) nodespec.Response {
	if len(request.Argv) == 0 {
		return nodespec.Response{Error: "no command given"}
	}
	path, err := exec.LookPath(request.Argv[0])
	if err != nil {
		return nodespec.Response{Error: err.Error()}
	}
	stdin, err := inputFile(request.Stdin)
	if err != nil {
		return nodespec.Response{Error: err.Error()}
	}
	defer stdin.Close()
	outReader, outWriter, err := os.Pipe()
	if err != nil {
		return nodespec.Response{Error: err.Error()}
	}
	errReader, errWriter, err := os.Pipe()
	if err != nil {
		return nodespec.Response{Error: errors.Join(err, outReader.Close(), outWriter.Close()).Error()}
	}
	_, done, err := n.reaper.start(path, request.Argv, n.env, [3]*os.File{stdin, outWriter, errWriter})
	outWriter.Close()
	errWriter.Close()
	stdout, stderr := drain(outReader), drain(errReader)
	if err != nil {
		return nodespec.Response{Error: err.Error()}
	}
	status := <-done
	response := nodespec.Response{Stdout: <-stdout, Stderr: <-stderr, ExitCode: status.ExitStatus()}
	if status.Signaled() {
		response.ExitCode = 128 + int(status.Signal())
	}
	return response
}

// inputFile is a file that reads as the data: a pipe would block when the command does not read.
func inputFile(data []byte) (*os.File, error) {
	if len(data) == 0 {
		return os.Open(os.DevNull)
	}
	file, err := os.CreateTemp("", "stdin")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(file.Name()); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if _, err := file.Write(data); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

func drain(reader *os.File) <-chan []byte {
	done := make(chan []byte, 1)
	go func() {
		defer reader.Close()
		var all bytes.Buffer
		_, _ = io.Copy(&all, reader)
		done <- all.Bytes()
	}()
	return done
}

// write puts a file in place whole: containerd watches the folder of the network configuration.
func write(request nodespec.Request) error {
	if err := os.MkdirAll(filepath.Dir(request.Path), 0o755); err != nil {
		return err
	}
	temp := filepath.Join(filepath.Dir(request.Path), "."+filepath.Base(request.Path)+".new")
	if err := os.WriteFile(temp, request.Data, os.FileMode(request.Mode)); err != nil {
		return err
	}
	return os.Rename(temp, request.Path)
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
