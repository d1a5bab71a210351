// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Command everynode-dashboard serves the page of kubectl everynode dashboard in the cluster, to many users: docs/dashboard.md. It has
// no permissions, and reads everything with the token of the user who looks at the page.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/dashboard"
	"github.com/everynode/everynode/internal/version"
)

type flags struct {
	dashboard.InCluster
	address  string
	logLevel slog.Level
	version  bool
}

func parse(args []string, getenv func(string) string) (*flags, error) {
	f := &flags{}
	set := flag.NewFlagSet("everynode-dashboard", flag.ContinueOnError)
	set.StringVar(&f.address, "bind-address", ":8443", "address of the page")
	set.StringVar(&f.CertificateDir, "tls-dir", "", "folder with tls.crt and tls.key, such as a mounted Secret; without it, the dashboard makes its own certificate")
	set.BoolVar(&f.PlainHTTP, "plain-http", false, "serve the page without TLS, behind a proxy or a mesh that has it")
	set.Func("hosts", "comma-separated hosts of the page, with the port if it is not 443, such as everynode.example.com; empty for all", func(value string) error {
		f.Hosts = nil
		if value != "" {
			f.Hosts = strings.Split(value, ",")
		}
		return nil
	})
	set.StringVar(&f.Cluster, "cluster-name", "", "name of the cluster in the page")
	set.Func("default-namespace", "namespace that is shown to users who may not read all namespaces and name none themselves (default node-setup)", func(value string) error {
		f.Namespace = value
		if problems := validation.IsDNS1123Label(value); len(problems) > 0 {
			return errors.New(problems[0])
		}
		return nil
	})
	set.StringVar(&f.APIServer, "api-server", inCluster(getenv), "URL of the API server")
	set.StringVar(&f.APIServerCA, "api-server-ca", "/etc/everynode/api-server/ca.crt", "file with the certificates that the API server is checked with")
	set.TextVar(&f.logLevel, "log-level", slog.LevelInfo, "least level that is logged: DEBUG, INFO, WARN or ERROR")
	set.BoolVar(&f.version, "version", false, "print the version and exit")
	f.Namespace = "node-setup"
	if err := set.Parse(args); err != nil {
		return f, err
	}
	switch {
	case set.NArg() > 0:
		return f, fmt.Errorf("unexpected argument %q", set.Arg(0))
	case f.PlainHTTP && f.CertificateDir != "":
		return f, errors.New("--plain-http has no certificate: leave out --tls-dir")
	case f.APIServer == "" && !f.version:
		return f, errors.New("--api-server is empty, and this is not a pod: give the URL of the API server")
	}
	return f, nil
}

// inCluster returns the URL of the API server for a pod; "" elsewhere.
func inCluster(getenv func(string) string) string {
	host, port := getenv("KUBERNETES_SERVICE_HOST"), getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return ""
	}
	return "https://" + net.JoinHostPort(host, port)
}

func main() {
	f, err := parse(os.Args[1:], os.Getenv)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "everynode-dashboard:", err)
		os.Exit(2)
	}
	if f.version {
		fmt.Println(version.String())
		return
	}
	log := slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: f.logLevel}))
	klog.SetLogger(logr.Discard()) // what libraries log of requests is not for the log
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err = listen(ctx, f, log)
	cancel()
	if err != nil {
		log.Error("ending", "error", err)
		os.Exit(1)
	}
}

func listen(ctx context.Context, f *flags, log *slog.Logger) error {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", f.address)
	if err != nil {
		return err
	}
	return serve(ctx, f, listener, log)
}

func serve(ctx context.Context, f *flags, listener net.Listener, log *slog.Logger) error {
	log.Info("starting", "version", version.String(), "address", listener.Addr().String(), "apiServer", f.APIServer, "plainHTTP", f.PlainHTTP)
	f.Log, f.Now, f.After = log, time.Now, time.After
	return f.Serve(ctx, listener)
}
