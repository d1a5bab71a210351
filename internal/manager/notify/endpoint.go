// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/everynode/everynode/internal/outcome"
	"github.com/everynode/everynode/internal/trust"
)

const (
	// DefaultSource is the source of CloudEvents if Config has none.
	DefaultSource = "/everynode"

	// requestTimeout limits a request, with its response.
	requestTimeout = 10 * time.Second
	// maxResponseBytes limits what is read of a response. It is thrown away: only then can the connection be used again.
	maxResponseBytes = 4 << 10
	// maxProblemBytes limits what is logged of an error, which may contain text of the server.
	maxProblemBytes = 256
	// maxHeaderBytes limits the header of a response.
	maxHeaderBytes = 64 << 10
	// maxFileBytes limits the files of Config.Directory. A bundle of certificates can have some 100 kB.
	maxFileBytes = 1 << 20
)

// Files in Config.Directory.
const (
	fileURL           = "url"
	fileAuthorization = "authorization"
	fileCA            = "ca.crt"
)

// Config says where notifications are sent.
type Config struct {
	// URL is where notifications are sent. If it is empty, the file url in Directory contains it.
	URL string
	// Directory has the files url; authorization, the value of the header Authorization; and ca.crt, the certificates that
	// sign the one of the server. All are optional, and are read before each request. "" for no directory.
	Directory string
	// Format is what is sent.
	Format Format
	// Source is the source of CloudEvents; DefaultSource if it is empty.
	Source string
	// DrainHeld is how long a NodeGuard may hold a node before this is reported; 0 for its own deadline only.
	DrainHeld time.Duration
}

// Enabled reports whether notifications are sent.
func (c *Config) Enabled() bool { return c.URL != "" || c.Directory != "" }

// CheckURL returns an error if notifications cannot be sent to a URL. The error does not contain the URL, which may contain a
// credential.
func CheckURL(value string) error {
	u, err := url.Parse(value)
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Hostname() == "" || u.Fragment != "" {
		return errors.New("this is not the URL of an HTTP endpoint: give one such as https://events.example.com/everynode, without a fragment (#)")
	}
	return nil
}

// target is where a request is sent.
type target struct {
	url, authorization string
	ca                 []byte
}

// target reads the files of the directory.
func (c *Config) target() (t target, err error) {
	t.url = c.URL
	if c.Directory == "" {
		return t, nil
	}
	if t.url == "" {
		content, err := c.file(fileURL)
		if err != nil {
			return t, err
		}
		if t.url = strings.TrimSpace(string(content)); t.url == "" {
			return t, fmt.Errorf("the file %s does not exist or is empty: write the URL for notifications to it, or set --notifications-url", filepath.Join(c.Directory, fileURL))
		}
		if err := CheckURL(t.url); err != nil {
			return t, fmt.Errorf("reading %s: %w", filepath.Join(c.Directory, fileURL), err)
		}
	}
	authorization, err := c.file(fileAuthorization)
	if err != nil {
		return t, err
	}
	t.authorization = strings.TrimSpace(string(authorization))
	t.ca, err = c.file(fileCA)
	return t, err
}

// file returns the content of a file in the directory; nothing if it does not exist.
func (c *Config) file(name string) ([]byte, error) {
	f, err := os.Open(filepath.Join(c.Directory, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	content, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err == nil && len(content) > maxFileBytes {
		err = fmt.Errorf("%s has more than %d bytes", f.Name(), maxFileBytes)
	}
	return content, err
}

// client sends requests.
type client struct {
	config *Config
	now    func() time.Time
	// timeout limits a request, with its response.
	timeout time.Duration
	// http is the client for the certificates in ca.
	http *http.Client
	ca   []byte
}

// answer is the answer of the endpoint.
type answer struct {
	// delivered is true if the endpoint has accepted the notification.
	delivered bool
	// rejected is true if it will never accept it.
	rejected bool
	// after is how long the endpoint asks to wait.
	after time.Duration
	// problem says why it is not delivered. It contains neither the URL nor the response.
	problem string
}

// post sends a request.
func (c *client) post(ctx context.Context, body []byte, contentType string) answer {
	t, err := c.config.target()
	if err == nil {
		err = c.trust(t.ca)
	}
	if err != nil {
		return answer{problem: err.Error()}
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url, bytes.NewReader(body))
	if err != nil {
		return answer{problem: withoutURL(err)}
	}
	request.Header.Set("Content-Type", contentType)
	request.Header.Set("User-Agent", "everynode")
	if t.authorization != "" {
		request.Header.Set("Authorization", t.authorization)
	}
	response, err := c.http.Do(request)
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			return answer{problem: fmt.Sprintf("no response within %s", c.timeout)}
		}
		return answer{problem: withoutURL(err)}
	}
	_, _ = io.CopyN(io.Discard, response.Body, maxResponseBytes) // the status decides
	_ = response.Body.Close()
	return judge(response, c.now())
}

// trust sets the client for the certificates.
func (c *client) trust(ca []byte) error {
	if c.http != nil && bytes.Equal(ca, c.ca) {
		return nil
	}
	roots, err := roots(ca)
	if err != nil {
		return err
	}
	if c.http != nil {
		c.http.CloseIdleConnections()
	}
	c.ca, c.http = ca, &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			MaxResponseHeaderBytes: maxHeaderBytes, MaxIdleConns: 1, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true,
		},
		// A redirect could send the credential to another host, or lose the body.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return nil
}

// roots returns the certificates that sign those of servers.
func roots(ca []byte) (*x509.CertPool, error) {
	pool, err := trust.Roots(ca)
	if errors.Is(err, trust.ErrNoCertificate) {
		return nil, fmt.Errorf("the file %s for notifications contains no certificate in PEM format", fileCA)
	}
	return pool, err
}

// withoutURL is the text of an error, without the URL that the errors of net/http begin with.
func withoutURL(err error) string {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err
	}
	return outcome.Clean(err.Error(), maxProblemBytes)
}

// judge says what a response means. Codes that a change of the configuration or of the endpoint can correct are retried.
func judge(response *http.Response, now time.Time) answer {
	a := answer{problem: "the response is " + strconv.Itoa(response.StatusCode) + " " + http.StatusText(response.StatusCode)}
	switch code := response.StatusCode; code {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusProxyAuthRequired, http.StatusRequestTimeout, http.StatusTooEarly:
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		a.after = retryAfter(response.Header.Get("Retry-After"), now)
	default:
		a.delivered, a.rejected = code >= 200 && code < 300, code >= 400 && code < 500
		if code >= 300 && code < 400 {
			a.problem += ", and redirects are not followed: give the URL that it redirects to"
		}
	}
	return a
}

// retryAfter reads the header Retry-After: seconds or a date; 0 if it is neither.
func retryAfter(value string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(at.Sub(now), 0)
	}
	return 0
}

// source is the source of CloudEvents.
func (c *Config) source() string { return cmp.Or(c.Source, DefaultSource) }
