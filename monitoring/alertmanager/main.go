// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Command alertmanager serves the API of Alertmanager with its own packages, for tests: alerts and silences in memory, no user interface
// and no notifications. The program of the project cannot be built from its Go module, which lacks the files of its user interface. It
// prints its address, and runs until it is killed.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/alertmanager/alert"
	apiv2 "github.com/prometheus/alertmanager/api/v2"
	"github.com/prometheus/alertmanager/config"
	"github.com/prometheus/alertmanager/dispatch"
	"github.com/prometheus/alertmanager/eventrecorder"
	"github.com/prometheus/alertmanager/featurecontrol"
	"github.com/prometheus/alertmanager/provider/mem"
	"github.com/prometheus/alertmanager/silence"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	logger, recorder, registry := promslog.NewNopLogger(), eventrecorder.NopRecorder(), prometheus.NewRegistry()
	silences, err := silence.New(silence.Options{Retention: time.Hour, Metrics: registry, EventRecorder: recorder})
	if err != nil {
		return err
	}
	silencer := silence.NewSilencer(silences, logger, recorder)
	alerts, err := mem.NewAlerts(context.Background(), time.Hour, 0, silencer, logger, recorder, registry, featurecontrol.NoopFlags{})
	if err != nil {
		return err
	}
	groups := func(context.Context, func(*dispatch.Route) bool, func(*alert.Alert, time.Time) bool) (dispatch.AlertGroups, map[model.Fingerprint][]string, error) {
		return nil, nil, nil
	}
	muted := func(string, string) ([]string, bool) { return nil, false }
	api, err := apiv2.NewAPI(alerts, groups, muted, silences, nil, logger, registry)
	if err != nil {
		return err
	}
	settings, err := config.Load("route: {receiver: none}\nreceivers: [{name: none}]\n")
	if err != nil {
		return err
	}
	api.Update(settings, func(ctx context.Context, labels model.LabelSet) { silencer.Mutes(ctx, labels) })
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("http://%s\n", listener.Addr())
	return (&http.Server{Handler: api.Handler, ReadHeaderTimeout: time.Minute}).Serve(listener)
}
