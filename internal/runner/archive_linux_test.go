// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/everynode/everynode/internal/outcome"
	"github.com/everynode/everynode/internal/runner/contract"
	"github.com/everynode/everynode/internal/runner/upload"
)

// asUploader is everynode-upload.
func asUploader() int {
	var request contract.UploadRequest
	if err := json.Unmarshal([]byte(os.Getenv(contract.EnvUpload)), &request); err != nil {
		panic(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(upload.Run(context.Background(), &request, os.Stdin)); err != nil {
		return 1
	}
	return 0
}

// store is an archive. Each output that it gets is in stored.
type store struct {
	*httptest.Server
	stored chan string
}

// newStore returns an archive that accepts each output, or answers as do says.
func newStore(t *testing.T, do http.HandlerFunc) *store {
	t.Helper()
	s := &store{stored: make(chan string, 10)}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		content, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		s.stored <- string(content)
		if do != nil {
			do(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// environ are the variables with which a runner archives its output there.
func (s *store) environ(t *testing.T, seconds int) []string {
	t.Helper()
	return []string{
		"TEST_UPLOADER=/proc/self/exe", "TEST_SPOOL_DIR=" + t.TempDir(),
		fmt.Sprintf(`EVERYNODE_ARCHIVE={"url":"%s/a.log?signature=abc","maxBytes":4096,"seconds":%d}`, s.URL, seconds),
	}
}

// next waits for an output.
func (s *store) next(t *testing.T) string {
	t.Helper()
	select {
	case content := <-s.stored:
		return content
	case <-time.After(patience):
		t.Fatal("nothing was stored")
		return ""
	}
}

func TestTheWholeOutputIsArchived(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		environ []string
		code    int
		want    string
		dropped int64
	}{
		"a success": {[]string{"EVERYNODE_SCRIPT=echo one; sleep 0.1; echo two >&2"}, 0, "one\ntwo\n", 0},
		"a failure": {[]string{"EVERYNODE_SCRIPT=echo no disk; exit 3"}, 3, "no disk\n", 0},
		"nothing":   {[]string{"EVERYNODE_SCRIPT=true"}, 0, "", 0},
		"with its check": {
			[]string{"EVERYNODE_SCRIPT=echo one", "EVERYNODE_CHECK=echo two; exit 4"}, 4, "one\ntwo\n", 0,
		},
		"without secrets": {
			[]string{
				"EVERYNODE_SCRIPT=echo the password is $PASSWORD",
				"PASSWORD=swordfish",
				`EVERYNODE_MASK=["PASSWORD"]`,
			},
			0,
			"the password is ***\n",
			0,
		},
		"although the record has no output": {[]string{"EVERYNODE_SCRIPT=echo one; exit 3", "EVERYNODE_OUTPUT=None"}, 3, "one\n", 0},
		"with what the runner says": {
			[]string{
				"EVERYNODE_SCRIPT=printf one; sleep 60",
				"EVERYNODE_TIMEOUT=1",
			},
			124,
			"one\neverynode-runner: the time limit of 1s passed while the script ran\n",
			0,
		},
		"without its middle": {
			[]string{"EVERYNODE_SCRIPT=printf '%05000d' 1"}, 0, strings.Repeat("0", 1920) +
				"\neverynode-runner: 1160 bytes of the output were left out here: at most 4096 bytes of an attempt are archived\n" + strings.Repeat("0", 1919) + "1", 1160,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t, nil)
			got := startRunner(t, 0, testLimits(), append(s.environ(t, 30), tt.environ...)...).wait()
			if stored := s.next(t); stored != tt.want {
				t.Errorf("the archive has %q, want %q", stored, tt.want)
			}
			want := &outcome.Archive{
				Stored:  true,
				Bytes:   int64(len(tt.want)),
				Dropped: tt.dropped,
				SHA256:  fmt.Sprintf("%x", sha256.Sum256([]byte(tt.want))),
			}
			if diff := cmp.Diff(want, got.outcome.Archive); diff != "" || got.code != tt.code {
				t.Errorf("it ended with %d, the archive (-want +got):\n%s", got.code, diff)
			}
		})
	}
}

// TestAFailedUploadChangesNothingElse compares the outcome with that of an attempt that is not archived.
func TestAFailedUploadChangesNothingElse(t *testing.T) {
	t.Parallel()
	answer := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	never := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	tests := map[string]struct {
		do      http.HandlerFunc
		environ []string
		want    string
	}{
		"the archive refuses it": {answer(http.StatusForbidden), nil, "the response is 403 Forbidden"},
		"the archive fails": {
			answer(http.StatusInternalServerError),
			nil,
			"the response is 500 Internal Server Error (requests: ",
		},
		"the archive does not respond": {never, nil, "there was no response in time (requests: 1)"},
		"the image has no uploader": {
			nil,
			[]string{"TEST_UPLOADER=/missing"},
			"starting everynode-upload, which belongs to the runner image of the manager's release: no such file or directory",
		},
		"the uploader ends unexpectedly": {nil, []string{"TEST_UPLOADER=/bin/true"}, "everynode-upload ended without an answer"},
		"the container takes no new file": {
			nil,
			[]string{"TEST_SPOOL_DIR=/missing"},
			"creating a file for the output in the container: no such file or directory",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			task := []string{"EVERYNODE_SCRIPT=echo disk=sda >> $EVERYNODE_RESULTS; echo no disk; exit 3"}
			want := runToEnd(t, task...).outcome
			got := runToEnd(t, append(append(newStore(t, tt.do).environ(t, 1), tt.environ...), task...)...)
			archive := got.outcome.Archive
			if archive == nil || archive.Stored || !strings.HasPrefix(archive.Error, tt.want) {
				t.Errorf("the archive is %+v, want the error %q", archive, tt.want)
			}
			if !strings.Contains(got.stderr, "everynode-runner: the output is not archived: "+tt.want) ||
				strings.Contains(got.stderr, "signature") {
				t.Errorf("stderr does not say why: %s", got.stderr)
			}
			got.outcome.Archive = nil
			if diff := cmp.Diff(want, got.outcome); diff != "" {
				t.Errorf("the rest of the outcome (-without archive +with):\n%s", diff)
			}
		})
	}
}

// TestAPodThatIsDeletedDuringAnUploadReportsItsOutcome : a kubelet kills the runner 30 s after the signal.
func TestAPodThatIsDeletedDuringAnUploadReportsItsOutcome(t *testing.T) {
	t.Parallel()
	s := newStore(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	r := startRunner(t, 0, testLimits(), append(s.environ(t, 60), "EVERYNODE_SCRIPT=echo done")...)
	s.next(t)
	// What is known would be reported if the runner were killed now.
	content, err := os.ReadFile(r.log)
	if o, ok := outcome.Decode(string(content)); err != nil || !ok || o.Message != "done" || o.Archive != nil {
		t.Errorf("during the upload, the termination log has %s, %v", content, err)
	}
	told := time.Now()
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	got := r.wait()
	if took := time.Since(told); took > patience/2 {
		t.Errorf("it has taken %v", took)
	}
	want := outcome.Outcome{Message: "done", Archive: &outcome.Archive{Bytes: 5, Error: "everynode-upload did not end in time"}}
	if diff := cmp.Diff(want, got.outcome); diff != "" {
		t.Errorf("outcome (-want +got):\n%s", diff)
	}
}

func TestAnInterruptedTaskIsArchivedIfThereIsTime(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		after time.Duration
		want  bool
	}{
		"there is time":    {patience, true},
		"there is no time": {time.Nanosecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t, nil)
			limits := testLimits()
			limits.UploadAfterSignal = tt.after
			r := startRunner(t, 0, limits, append(s.environ(t, 30), "EVERYNODE_SCRIPT=echo begun; sleep 60")...)
			r.stdout.waitFor(t, "begun")
			if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			got := r.wait()
			if archive := got.outcome.Archive; archive == nil || archive.Stored != tt.want ||
				got.outcome.Reason != outcome.ReasonDisrupted {
				t.Errorf("the outcome is %+v with the archive %+v", got.outcome, archive)
			}
		})
	}
}

func TestASecondContainerReportsTheArchiveOfTheFirst(t *testing.T) {
	t.Parallel()
	s := newStore(t, nil)
	environ := append(s.environ(t, 30), "EVERYNODE_SCRIPT=echo one", "TEST_RUN_DIR="+t.TempDir())
	first := runToEnd(t, environ...)
	second := runToEnd(t, environ...)
	if diff := cmp.Diff(first.outcome, second.outcome); diff != "" || first.outcome.Archive == nil || len(s.stored) != 1 {
		t.Errorf("%d outputs are stored, the outcome (-first +second):\n%s", len(s.stored), diff)
	}
}

// TestScriptsDoNotSeeTheArchive : the URL has a signature, and a script may print its environment.
func TestScriptsDoNotSeeTheArchive(t *testing.T) {
	t.Parallel()
	s := newStore(t, nil)
	got := runToEnd(t, append(s.environ(t, 30), "EVERYNODE_SCRIPT=env")...)
	if strings.Contains(got.stdout, "signature") || strings.Contains(got.stdout, "EVERYNODE_ARCHIVE") {
		t.Errorf("the environment has the archive: %s", got.stdout)
	}
}

func TestParseArchive(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		in      string
		want    *contract.Archive
		wantErr string
	}{
		"none": {"", nil, ""},
		"all": {
			`{"url":"https://a.test/x?s=1","ca":"PEM","maxBytes":4096,"seconds":60}`,
			&contract.Archive{URL: "https://a.test/x?s=1", CA: "PEM", MaxBytes: 4096, Seconds: 60},
			"",
		},
		"no JSON": {
			"https://a.test/?signature=abc",
			nil,
			"reading EVERYNODE_ARCHIVE as a JSON object with a url: it is something else",
		},
		"no URL":                    {`{"maxBytes":4096,"seconds":60}`, nil, "as a JSON object with a url"},
		"a limit that is too small": {`{"url":"https://a.test","maxBytes":1,"seconds":60}`, nil, "EVERYNODE_ARCHIVE has 1 for maxBytes"},
		"a limit that is too large": {
			`{"url":"https://a.test","maxBytes":4294967296,"seconds":60}`,
			nil,
			"EVERYNODE_ARCHIVE has 4294967296 for maxBytes",
		},
		"a time that is too long": {`{"url":"https://a.test","maxBytes":4096,"seconds":61}`, nil, "and 61 for seconds"},
		"no time":                 {`{"url":"https://a.test","maxBytes":4096}`, nil, "and 0 for seconds"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parseArchive(tt.in)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("archive (-want +got):\n%s", diff)
			}
			if (err == nil) != (tt.wantErr == "") ||
				(err != nil && (!strings.Contains(err.Error(), tt.wantErr) || strings.Contains(err.Error(), "signature"))) {
				t.Errorf("the error is %v, want %q", err, tt.wantErr)
			}
		})
	}
}
