package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/e2e/install"
	"github.com/everynode/everynode/local/cluster"
)

const (
	jobsNamespace = "node-setup"
	patience      = 3 * time.Minute
)

type demo struct {
	began   time.Time
	root    string
	cluster *cluster.Cluster
	client  client.Client
}

// run tells the story in its order.
func (d *demo) run(ctx context.Context) error {
	ctrl.SetLogger(logr.Discard())
	if err := d.start(ctx); err != nil {
		return err
	}
	d.say("applying config/samples: one NodeJob raises vm.max_map_count, one drops a CA certificate and restarts containerd")
	if _, err := install.Kubectl(ctx, d.cluster, "", "apply", "-k", filepath.Join(d.root, "config", "samples")); err != nil {
		return err
	}
	if err := d.watch(ctx, done(3)); err != nil {
		return err
	}
	d.say("a fourth node joins; nobody tells Everynode")
	if err := d.cluster.Join(ctx, cluster.NodeOptions{Name: "node-4", Simulated: !d.cluster.Real()}); err != nil {
		return err
	}
	if err := d.watch(ctx, done(4)); err != nil {
		return err
	}
	if err := d.cluster.WaitReady(ctx, "node-4"); err != nil {
		return err
	}
	if d.cluster.Real() { // a simulated node never fails
		if err := d.breakAndMend(ctx); err != nil {
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
		d.cluster, err = cluster.Up(groupCtx, cluster.Options{Name: clusterName, Nodes: 3, Progress: os.Stdout})
		return err
	})
	group.Go(func() (err error) {
		images, err = install.Build(groupCtx, d.root)
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

// watch prints a line for each change of a NodeJob until it is over.
func (d *demo) watch(ctx context.Context, over func([]v1alpha1.NodeJob) bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	shown := map[string]string{}
	for {
		var jobs v1alpha1.NodeJobList
		if err := d.client.List(ctx, &jobs, client.InNamespace(jobsNamespace)); err != nil && ctx.Err() == nil {
			return fmt.Errorf("listing NodeJobs: %w", err)
		}
		d.showProgress(jobs.Items, shown)
		if over(jobs.Items) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the nodes (%v): %w", slices.Sorted(maps.Values(shown)), ctx.Err())
		case <-ticker.C:
		}
	}
}

// showProgress prints what is not shown yet.
func (d *demo) showProgress(jobs []v1alpha1.NodeJob, shown map[string]string) {
	for i := range jobs {
		job := &jobs[i]
		n := job.Status.Nodes
		if line := progress(job); n.Matched > 0 && shown[job.Name] != line {
			shown[job.Name] = line
			d.say("%s", line)
		}
	}
}

func progress(job *v1alpha1.NodeJob) string {
	n := job.Status.Nodes
	bar := strings.Repeat("#", int(n.Done)) + strings.Repeat(">", int(n.Running)) + strings.Repeat(".", int(n.Waiting)) + strings.Repeat("!", int(n.Failed))
	parts := []string{fmt.Sprintf("%-14s [%s] %d of %d done", job.Name, bar, n.Done, n.Matched)}
	for _, f := range job.Status.Failures {
		parts = append(parts, strings.TrimSpace(fmt.Sprintf("%s: %s %s %s", f.Node, f.Reason, strings.ReplaceAll(f.Message, "\n", " | "), f.Rollback)))
	}
	return strings.Join(parts, "; ")
}

// show prints what is there now, and what to try.
func (d *demo) show(ctx context.Context) error {
	fmt.Println("\nEach node carries a label per NodeJob, with the revision that it is done with:")
	out, err := install.Kubectl(ctx, d.cluster, "", "get", "nodes",
		"-L", v1alpha1.RecordKey(jobsNamespace, "max-map-count"), "-L", v1alpha1.RecordKey(jobsNamespace, "registry-ca"))
	if err != nil {
		return err
	}
	fmt.Print(out)
	fmt.Println("\nand an annotation of the same key with what happened there. On node-4:")
	key := strings.ReplaceAll(v1alpha1.RecordKey(jobsNamespace, "registry-ca"), ".", `\.`)
	if out, err = install.Kubectl(ctx, d.cluster, "", "get", "node", "node-4", "-o", "jsonpath={.metadata.annotations."+key+"}"); err != nil {
		return err
	}
	fmt.Println(out)
	if out, err = install.Kubectl(ctx, d.cluster, "", "get", "nodejobs,pods", "-n", jobsNamespace); err != nil {
		return err
	}
	fmt.Printf("\nNothing is left behind but the NodeJobs themselves:\n%s", out)
	fmt.Printf(`
The demo took %.0f s. The cluster runs on. Try:

  export KUBECONFIG=%s PATH=%s:$PATH
  kubectl get nodejobs -A
  kubectl label node node-2 %s-      # it runs there again, at once
  kubectl get events -n %s --watch
  kubectl edit nodejob max-map-count -n %s  # another script is another revision

`, time.Since(d.began).Seconds(), d.cluster.Kubeconfig(), filepath.Dir(d.cluster.Kubectl()),
		v1alpha1.RecordKey(jobsNamespace, "max-map-count"), jobsNamespace, jobsNamespace)
	if d.cluster.Real() {
		fmt.Println("  go -C local run ./cmd/everynode-local join node-5 --name " + clusterName)
	}
	fmt.Println("  make demo-down                          # takes everything away again")
	return nil
}

func (d *demo) say(format string, args ...any) {
	fmt.Printf("%5.1fs  %s\n", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...))
}
