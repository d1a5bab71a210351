// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/local/cluster"
	"github.com/everynode/everynode/test/install"
)

const (
	jobsNamespace = "node-setup"
	patience      = 3 * time.Minute
)

type demo struct {
	began      time.Time
	kubernetes string
	root       string
	cluster    *cluster.Cluster
	client     client.Client
	// tools is the folder of kubectl-everynode.
	tools string
}

// run shows the scenes in their order.
func (d *demo) run(ctx context.Context) error {
	ctrl.SetLogger(logr.Discard())
	if err := d.start(ctx); err != nil {
		return err
	}
	d.say("applying config/samples: one NodeJob raises vm.max_map_count, one drops a CA certificate and restarts containerd")
	if _, err := install.Kubectl(ctx, d.cluster, "", "apply", "-k", filepath.Join(d.root, "config", "samples")); err != nil {
		return err
	}
	if err := d.watch(ctx, "registry-ca", done(3)); err != nil {
		return err
	}
	d.say("a fourth node joins, and gets both without further action")
	if err := d.cluster.Join(ctx, cluster.NodeOptions{Name: "node-4", Simulated: !d.cluster.Real()}); err != nil {
		return err
	}
	if err := d.watch(ctx, "max-map-count", done(4)); err != nil {
		return err
	}
	if err := d.cluster.WaitReady(ctx, "node-4"); err != nil {
		return err
	}
	if d.cluster.Real() { // a simulated node never fails
		if err := d.breakAndFix(ctx); err != nil {
			return err
		}
		if err := d.runOnce(ctx); err != nil {
			return err
		}
	}
	return d.show(ctx)
}

// start brings the cluster up and builds the images meanwhile, and installs Everynode.
func (d *demo) start(ctx context.Context) error {
	var err error
	if d.root, err = install.Root(); err != nil {
		return err
	}
	var images install.Images
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		d.cluster, err = cluster.Up(groupCtx, cluster.Options{
			Name: clusterName, KubernetesVersion: d.kubernetes, Nodes: 3, Progress: os.Stdout,
		})
		return err
	})
	group.Go(func() (err error) {
		if images, err = install.Build(groupCtx, d.root); err != nil {
			return err
		}
		d.tools = filepath.Join(d.root, "bin")
		_, err = install.Plugin(groupCtx, d.root, d.tools)
		return err
	})
	if err := group.Wait(); err != nil {
		return err
	}
	d.say("installing Everynode from config/ with its own service account")
	if err := install.Install(ctx, d.cluster, d.root, images); err != nil {
		return err
	}
	config, err := d.cluster.RESTConfig()
	if err != nil {
		return err
	}
	kinds := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(kinds), v1alpha1.AddToScheme(kinds)); err != nil {
		return err
	}
	d.client, err = client.New(config, client.Options{Scheme: kinds})
	return err
}

// everynode is a command of the plugin. It prints on what the demo has, a terminal or not.
func (d *demo) everynode(ctx context.Context, args ...string) error {
	shown := slices.Clone(args)
	for i, arg := range shown {
		if strings.Contains(arg, " ") {
			shown[i] = "'" + arg + "'" // none has a quote in it
		}
	}
	fmt.Printf("\n$ kubectl everynode %s\n", strings.Join(shown, " "))
	cmd := exec.CommandContext(ctx, d.cluster.Kubectl(), append([]string{"everynode"}, args...)...)
	cmd.Env = d.cluster.Environ(d.tools)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() >= 10 {
		return nil // what it shows has failed, and not the command
	}
	return err
}

// watch shows NodeJobs with the plugin until all is over: first the one with this name, then any other that still runs.
func (d *demo) watch(ctx context.Context, name string, over func([]v1alpha1.NodeJob) bool) error {
	return d.untilJobs(ctx, "the nodes", func(ctx context.Context, jobs []v1alpha1.NodeJob) (bool, error) {
		if over(jobs) {
			return true, d.everynode(ctx, "list", "-n", jobsNamespace)
		}
		if running := reconciling(jobs, name); running != "" {
			return false, d.everynode(ctx, "status", running, "-n", jobsNamespace, "--watch")
		}
		return false, nil
	})
}

// untilJobs lists the NodeJobs every 100 ms until done says so or fails, for up to patience.
func (d *demo) untilJobs(ctx context.Context, what string, done func(context.Context, []v1alpha1.NodeJob) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		var jobs v1alpha1.NodeJobList
		if err := d.client.List(ctx, &jobs, client.InNamespace(jobsNamespace)); err != nil && ctx.Err() == nil {
			return fmt.Errorf("listing NodeJobs: %w", err)
		}
		if ok, err := done(ctx, jobs.Items); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, ctx.Err())
		case <-ticker.C:
		}
	}
}

// reconciling returns the name of a NodeJob that is not finished, the preferred one first, or "".
func reconciling(jobs []v1alpha1.NodeJob, preferred string) string {
	name := ""
	for i := range jobs {
		if !meta.IsStatusConditionTrue(jobs[i].Status.Conditions, v1alpha1.ConditionReconciling) {
			continue
		}
		if jobs[i].Name == preferred {
			return preferred
		}
		name = jobs[i].Name
	}
	return name
}

// runOnce runs a command on all nodes, as Ansible users know it.
func (d *demo) runOnce(ctx context.Context) error {
	d.say("one command on all nodes, once")
	if err := d.everynode(ctx, "run", "--all", "--yes", "--rm", "--fold", "-n", jobsNamespace, "--", "sh", "-c", "uname -sr; sysctl vm.max_map_count"); err != nil {
		return err
	}
	return d.onlySamples(ctx)
}

// onlySamples waits until the NodeJob of the run is deleted. Otherwise the next output would show it as terminating.
func (d *demo) onlySamples(ctx context.Context) error {
	return d.untilJobs(ctx, "the run to be deleted", func(_ context.Context, jobs []v1alpha1.NodeJob) (bool, error) {
		return !slices.ContainsFunc(jobs, func(job v1alpha1.NodeJob) bool { return !job.DeletionTimestamp.IsZero() }), nil
	})
}

// show prints the current state, and what to try next.
func (d *demo) show(ctx context.Context) error {
	d.say("why has a task run on a node, or not?")
	if err := d.everynode(ctx, "explain", "node-4"); err != nil {
		return err
	}
	if err := d.everynode(ctx, "explain", "registry-ca", "node-4", "-n", jobsNamespace); err != nil {
		return err
	}
	fmt.Println("\nEach node has a label per NodeJob with the revision that it is done with, and a pod is deleted when its outcome is on record:")
	for _, args := range [][]string{
		{"get", "nodes", "-L", v1alpha1.RecordKey(jobsNamespace, "max-map-count"), "-L", v1alpha1.RecordKey(jobsNamespace, "registry-ca")},
		{"get", "pods", "-n", jobsNamespace},
	} {
		out, err := install.Kubectl(ctx, d.cluster, "", args...)
		if err != nil {
			return err
		}
		fmt.Print(out)
	}
	fmt.Printf(`
The demo took %.0f s. The cluster runs on. Try:

  export KUBECONFIG=%s PATH=%s:%s:$PATH
  kubectl everynode list -A
  kubectl everynode dashboard                             # a web page on this machine
  kubectl everynode rerun max-map-count node-2 -n %[5]s    # it runs there again, at once
  kubectl everynode status max-map-count -n %[5]s --watch
  kubectl everynode run --all -n %[5]s -- uptime
  kubectl everynode plan -f recipes/kernel-setting.yaml
  kubectl edit nodejob max-map-count -n %[5]s             # another script is another revision

`, time.Since(d.began).Seconds(), d.cluster.Kubeconfig(), filepath.Dir(d.cluster.Kubectl()), d.tools, jobsNamespace)
	if d.cluster.Real() {
		fmt.Println("  make join NODE=node-5                   # a new node runs all tasks when it joins")
	}
	fmt.Println("  make demo-down                          # takes everything away again")
	return nil
}

func (d *demo) say(what string) {
	fmt.Printf("\n%5.1fs  %s\n", time.Since(d.began).Seconds(), what)
}
