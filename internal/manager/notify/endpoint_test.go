// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestCheckURL(t *testing.T) {
	for value, wantErr := range map[string]bool{
		"https://events.example.com/everynode":                 false,
		"http://relay.monitoring.svc:8080":                     false,
		"https://user:secret@events.example.com/?token=secret": false,
		"":                                    true,
		"events.example.com/secret":           true,
		"ftp://events.example.com/secret":     true,
		"https:///secret":                     true,
		"https://:443/secret":                 true,
		"https://events.example.com/#secret":  true,
		"https://events example/secret":       true,
		"https://events.example.com\n/secret": true,
	} {
		err := CheckURL(value)
		if (err != nil) != wantErr || (err != nil && strings.Contains(err.Error(), "secret")) {
			t.Errorf("%q: %v", value, err)
		}
	}
}

// folder writes files into a folder.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// post sends a request as the notifier does.
func post(t *testing.T, c *client) answer {
	t.Helper()
	return c.post(t.Context(), []byte("{}"), "application/json")
}

func newClient(config Config) *client {
	return &client{config: &config, timeout: 20 * time.Second, now: func() time.Time { return noon }}
}

func TestAMistakeInTheFilesIsNamedAndRetried(t *testing.T) {
	for name, tt := range map[string]struct {
		files map[string]string
		want  string
	}{
		"no file":                  {nil, "/url does not exist or is empty: write the URL for notifications to it, or set --notifications-url"},
		"an empty file":            {map[string]string{fileURL: "\n"}, "/url does not exist or is empty"},
		"a text that is no URL":    {map[string]string{fileURL: "hooks.test/secret"}, "/url: this is not the URL of an HTTP endpoint"},
		"an invalid header":        {map[string]string{fileURL: "http://127.0.0.1:1", fileAuthorization: "Bearer secret\nX: y"}, `invalid header field value for "Authorization"`},
		"no certificate":           {map[string]string{fileURL: "http://127.0.0.1:1", fileCA: "secret"}, "the file ca.crt for notifications contains no certificate in PEM format"},
		"a large file":             {map[string]string{fileURL: strings.Repeat("a", maxFileBytes+1)}, "has more than 1048576 bytes"},
		"no server listens":        {map[string]string{fileURL: "http://127.0.0.1:1/secret"}, "connect: connection refused"},
		"a server that is not TLS": {map[string]string{fileURL: strings.Replace(newReceiver(t, nil).URL, "http", "https", 1) + "/secret"}, "server gave HTTP response to HTTPS client"},
	} {
		t.Run(name, func(t *testing.T) {
			got := post(t, newClient(Config{Directory: folder(t, tt.files)}))
			if got.delivered || got.rejected || !strings.Contains(got.problem, tt.want) || strings.Contains(got.problem, "secret") {
				t.Errorf("the answer is %+v, want %q", got, tt.want)
			}
		})
	}
}

func TestTheFilesAreReadBeforeEachRequest(t *testing.T) {
	var authorization string
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { authorization = r.Header.Get("Authorization") })
	first, second := httptest.NewTLSServer(handler), httptest.NewServer(handler)
	defer first.Close()
	defer second.Close()
	certificate := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: first.Certificate().Raw}))
	dir := folder(t, map[string]string{fileURL: first.URL + "\n"})
	c := newClient(Config{Directory: dir})
	if got := post(t, c); got.delivered || !strings.Contains(got.problem, "certificate") {
		t.Errorf("without the certificate, the answer is %+v", got)
	}
	write := func(name, content string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(fileCA, certificate)
	if got := post(t, c); !got.delivered || authorization != "" {
		t.Errorf("with the certificate, the answer is %+v, and the header %q", got, authorization)
	}
	write(fileAuthorization, "Bearer one\n")
	if got := post(t, c); !got.delivered || authorization != "Bearer one" {
		t.Errorf("with a credential, the answer is %+v, and the header %q", got, authorization)
	}
	write(fileURL, second.URL)
	if got := post(t, c); !got.delivered {
		t.Errorf("with another URL, the answer is %+v", got)
	}
	if got := post(t, newClient(Config{URL: second.URL, Directory: folder(t, map[string]string{fileURL: first.URL})})); !got.delivered {
		t.Errorf("with a URL in the flag as well, the answer is %+v", got)
	}
}

func TestARedirectIsNotFollowed(t *testing.T) {
	elsewhere := newReceiver(t, nil)
	here := httptest.NewServer(http.RedirectHandler(elsewhere.URL+"/secret", http.StatusPermanentRedirect))
	defer here.Close()
	got := post(t, newClient(Config{URL: here.URL, Directory: folder(t, map[string]string{fileAuthorization: "Bearer secret"})}))
	if got.delivered || got.rejected ||
		got.problem != "the response is 308 Permanent Redirect, and redirects are not followed: give the URL that it redirects to" {
		t.Errorf("the answer is %+v", got)
	}
	if len(elsewhere.events()) > 0 {
		t.Error("it was followed")
	}
}

func TestAnEndpointThatHangsIsGivenUp(t *testing.T) {
	ends := make(chan struct{})
	for name, handle := range map[string]http.HandlerFunc{
		"before the response": func(http.ResponseWriter, *http.Request) { <-ends },
		"in the response": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte("a"))
			_ = http.NewResponseController(w).Flush()
			<-ends
		},
	} {
		server := httptest.NewServer(handle)
		defer server.Close()
		c := newClient(Config{URL: server.URL})
		c.timeout = 50 * time.Millisecond
		// A response whose beginning says that it is accepted counts, even if its end never comes.
		if got := post(
			t,
			c,
		); got.delivered != (name == "in the response") || got.rejected ||
			(!got.delivered && got.problem != "no response within 50ms") {
			t.Errorf("%s: the answer is %+v", name, got)
		}
	}
	close(ends)
}
