// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/everynode/everynode/internal/text"
)

const (
	// maxLoginBytes limits the request of a login.
	maxLoginBytes = maxTokenBytes + 1<<10
	// loginTimeout is the time within which a login must be sent.
	loginTimeout = 10 * time.Second
	// maxUserBytes limits the name of a user in the log and in the page.
	maxUserBytes = 256
)

// loginRequest is what the form of the page sends.
type loginRequest struct {
	Token     string `json:"token"`
	Namespace string `json:"namespace"`
}

// serveLogin begins a session with a token that the user pastes, and sets a cookie with its ID. Scripts cannot read the cookie,
// and browsers do not send it with requests of other sites.
func (s *inCluster) serveLogin(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).SetReadDeadline(s.Now().Add(loginTimeout)) // not supported by the recorder of tests
	var request loginRequest
	if code, problem := s.site().read(w, r, maxLoginBytes, &request); problem != "" {
		fail(w, code, problem)
		return
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	if problems := validation.IsDNS1123Label(request.Namespace); request.Namespace != "" && len(problems) > 0 {
		fail(w, http.StatusBadRequest, "this is not the name of a namespace: "+problems[0])
		return
	}
	id := newID()
	begun, err := s.sessions.begin(r.Context(), keyOf("cookie", id), login{strings.TrimSpace(request.Token), request.Namespace, true})
	if err != nil {
		s.Log.Info("login refused", "reason", err.Error())
		refuse(w, err, false)
		return
	}
	s.Log.Info("login", "user", shortened(begun.user))
	http.SetCookie(w, newCookie(id))
	answer(w, map[string]string{"user": shortened(begun.user)})
}

// serveLogout ends the session of the cookie.
func (s *inCluster) serveLogout(w http.ResponseWriter, r *http.Request) {
	if code, problem := s.site().read(w, r, maxLoginBytes, &struct{}{}); problem != "" {
		fail(w, code, problem)
		return
	}
	if c, err := r.Cookie(cookie); err == nil {
		s.sessions.end(keyOf("cookie", c.Value))
	}
	removed := newCookie("")
	removed.MaxAge = -1
	http.SetCookie(w, removed)
	answer(w, struct{}{})
}

func newCookie(id string) *http.Cookie {
	return &http.Cookie{Name: cookie, Value: id, Path: "/", Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode}
}

// shortened returns the name of a user for the log and the page.
func shortened(user string) string { return text.Safe(user[:min(len(user), maxUserBytes)]) }
