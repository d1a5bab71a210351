package cli

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
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/tools/clientcmd"
)

// Explain says an error of the API server in words that help, and with an exit code. What it does not know comes
// back as it is.
func Explain(err error) error {
	var own *Error
	switch {
	case err == nil, errors.As(err, &own), errors.Is(err, context.Canceled):
		return err
	case notInstalled(err):
		return Failf(ExitNotInstalled, "this cluster does not know NodeJobs: Everynode is not installed there. Apply its config/default (see Install it in the README), or choose another cluster with --context")
	case apierrors.IsForbidden(err):
		return Failf(ExitForbidden, "%s", forbidden(err))
	case apierrors.IsUnauthorized(err):
		return Failf(ExitForbidden, "the API server does not know who you are: %w. Log in again, or choose another user with --context", err)
	case apierrors.IsNotFound(err):
		return Failf(ExitNotFound, "%w", err)
	case clientcmd.IsEmptyConfig(err):
		return Failf(ExitUsage, "no cluster is configured: set KUBECONFIG, or give --kubeconfig or --server")
	case unreachable(err):
		return Failf(ExitUnreachable, "the API server does not answer: %w", err)
	}
	return err
}

// notInstalled is true when the API server has no such resource, as against no such object.
func notInstalled(err error) bool {
	if meta.IsNoMatchError(err) {
		return true
	}
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

func unreachable(err error) bool {
	var netErr net.Error
	var urlErr *url.Error
	return errors.As(err, &urlErr) || errors.As(err, &netErr) || utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) ||
		utilnet.IsProbableEOF(err) || errors.Is(err, context.DeadlineExceeded) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err)
}

// denied is how the API server says that RBAC forbids something. Source: k8s.io/apiserver
// pkg/endpoints/handlers/responsewriters/errors.go.
var denied = regexp.MustCompile(`User "([^"]*)" cannot (\S+) resource "([^"]*)" in API group "([^"]*)" (?:in the namespace "([^"]*)"|at the cluster scope)`)

// forbidden says which permission is missing, and how to see and give it.
func forbidden(err error) string {
	m := denied.FindStringSubmatch(err.Error())
	if m == nil {
		return err.Error() // a quota, an admission policy: it says itself why
	}
	user, verb, resource, group, namespace := m[1], m[2], m[3], m[4], m[5]
	if group != "" {
		resource += "." + group
	}
	where, flag := "in the whole cluster", ""
	if namespace != "" {
		where, flag = "in namespace "+namespace, " -n "+namespace
	}
	return fmt.Sprintf("%s may not %s %s %s. %s. To check: kubectl auth can-i %s %s%s",
		cmp.Or(user, "this user"), verb, resource, where, roleFor(verb, m[3]), verb, resource, flag)
}

// roleFor names the ClusterRole that has a permission.
func roleFor(verb, resource string) string {
	switch {
	case slices.Contains([]string{"get", "list", "watch"}, verb):
		return "The ClusterRole everynode-view has what the reading verbs need"
	case resource == "nodes" || resource == "pods":
		return "The ClusterRole everynode-operator has what retry, rerun, skip and abort need on nodes and pods"
	}
	return "The ClusterRole everynode-nodejob-editor has what steering needs, and makes its holder root on every node"
}
