// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package upload stores the output of an attempt in an archive, with PUT requests. It is the program everynode-upload,
// which the runner starts: package contract.
package upload

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/everynode/everynode/internal/outcome"
	"github.com/everynode/everynode/internal/runner/contract"
	"github.com/everynode/everynode/internal/trust"
)

const (
	// stall is how long a request may take without progress: no byte is sent, and no response arrives.
	stall = 10 * time.Second
	// firstWait and longestWait are between two requests.
	firstWait, longestWait = 500 * time.Millisecond, 8 * time.Second
	// maxHeaderBytes and maxResponseBytes limit what is read of a response.
	maxHeaderBytes, maxResponseBytes = 64 << 10, 4 << 10
	// maxErrorBytes limits the text of an error of the network or of TLS.
	maxErrorBytes = 160
)

// uploader stores one content.
type uploader struct {
	client  *http.Client
	request *contract.UploadRequest
	content io.ReaderAt
	stall   time.Duration
	// wait returns how long to wait after the n-th request.
	wait func(n int) time.Duration
}

// Run stores the content, which is in sections of a file. It repeats requests that may succeed later until the time of the
// request has passed.
func Run(ctx context.Context, request *contract.UploadRequest, content io.ReaderAt) contract.UploadAnswer {
	client, err := newClient([]byte(request.CA))
	if err != nil {
		return contract.UploadAnswer{Error: err.Error()}
	}
	u := uploader{client: client, request: request, content: content, stall: stall, wait: backoff}
	return u.run(ctx)
}

func newClient(ca []byte) (*http.Client, error) {
	roots, err := trust.Roots(ca)
	if err != nil {
		return nil, fmt.Errorf("reading the ca.crt of the archive: %w", err)
	}
	return &http.Client{
		Transport: &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			TLSClientConfig:        &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			MaxResponseHeaderBytes: maxHeaderBytes,
			DisableKeepAlives:      true, // the next request comes after a failure
		},
		// Another server must not get the output.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// backoff doubles the wait with each request. Up to half of it is left out at random, so that many nodes do not return at
// once to a server that has too much to do.
func backoff(n int) time.Duration {
	wait := min(firstWait<<min(n, 10), longestWait)
	return wait - rand.N(wait/2)
}

func (u *uploader) run(ctx context.Context) contract.UploadAnswer {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(u.request.Milliseconds)*time.Millisecond)
	defer cancel()
	digest := sha256.New()
	if _, err := io.Copy(digest, u.body(func() {})); err != nil {
		return contract.UploadAnswer{Error: "reading the output: " + outcome.CleanHead(err.Error(), maxErrorBytes)}
	}
	problem := "there was no response in time"
	unknown := false
	for n := 0; ; n++ {
		is := u.put(ctx)
		if is.stored || (is.exists && unknown) {
			return contract.UploadAnswer{Stored: true, SHA256: hex.EncodeToString(digest.Sum(nil))}
		}
		if is.final {
			return contract.UploadAnswer{Error: is.problem}
		}
		unknown = unknown || is.unknown
		if is.problem != "" {
			problem = is.problem
		}
		select {
		case <-time.After(u.wait(n)):
		case <-ctx.Done():
			return contract.UploadAnswer{Error: fmt.Sprintf("%s (requests: %d)", problem, n+1)}
		}
	}
}

// result is the result of a request.
type result struct {
	stored bool
	// final is true if a further request would have the same result.
	final bool
	// exists is true if the server has an object of this name already.
	exists bool
	// unknown is true if the content may have been stored although there was no such response.
	unknown bool
	// problem is why the content is not stored; "" if the time has passed. It does not contain the URL.
	problem string
}

var errStalled = errors.New("there was no progress")

// put sends one request.
func (u *uploader) put(ctx context.Context) result {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := time.AfterFunc(u.stall, func() { cancel(errStalled) })
	defer watch.Stop()
	var sent atomic.Bool
	trace := &httptrace.ClientTrace{WroteHeaders: func() { sent.Store(true) }}
	request, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), http.MethodPut, u.request.URL, u.body(func() { watch.Reset(u.stall) }))
	if err != nil {
		return result{final: true, problem: "the URL of the archive is invalid"}
	}
	request.ContentLength = u.request.Size()
	if request.ContentLength == 0 {
		request.Body = http.NoBody // otherwise, the length would count as unknown
	}
	request.Header.Set("Content-Type", "text/plain; charset=utf-8")
	request.Header.Set("User-Agent", "everynode")
	request.Header.Set(contract.OnceHeader, contract.Once)
	response, err := u.client.Do(request)
	switch {
	case err != nil && errors.Is(context.Cause(ctx), errStalled):
		return result{unknown: sent.Load(), problem: fmt.Sprintf("nothing was sent or received for %v", u.stall)}
	case err != nil && ctx.Err() != nil:
		return result{}
	case err != nil:
		return result{unknown: sent.Load(), problem: withoutURL(err)}
	}
	body, _ := io.ReadAll(io.LimitReader(response.Body, maxResponseBytes)) // the status decides
	_ = response.Body.Close()
	return judge(response.StatusCode, body)
}

// body returns the content. moved is called with each piece that is sent.
func (u *uploader) body(moved func()) io.Reader {
	var parts []io.Reader
	for _, s := range u.request.Sections {
		parts = append(parts, io.NewSectionReader(u.content, s.Offset, s.Bytes))
	}
	return &watched{io.MultiReader(parts...), moved}
}

type watched struct {
	from  io.Reader
	moved func()
}

// Read implements io.Reader.
func (w *watched) Read(p []byte) (int, error) {
	w.moved()
	return w.from.Read(p)
}

// judge says what a response means.
func judge(code int, body []byte) result {
	if code >= 200 && code < 300 {
		return result{stored: true}
	}
	r := result{unknown: code >= 500, problem: "the response is " + strconv.Itoa(code) + " " + http.StatusText(code)}
	reason := s3Code(body)
	if reason != "" {
		r.problem += " (" + reason + ")"
	}
	switch code {
	case http.StatusPreconditionFailed:
		r.exists = true
		r.problem += ": the archive had an object of this name already, which was not overwritten"
	case http.StatusConflict:
		if reason == "ConditionalRequestConflict" { // another request for this object is in progress, such as an earlier one
			return r
		}
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return r
	}
	if code >= 300 && code < 400 {
		r.problem += ", and redirects are not followed"
	}
	r.final = code < 500
	return r
}

// s3Code returns the code in an error of S3, such as SignatureDoesNotMatch; "" if there is none.
func s3Code(body []byte) string {
	_, rest, _ := bytes.Cut(body, []byte("<Code>"))
	code, _, found := bytes.Cut(rest, []byte("</Code>"))
	strange := func(r rune) bool { return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') }
	if !found || len(code) > 64 || bytes.ContainsFunc(code, strange) {
		return ""
	}
	return string(code)
}

// withoutURL is the text of an error, without the URL that the errors of net/http begin with.
func withoutURL(err error) string {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err
	}
	return outcome.CleanHead(err.Error(), maxErrorBytes)
}
