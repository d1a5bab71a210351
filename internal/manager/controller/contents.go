// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/kube"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/observe"
	"github.com/everynode/everynode/internal/outcome"
	"github.com/everynode/everynode/internal/runner/contract"
)

// contents stores hashes of the objects of task.inputs and task.files. ConfigMaps are watched by their metadata. Secrets are not,
// because the permission to watch some of them is the permission to read all of a namespace. The listed Secrets are
// read by name at intervals (poll.go).
type contents struct {
	mu   sync.Mutex
	seen map[contentKey]content
	// turns is the position of the polls in the list of Secrets.
	turns secretTurns
}

type contentKey struct {
	job client.ObjectKey
	task.Content
}

// content is what was read last.
type content struct {
	// uid and resourceVersion show whether a ConfigMap has changed. They are "" if it does not exist.
	uid             types.UID
	resourceVersion string
	hashes          task.Hashes
	// obstacle is why there are none; nil if there are.
	obstacle *hold.Why
}

func newContents() contents { return contents{seen: map[contentKey]content{}} }

// of returns the hashes of the objects of a NodeJob, or why one of them cannot be used.
func (c *contents) of(ctx context.Context, r observer, job client.ObjectKey, contents []task.Content) ([]task.Hashes, *hold.Why, error) {
	var hashes []task.Hashes
	for _, content := range contents {
		is, err := c.get(ctx, r, contentKey{job, content})
		if err != nil || is.obstacle != nil {
			return nil, is.obstacle, err
		}
		hashes = append(hashes, is.hashes)
	}
	return hashes, nil, nil
}

// keep deletes the contents that a NodeJob no longer lists, so that they are not polled forever.
func (c *contents) keep(job client.ObjectKey, contents []task.Content) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.seen, func(k contentKey, _ content) bool {
		return k.job == job && !slices.Contains(contents, k.Content)
	})
}

func (c *contents) get(ctx context.Context, r observer, key contentKey) (content, error) {
	c.mu.Lock()
	known, ok := c.seen[key]
	c.mu.Unlock()
	if key.Kind == v1alpha1.ContentSecret {
		if ok {
			return known, nil // the poll detects changes
		}
	} else if same, err := r.sameConfigMap(ctx, key, known); ok && (err != nil || same) {
		return known, err
	}
	all, err := r.fetchContents(ctx, []contentKey{key})
	if err != nil {
		return content{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[key] = all[0]
	return all[0], nil
}

// sameConfigMap reports whether the cache shows the version that was read.
func (r observer) sameConfigMap(ctx context.Context, key contentKey, known content) (bool, error) {
	meta := &metav1.PartialObjectMetadata{}
	meta.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: key.job.Namespace, Name: key.Name}, meta)
	if apierrors.IsNotFound(err) {
		return known.uid == "", nil
	}
	if err != nil {
		return false, fmt.Errorf("getting ConfigMap %s: %w", key.Name, err)
	}
	return known.uid == meta.UID && known.resourceVersion == meta.ResourceVersion, nil
}

// fetchContents reads an object from the API server, and returns what it means for each of the fields that name it.
func (r *shell) fetchContents(ctx context.Context, keys []contentKey) ([]content, error) {
	is, labels, data, err := r.fetchObject(ctx, keys[0])
	if err != nil {
		return nil, err
	}
	all := make([]content, len(keys))
	for i, key := range keys {
		all[i] = is
		switch {
		case is.obstacle != nil:
			all[i].obstacle = &hold.Why{Reason: is.obstacle.Reason, Message: key.Field() + ": " + is.obstacle.Message}
		case key.File != "":
			all[i].obstacle = observe.UnusableFiles(key.job.Namespace, key.Content, labels, data)
			all[i].hashes = r.contents.folder(key, is.hashes, data)
		}
	}
	return all, nil
}

// folder adds the hash of the files of an entry of task.files. That of a Secret is slow to compute, so it is computed when the content has
// changed only.
func (c *contents) folder(key contentKey, is task.Hashes, data map[string][]byte) task.Hashes {
	c.mu.Lock()
	known := c.seen[key].hashes
	c.mu.Unlock()
	if known.Folder != "" && known.Content == is.Content {
		return known
	}
	if files, missing := key.Folder(data); missing == "" {
		is.Folder = contract.FolderHash(files, is.Salt)
	}
	return is
}

// fetchObject reads an object. The message of an obstacle does not name the field.
func (r *shell) fetchObject(ctx context.Context, key contentKey) (is content, labels map[string]string, data map[string][]byte, err error) {
	if len(validation.IsDNS1123Subdomain(key.Name)) > 0 {
		return content{obstacle: unnamed(key)}, nil, nil, nil
	}
	name := client.ObjectKey{Namespace: key.job.Namespace, Name: key.Name}
	if key.Kind == v1alpha1.ContentSecret {
		var secret corev1.Secret
		err := r.Reader.Get(ctx, name, &secret)
		if obstacle := missing(key, err, cmp.Or(r.Own.Pod.Namespace, ownNamespace)); obstacle != nil {
			return content{obstacle: obstacle}, nil, nil, nil
		}
		hashes := task.Hashes{Content: task.ContentHash(secret.UID, secret.Data), Salt: kube.ShortHash(string(secret.UID))}
		return content{hashes: hashes}, nil, secret.Data, wrapGet("Secret", key.Name, err)
	}
	var configMap corev1.ConfigMap
	err = r.Reader.Get(ctx, name, &configMap)
	if obstacle := missing(key, err, ""); obstacle != nil {
		return content{obstacle: obstacle}, nil, nil, nil
	}
	// A ConfigMap is not secret: one that is recreated with the same content changes nothing.
	data = observe.ConfigMapData(&configMap)
	is = content{uid: configMap.UID, resourceVersion: configMap.ResourceVersion, hashes: task.Hashes{Content: task.ContentHash("", data)}}
	return is, configMap.Labels, data, wrapGet("ConfigMap", key.Name, err)
}

func wrapGet(kind, name string, err error) error {
	if err != nil {
		return fmt.Errorf("getting %s %s: %w", kind, name, err)
	}
	return nil
}

// unnamed returns the obstacle for a name that no object can have. The object is not requested, and the name is not
// part of a command that a user may copy.
func unnamed(key contentKey) *hold.Why {
	reason := v1alpha1.ReasonConfigMapNotFound
	if key.Kind == v1alpha1.ContentSecret {
		reason = v1alpha1.ReasonSecretNotFound
	}
	return &hold.Why{Reason: reason, Message: fmt.Sprintf("no %s can have the name %s. Correct it", key.Kind, strconv.Quote(outcome.CleanHead(key.Name, 80)))}
}

// missing returns the obstacle that the user has to remove; nil if there is none. manager is the namespace of the
// manager's ServiceAccount.
func missing(key contentKey, err error, manager string) *hold.Why {
	where := fmt.Sprintf("%s %s/%s", key.Kind, key.job.Namespace, key.Name)
	switch {
	case apierrors.IsNotFound(err) && key.Kind == v1alpha1.ContentSecret:
		return &hold.Why{Reason: v1alpha1.ReasonSecretNotFound,
			Message: fmt.Sprintf("%s does not exist. Create it; the NodeJob continues within %d s", where, pollSeconds)}
	case apierrors.IsNotFound(err):
		return &hold.Why{Reason: v1alpha1.ReasonConfigMapNotFound,
			Message: fmt.Sprintf("%s does not exist. Create it; the NodeJob then continues automatically", where)}
	case apierrors.IsForbidden(err) && key.Kind == v1alpha1.ContentSecret:
		return &hold.Why{Reason: v1alpha1.ReasonSecretForbidden,
			Message: fmt.Sprintf("the manager may not read %s. Allow it with: kubectl -n %[2]s create role everynode-%[3]s --verb=get --resource=secrets --resource-name=%[3]s && kubectl -n %[2]s create rolebinding everynode-%[3]s --role=everynode-%[3]s --serviceaccount=%[4]s:everynode-manager; the NodeJob continues within %[5]d s",
				where, key.job.Namespace, key.Name, manager, pollSeconds)}
	}
	return nil
}

// ownNamespace is where config/default installs the manager. It is used if the manager does not know its namespace.
const ownNamespace = "everynode-system"

// secrets returns the Secrets that NodeJobs list, as they were last read.
func (c *contents) secrets() map[contentKey]content {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := map[contentKey]content{}
	for key, is := range c.seen {
		if key.Kind == v1alpha1.ContentSecret {
			found[key] = is
		}
	}
	return found
}

// set stores the content that was found, and reports whether it differs from the previous one.
func (c *contents) set(key contentKey, is content) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	was, ok := c.seen[key]
	if !ok {
		return false // deleted meanwhile
	}
	c.seen[key] = is
	return was.hashes != is.hashes || reasonOf(was.obstacle) != reasonOf(is.obstacle)
}

func reasonOf(o *hold.Why) string {
	if o == nil {
		return ""
	}
	return o.Reason
}

// forget deletes what was stored for a NodeJob.
func (c *contents) forget(job client.ObjectKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.seen, func(k contentKey, _ content) bool { return k.job == job })
}
