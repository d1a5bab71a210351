package controller

import (
	"context"
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/plan"
	"github.com/everynode/everynode/internal/task"
)

// source resolves the NodeJob's scripts. What the user has to mend comes back as an obstacle, which
// needs no retry: the ConfigMap's change wakes the NodeJob.
func (r *Reconciler) source(ctx context.Context, job *v1alpha1.NodeJob) (task.Source, *plan.Obstacle, error) {
	var src task.Source
	var obstacle *plan.Obstacle
	var err error
	src.Script, obstacle, err = r.script(ctx, job, "task", job.Spec.Task.Script, job.Spec.Task.ScriptFrom)
	if err != nil || obstacle != nil || job.Spec.Verify == nil {
		return src, obstacle, err
	}
	src.Verify, obstacle, err = r.script(ctx, job, "verify", job.Spec.Verify.Script, job.Spec.Verify.ScriptFrom)
	return src, obstacle, err
}

func (r *Reconciler) script(ctx context.Context, job *v1alpha1.NodeJob, field, inline string, from *v1alpha1.ScriptSource) (string, *plan.Obstacle, error) {
	if from == nil {
		if len(inline) > task.MaxScriptBytes { // the API bounds it in characters, not in bytes
			return "", &plan.Obstacle{Reason: v1alpha1.ReasonInvalidScript, Message: fmt.Sprintf(
				"spec.%s.script has %d bytes, of which %d are allowed. Put large files into an image and use spec.task.template",
				field, len(inline), task.MaxScriptBytes)}, nil
		}
		return inline, nil, nil
	}
	ref := from.ConfigMapKeyRef
	obstacle := func(reason, format string, args ...any) *plan.Obstacle {
		return &plan.Obstacle{Reason: reason, Message: fmt.Sprintf("spec.%s.scriptFrom: ", field) + fmt.Sprintf(format, args...)}
	}
	data, err := r.configMaps.get(ctx, r, types.NamespacedName{Namespace: job.Namespace, Name: ref.Name})
	switch {
	case apierrors.IsNotFound(err):
		return "", obstacle(v1alpha1.ReasonConfigMapNotFound,
			"ConfigMap %s/%s does not exist. Create it; the NodeJob goes on by itself", job.Namespace, ref.Name), nil
	case err != nil:
		return "", nil, fmt.Errorf("getting ConfigMap %s: %w", ref.Name, err)
	}
	script, ok := data[ref.Key]
	switch {
	case !ok:
		return "", obstacle(v1alpha1.ReasonConfigMapNotFound,
			"ConfigMap %s/%s has no key %q. Add it; the NodeJob goes on by itself", job.Namespace, ref.Name, ref.Key), nil
	case strings.TrimSpace(script) == "":
		return "", obstacle(v1alpha1.ReasonInvalidScript,
			"key %q of ConfigMap %s/%s is empty. Write the commands to run on each node into it", ref.Key, job.Namespace, ref.Name), nil
	case len(script) > task.MaxScriptBytes:
		return "", obstacle(v1alpha1.ReasonInvalidScript,
			"key %q of ConfigMap %s/%s has %d bytes, of which %d are allowed. Put large files into an image and use spec.task.template",
			ref.Key, job.Namespace, ref.Name, len(script), task.MaxScriptBytes), nil
	}
	return script, nil, nil
}

// configMaps keeps the contents of the ConfigMaps that NodeJobs refer to. All ConfigMaps of the
// cluster are watched by their metadata only; the few that are referred to are fetched when their
// resource version changes.
type configMaps struct {
	mu   sync.Mutex
	seen map[types.NamespacedName]configMapData
}

type configMapData struct {
	resourceVersion string
	data            map[string]string
}

func newConfigMaps() configMaps {
	return configMaps{seen: map[types.NamespacedName]configMapData{}}
}

func (c *configMaps) get(ctx context.Context, r *Reconciler, name types.NamespacedName) (map[string]string, error) {
	meta := &metav1.PartialObjectMetadata{}
	meta.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	if err := r.Client.Get(ctx, name, meta); err != nil {
		if apierrors.IsNotFound(err) {
			c.forget(name)
		}
		return nil, err
	}
	c.mu.Lock()
	known, ok := c.seen[name]
	c.mu.Unlock()
	if ok && known.resourceVersion == meta.ResourceVersion {
		return known.data, nil
	}
	var live corev1.ConfigMap
	if err := r.Reader.Get(ctx, name, &live); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// Kept under the version that was fetched: when the cache is behind, the next pass fetches again.
	c.seen[name] = configMapData{resourceVersion: live.ResourceVersion, data: live.Data}
	return live.Data, nil
}

func (c *configMaps) forget(name types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.seen, name)
}

// configMapNames are the ConfigMaps that a NodeJob refers to.
func configMapNames(job *v1alpha1.NodeJob) []string {
	var names []string
	if from := job.Spec.Task.ScriptFrom; from != nil {
		names = append(names, from.ConfigMapKeyRef.Name)
	}
	if verify := job.Spec.Verify; verify != nil && verify.ScriptFrom != nil {
		names = append(names, verify.ScriptFrom.ConfigMapKeyRef.Name)
	}
	return names
}
