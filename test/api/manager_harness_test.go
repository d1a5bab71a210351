// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/everynode/everynode/internal/clock"
	"github.com/everynode/everynode/internal/manager/controller"
	"github.com/everynode/everynode/internal/manager/loop"
	"github.com/everynode/everynode/internal/manager/notify"
	"github.com/everynode/everynode/internal/manager/policies"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/seal"
	"github.com/everynode/everynode/internal/uninstall"
)

// startManager runs a manager until stop is called or the test ends. stop is a sudden end: nothing
// that the manager remembers outlives it.
func startManager(t *testing.T, faults interceptor.Funcs) (stop func()) {
	t.Helper()
	return startManagerWith(t, faults, notify.Config{})
}

// startNotifyingManager is startManager with notifications.
func startNotifyingManager(t *testing.T, to notify.Config) (stop func()) {
	t.Helper()
	return startManagerWith(t, noFaults, to)
}

// trimmed keeps the specs of objects in namespaces that are not allowed out of the cache, as cmd/everynode does.
func trimmed(t *testing.T, options *cache.Options) {
	t.Helper()
	namespaces := loop.NewTrimmer()
	must(t, namespaces.Load(context.Background(), admin))
	options.DefaultTransform = namespaces.Transform(options.DefaultTransform)
}

func startManagerWith(t *testing.T, faults interceptor.Funcs, to notify.Config) (stop func()) {
	t.Helper()
	cacheOptions, err := controller.CacheOptions(seal.Key{})
	must(t, err)
	trimmed(t, &cacheOptions)
	end, err := runNotifyingManager(asManager, cacheOptions, faults, nil, time.Now, to)
	must(t, err)
	stop = func() {
		if err := end(); err != nil {
			t.Errorf("running the manager: %v", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

// runManager runs a manager until stop is called. Its events go to the API server, unless there is a
// recorder for them. machine is the clock of the machine that it runs on.
func runManager(
	as *rest.Config,
	cacheOptions cache.Options,
	faults interceptor.Funcs,
	recorder events.EventRecorder,
	machine func() time.Time,
) (stop func() error, err error) {
	return runNotifyingManager(as, cacheOptions, faults, recorder, machine, notify.Config{})
}

// runNotifyingManager is runManager with notifications.
func runNotifyingManager(
	as *rest.Config,
	cacheOptions cache.Options,
	faults interceptor.Funcs,
	recorder events.EventRecorder,
	machine func() time.Time,
	to notify.Config,
) (stop func() error, err error) {
	skip := true
	server, cfg := clock.New(machine), rest.CopyConfig(as)
	cfg.Wrap(server.Wrap)
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:     scheme,
		Cache:      cacheOptions,
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: &skip},
		NewClient: func(cfg *rest.Config, opts client.Options) (client.Client, error) {
			c, err := loop.NewWithWatch(cfg, opts)
			if err != nil {
				return nil, err
			}
			return interceptor.NewClient(c, faults), nil
		},
	})
	if err != nil {
		return nil, err
	}
	if recorder == nil {
		recorder = mgr.GetEventRecorder("everynode")
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := controller.New(mgr.GetClient(), mgr.GetAPIReader(), recorder,
		controller.NewMetrics(prometheus.NewRegistry()),
		task.Options{RunnerImage: "registry.test/runner:1", PriorityClassName: "system-node-critical"})
	r.PollInterval = time.Second
	r.Now = server.Now
	r.RequireNamespaceLabel = true
	if r.Policies, err = requirePolicies(mgr, server.Now); err != nil {
		cancel()
		return nil, err
	}
	if r.Notifier = notify.New(to, prometheus.NewRegistry()); r.Notifier != nil {
		if err := mgr.Add(manager.RunnableFunc(r.Notifier.Start)); err != nil {
			cancel()
			return nil, err
		}
	}
	if err := r.SetupWithManager(ctx, mgr); err != nil {
		cancel()
		return nil, err
	}
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	return sync.OnceValue(func() error {
		cancel()
		return <-done
	}), nil
}

// withoutException reads the bindings without the exception that the tests have put into one of them (world.unprotected).
type withoutException struct{ client.Reader }

// List lists objects.
func (r withoutException) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	err := r.Reader.List(ctx, list, opts...)
	if bindings, is := list.(*admissionv1.ValidatingAdmissionPolicyBindingList); is && err == nil {
		for i := range bindings.Items {
			if spec := &bindings.Items[i].Spec; spec.PolicyName == "everynode-pods" && spec.MatchResources != nil {
				spec.MatchResources.NamespaceSelector = nil
			}
		}
	}
	return err
}

// requirePolicies has a manager start nothing without the admission policies, as cmd/everynode does.
func requirePolicies(mgr manager.Manager, now func() time.Time) (*policies.Checker, error) {
	expected, err := policies.NewExpected(true, false)
	if err != nil {
		return nil, err
	}
	direct, err := client.New(mgr.GetConfig(), client.Options{Scheme: scheme, Mapper: uninstall.Mapper()})
	if err != nil {
		return nil, err
	}
	c := &policies.Checker{
		Expected: expected,
		Reader:   withoutException{mgr.GetAPIReader()},
		Now:      now,
		Leaving: func(ctx context.Context) (bool, error) {
			stage, err := uninstall.StageOf(ctx, direct)
			return stage != uninstall.Staying, err
		},
	}
	return c, mgr.Add(manager.RunnableFunc(c.Start))
}
