// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/everynode/everynode/internal/outcome"
	"github.com/everynode/everynode/internal/runner/contract"
)

// answerTime is how long everynode-upload has to report that its time has passed.
const answerTime = time.Second

// openSpool prepares the file for the output. An error is reported instead of an archive: the task runs nevertheless.
func (a *attempt) openSpool() {
	if a.Archive == nil {
		return
	}
	file, err := newSpoolFile(a.SpoolDir)
	if err != nil {
		a.spoolError = err
		return
	}
	a.spool = newSpool(file, a.Archive.MaxBytes)
}

// newSpoolFile returns a file that has no name, so that nothing has to remove it. It is on a disk, and not in memory:
// memory counts against the limit of the task, which could be killed for it.
func newSpoolFile(dir string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf(".everynode-output-%d", os.Getpid())), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("creating a file for the output in the container: %w", errnoOf(err))
	}
	if err := os.Remove(file.Name()); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("creating a file for the output in the container: %w", errnoOf(err))
	}
	return file, nil
}

// archived returns the outcome with what became of the output. Before the upload, the outcome is stored without it: it counts
// if the runner is killed meanwhile.
func (a *attempt) archived(log *os.File, turn *runLock, result outcome.Outcome, said []string) (outcome.Outcome, []string) {
	if err := storeLog(log, result); err != nil {
		said = append(said, err.Error())
	}
	if result.Archive = a.archive(said); !result.Archive.Stored {
		said = append(said, "the output is not archived: "+result.Archive.Error)
	}
	if err := turn.end(result); err != nil {
		said = append(said, err.Error())
	}
	return result, said
}

// archive stores the output, with the notes of the runner at its end, and says what became of it. Nothing here changes how
// the attempt has ended.
func (a *attempt) archive(notes []string) *outcome.Archive {
	if a.spool == nil {
		return outcome.NotStored(a.spoolError.Error()).Bounded()
	}
	defer func() { _ = a.spool.file.Close() }()
	for _, note := range notes {
		a.spool.note(note)
	}
	sections, dropped, err := a.spool.content()
	if err != nil {
		return outcome.NotStored(err.Error()).Bounded()
	}
	request := contract.UploadRequest{URL: a.Archive.URL, CA: a.Archive.CA, Sections: sections}
	result := &outcome.Archive{Bytes: request.Size(), Dropped: dropped}
	if digest, err := a.upload(&request); err != nil {
		result.Error = err.Error()
	} else {
		result.Stored, result.SHA256 = true, digest
	}
	return result.Bounded()
}

// upload runs everynode-upload until it has stored the content, or the time for that has passed. It returns the digest of the
// content.
func (a *attempt) upload(request *contract.UploadRequest) (digest string, err error) {
	end := time.Now().Add(time.Duration(a.Archive.Seconds) * time.Second)
	a.supervisor.takeSignals()
	left := time.Until(a.supervisor.uploadUntil(end))
	if left <= 0 {
		return "", errors.New("the runner was told to stop, which left no time for it")
	}
	request.Milliseconds = left.Milliseconds()
	read, write, err := os.Pipe()
	if err != nil {
		return "", fmt.Errorf("creating a pipe: %w", errnoOf(err))
	}
	defer func() { _ = read.Close() }()
	pid, err := a.startUpload(request, write)
	_ = write.Close()
	if err != nil {
		return "", err
	}
	if !a.supervisor.waitForUpload(pid, end) {
		return "", errors.New(contract.UploadProgram + " did not end in time")
	}
	// It has ended, and an answer fits into the pipe.
	content, err := io.ReadAll(io.LimitReader(read, contract.MaxUploadAnswerBytes))
	var answer contract.UploadAnswer
	switch {
	case err != nil || json.Unmarshal(content, &answer) != nil:
		return "", errors.New(contract.UploadProgram + " ended without an answer")
	case !answer.Stored:
		return "", errors.New(outcome.CleanLine(answer.Error))
	}
	return answer.SHA256, nil
}

// startUpload starts everynode-upload in the container, and not on the node.
func (a *attempt) startUpload(request *contract.UploadRequest, answer *os.File) (pid int, err error) {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return 0, fmt.Errorf("starting %s: %w", contract.UploadProgram, errnoOf(err))
	}
	defer func() { _ = null.Close() }()
	encoded, err := json.Marshal(request)
	if err != nil {
		return 0, fmt.Errorf("encoding the request: %w", err)
	}
	pid, err = syscall.ForkExec(a.Uploader, []string{contract.UploadProgram}, &syscall.ProcAttr{
		Dir:   "/",
		Env:   append(proxies(a.Config.Environ), contract.EnvUpload+"="+string(encoded)),
		Files: []uintptr{a.spool.file.Fd(), answer.Fd(), null.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return 0, fmt.Errorf("starting %s, which belongs to the runner image of the manager's release: %w", contract.UploadProgram, errnoOf(err))
	}
	return pid, nil
}

// proxyVariables are the variables by which HTTP clients find a proxy.
var proxyVariables = []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"}

// proxies returns the variables of a task that name a proxy. All others are for the scripts only.
func proxies(environ []string) []string {
	var found []string
	for _, entry := range environ {
		if name, _, _ := strings.Cut(entry, "="); slices.Contains(proxyVariables, name) {
			found = append(found, entry)
		}
	}
	return found
}

// takeSignals notes the signals that have arrived since the script has ended.
func (s *supervisor) takeSignals() {
	for {
		select {
		case sig := <-s.signals:
			s.interrupt(sig)
		default:
			return
		}
	}
}

// uploadUntil returns when an upload must end: at its own end, and early enough that a pod that is deleted can still report
// its outcome.
func (s *supervisor) uploadUntil(end time.Time) time.Time {
	if s.toldAt.IsZero() {
		return end
	}
	if latest := s.toldAt.Add(s.limits.UploadAfterSignal); latest.Before(end) {
		return latest
	}
	return end
}

// waitForUpload waits for everynode-upload, and kills it when it must end. A signal to stop makes that time earlier. It
// returns false if the process was killed, or cannot be.
func (s *supervisor) waitForUpload(pid int, end time.Time) bool {
	for {
		if reap().has(pid) {
			return true
		}
		over := time.NewTimer(time.Until(s.uploadUntil(end).Add(answerTime)))
		select {
		case <-s.children:
		case sig := <-s.signals:
			s.interrupt(sig)
		case <-over.C:
			_ = unix.Kill(pid, unix.SIGKILL)
			s.waitForNone(time.Second)
			return false
		}
		over.Stop()
	}
}
