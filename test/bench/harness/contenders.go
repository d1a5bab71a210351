// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	_ "embed" // the DaemonSet
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/test/bench/report"
	"github.com/everynode/everynode/test/bench/subject"
)

//go:embed daemonset.yaml
var daemonSet []byte

// contender is a subject in a cluster.
type contender interface {
	// prepare is called before the nodes are created.
	prepare(ctx context.Context) error
	// begin creates the object.
	begin(ctx context.Context) error
	// complete reports whether the object shows completion. It returns errors.ErrUnsupported if the object never does.
	complete(ctx context.Context) (bool, error)
	// processes returns the contender's own processes, by their names in the report.
	processes() map[string]*process
	stop() error
}

// doneLabel is on a node that is done.
func doneLabel(s report.Subject) string {
	switch s {
	case report.Floor, report.Recorded:
		return subject.FloorLabel
	case report.DaemonSet:
		return subject.ConfiguredLabel
	default:
		return nodeJobLabel
	}
}

func (w *world) contender(s report.Subject) contender {
	switch s {
	case report.Floor, report.Recorded:
		return &floor{world: w, recorded: s == report.Recorded}
	case report.DaemonSet:
		return &daemonset{world: w}
	default:
		return &everynode{world: w, subject: s}
	}
}

// create makes an object from YAML with one request.
func (w *world) create(ctx context.Context, resource schema.GroupVersionResource, manifest []byte) error {
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(manifest, &o.Object); err != nil {
		return fmt.Errorf("reading a manifest: %w", err)
	}
	if _, err := w.dynamic.Resource(resource).Namespace(subject.Namespace).Create(ctx, o, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating the %s: %w", o.GetKind(), err)
	}
	return nil
}

// goSettings returns the settings of the Go runtime in the manager's Deployment: the environment variables that begin with GO.
func (w *world) goSettings() (map[string]string, error) {
	text, err := os.ReadFile(filepath.Join(w.Root, "config", "manager", "deployment.yaml"))
	if err != nil {
		return nil, err
	}
	var deployment appsv1.Deployment
	if err := yaml.UnmarshalStrict(text, &deployment); err != nil {
		return nil, fmt.Errorf("reading the manager's Deployment: %w", err)
	}
	settings := map[string]string{}
	for _, container := range deployment.Spec.Template.Spec.Containers {
		for _, variable := range container.Env {
			if strings.HasPrefix(variable.Name, "GO") {
				settings[variable.Name] = variable.Value
			}
		}
	}
	return settings, nil
}

// environ returns variables as os.Environ does.
func environ(variables map[string]string) []string {
	var env []string
	for name, value := range variables {
		env = append(env, name+"="+value)
	}
	return env
}

// helper starts one of this program's own subcommands (see cmd/everynode-bench), with additional environment variables.
func (w *world) helper(ctx context.Context, name string, env map[string]string, args ...string) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p, err := startProcess(w.dir, name, append(environ(env), "KUBECONFIG="+w.cluster.Kubeconfig()), append([]string{program, name}, args...)...)
	if err != nil {
		return nil, err
	}
	if err := p.expect(ctx, "ready"); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

type floor struct {
	*world
	recorded bool
	program  *process
}

func (f *floor) prepare(ctx context.Context) (err error) {
	settings, err := f.goSettings() // those of the manager, so that the floor remains the minimum
	if err != nil {
		return err
	}
	f.program, err = f.helper(ctx, "floor", settings, fmt.Sprint(f.Nodes), fmt.Sprint(f.recorded))
	return err
}

func (f *floor) begin(context.Context) error { return f.program.tell() }

func (*floor) complete(context.Context) (bool, error) { return false, errors.ErrUnsupported }

func (f *floor) processes() map[string]*process { return map[string]*process{report.Own: f.program} }

func (f *floor) stop() error { return stopAll(f.program) }

type daemonset struct {
	*world
	labeler *process
}

func (d *daemonset) prepare(ctx context.Context) (err error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: subject.DaemonSetName}}
	if _, err := d.client.CoreV1().ServiceAccounts(subject.Namespace).Create(ctx, account, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating the service account: %w", err)
	}
	if d.labeler, err = d.helper(ctx, "labeler", nil); err != nil {
		return err
	}
	return d.labeler.tell()
}

func (d *daemonset) begin(ctx context.Context) error {
	return d.create(ctx, schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}, daemonSet)
}

// A DaemonSet whose pods are created and deleted never reports completion.
func (*daemonset) complete(context.Context) (bool, error) { return false, errors.ErrUnsupported }

func (d *daemonset) processes() map[string]*process {
	return map[string]*process{report.Labeler: d.labeler}
}

func (d *daemonset) stop() error { return stopAll(d.labeler) }

// tell makes a helper begin.
func (p *process) tell() error {
	if _, err := p.in.Write([]byte("\n")); err != nil {
		return fmt.Errorf("telling %s to begin: %w", p.name, err)
	}
	return nil
}

func stopAll(processes ...*process) error {
	var errs []error
	for _, p := range processes {
		if p != nil {
			errs = append(errs, p.stop())
		}
	}
	return errors.Join(errs...)
}
