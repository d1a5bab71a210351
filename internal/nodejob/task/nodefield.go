// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/kube"
)

// MaxNodeValueBytes limits a value that task.env takes from a Node, or its default, in bytes. Annotations may have 256 KiB.
const MaxNodeValueBytes = 4096

// NodeFields are the fields of a Node that task.env can read. The node itself may have written them.
type NodeFields struct {
	Labels       map[string]string
	Annotations  map[string]string
	ProviderID   string
	Architecture string
}

// NodeValues are the values of the variables of task.env that come from a Node.
type NodeValues struct {
	// Values are the values by the name of the variable; nil if no variable comes from the Node, or one has no valid value.
	Values map[string]string
	// Reason and Message say why a variable has no valid value; "" if all have one.
	Reason, Message string
}

// ReadNodeValues reads the values of the variables that come from the Node.
func ReadNodeValues(env []v1alpha1.EnvVar, node NodeFields) NodeValues {
	var values map[string]string
	for i := range env {
		from := env[i].ValueFrom
		if from == nil || from.NodeFieldRef == nil {
			continue
		}
		value, reason, message := readNodeValue(from.NodeFieldRef, node)
		if reason != "" {
			return NodeValues{Reason: reason, Message: fmt.Sprintf("spec.task.env: %s takes %s from the Node, %s", env[i].Name, from.NodeFieldRef.FieldPath, message)}
		}
		if values == nil {
			values = map[string]string{}
		}
		values[env[i].Name] = value
	}
	return NodeValues{Values: values}
}

// readNodeValue returns the value of a field, or why it has no valid one. The value is never part of a message.
func readNodeValue(ref *v1alpha1.NodeFieldSelector, node NodeFields) (value, reason, message string) {
	value, found := node.field(ref.FieldPath)
	switch {
	case found:
	case ref.Default == nil:
		return "", v1alpha1.ReasonNodeFieldNotFound, "which does not have it: set it, or valueFrom.nodeFieldRef.default"
	default:
		value = *ref.Default
	}
	switch {
	case len(value) > MaxNodeValueBytes:
		return "", v1alpha1.ReasonNodeFieldInvalid, fmt.Sprintf("and it has %d bytes, of which %d are allowed: shorten it", len(value), MaxNodeValueBytes)
	case strings.ContainsRune(value, 0):
		return "", v1alpha1.ReasonNodeFieldInvalid, "and it contains a zero byte, which an environment variable cannot contain: remove it"
	}
	return value, "", ""
}

// field returns the field of a Node for NodeFieldSelector.FieldPath. It reports false if the Node does not have it.
func (n *NodeFields) field(path string) (string, bool) {
	switch path {
	case "spec.providerID":
		return n.ProviderID, n.ProviderID != ""
	case "status.nodeInfo.architecture":
		return n.Architecture, n.Architecture != ""
	}
	all, key := n.Labels, ""
	if rest, is := strings.CutPrefix(path, "metadata.labels['"); is {
		key = rest
	} else if rest, is := strings.CutPrefix(path, "metadata.annotations['"); is {
		all, key = n.Annotations, rest
	}
	value, found := all[strings.TrimSuffix(key, "']")]
	return value, found
}

// Hash returns a short hash of the values; "" if there are none.
func (v NodeValues) Hash() string {
	if len(v.Values) == 0 {
		return ""
	}
	b, err := json.Marshal(v.Values) // sorts the names
	if err != nil {
		panic(err) // a map of strings always marshals
	}
	return kube.ShortHash(string(b))
}

// taskEnv returns task.env as variables of a container. Kubernetes does not expand $(NAME) in values that come from the Node.
func taskEnv(job *v1alpha1.NodeJob, values NodeValues) []corev1.EnvVar {
	var env []corev1.EnvVar
	for _, e := range job.Spec.Task.Env {
		variable := corev1.EnvVar{Name: e.Name, Value: e.Value}
		switch from := e.ValueFrom; {
		case from == nil:
		case from.NodeFieldRef != nil:
			variable.Value = literal(values.Values[e.Name])
		default:
			variable.ValueFrom = &corev1.EnvVarSource{
				ConfigMapKeyRef: from.ConfigMapKeyRef, SecretKeyRef: from.SecretKeyRef, FieldRef: from.FieldRef,
			}
		}
		env = append(env, variable)
	}
	return env
}
