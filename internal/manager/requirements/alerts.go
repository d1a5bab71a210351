// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package requirements

import (
	"bytes"
	"cmp"
	"context"
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

// newHTTPClient returns a client that follows no redirects, keeps no connections, and connects to no address that is forbidden.
func newHTTPClient(forbidden func(netip.Addr) bool) *http.Client {
	dialer := &net.Dialer{Timeout: checkTimeout, ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
		if at, err := netip.ParseAddrPort(address); err != nil || forbidden(at.Addr()) {
			return fmt.Errorf("connections to %s are not allowed", address)
		}
		return nil
	}}
	return &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext,
			DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: maxHeaders,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// isLinkLocal reports whether an address is only valid on the network of the node: such as those of the metadata services of clouds.
func isLinkLocal(a netip.Addr) bool { return a.Unmap().IsLinkLocalUnicast() }

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
		return "", invalidf("alerts.url: %v", err)
	}
	request.Header.Set("User-Agent", "everynode")
	response, err := c.http.Do(request)
	if failed := (*url.Error)(nil); errors.As(err, &failed) {
		err = failed.Err // without the address, which is long
	}
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxResponse+1))
	if err != nil {
		return "", fmt.Errorf("reading the response: %w", err)
	}
	if err := checkResponse(response.StatusCode, body); err != nil {
		return "", err
	}
	return readAlerts(body)
}

// readAlerts reads a response of GET /api/v2/alerts.
// Source: https://github.com/prometheus/alertmanager/blob/main/api/v2/openapi.yaml.
func readAlerts(body []byte) (active string, err error) {
	var alerts []struct {
		Labels map[string]string `json:"labels"`
	}
	if err := json.Unmarshal(body, &alerts); err != nil || !bytes.HasPrefix(bytes.TrimSpace(body), []byte("[")) {
		return "", errors.New("the response is not a list of alerts: set alerts.url to an Alertmanager with API version 2")
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
	var why string
	switch {
	case len(body) > maxResponse:
		return fmt.Errorf("the response is larger than %d bytes: use matchers that select fewer alerts", maxResponse)
	case code == http.StatusBadRequest && json.Unmarshal(body, &why) == nil: // a matcher that it does not understand
		return invalidf("the Alertmanager rejects the request: %s", line(why, maxMessage/2))
	case code >= 300 && code < 400:
		return fmt.Errorf("the response is %s, and redirects are not followed: set alerts.url to the Alertmanager itself", status)
	case code != http.StatusOK:
		return fmt.Errorf("the response is %s", status)
	}
	return nil
}
