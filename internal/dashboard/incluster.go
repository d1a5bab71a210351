// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/everynode/everynode/internal/clock"
	"github.com/everynode/everynode/internal/ui/cmdutil"
	"github.com/everynode/everynode/internal/version"
)

// InCluster are the options of the dashboard that runs in the cluster and serves many users. It has no permissions: everything
// is read with the token of the user who looks at it.
type InCluster struct {
	// APIServer is the URL of the API server, and APIServerCA the file with the certificates that it is checked with.
	APIServer, APIServerCA string
	// CertificateDir is the folder with tls.crt and tls.key. Without it, the dashboard makes its own certificate.
	CertificateDir string
	// PlainHTTP serves the page without TLS, for a proxy that has it.
	PlainHTTP bool
	// Hosts are the hosts of the page, with the port if it is not that of the scheme. Empty: all.
	Hosts []string
	// Cluster is the name of the cluster that the page shows.
	Cluster string
	// Namespace is shown to users who may not read all namespaces, and do not name another one.
	Namespace string
	// Log gets logins and ends of sessions, without tokens.
	Log *slog.Logger
	// Now is the clock of this machine, and After its alarm.
	Now   func() time.Time
	After func(time.Duration) <-chan time.Time
}

// inCluster is the server of the page for all users.
type inCluster struct {
	*InCluster
	sessions *sessions
}

// rightsInterval is how often the objects are listed again, so that permissions that were taken away have an effect: the API
// server checks the permissions of a watch only when it begins.
const rightsInterval = 5 * time.Minute

// Serve serves the page until the context ends.
func (o *InCluster) Serve(ctx context.Context, listener net.Listener) error {
	s := o.newServer(ctx)
	go s.sessions.run(ctx)
	server := &http.Server{
		Handler: s.handler(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 32 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx }, // so that streams end with the program
		ErrorLog:    slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
	}
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	var err error
	if o.PlainHTTP {
		err = server.Serve(listener)
	} else {
		var c *certificate
		if c, err = newCertificate(o.CertificateDir, o.Now); err != nil {
			return err
		}
		server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get}
		err = server.ServeTLS(listener, "", "")
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// newServer returns the server. Its watches end with the context.
func (o *InCluster) newServer(ctx context.Context) *inCluster {
	server := clock.New(o.Now)
	config := &rest.Config{
		Host: o.APIServer, TLSClientConfig: rest.TLSClientConfig{CAFile: o.APIServerCA}, QPS: -1,
		UserAgent: "everynode-dashboard/" + version.String(), WarningHandler: rest.NoWarnings{},
	}
	config.Wrap(server.Wrap)
	with := func(token string) *rest.Config {
		own := rest.CopyConfig(config)
		own.BearerToken = token
		return own
	}
	s := &inCluster{InCluster: o}
	turn := make(chan struct{}, 1)
	s.sessions = &sessions{
		now: o.Now, after: o.After, memory: newMemory(), loading: make(chan struct{}, 1), all: map[key]*session{},
		reviews: newReviews(func(ctx context.Context, token string) (string, error) { return review(ctx, with(token)) }, o.Now, o.After),
		start: func(of *session) (*viewer, context.CancelFunc, error) {
			v, err := o.viewer(of, with(of.token), server.Now)
			if err != nil {
				return nil, nil, err
			}
			v.turn = turn
			v.mirrors.unauthorized(func() { s.sessions.end(of.key) })
			watching, stop := context.WithCancel(ctx)
			v.ended = watching.Done()
			go v.run(watching)
			return v, stop, nil
		},
	}
	return s
}

// viewer returns the viewer of a session, which reads nothing before it runs.
func (o *InCluster) viewer(of *session, config *rest.Config, now func() time.Time) (*viewer, error) {
	c, err := cmdutil.NewClient(config)
	if err != nil {
		return nil, err
	}
	a := access{client: c, now: now, after: o.After, machine: o.Now, pods: func(namespace string) (corev1client.PodInterface, error) {
		return cmdutil.NewPods(config, namespace)
	}}
	v := newViewer(a, o.namespaceOf(of))
	v.mirrors.limitWatches(rightsInterval)
	// Tabs remember the version that they have while the watches are stopped. A state changes less than once a microsecond, so the
	// versions of the next viewer of the session are later.
	v.state = newState(uint64(max(o.Now().UnixMicro(), 1)))
	v.context, v.user, v.hasCookie = o.Cluster, of.user, of.hasCookie
	return v, nil
}

// namespaceOf returns the namespace to which a session is limited if its user may not read all of them: the one that the user
// named, that of the service account, or the default.
func (o *InCluster) namespaceOf(of *session) string {
	if of.namespace != "" {
		return of.namespace
	}
	if account, is := strings.CutPrefix(of.user, "system:serviceaccount:"); is {
		namespace, _, _ := strings.Cut(account, ":")
		return namespace
	}
	return o.Namespace
}

// review asks the API server who the user is.
func review(ctx context.Context, config *rest.Config) (string, error) {
	c, err := cmdutil.NewClient(config)
	if err != nil {
		return "", err
	}
	r := &authenticationv1.SelfSubjectReview{}
	err = c.Create(ctx, r)
	return r.Status.UserInfo.Username, err
}

// handler returns the handler of all requests. There is none that changes anything.
func (s *inCluster) handler() http.Handler {
	files, err := fs.Sub(page, "page")
	if err != nil {
		panic(err) // the folder is embedded
	}
	mux := http.NewServeMux()
	mux.Handle("GET /", http.FileServerFS(files))
	mux.HandleFunc("GET /mode.js", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/javascript; charset=utf-8")
		_, _ = w.Write([]byte("export const hasLogin = true;\n"))
	})
	routes(mux, s.with)
	mux.HandleFunc("POST /api/login", s.serveLogin)
	mux.HandleFunc("POST /api/logout", s.serveLogout)
	all := http.NewServeMux()
	all.Handle("/", s.site().protected(mux))
	all.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {}) // the kubelet has another host
	return all
}

// site returns the site of the page. If it is served without TLS, a proxy has TLS, or the page is on this machine.
func (s *inCluster) site() site {
	isHost := func(host string) bool { return len(s.Hosts) == 0 || slices.Contains(s.Hosts, host) }
	return site{
		isHost: isHost,
		isOrigin: func(origin, host string) bool {
			u, err := url.Parse(origin)
			return err == nil && (u.Scheme == "https" || s.PlainHTTP && u.Scheme == "http") && (u.Host == host || slices.Contains(s.Hosts, u.Host))
		},
		otherHost: "this host is not one of those of the dashboard (--hosts)",
	}
}

// cookie is the name of the cookie with the ID of a session. Browsers accept this prefix only with Secure, for this host only,
// and for all paths.
const cookie = "__Host-everynode"

// keyOfRequest returns the key of the session of a request, and the token if the request has it.
func keyOfRequest(r *http.Request) (k key, token string, found bool) {
	if token, is := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); is {
		return keyOf("token", token), token, true
	}
	if c, err := r.Cookie(cookie); err == nil {
		return keyOf("cookie", c.Value), "", true
	}
	return key{}, "", false
}

// with finds the session of a request. An authenticating proxy sends the token of the user with each request; otherwise, the user
// has logged in, and the browser sends a cookie.
func (s *inCluster) with(serve answerer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		k, token, found := keyOfRequest(r)
		if !found {
			refuse(w, errNoSession, true)
			return
		}
		of, v, err := s.sessions.enter(r.Context(), k)
		if errors.Is(err, errNoSession) && token != "" {
			if _, err = s.sessions.begin(r.Context(), k, login{token: token}); err == nil {
				of, v, err = s.sessions.enter(r.Context(), k)
			}
		}
		if err != nil {
			refuse(w, err, token == "")
			return
		}
		defer s.sessions.leave(of)
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		go func() { // streams end with the watches, and so with the session
			select {
			case <-v.ended:
				cancel()
			case <-ctx.Done():
			}
		}()
		serve(v, w, r.WithContext(ctx))
	})
}

// refuse answers a request without a session. canLogIn is true if the form for a login would help.
func refuse(w http.ResponseWriter, err error, canLogIn bool) {
	code := http.StatusBadGateway
	if r, is := errors.AsType[*refusal](err); is {
		code = r.code
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(encode(struct {
		Error string `json:"error"`
		LogIn bool   `json:"logIn,omitempty"`
	}{err.Error(), canLogIn && code == http.StatusUnauthorized}))
}

// newID returns a random ID of a session, of 128 bits or more.
func newID() string { return rand.Text() }
