// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/console"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/plural"
	"github.com/everynode/everynode/internal/text"
	"github.com/everynode/everynode/internal/ui/cmdutil"
	"github.com/everynode/everynode/internal/ui/podlog"
	"github.com/everynode/everynode/internal/ui/view"
)

type logsOptions struct {
	*console.Factory
	key    client.ObjectKey
	nodes  []string
	failed bool
	follow bool
	tail   int64
	client client.WithWatch
	pods   corev1client.PodInterface
	out    sync.Mutex
}

func newLogsCommand(f *console.Factory) *cobra.Command {
	o := &logsOptions{Factory: f}
	cmd := &cobra.Command{
		Use:   "logs NAME",
		Short: "Print what the attempts of a NodeJob have printed",
		Long: `Print what the attempts of a NodeJob have printed, each line with its node in front.

A pod is deleted soon after its outcome is recorded, unless spec.retainPodsSeconds retains it. The record on the node has
the last lines of the output, up to 1 KiB: they are printed instead, and a message on stderr says so. With task.output.archive, messages on stderr say where the
whole outputs of the last attempts are. Characters that would move the cursor are escaped.

With -f, it follows new output, and reopens a log that breaks off. With --failed as well, it follows attempts on nodes on
which the last recorded attempt failed.`,
		Example: `  kubectl everynode logs max-map-count -n node-setup

  # of the nodes on which it failed; of one node, as it comes
  kubectl everynode logs max-map-count -n node-setup --failed
  kubectl everynode logs max-map-count -n node-setup --node node-3 -f`,
		Args:              console.ExactArgs(1, "the name of a NodeJob"),
		ValidArgsFunction: f.CompleteJobs,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.key, o.client, err = o.Target(args[0]); err != nil {
				return err
			}
			if o.pods, err = o.Pods(o.key.Namespace); err != nil {
				return err
			}
			return o.run(cmd.Context())
		},
	}
	cmd.Flags().StringSliceVar(&o.nodes, "node", nil, "only of these nodes")
	cmd.Flags().BoolVar(&o.failed, "failed", false, "only of nodes on which the last attempt failed")
	cmd.Flags().BoolVarP(&o.follow, "follow", "f", false, "follow new output until no attempt is running")
	cmd.Flags().Int64Var(&o.tail, "tail", -1, "only so many of the last lines of each pod; -1 for all")
	_ = cmd.RegisterFlagCompletionFunc("node", f.CompleteNodeList(""))
	return cmd
}

func (o *logsOptions) run(ctx context.Context) error {
	job, err := cmdutil.GetJob(ctx, o.client, o.key)
	if err != nil {
		return err
	}
	pods, err := o.wanted(ctx, job)
	if err != nil {
		return err
	}
	records, err := o.records(ctx)
	if err != nil {
		return err
	}
	pods = o.failedPods(pods, records)
	seen := map[types.UID]bool{}
	for i := range pods {
		seen[pods[i].UID] = true
	}
	printed := o.recorded(records, seen)
	if o.follow {
		return o.stream(ctx, job, pods)
	}
	for i := range pods {
		read := o.print
		if podlog.Ended(&pods[i]) {
			read = o.followLog // to its end, also if a connection breaks
		}
		if err := read(ctx, &pods[i]); err != nil {
			return err
		}
	}
	o.tellArchives(records)
	if len(pods) == 0 && printed == 0 {
		o.Tell(text.Of("nothing has run there yet, or what ran has printed nothing: kubectl everynode -n " + o.key.Namespace + " explain " + o.key.Name + " NODE says why"))
	}
	return nil
}

// wanted returns the existing pods that match, the oldest first.
func (o *logsOptions) wanted(ctx context.Context, job *v1alpha1.NodeJob) ([]corev1.Pod, error) {
	pods, err := cmdutil.PodsOf(ctx, o.client, job)
	pods = slices.DeleteFunc(pods, func(p corev1.Pod) bool { return len(o.nodes) > 0 && !slices.Contains(o.nodes, p.Spec.NodeName) })
	slices.SortFunc(pods, func(a, b corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Spec.NodeName, b.Spec.NodeName))
	})
	return pods, err
}

// failedPods returns the pods that --failed selects, or all pods without that flag.
func (o *logsOptions) failedPods(pods []corev1.Pod, records map[string]record.NodeRecord) []corev1.Pod {
	if !o.failed {
		return pods
	}
	return slices.DeleteFunc(pods, func(p corev1.Pod) bool {
		rec := records[p.Spec.NodeName].Record
		triesAgain := o.follow && rec != nil && rec.Outcome == record.Failed
		return !triesAgain && !hasFailed(&p, rec)
	})
}

// hasFailed reports whether the last attempt on the pod's node failed, or the pod itself failed.
func hasFailed(pod *corev1.Pod, rec *record.Record) bool {
	return pod.Status.Phase == corev1.PodFailed || (rec != nil && rec.PodUID == pod.UID && rec.Outcome == record.Failed)
}

// records returns the records of the nodes, by node name. A requested node that does not exist is an error.
func (o *logsOptions) records(ctx context.Context) (map[string]record.NodeRecord, error) {
	key := v1alpha1.RecordKey(o.key.Namespace, o.key.Name)
	found, names := map[string]record.NodeRecord{}, []string{}
	err := cmdutil.EachNode(ctx, o.client, func(node *metav1.PartialObjectMetadata) {
		names = append(names, node.Name)
		if len(o.nodes) == 0 || slices.Contains(o.nodes, node.Name) {
			found[node.Name] = record.Read(node.Labels, node.Annotations, key)
		}
	})
	if err != nil {
		return nil, err
	}
	for _, name := range o.nodes {
		if _, ok := found[name]; !ok {
			return nil, cmdutil.Failf(cmdutil.ExitNotFound, "there is no node %s; there are %s", name, cmdutil.JoinNames(cmdutil.Nearest(name, names)))
		}
	}
	return found, nil
}

// recorded prints the last lines of attempts whose pods are deleted, and returns the number of attempts.
func (o *logsOptions) recorded(records map[string]record.NodeRecord, there map[types.UID]bool) int {
	var gone []string
	for name, on := range records {
		rec := on.Record
		if rec != nil && !there[rec.PodUID] && (!o.failed || rec.Outcome == record.Failed) {
			gone = append(gone, name)
		}
	}
	if len(gone) == 0 {
		return 0
	}
	slices.Sort(gone)
	o.Tell(text.Toned(text.Dim, fmt.Sprintf("-- %s gone; the last lines that are on record:", plural.CountAre(len(gone), "pod"))))
	for _, name := range gone {
		rec := records[name].Record
		for _, line := range append(text.Lines(rec.Message), rollbackLines(rec)...) {
			o.line(name, line)
		}
	}
	return len(gone)
}

// tellArchives says where the whole outputs are that the installation has archived. It has no credentials for the archive.
func (o *logsOptions) tellArchives(records map[string]record.NodeRecord) {
	stored := ""
	for _, name := range slices.Sorted(maps.Keys(records)) {
		rec := records[name].Record
		if rec == nil || (o.failed && rec.Outcome != record.Failed) {
			continue
		}
		for i := range rec.Archives {
			archive := &rec.Archives[i]
			tone := text.Dim
			if !archive.Stored {
				tone = text.Warn
			} else if stored == "" {
				stored = archive.Location
			}
			o.Tell(text.Toned(tone, "-- "+name+": ").Tone(tone, view.ArchiveSentence(archive)))
		}
	}
	switch {
	case strings.HasPrefix(stored, "s3://"):
		o.Tell(text.Toned(text.Dim, "-- to read a whole output, with your own credentials for the archive: aws s3 cp "+stored+" -"))
	case stored != "":
		o.Tell(text.Toned(text.Dim, "-- to read a whole output, with your own credentials for the archive: curl "+stored))
	}
}

func rollbackLines(rec *record.Record) []string {
	if rec.Rollback == nil {
		return nil
	}
	lines := text.Lines(rec.Rollback.Message)
	for i := range lines {
		lines[i] = "(rollback) " + lines[i]
	}
	return lines
}

// line prints a line of the output of a node.
func (o *logsOptions) line(node, s string) {
	o.out.Lock()
	defer o.out.Unlock()
	options := text.Options{Colour: o.Terminal().Colour} // the relevant part may be at the end, so the line is not cut
	_, _ = io.WriteString(o.Out, text.Toned(text.Active, node).Tone(text.Dim, " | ").With(s).Render(options)+"\n")
}

// print prints the log of a pod. A pod that was deleted in the meantime, or has not started, is not an error.
func (o *logsOptions) print(ctx context.Context, pod *corev1.Pod) error {
	options := &corev1.PodLogOptions{Container: podlog.Container(pod)}
	if o.tail >= 0 {
		options.TailLines = &o.tail
	}
	stream, err := o.pods.GetLogs(pod.Name, options).Stream(ctx)
	if err != nil {
		if code := cmdutil.CodeOf(cmdutil.Explain(err)); code == cmdutil.ExitForbidden || code == cmdutil.ExitNoAnswer {
			return cmdutil.Explain(err)
		}
		o.tellUnread(pod, err)
		return nil
	}
	defer func() { _ = stream.Close() }()
	return o.copyLines(pod.Spec.NodeName, stream)
}

func (o *logsOptions) tellUnread(pod *corev1.Pod, err error) {
	o.out.Lock()
	defer o.out.Unlock()
	o.Tell(text.Toned(text.Warn, fmt.Sprintf("-- %s: the log of pod %s cannot be read: ", pod.Spec.NodeName, pod.Name)).With(err.Error()))
}

func (o *logsOptions) copyLines(node string, from io.Reader) error {
	r := bufio.NewReaderSize(from, podlog.MaxLine)
	for {
		line, _, err := r.ReadLine() // a longer line is read in pieces
		if err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, context.Canceled) {
				return nil
			}
			return cmdutil.Explain(err)
		}
		o.line(node, spaced(string(line)))
	}
}

// spaced returns a line of a log without characters that would move the cursor.
func spaced(line string) string {
	return strings.TrimSuffix(strings.ReplaceAll(line, "\t", "    "), "\r")
}
