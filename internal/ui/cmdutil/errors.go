// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cmdutil

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/everynode/everynode/internal/nodejob/steer"
)

// Explain translates an error of the API server into a helpful message with an exit code. It returns unknown errors
// unchanged.
func Explain(err error) error {
	var own *Error
	var refusal *steer.Refusal
	switch {
	case err == nil, errors.As(err, &own), errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &refusal):
		return Failf(refusals[refusal.Cause], "%w", err)
	case NotInstalled(err):
		return Failf(ExitNotInstalled, "%s", uninstalled(err))
	case apierrors.IsForbidden(err):
		return Failf(ExitForbidden, "%s", forbidden(err))
	case apierrors.IsUnauthorized(err):
		return Failf(ExitForbidden, "the API server does not know who you are: %w. Log in again, or choose another user with --context", err)
	case apierrors.IsNotFound(err):
		return Failf(ExitNotFound, "%w", err)
	case clientcmd.IsEmptyConfig(err):
		return Failf(ExitUsage, "%s", NoCluster)
	case apiServerDown(err):
		return Failf(ExitNoAnswer, "the API server does not answer: %w", err)
	}
	return err
}

// refusals are the exit codes of decisions that are not possible.
var refusals = map[steer.Cause]int{steer.Unsuitable: ExitUsage, steer.UnknownStep: ExitNotFound, steer.TooEarly: ExitError}

// NoCluster is the message if no API server is configured.
const NoCluster = "no cluster is configured: set KUBECONFIG, or give --kubeconfig or --server"

// NotInstalled reports whether the API server does not have the resource, as opposed to the object.
func NotInstalled(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// uninstalled returns an error that names the kind that the API server does not know.
func uninstalled(err error) string {
	const install = "Apply its config/default (see Install it in the README), or choose another cluster with --context"
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil && slices.Contains([]string{"nodeguards", "nodedisruptionbudgets"}, status.Status().Details.Kind) {
		return "this cluster does not have the resource " + status.Status().Details.Kind + ".everynode.dev: its Everynode is older than this command, or incomplete. " + install
	}
	return "this cluster does not know NodeJobs: Everynode is not installed there. " + install
}

func apiServerDown(err error) bool {
	var netErr net.Error
	var urlErr *url.Error
	return errors.As(err, &urlErr) || errors.As(err, &netErr) || utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) ||
		utilnet.IsProbableEOF(err) || errors.Is(err, context.DeadlineExceeded) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err)
}

// denied matches the message of the API server if RBAC forbids a request. Source: k8s.io/apiserver
// pkg/endpoints/handlers/responsewriters/errors.go.
var denied = regexp.MustCompile(`User "([^"]*)" cannot (\S+) resource "([^"]*)" in API group "([^"]*)" (?:in the namespace "([^"]*)"|at the cluster scope)`)

// forbidden returns an error that names the missing permission, and how to check and grant it.
func forbidden(err error) string {
	m := denied.FindStringSubmatch(err.Error())
	if m == nil {
		return err.Error() // the message of a quota or an admission policy states the reason
	}
	user, verb, resource, group, namespace := m[1], m[2], m[3], m[4], m[5]
	if group != "" {
		resource += "." + group
	}
	where, flag := "in the whole cluster", ""
	if namespace != "" {
		where, flag = "in namespace "+namespace, " -n "+namespace
	}
	return fmt.Sprintf("%s may not %s %s %s. %sTo check: kubectl auth can-i %s %s%s",
		cmp.Or(user, "this user"), verb, resource, where, roleFor(verb, m[3], namespace), verb, resource, flag)
}

// viewRoles are the ClusterRoles that allow to read a resource: in one namespace, and in the whole cluster.
var viewRoles = map[string]struct{ namespaced, cluster string }{
	"nodejobs":              {viewRole, viewAllRole},
	"nodeguards":            {viewRole, viewAllRole},
	"nodes":                 {cluster: viewNodesRole},
	"nodedisruptionbudgets": {cluster: viewNodesRole},
	"pods":                  {viewRole, viewDrainsRole},
	"pods/log":              {namespaced: viewRole},
	"configmaps":            {namespaced: viewRole},
	"serviceaccounts":       {namespaced: viewRole},
	"poddisruptionbudgets":  {cluster: viewDrainsRole},
}

const (
	viewRole       = "everynode-view"
	viewNodesRole  = "everynode-view-nodes"
	viewAllRole    = "everynode-view-all"
	viewDrainsRole = "everynode-view-drains"
)

// roleFor returns the ClusterRole of config/rbac that grants a permission in a namespace, or in the whole cluster if it is
// ""; "" if there is none.
func roleFor(verb, resource, namespace string) string {
	if slices.Contains([]string{"get", "list", "watch"}, verb) {
		role, how := viewRoles[resource].namespaced, "bound in this namespace"
		if namespace == "" {
			role, how = viewRoles[resource].cluster, "bound in the whole cluster"
		}
		if role == "" {
			return ""
		}
		return "The ClusterRole " + role + ", " + how + ", allows it. "
	}
	switch resource {
	case "nodes":
		return "The ClusterRole everynode-operator-nodes has what retry, rerun and skip need on nodes. "
	case "pods":
		return "The ClusterRole everynode-operator has what abort needs on pods. "
	case "nodedisruptionbudgets":
		return "The ClusterRole everynode-nodedisruptionbudget-editor, bound in the whole cluster, allows it. "
	case "nodejobs":
		return "The ClusterRole everynode-nodejob-editor allows changing NodeJobs. "
	}
	return ""
}
