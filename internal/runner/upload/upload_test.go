// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package upload

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/everynode/everynode/internal/runner/contract"
)

// server is an archive. It answers the n-th request with the n-th answer, and all later ones with the last.
type server struct {
	*httptest.Server
	mu       sync.Mutex
	answers  []http.HandlerFunc
	requests int
	stored   string
	header   http.Header
	length   int64
}

func serve(t *testing.T, tls bool, answers ...http.HandlerFunc) *server {
	t.Helper()
	s := &server{answers: answers}
	s.Server = httptest.NewUnstartedServer(s)
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // connections that are closed are part of the tests
	if tls {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	answer := s.answers[min(s.requests, len(s.answers)-1)]
	s.requests++
	s.header, s.length = r.Header.Clone(), r.ContentLength
	s.mu.Unlock()
	answer(w, r)
}

func (s *server) accept(w http.ResponseWriter, r *http.Request) {
	content, err := io.ReadAll(r.Body)
	if err != nil || r.Method != http.MethodPut {
		http.Error(w, "no", http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	s.stored = string(content)
	s.mu.Unlock()
}

func status(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(code)
		fmt.Fprint(w, body)
	}
}

// hang does not respond before the client has gone.
func hang(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

// closes reads a part of the request, and closes the connection.
func closes(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.ReadFull(r.Body, make([]byte, 1))
	panic(http.ErrAbortHandler)
}

// keep stores the content, and then answers in another way.
func keep(answer http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var copied bytes.Buffer
		r.Body = io.NopCloser(io.TeeReader(r.Body, &copied))
		r.Context().Value(http.ServerContextKey).(*http.Server).Handler.(*server).accept(httptest.NewRecorder(), r)
		r.Body = io.NopCloser(&copied)
		answer(w, r)
	}
}

func digestOf(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }

// TestARequestThatWasNeverSentHasWrittenNothing : then an object of this name is of another client.
func TestARequestThatWasNeverSentHasWrittenNothing(t *testing.T) {
	s := serve(t, false, status(http.StatusPreconditionFailed, ""))
	client, dials := s.Client(), 0
	dial := (&net.Dialer{}).DialContext
	client.Transport = &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		if dials++; dials == 1 {
			return nil, errors.New("connection refused")
		}
		return dial(ctx, network, address)
	}}
	u := uploader{
		client:  client,
		content: strings.NewReader(content),
		stall:   20 * time.Second,
		wait:    func(int) time.Duration { return time.Millisecond },
		request: &contract.UploadRequest{URL: s.URL, Milliseconds: 60_000, Sections: []contract.Section{{Bytes: 5}}},
	}
	if got := u.run(t.Context()); got.Stored || dials != 2 {
		t.Errorf("the answer is %+v after %d connections", got, dials)
	}
}

const content = "head|tail|notice"

// store uploads three sections of content in another order.
func store(t *testing.T, url, ca string, milliseconds int64) contract.UploadAnswer {
	t.Helper()
	client, err := newClient([]byte(ca))
	if err != nil {
		return contract.UploadAnswer{Error: err.Error()}
	}
	u := uploader{
		client:  client,
		content: strings.NewReader(content),
		stall:   200 * time.Millisecond,
		wait:    func(int) time.Duration { return time.Millisecond },
		request: &contract.UploadRequest{
			URL:          url,
			CA:           ca,
			Milliseconds: milliseconds,
			Sections:     []contract.Section{{Bytes: 5}, {Offset: 10, Bytes: 6}, {Offset: 5, Bytes: 5}},
		},
	}
	return u.run(t.Context())
}

var number = regexp.MustCompile(`requests: \d+`)

func TestRun(t *testing.T) {
	accept := func(w http.ResponseWriter, r *http.Request) {
		r.Context().Value(http.ServerContextKey).(*http.Server).Handler.(*server).accept(w, r)
	}
	const long, short = 60_000, 300 // milliseconds
	denied := status(
		http.StatusForbidden,
		`<?xml version="1.0"?><Error><Code>SignatureDoesNotMatch</Code><Message>secret</Message></Error>`,
	)
	exists := status(http.StatusPreconditionFailed, "<Code>PreconditionFailed</Code>")
	conflict := status(http.StatusConflict, "<Code>ConditionalRequestConflict</Code>")
	stored := contract.UploadAnswer{Stored: true, SHA256: digestOf("head|noticetail|")}
	const was = "the response is 412 Precondition Failed (PreconditionFailed): the archive had an object of this name already, which was not overwritten"
	tests := map[string]struct {
		answers []http.HandlerFunc
		within  int64
		want    contract.UploadAnswer
		// requests is how many there must be; 0 for more than one.
		requests int
	}{
		"the server accepts it": {[]http.HandlerFunc{accept}, long, stored, 1},
		"the server fails once": {[]http.HandlerFunc{status(500, ""), accept}, long, stored, 2},
		"the server has too much to do once": {
			[]http.HandlerFunc{status(429, ""), status(503, "<Code>SlowDown</Code>"), accept},
			long,
			stored,
			3,
		},
		"the server does not respond once":      {[]http.HandlerFunc{hang, accept}, long, stored, 2},
		"the server closes the connection once": {[]http.HandlerFunc{closes, accept}, long, stored, 2},
		"another client has written the object": {[]http.HandlerFunc{exists}, long, contract.UploadAnswer{Error: was}, 1},
		"another client has, as the server was busy": {
			[]http.HandlerFunc{status(429, ""), exists},
			long,
			contract.UploadAnswer{Error: was},
			2,
		},
		"a request without a response has written it": {[]http.HandlerFunc{keep(hang), exists}, long, stored, 2},
		"a request that was cut off has written it":   {[]http.HandlerFunc{keep(closes), exists}, long, stored, 2},
		"a gateway did not wait for the response":     {[]http.HandlerFunc{keep(status(504, "")), exists}, long, stored, 2},
		"an earlier request is in progress":           {[]http.HandlerFunc{keep(hang), conflict, exists}, long, stored, 3},
		"another conflict": {
			[]http.HandlerFunc{status(409, "")},
			long,
			contract.UploadAnswer{Error: "the response is 409 Conflict"},
			1,
		},
		"the server always fails": {
			[]http.HandlerFunc{status(500, "")},
			short,
			contract.UploadAnswer{Error: "the response is 500 Internal Server Error (requests: N)"},
			0,
		},
		"the server never responds": {
			[]http.HandlerFunc{hang},
			700,
			contract.UploadAnswer{Error: "nothing was sent or received for 200ms (requests: N)"},
			0,
		},
		"the time passes before a response": {
			[]http.HandlerFunc{hang},
			50,
			contract.UploadAnswer{Error: "there was no response in time (requests: 1)"},
			1,
		},
		"the signature is wrong": {
			[]http.HandlerFunc{denied},
			long,
			contract.UploadAnswer{Error: "the response is 403 Forbidden (SignatureDoesNotMatch)"},
			1,
		},
		"the bucket is missing": {
			[]http.HandlerFunc{status(404, "<Code>NoSuchBucket</Code>")},
			long,
			contract.UploadAnswer{Error: "the response is 404 Not Found (NoSuchBucket)"},
			1,
		},
		"the code of the error is markup": {
			[]http.HandlerFunc{status(404, "<Code>\x1b[2J</Code>")},
			long,
			contract.UploadAnswer{Error: "the response is 404 Not Found"},
			1,
		},
		"the server redirects": {
			[]http.HandlerFunc{http.RedirectHandler("/other", http.StatusTemporaryRedirect).ServeHTTP},
			long,
			contract.UploadAnswer{Error: "the response is 307 Temporary Redirect, and redirects are not followed"},
			1,
		},
		"the server responds with a code of its own": {
			[]http.HandlerFunc{status(499, "")},
			long,
			contract.UploadAnswer{Error: "the response is 499 "},
			1,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, false, tt.answers...)
			got := store(t, s.URL+"/bucket/a.log?X-Amz-Signature=abc", "", tt.within)
			s.mu.Lock()
			defer s.mu.Unlock()
			if tt.requests == 0 { // the last one may not have reached the server
				got.Error = number.ReplaceAllString(got.Error, "requests: N")
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
			if (tt.requests > 0 && s.requests != tt.requests) || (tt.requests == 0 && s.requests < 2) {
				t.Errorf("there were %d requests", s.requests)
			}
			if want := "head|noticetail|"; got.Stored && s.stored != want {
				t.Errorf("stored %q, want %q", s.stored, want)
			}
			if s.length != int64(len(content)) || s.header.Get("Content-Type") != "text/plain; charset=utf-8" ||
				s.header.Get("If-None-Match") != "*" {
				t.Errorf("the length is %d, and the header %v", s.length, s.header)
			}
		})
	}
}

func TestTheServerMustBeTrusted(t *testing.T) {
	s := serve(t, true, func(http.ResponseWriter, *http.Request) {})
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	tests := map[string]struct {
		ca, want string
	}{
		"the certificate is in ca.crt":      {ca, ""},
		"the certificate is of a stranger":  {"", "x509: certificate signed by unknown authority (requests: "},
		"there is no certificate in ca.crt": {"none", "reading the ca.crt of the archive: it contains no certificate in PEM format"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := store(t, s.URL, tt.ca, 300)
			if got.Stored != (tt.want == "") || !strings.Contains(got.Error, tt.want) {
				t.Errorf("the answer is %+v, want %q", got, tt.want)
			}
		})
	}
}

// TestAnEmptyOutputHasALength : S3 does not accept requests without one.
func TestAnEmptyOutputHasALength(t *testing.T) {
	s := serve(t, false, func(http.ResponseWriter, *http.Request) {})
	got := Run(
		t.Context(),
		&contract.UploadRequest{URL: s.URL, Milliseconds: 60_000, Sections: []contract.Section{{}}},
		strings.NewReader(""),
	)
	if !got.Stored || s.length != 0 {
		t.Errorf("the answer is %+v, and the length %d", got, s.length)
	}
}

func TestErrorsDoNotContainTheURL(t *testing.T) {
	s := serve(t, false, hang)
	url := s.URL
	s.Close()
	for _, target := range []string{url + "/?X-Amz-Signature=secret", "http://[::1/secret", "ftp://archive.test/secret"} {
		if got := store(t, target, "", 50); got.Stored || got.Error == "" || strings.Contains(got.Error, "secret") {
			t.Errorf("%s: the answer is %+v", target, got)
		}
	}
}

func TestBackoff(t *testing.T) {
	for n := range 100 {
		if wait := backoff(n); wait < firstWait/2 || wait > longestWait || (n == 0 && wait > firstWait) {
			t.Errorf("after request %d, it waits for %v", n, wait)
		}
	}
}
