// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

// used are the permissions that the managers of all tests have used. A missing permission makes a test fail.
var used = &usedRights{seen: sets.Set[string]{}, watched: map[string]int{}}

type usedRights struct {
	role rbacv1.ClusterRole
	mu   sync.Mutex
	seen sets.Set[string]
	// watched counts the watches of each path.
	watched map[string]int
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip does a request.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (u *usedRights) through(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		u.mu.Lock()
		u.seen.Insert(rightOf(r))
		if r.URL.Query().Get("watch") != "" {
			u.watched[r.URL.Path]++
		}
		u.mu.Unlock()
		return next.RoundTrip(r)
	})
}

// rightOf returns the permission that a request needs, such as "get /nodes" or "update everynode.dev/nodejobs/status".
func rightOf(r *http.Request) string {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	group := ""
	if parts[0] == "apis" && len(parts) > 1 {
		group, parts = parts[1], parts[1:]
	}
	parts = parts[min(2, len(parts)):] // without api or the group, and the version
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	if len(parts) == 0 {
		return "discovery"
	}
	verb := map[string]string{http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete", http.MethodGet: "get"}[r.Method]
	if verb == "get" && len(parts) == 1 {
		verb = "list"
		if r.URL.Query().Get("watch") != "" {
			verb = "watch"
		}
	}
	resource := parts[0]
	if len(parts) > 2 {
		resource += "/" + parts[2]
	}
	return verb + " " + group + "/" + resource
}

// watches returns how many watches of each path have begun.
func (u *usedRights) watches() map[string]int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return maps.Clone(u.watched)
}

// notUsed are the permissions of the role that no test has used.
func (u *usedRights) notUsed() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	var unused []string
	for _, rule := range u.role.Rules {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				object := " " + rule.APIGroups[0] + "/" + resource
				// Where the API server can, a watch begins with what a list would show.
				if !u.seen.Has(verb+object) && (verb != "list" || !u.seen.Has("watch"+object)) {
					unused = append(unused, verb+object)
				}
			}
		}
	}
	slices.Sort(unused)
	return unused
}
