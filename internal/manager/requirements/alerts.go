// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package requirements

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/plural"
)

const (
	// maxResponse limits the response of an Alertmanager, and maxHeaders its headers, in bytes.
	maxResponse = 1 << 20
	maxHeaders  = 16 << 10

	// maxNamed limits the alerts in a message.
	maxNamed = 3
)

// askAlertmanager returns which alerts match; "" if none does.
func (c *Checker) askAlertmanager(ctx context.Context, r *v1alpha1.RequiredAlerts) (active string, err error) {
	u, err := url.Parse(r.URL)
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "http" && u.Scheme != "https" {
		return "", invalidf("alerts.url must be an address with http or https, and without credentials")
	}
	// Alerts of which the Alertmanager does not know yet whether they are silenced count: unprocessed is true by default.
	query := url.Values{"active": {"true"}, "silenced": {"false"}, "inhibited": {"false"}, "filter": r.Matchers}
	u = u.JoinPath("api/v2/alerts")
	u.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return "", invalidf("alerts.url is not an address")
	}
	request.Header.Set("User-Agent", "everynode")
	services, err := c.services(ctx)
	if err != nil {
		return "", err
	}
	response, err := newHTTPClient(func(host string, ip netip.Addr) bool { return c.allowed.allow(host, ip, services) }).Do(request)
	if err != nil {
		return "", explainConnection(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxResponse+1))
	if err != nil {
		return "", explainConnection(err)
	}
	defer c.evaluations.enter()()
	if err := checkResponse(response.StatusCode, body); err != nil {
		return "", err
	}
	return readAlerts(body)
}

// explainConnection says why there is no response. The errors quote addresses that names have, and what a server sends.
func explainConnection(err error) error {
	var name *net.DNSError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, errNotAllowed):
		return errNotAllowed
	case errors.As(err, &name):
		return problemf("the host of alerts.url cannot be resolved")
	case errors.As(err, &certificate):
		return problemf("the certificate of alerts.url is not one that the manager trusts")
	case errors.Is(err, syscall.ECONNREFUSED):
		return problemf("connection refused by alerts.url")
	}
	return problemf("alerts.url does not give a complete response of HTTP")
}

// readAlerts reads a response of GET /api/v2/alerts.
// Source: https://github.com/prometheus/alertmanager/blob/main/api/v2/openapi.yaml.
func readAlerts(body []byte) (active string, err error) {
	var alerts []struct {
		Labels map[string]string `json:"labels"`
	}
	if err := json.Unmarshal(body, &alerts); err != nil || !bytes.HasPrefix(bytes.TrimSpace(body), []byte("[")) {
		return "", problemf("the response is not a list of alerts: set alerts.url to an Alertmanager with API version 2")
	}
	if len(alerts) == 0 {
		return "", nil
	}
	var names []string
	for _, a := range alerts {
		if name := cmp.Or(line(a.Labels["alertname"], 64), "(no alertname)"); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if len(names) > maxNamed {
		names = append(names[:maxNamed], "…")
	}
	return plural.CountAre(len(alerts), "alert") + " active: " + strings.Join(names, ", "), nil
}

// checkResponse returns an error if a response has no alerts.
func checkResponse(code int, body []byte) error {
	status := fmt.Sprintf("%d %s", code, http.StatusText(code))
	switch {
	case len(body) > maxResponse:
		return problemf("the response is larger than %d bytes: use matchers that select fewer alerts", maxResponse)
	case code == http.StatusBadRequest && bytes.HasPrefix(bytes.TrimSpace(body), []byte(`"`)): // an Alertmanager says why
		return invalidf("the Alertmanager rejects alerts.matchers (400 Bad Request): a matcher looks like severity=critical")
	case code >= 300 && code < 400:
		return problemf("the response is %s, and redirects are not followed: set alerts.url to the Alertmanager itself", status)
	case code != http.StatusOK:
		return problemf("the response is %s", status)
	}
	return nil
}
