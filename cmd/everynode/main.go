// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Command everynode is the manager: it runs in the cluster and reconciles NodeJobs and NodeGuards.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	controllerconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/clock"
	"github.com/everynode/everynode/internal/manager/archive"
	"github.com/everynode/everynode/internal/manager/budgetcontroller"
	"github.com/everynode/everynode/internal/manager/claims"
	"github.com/everynode/everynode/internal/manager/conditioncontroller"
	"github.com/everynode/everynode/internal/manager/controller"
	"github.com/everynode/everynode/internal/manager/guardcontroller"
	"github.com/everynode/everynode/internal/manager/loop"
	"github.com/everynode/everynode/internal/manager/metricsauth"
	"github.com/everynode/everynode/internal/manager/notify"
	"github.com/everynode/everynode/internal/manager/policies"
	"github.com/everynode/everynode/internal/manager/requirements"
	"github.com/everynode/everynode/internal/nodebudget/budget"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/seal"
	"github.com/everynode/everynode/internal/uninstall"
	"github.com/everynode/everynode/internal/version"
)

type flags struct {
	runnerImage   string
	archiveImage  string
	pullSecrets   []string
	priorityClass string
	memoryLimit   resource.Quantity
	metricsAddr   string
	metricsSecure bool
	probeAddr     string
	leaderElect   bool
	requireLabel  bool
	requirePolicy bool
	notifications notify.Config
	archive       archive.Config
	allowed       requirements.Addresses
	joiningFor    time.Duration
	settleFor     time.Duration
	conditions    bool
	pprofAddr     string
	logLevel      slog.Level
	logText       bool
	version       bool
}

func parse(args []string) (flags, error) {
	f := flags{memoryLimit: resource.MustParse("512Mi")}
	set := flag.NewFlagSet("everynode", flag.ContinueOnError)
	set.StringVar(&f.runnerImage, "runner-image", os.Getenv("EVERYNODE_RUNNER_IMAGE"),
		"image of everynode-runner, for tasks that are scripts (environment: EVERYNODE_RUNNER_IMAGE)")
	set.Func("runner-pull-secrets", "comma-separated names of Secrets in the namespaces of NodeJobs and NodeGuards, for pulling the image of the runner; "+
		"without them, those of the service account \"default\" are used",
		func(value string) (err error) {
			f.pullSecrets, err = secretNames(value)
			return err
		})
	set.StringVar(&f.priorityClass, "priority-class", "system-node-critical",
		"priority class of tasks that name none themselves; empty for the cluster's default")
	set.Func("script-memory-limit", "memory limit of scripts whose NodeJob sets none (task.resources.limits.memory); 0 for no limit (default 512Mi)",
		func(value string) (err error) {
			f.memoryLimit, err = memoryLimit(value)
			return err
		})
	set.StringVar(&f.metricsAddr, "metrics-bind-address", ":8080", "address of the metrics endpoint; 0 for none")
	set.BoolVar(&f.metricsSecure, "metrics-secure", true, "serve metrics with TLS, to clients that may get the path /metrics; false for plain HTTP without authentication")
	set.StringVar(&f.probeAddr, "health-probe-bind-address", ":8081", "address of /healthz and /readyz")
	set.BoolVar(&f.requireLabel, "require-namespace-label", true,
		"serve NodeJobs and NodeGuards only in namespaces with the label "+v1alpha1.EnabledLabel+"="+v1alpha1.EnabledValue)
	set.BoolVar(&f.requirePolicy, "require-policies", true,
		"start nothing without the admission policies of config/authorization and config/confinement, and run only as the service account that they name")
	set.BoolVar(&f.leaderElect, "leader-elect", true, "let one of several managers work at a time")
	notificationFlags(set, &f.notifications)
	set.StringVar(&f.archiveImage, "archive-runner-image", os.Getenv("EVERYNODE_ARCHIVE_RUNNER_IMAGE"),
		"image of everynode-runner with everynode-upload, for tasks whose output is archived (environment: EVERYNODE_ARCHIVE_RUNNER_IMAGE)")
	archiveFlags(set, &f.archive)
	requirementFlags(set, &f.allowed)
	set.DurationVar(&f.joiningFor, "budget-joining-time", budget.JoiningFor, "how long a node is exempt from NodeDisruptionBudgets after its creation, unless spec.joiningNodes is Included")
	set.DurationVar(&f.settleFor, "budget-settle-time", budget.SettleFor, "how long a node must be Ready before it counts as available for NodeDisruptionBudgets")
	set.BoolVar(&f.conditions, "node-maintenance-conditions", false,
		"write the node conditions of KEP-5683 (MaintenancePlanned, DrainInProgress, Drained, MaintenanceInProgress) while NodeJobs disrupt nodes, and those that NodeJobs publish; needs config/node-conditions")
	set.TextVar(&f.logLevel, "log-level", slog.LevelInfo, "least level that is logged: DEBUG, INFO, WARN or ERROR")
	set.Func("log-format", "how is logged: json, or text for people (default json)", func(value string) error {
		if f.logText = value == "text"; !f.logText && value != "json" {
			return errors.New("give json or text")
		}
		return nil
	})
	set.Func("pprof-bind-address", "loopback address for profiles of Go, such as 127.0.0.1:6060, which need no authentication (default none)", func(value string) error {
		host, _, err := net.SplitHostPort(value)
		if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
			return errors.New("give a loopback address with a port, such as 127.0.0.1:6060, and use kubectl port-forward")
		}
		f.pprofAddr = value
		return nil
	})
	set.BoolVar(&f.version, "version", false, "print the version and exit")
	if err := readFlags(set, args); err != nil {
		return f, err
	}
	if f.runnerImage == "" && !f.version {
		return f, errors.New("--runner-image is empty: name the image of everynode-runner that belongs to this manager")
	}
	return f, nil
}

func requirementFlags(set *flag.FlagSet, allowed *requirements.Addresses) {
	set.Func("requirements-allowed-addresses", "comma-separated host names, IP addresses and ranges, such as 10.0.0.0/8, that alerts.url of NodeDisruptionBudgets may have besides Services of the cluster",
		func(value string) (err error) {
			*allowed, err = requirements.ParseAddresses(value)
			return err
		})
}

func notificationFlags(set *flag.FlagSet, c *notify.Config) {
	c.Format, c.DrainHeld = notify.FormatCloudEvents, time.Hour
	set.Func("notifications-url", "URL to which notifications are sent, without a credential; none if it is empty", func(value string) error {
		if c.URL = value; value == "" {
			return nil
		}
		return notify.CheckURL(value)
	})
	set.StringVar(&c.Directory, "notifications-dir", "",
		"folder, such as a mounted Secret, with optional files for notifications: url (instead of --notifications-url), authorization (a header), ca.crt")
	set.Func("notifications-format", "what is sent: cloudevents, or slack for an incoming webhook of Slack (default cloudevents)", func(value string) error {
		c.Format = notify.Format(value)
		if c.Format != notify.FormatCloudEvents && c.Format != notify.FormatSlack {
			return errors.New("give cloudevents or slack")
		}
		return nil
	})
	set.StringVar(&c.Source, "notifications-source", notify.DefaultSource, "source of CloudEvents, a URI that names this cluster")
	set.DurationVar(&c.DrainHeld, "notifications-drain-held", c.DrainHeld,
		"how long a NodeGuard may hold a node before this is reported; 0 to report only the deadline of a NodeGuard")
}

func archiveFlags(set *flag.FlagSet, c *archive.Config) {
	c.MaxBytes, c.UploadTime = archive.DefaultMaxBytes, archive.DefaultUploadTime
	set.StringVar(&c.Directory, "archive-dir", "",
		"folder, such as a mounted Secret, with the files of the archive for outputs: url, endpoint, region, access-key-id, secret-access-key, session-token, ca.crt; none if it is empty")
	set.Func("archive-max-bytes", "how much of the output of an attempt is archived: 64Ki to 256Mi (default 16Mi)", func(value string) error {
		quantity, err := resource.ParseQuantity(value)
		if err != nil {
			return err
		}
		if c.MaxBytes = quantity.Value(); c.MaxBytes < archive.MinMaxBytes || c.MaxBytes > archive.MaxMaxBytes {
			return errors.New("give 64Ki to 256Mi, such as 16Mi")
		}
		return nil
	})
	set.Func("archive-timeout", "how long the upload of an output may take: 1s to 60s (default 30s)", func(value string) (err error) {
		if c.UploadTime, err = time.ParseDuration(value); err != nil {
			return err
		}
		if c.UploadTime < time.Second || c.UploadTime > task.MaxUploadTime {
			return fmt.Errorf("give 1s to %ds", task.MaxUploadTime/time.Second)
		}
		return nil
	})
}

// leastMemoryLimit is what the runner itself needs, as in the API validation of task.resources.limits.memory.
var leastMemoryLimit = resource.MustParse("32Mi")

func memoryLimit(value string) (resource.Quantity, error) {
	limit, err := resource.ParseQuantity(value)
	if err != nil {
		return limit, err
	}
	if !limit.IsZero() && limit.Cmp(leastMemoryLimit) < 0 {
		return limit, fmt.Errorf("give at least %s, such as 512Mi, or 0 for no limit", &leastMemoryLimit)
	}
	return limit, nil
}

// secretNames reads a comma-separated list of the names of Secrets; an empty list has none.
func secretNames(value string) ([]string, error) {
	if value == "" {
		return nil, nil
	}
	names := strings.Split(value, ",")
	for _, name := range names {
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			return nil, fmt.Errorf("%q is not the name of a Secret: %s", name, problems[0])
		}
	}
	return names, nil
}

// readFlags sets the flags. It prints the help to stdout, and leaves errors to its caller.
func readFlags(set *flag.FlagSet, args []string) error {
	set.SetOutput(io.Discard)
	err := set.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		set.SetOutput(os.Stdout)
		set.Usage()
	}
	if err == nil && set.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", set.Arg(0))
	}
	return err
}

func main() {
	f, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "everynode:", err)
		os.Exit(2)
	}
	if f.version {
		fmt.Println(version.String())
		return
	}
	log := slog.New(logHandler(&f))
	ctrl.SetLogger(logr.FromSlogHandler(log.Handler()))
	klog.SetSlogLogger(log)
	if err := run(ctrl.SetupSignalHandler(), f, log); err != nil {
		log.Error("ending", "error", err)
		os.Exit(1)
	}
}

func logHandler(f *flags) slog.Handler {
	options := &slog.HandlerOptions{Level: f.logLevel}
	if f.logText {
		return slog.NewTextHandler(os.Stderr, options)
	}
	return slog.NewJSONHandler(os.Stderr, options)
}

func run(ctx context.Context, f flags, log *slog.Logger) error {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return err
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("finding the cluster: %w", err)
	}
	// No client-side throttling: the priority and fairness of the API server is respected instead.
	config.QPS = -1
	// As in the controllers of Kubernetes: the manager is near the API server, and since 1.37 that would compress watches too.
	config.DisableCompression = true
	server := clock.New(time.Now)
	config.Wrap(server.Wrap)
	direct, err := client.New(config, client.Options{Scheme: scheme, Mapper: uninstall.Mapper()})
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	sealed, err := readSeal(ctx, direct)
	if err != nil {
		return err
	}
	if err := refuseEarlier(ctx, direct); err != nil {
		return err
	}
	namespaces := loop.NewTrimmer()
	mgr, err := newManager(ctx, config, scheme, &f, sealed.key, namespaces)
	if err != nil {
		return err
	}
	required, err := setUp(ctx, mgr, &f, sealed, namespaces, server.Now, metrics.Registry)
	if err != nil {
		return err
	}
	logStart(log, &f)
	return startAndLeave(ctx, mgr, direct, log, required)
}

// newManager returns a manager whose cache contains only what the controllers read and may obey.
func newManager(ctx context.Context, config *rest.Config, scheme *runtime.Scheme, f *flags, key seal.Key, namespaces *loop.Trimmer) (ctrl.Manager, error) {
	cacheOptions, err := controller.CacheOptions(key)
	if err != nil {
		return nil, err
	}
	namespaces.All = !f.requireLabel
	cacheOptions.DefaultTransform = namespaces.Transform(cacheOptions.DefaultTransform)
	options := ctrl.Options{
		Scheme: scheme, Cache: cacheOptions, NewClient: loop.NewClient,
		Metrics:                metricsauth.Options(f.metricsAddr, f.metricsSecure),
		HealthProbeBindAddress: f.probeAddr,
		PprofBindAddress:       f.pprofAddr,
		// Only a test has more than one manager in a process, one after another.
		Controller: controllerconfig.Controller{SkipNameValidation: new(true)},
	}
	if f.leaderElect {
		if err := electLeader(config, &options); err != nil {
			return nil, err
		}
	}
	mgr, err := ctrl.NewManager(config, options)
	if err != nil {
		return nil, fmt.Errorf("making the manager: %w", err)
	}
	if f.requireLabel {
		return mgr, namespaces.Load(ctx, mgr.GetAPIReader())
	}
	return mgr, nil
}

// setUp adds the controllers to the manager. It returns what knows whether the admission policies are in force.
func setUp(ctx context.Context, mgr ctrl.Manager, f *flags, sealed sealSecret, namespaces *loop.Trimmer, now func() time.Time, registry prometheus.Registerer) (*policies.Checker, error) {
	required, err := requirePolicies(ctx, mgr, f)
	if err != nil {
		return nil, err
	}
	required.Now = now
	pods := task.Options{RunnerImage: f.runnerImage, ArchiveRunnerImage: f.archiveImage, PullSecrets: f.pullSecrets, PriorityClassName: f.priorityClass, MemoryLimit: f.memoryLimit, Version: version.String(), Key: sealed.key}
	reconciler := controller.New(mgr.GetClient(), mgr.GetAPIReader(), mgr.GetEventRecorder("everynode"),
		controller.NewMetrics(registry), pods)
	reconciler.Now = now
	reconciler.Policies = required
	reconciler.RequireNamespaceLabel = f.requireLabel
	reconciler.Room = namespaces
	reconciler.Archive = f.archive
	reconciler.NodeConditions = f.conditions
	reconciler.Claims, reconciler.JoiningFor = claims.New(), f.joiningFor
	reconciler.Own = controller.Own{
		Pod:  client.ObjectKey{Namespace: os.Getenv("POD_NAMESPACE"), Name: os.Getenv("POD_NAME")},
		Node: os.Getenv("NODE_NAME"),
	}
	reconciler.Notifier = notify.New(f.notifications, registry)
	if err := reconciler.SetupWithManager(ctx, mgr); err != nil {
		return nil, fmt.Errorf("setting up the controller: %w", err)
	}
	pods.PriorityClassName = "" // the spec of a NodeGuard sets the priority of its pods
	guards, err := guardcontroller.Setup(mgr, guardcontroller.NewMetrics(registry), pods)
	if err != nil {
		return nil, fmt.Errorf("setting up the controller of NodeGuards: %w", err)
	}
	guards.Now = now
	guards.Key = sealed.key
	guards.RequireNamespaceLabel = f.requireLabel
	guards.Notify(reconciler.Notifier)
	guards.Require(required)
	budgets, err := setUpBudgets(mgr, f, reconciler, budget.Place{Namespace: uninstall.Namespace, Owner: sealed.owner, Key: sealed.key, Options: pods}, now, registry)
	if err != nil {
		return nil, fmt.Errorf("setting up the controller of NodeDisruptionBudgets: %w", err)
	}
	guards.Follow(budgets)
	conditions, err := conditioncontroller.Setup(mgr, reconciler.Claims, reconciler.Metrics.Writes(), f.conditions)
	if err != nil {
		return nil, fmt.Errorf("setting up the controller of node conditions: %w", err)
	}
	conditions.Now = now
	return required, errors.Join(
		startNotifier(mgr, reconciler.Notifier, now),
		mgr.AddHealthzCheck("ping", healthz.Ping),
		mgr.AddReadyzCheck("ping", healthz.Ping),
	)
}

// setUpBudgets adds the controller of NodeDisruptionBudgets, which shares claims and notifications with that of NodeJobs.
func setUpBudgets(mgr ctrl.Manager, f *flags, jobs *controller.Reconciler, place budget.Place, now func() time.Time, registry prometheus.Registerer) (*budgetcontroller.Reconciler, error) {
	budgets, err := budgetcontroller.Setup(mgr, budgetcontroller.NewMetrics(registry), jobs.Claims, place)
	if err != nil {
		return nil, err
	}
	budgets.Notifier = jobs.Notifier
	budgets.Now, budgets.JoiningFor, budgets.SettleFor = now, f.joiningFor, f.settleFor
	checker, err := requirements.New(mgr.GetClient(), mgr.GetConfig(), mgr.GetAPIReader(), f.allowed, jobs.Claims, now)
	if err != nil {
		return nil, err
	}
	return budgets, checker.SetupWithManager(mgr)
}

func logStart(log *slog.Logger, f *flags) {
	log.Info("starting", "version", version.String(), "runnerImage", f.runnerImage, "scriptMemoryLimit", f.memoryLimit.String())
	if !strings.Contains(f.runnerImage, "@sha256:") {
		log.Warn("the runner image, which runs as root on every node, is named by a tag, which can be moved: name it by digest (IMAGE@sha256:...)",
			"runnerImage", f.runnerImage)
	}
	if f.archive.Exposed() {
		log.Warn("the endpoint of the archive begins with http://, so presigned URLs and outputs are not encrypted on their way: use https://, with the certificates in the file ca.crt if they are your own",
			"archiveDir", f.archive.Directory)
	}
}

// startNotifier lets the leader send notifications, if there is a URL.
func startNotifier(mgr ctrl.Manager, n *notify.Notifier, now func() time.Time) error {
	if n == nil {
		return nil
	}
	n.Now = now
	return mgr.Add(manager.RunnableFunc(n.Start))
}

// startAndLeave runs the manager until it is told to end. If the reason is that its installation is being deleted, it
// first completes the cleanup. Otherwise finalizers, budgets and taints would remain on nodes and pods.
func startAndLeave(ctx context.Context, mgr ctrl.Manager, c client.Client, log *slog.Logger, required *policies.Checker) error {
	departure := &uninstall.Departure{Client: c, Log: log, Now: time.Now, After: time.After, Leads: mgr.Elected(), Leave: required.Leave}
	required.Leaving = func(ctx context.Context) (bool, error) {
		stage, err := uninstall.StageOf(ctx, c)
		return stage != uninstall.Staying, err
	}
	if err := errors.Join(mgr.Add(manager.RunnableFunc(departure.Run)), mgr.Add(manager.RunnableFunc(required.Start))); err != nil {
		return err
	}
	running, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	leaving := make(chan bool, 1)
	go func() {
		<-ctx.Done()
		leaving <- departure.Linger(running)
		end()
	}()
	err := mgr.Start(running)
	if ctx.Err() == nil {
		return err // it ended without being told to
	}
	end() // as if the lease was lost together with the permission to renew it
	if <-leaving {
		final, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
		defer cancel()
		departure.Finish(final)
		return nil
	}
	return err
}

// finishTimeout limits the last writes. Together with the earlier steps, it is within the pod's
// terminationGracePeriodSeconds.
const finishTimeout = 10 * time.Second

// Times of the leader election. An API server that does not respond for less than the deadline has no effect. After the
// deadline the manager ends, and the kubelet restarts it with increasing delays.
const (
	leaseDuration = 30 * time.Second
	renewDeadline = 20 * time.Second
	retryPeriod   = 3 * time.Second
)

// electLeader makes the pod the holder of the lease, not the process: a manager that is killed and restarted in its pod
// continues at once, because no other process can be the same pod. Outside of a pod, the process is the holder.
func electLeader(config *rest.Config, options *ctrl.Options) error {
	duration, deadline, period := leaseDuration, renewDeadline, retryPeriod
	options.LeaderElection = true
	options.LeaderElectionID = leaseName
	options.LeaderElectionReleaseOnCancel = true
	options.LeaseDuration, options.RenewDeadline, options.RetryPeriod = &duration, &deadline, &period
	pod, namespace := os.Getenv("POD_NAME"), os.Getenv("POD_NAMESPACE")
	if pod == "" || namespace == "" {
		return nil
	}
	// A request that hangs must not use all the time for renewing the lease.
	config = rest.CopyConfig(config)
	config.Timeout = renewDeadline / 2
	clients, err := kubernetes.NewForConfig(rest.AddUserAgent(config, "leader-election"))
	if err != nil {
		return fmt.Errorf("making a client for the lease: %w", err)
	}
	lease, err := resourcelock.New(resourcelock.LeasesResourceLock, namespace, leaseName,
		clients.CoreV1(), clients.CoordinationV1(), resourcelock.ResourceLockConfig{Identity: pod})
	if err != nil {
		return fmt.Errorf("making the lease: %w", err)
	}
	options.LeaderElectionResourceLockInterface = &ownLease{Interface: lease, lost: func(holder string) {
		ctrl.Log.Error(nil, "ending at once, since another manager leads", "holder", holder)
		os.Exit(1)
	}}
	return nil
}

const leaseName = "everynode-manager"
