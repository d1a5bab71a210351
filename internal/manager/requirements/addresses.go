// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package requirements

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"syscall"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// +kubebuilder:rbac:groups=networking.k8s.io,resources=servicecidrs,verbs=list

// never are addresses that no requirement connects to: those of this network or host, of groups, and the metadata services of clouds, which
// return credentials without authentication.
var never = prefixes(
	"0.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "240.0.0.0/4", "::/128", "fe80::/10", "ff00::/8",
	"fd00:ec2::254/128",  // AWS
	"fd20:ce::254/128",   // Google Cloud
	"168.63.129.16/32",   // Azure
	"100.100.100.200/32", // Alibaba Cloud
	"192.0.0.192/32",     // Oracle Cloud
)

// loopback is the manager's own pod.
var loopback = prefixes("127.0.0.0/8", "::1/128")

// translated is the prefix of NAT64, which embeds an IPv4 address. Source: RFC 6052.
var translated = netip.MustParsePrefix("64:ff9b::/96")

func prefixes(all ...string) (parsed []netip.Prefix) {
	for _, p := range all {
		parsed = append(parsed, netip.MustParsePrefix(p))
	}
	return parsed
}

// Addresses are the addresses that requirements may connect to, in addition to Services of the cluster.
type Addresses struct {
	hosts    []string
	prefixes []netip.Prefix
}

// ParseAddresses reads a comma-separated list of host names, IP addresses and ranges such as 10.0.0.0/8.
func ParseAddresses(value string) (a Addresses, err error) {
	for entry := range strings.SplitSeq(value, ",") {
		ip, ipErr := netip.ParseAddr(entry)
		prefix, prefixErr := netip.ParsePrefix(entry)
		switch {
		case entry == "":
		case ipErr == nil:
			a.prefixes = append(a.prefixes, netip.PrefixFrom(ip.Unmap(), ip.Unmap().BitLen()))
		case prefixErr == nil:
			a.prefixes = append(a.prefixes, prefix.Masked())
		case len(validation.IsDNS1123Subdomain(entry)) > 0:
			return a, fmt.Errorf("%q is not a host name, an IP address or a range such as 10.0.0.0/8", entry)
		default:
			a.hosts = append(a.hosts, entry)
		}
	}
	return a, nil
}

// allow reports whether a requirement may connect to an address under the name of a host. services are the ranges of Services.
func (a Addresses) allow(host string, ip netip.Addr, services []netip.Prefix) bool {
	ip = ip.Unmap().WithZone("")
	if translated.Contains(ip) {
		bytes := ip.As16()
		ip = netip.AddrFrom4([4]byte(bytes[12:]))
	}
	has := func(p netip.Prefix) bool { return p.Contains(ip) }
	switch {
	case slices.ContainsFunc(never, has):
		return false
	case slices.ContainsFunc(loopback, has):
		return slices.ContainsFunc(a.prefixes, has)
	}
	return slices.Contains(a.hosts, strings.TrimSuffix(host, ".")) || slices.ContainsFunc(a.prefixes, has) || slices.ContainsFunc(services, has)
}

// serviceRanges returns from which ranges the API server takes the addresses of Services.
func serviceRanges(ctx context.Context, c client.Reader) (ranges []netip.Prefix, err error) {
	var list networkingv1.ServiceCIDRList
	if err := c.List(ctx, &list, client.Limit(100)); err != nil {
		return nil, fmt.Errorf("listing ServiceCIDRs: %w", err)
	}
	for i := range list.Items {
		for _, cidr := range list.Items[i].Spec.CIDRs {
			if prefix, err := netip.ParsePrefix(cidr); err == nil {
				ranges = append(ranges, prefix)
			}
		}
	}
	return ranges, nil
}

// errNotAllowed means that the address of a host is not allowed.
var errNotAllowed = problemf("alerts.url is neither the address of a Service of the cluster nor one that --requirements-allowed-addresses of the manager allows (docs/nodedisruptionbudget.md#addresses)")

// newHTTPClient returns a client that follows no redirects, keeps no connections, and connects only to addresses that are allowed. The
// address is checked when the connection begins, so it does not matter what a name meant before. A proxy would hide it, so none is used.
func newHTTPClient(allowed func(host string, ip netip.Addr) bool) *http.Client {
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		dialer := &net.Dialer{ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			if to, err := netip.ParseAddrPort(address); err != nil || !allowed(host, to.Addr()) {
				return errNotAllowed
			}
			return nil
		}}
		return dialer.DialContext(ctx, network, address)
	}
	return &http.Client{
		Transport:     &http.Transport{DialContext: dial, DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: maxHeaders},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
