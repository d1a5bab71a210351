// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"context"
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/record"
	"github.com/everynode/everynode/internal/task"
)

// floorWrites are the writes of a floor program for a node.
type floorWrites interface {
	start(ctx context.Context, node string) error
	end(ctx context.Context, node string) error
}

// least makes the minimal writes: three, as small as possible.
type least struct{ rest.Interface }

func (w least) start(ctx context.Context, node string) error {
	return create(ctx, w, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: floorPrefix + node, Namespace: Namespace, Labels: map[string]string{floorLabel: floorLabelValue}},
		Spec: corev1.PodSpec{
			NodeName: node, RestartPolicy: corev1.RestartPolicyNever, AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false),
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers:  []corev1.Container{{Name: "task", Image: "registry.local/task"}},
		},
	})
}

func (w least) end(ctx context.Context, node string) error {
	if err := patch(ctx, w, types.MergePatchType, "nodes", node, []byte(`{"metadata":{"labels":{"`+FloorLabel+`":"done"}}}`)); err != nil {
		return err
	}
	return remove(ctx, w, node)
}

// durable makes the writes of the manager, so that no result can be lost and each can be inspected later: a pod with a
// finalizer and a script; the record; and the fourth write, which removes the finalizer. Only the owner of the pod is
// omitted, since there is none.
type durable struct{ rest.Interface }

// Some values with realistic lengths.
const (
	someUID      = "3b4c1d7e-52f0-4f0e-9a51-0c8d4f6b2a11"
	someMachine  = "0123456789abcdef0123456789abcdef"
	someRevision = "0a1b2c3d4e"
	someScript   = "set -e\nwant=262144\nif [ \"$want\" -gt \"$(sysctl -n vm.max_map_count)\" ]; then sysctl -w vm.max_map_count=$want; fi\n"
)

func (w durable) start(ctx context.Context, node string) error {
	job := &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Name: "bench", Namespace: Namespace, UID: someUID}}
	pod := task.Pod(job, task.Source{Script: someScript}, task.Attempt{
		Phase: task.Task, Revision: someRevision, Number: 1, NodeName: node, NodeUID: someUID, MachineID: someMachine, BootID: someUID,
	}, task.Options{RunnerImage: "registry.local/everynode/runner:dev", PriorityClassName: "system-node-critical"})
	pod.Name, pod.OwnerReferences = floorPrefix+node, nil
	pod.Labels[floorLabel] = floorLabelValue
	return create(ctx, w, pod)
}

func (w durable) end(ctx context.Context, node string) error {
	now, zero := time.Now().UTC().Truncate(time.Second), int32(0)
	value := record.Encode(record.Record{
		Revision: someRevision, Outcome: record.Succeeded, Attempts: 1, StartedAt: now, FinishedAt: now, ExitCode: &zero,
		BootID: someUID, MachineID: someMachine, PodUID: someUID,
	})
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"labels": map[string]string{FloorLabel: someRevision}, "annotations": map[string]string{FloorLabel: value},
	}})
	if err != nil {
		return err
	}
	if err := patch(ctx, w, types.MergePatchType, "nodes", node, body); err != nil {
		return err
	}
	if err := remove(ctx, w, node); err != nil {
		return err
	}
	off := []byte(`{"metadata":{"$deleteFromPrimitiveList/finalizers":["` + v1alpha1.PodFinalizer + `"]}}`)
	return patch(ctx, w, types.StrategicMergePatchType, "pods", floorPrefix+node, off)
}

func create(ctx context.Context, client rest.Interface, pod *corev1.Pod) error {
	return client.Post().Namespace(Namespace).Resource("pods").SetHeader("Accept", metadata).Body(pod).Do(ctx).Error()
}

func patch(ctx context.Context, client rest.Interface, kind types.PatchType, resource, name string, body []byte) error {
	return client.Patch(kind).Namespace(namespaceOf(resource)).Resource(resource).Name(name).SetHeader("Accept", metadata).Body(body).Do(ctx).Error()
}

func remove(ctx context.Context, client rest.Interface, node string) error {
	return client.Delete().Namespace(Namespace).Resource("pods").Name(floorPrefix+node).SetHeader("Accept", metadata).Do(ctx).Error()
}
