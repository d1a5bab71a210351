package controller

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/plan"
	"github.com/everynode/everynode/internal/task"
)

// source resolves the NodeJob's scripts. What the user has to mend comes back as an obstacle, which
// needs no retry: the ConfigMap's change wakes the NodeJob. That of the rollback counts from the
// beginning: nothing is done that could not be undone.
func (r *Reconciler) source(ctx context.Context, job *v1alpha1.NodeJob) (task.Source, *plan.Obstacle, error) {
	var src task.Source
	if obstacle, err := r.namespaceGoes(ctx, job); err != nil || obstacle != nil {
		return src, obstacle, err
	}
	into := map[string]*string{fieldTask: &src.Script, fieldVerify: &src.Verify, fieldRollback: &src.Rollback}
	for _, s := range scriptsOf(job) {
		if !s.needed(job) {
			continue
		}
		content, obstacle, err := r.script(ctx, job, s.field, s.inline, s.from)
		if err != nil || obstacle != nil {
			return src, obstacle, err
		}
		*into[s.field] = content
	}
	if !job.DeletionTimestamp.IsZero() {
		return src, nil, nil
	}
	contents, obstacle, err := r.contents.of(ctx, r, job)
	src.Contents = contents
	return src, obstacle, err
}

// namespaceGoes is the obstacle of a NodeJob that is to be rolled back in a namespace that is being
// deleted: no pod can be made there, and what the rollback's script is in may be gone.
func (r *Reconciler) namespaceGoes(ctx context.Context, job *v1alpha1.NodeJob) (*plan.Obstacle, error) {
	if job.DeletionTimestamp.IsZero() || job.Spec.DeletionPolicy != v1alpha1.DeletionRollBack {
		return nil, nil
	}
	var namespace corev1.Namespace
	err := r.Reader.Get(ctx, client.ObjectKey{Name: job.Namespace}, &namespace)
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("getting the namespace: %w", err)
	case err == nil && namespace.DeletionTimestamp.IsZero():
		return nil, nil
	}
	return &plan.Obstacle{
		Reason:  v1alpha1.ReasonNamespaceTerminating,
		Message: fmt.Sprintf("namespace %s is being deleted, and no pod can be made in it", job.Namespace),
	}, nil
}

// Fields of a NodeJob's spec that hold a script.
const (
	fieldTask     = "task"
	fieldVerify   = "verify"
	fieldRollback = "rollback"
)

// scriptSpec is a field that holds a script, or says where it is.
type scriptSpec struct {
	field  string
	inline string
	from   *v1alpha1.ScriptSource
}

func scriptsOf(job *v1alpha1.NodeJob) []scriptSpec {
	spec := &job.Spec
	scripts := []scriptSpec{{fieldTask, spec.Task.Script, spec.Task.ScriptFrom}}
	if spec.Verify != nil {
		scripts = append(scripts, scriptSpec{fieldVerify, spec.Verify.Script, spec.Verify.ScriptFrom})
	}
	if spec.Rollback != nil {
		scripts = append(scripts, scriptSpec{fieldRollback, spec.Rollback.Script, spec.Rollback.ScriptFrom})
	}
	return scripts
}

// needed is true unless the NodeJob is being deleted: then nothing runs but the rollback, and the rest
// may be gone already, as when all of a release is deleted at once.
func (s *scriptSpec) needed(job *v1alpha1.NodeJob) bool {
	return job.DeletionTimestamp.IsZero() ||
		(s.field == fieldRollback && job.Spec.DeletionPolicy == v1alpha1.DeletionRollBack)
}

func (r *Reconciler) script(ctx context.Context, job *v1alpha1.NodeJob, field, inline string, from *v1alpha1.ScriptSource) (string, *plan.Obstacle, error) {
	if from == nil {
		return inline, unusable(inline, fmt.Sprintf("spec.%s.script", field)), nil
	}
	ref := from.ConfigMapKeyRef
	obstacle := func(reason, format string, args ...any) *plan.Obstacle {
		return &plan.Obstacle{Reason: reason, Message: fmt.Sprintf("spec.%s.scriptFrom: ", field) + fmt.Sprintf(format, args...)}
	}
	script, ok, err := r.scripts.get(ctx, r, scriptField{client.ObjectKeyFromObject(job), field}, ref)
	switch {
	case apierrors.IsNotFound(err):
		return "", obstacle(v1alpha1.ReasonConfigMapNotFound,
			"ConfigMap %s/%s does not exist. Create it; the NodeJob goes on by itself", job.Namespace, ref.Name), nil
	case err != nil:
		return "", nil, fmt.Errorf("getting ConfigMap %s: %w", ref.Name, err)
	case !ok:
		return "", obstacle(v1alpha1.ReasonConfigMapNotFound,
			"ConfigMap %s/%s has no key %q. Add it; the NodeJob goes on by itself", job.Namespace, ref.Name, ref.Key), nil
	case strings.TrimSpace(script) == "":
		return "", obstacle(v1alpha1.ReasonInvalidScript,
			"key %q of ConfigMap %s/%s is empty. Write the commands to run on each node into it", ref.Key, job.Namespace, ref.Name), nil
	}
	return script, unusable(script, fmt.Sprintf("spec.%s.scriptFrom: key %q of ConfigMap %s/%s", field, ref.Key, job.Namespace, ref.Name)), nil
}

// unusable is why a script cannot be handed to a container, or nil. The API bounds an inline script in
// characters, not in bytes, and lets a zero byte in.
func unusable(script, where string) *plan.Obstacle {
	obstacle := &plan.Obstacle{Reason: v1alpha1.ReasonInvalidScript}
	switch {
	case len(script) > task.MaxScriptBytes:
		obstacle.Message = fmt.Sprintf("%s has %d bytes, of which %d are allowed. Put large files into an image and use spec.task.template",
			where, len(script), task.MaxScriptBytes)
	case strings.ContainsRune(script, 0):
		obstacle.Message = where + " contains a zero byte, which no environment can hold. Take it out"
	default:
		return nil
	}
	return obstacle
}

// scripts keeps the scripts that NodeJobs take from ConfigMaps. All ConfigMaps of the cluster are
// watched by their metadata only; the few that are referred to are fetched when their resource version
// changes, and of those only the key that is asked for is kept.
type scripts struct {
	mu   sync.Mutex
	seen map[scriptField]fetchedScript
}

// scriptField is a field of a NodeJob: there is one script for it, whatever it referred to before.
type scriptField struct {
	job   client.ObjectKey
	field string
}

type fetchedScript struct {
	ref             v1alpha1.ConfigMapKeyRef
	uid             types.UID
	resourceVersion string
	content         string
	found           bool
}

func newScripts() scripts { return scripts{seen: map[scriptField]fetchedScript{}} }

// get returns the content of a key, or false when the ConfigMap has no such key. It returns the API
// server's NotFound when there is no such ConfigMap.
func (c *scripts) get(ctx context.Context, r *Reconciler, field scriptField, ref v1alpha1.ConfigMapKeyRef) (string, bool, error) {
	name := client.ObjectKey{Namespace: field.job.Namespace, Name: ref.Name}
	meta := &metav1.PartialObjectMetadata{}
	meta.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	if err := r.Client.Get(ctx, name, meta); err != nil {
		return "", false, err
	}
	c.mu.Lock()
	known, ok := c.seen[field]
	c.mu.Unlock()
	if ok && known.ref == ref && known.uid == meta.UID && known.resourceVersion == meta.ResourceVersion {
		return known.content, known.found, nil
	}
	var live corev1.ConfigMap
	if err := r.Reader.Get(ctx, name, &live); err != nil {
		return "", false, err
	}
	// Kept under the version that was fetched: when the cache is behind, the next pass fetches again.
	fetched := fetchedScript{ref: ref, uid: live.UID, resourceVersion: live.ResourceVersion}
	fetched.content, fetched.found = live.Data[ref.Key]
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[field] = fetched
	return fetched.content, fetched.found, nil
}

// forget drops what was kept for a NodeJob.
func (c *scripts) forget(job client.ObjectKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.seen, func(f scriptField, _ fetchedScript) bool { return f.job == job })
}

// configMapNames are the ConfigMaps that a NodeJob refers to.
func configMapNames(job *v1alpha1.NodeJob) []string {
	var names []string
	for _, s := range scriptsOf(job) {
		if s.from != nil {
			names = append(names, s.from.ConfigMapKeyRef.Name)
		}
	}
	for _, ref := range job.Spec.Rerun.OnChangeOf {
		if ref.Kind == v1alpha1.ContentConfigMap {
			names = append(names, ref.Name)
		}
	}
	return names
}
