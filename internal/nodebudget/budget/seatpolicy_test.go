// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"iter"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/task"
)

var updatePolicy = flag.Bool("update-policy", false, "write the admission policy of seats")

// What differs from seat to seat, and what the API server, its admission plugins or a LimitRange add to a pod. None of it gives a pod
// credentials, access to its node, or a place behind a Service.
var (
	chosenOfSeat = []string{"nodeName", "imagePullSecrets"}
	addedToSeat  = []string{
		"tolerations", // compared for itself
		"containers",
		"dnsPolicy",
		"nodeSelector",
		"overhead",
		"preemptionPolicy",
		"priority",
		"priorityClassName",
		"schedulerName",
		"schedulingGates", // compared with the node
		"serviceAccount",
		"serviceAccountName",
	}
	chosenOfContainer  = []string{"image"}
	addedToContainer   = []string{"resources", "terminationMessagePath", "terminationMessagePolicy"}
	addedToAnnotations = []string{"kubernetes.io/limit-ranger"}
)

// TestPolicyOfSeats generates the admission policy that keeps the manager's account from creating anything else than a seat in its
// namespace, from the seat that the manager creates: what the manager adds to seats becomes part of the policy.
func TestPolicyOfSeats(t *testing.T) {
	place := Place{
		Namespace: "everynode-system",
		Owner:     metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: "everynode-seal", UID: "u", Controller: new(true)},
		Options:   task.Options{RunnerImage: "image", PullSecrets: []string{"secret"}},
	}
	pod := place.Seat(CreateSeat{Node: "node", NodeUID: "uid", Group: "group", Returned: true})
	spec := fieldsOf(t, pod.Spec)
	container := spec["containers"].([]any)[0].(map[string]any)
	if len(pod.Spec.Containers) != 1 || len(pod.OwnerReferences) != 1 {
		t.Fatal("a seat has one container and one owner")
	}
	delete(spec, "containers")
	tolerations := spec["tolerations"].([]any)
	delete(spec, "tolerations")
	labels := fieldsOf(t, pod.Labels)
	delete(labels, v1alpha1.BudgetGroupLabel)

	for _, added := range addedToContainer {
		delete(container, added) // the API server writes an empty value for what is not set
	}
	for _, chosen := range chosenOfSeat {
		delete(spec, chosen)
	}
	for _, chosen := range chosenOfContainer {
		delete(container, chosen)
	}
	toleration := mayTolerate()
	policy := strings.NewReplacer(
		"PLACEHOLDER",
		PlaceholderGroup,
		"GATE",
		v1alpha1.PlaceholderGate,
		"TOLERATIONS",
		fmt.Sprint(len(tolerations)+maxTolerations),
		"EACH_SEAT_TOLERATES",
		literal(tolerations[0]),
		"MAY_TOLERATE",
		toleration,
		"LABEL_KEYS",
		literal(sortedKeys(maps.Keys(labels))),
		"SPEC_KEYS",
		literal(sortedKeys(maps.Keys(spec))),
		"CONTAINER_KEYS",
		literal(sortedKeys(maps.Keys(container))),
		"LABELS",
		literal(labels),
		"ANNOTATIONS",
		literal(sortedKeys(maps.Keys(pod.Annotations), addedToAnnotations)),
		"SPEC",
		literal(spec),
		"ADDED_TO_SPEC",
		literal(sortedKeys(maps.Keys(map[string]bool{}), chosenOfSeat, addedToSeat)),
		"CONTAINER",
		literal(container),
		"ADDED_TO_CONTAINER",
		literal(sortedKeys(maps.Keys(map[string]bool{}), chosenOfContainer, addedToContainer)),
	).Replace(policyOfSeats)
	if len(tolerations) != 1 {
		t.Fatal("a seat on a node without taints has one toleration")
	}
	// Tolerations are also added later.
	const changes = "../../../config/confinement/pods.yaml"
	if content, err := os.ReadFile(changes); err != nil || !strings.Contains(string(content), toleration) {
		t.Errorf("%s accepts other tolerations of seats than those that the manager adds: write\n%s\n%v", changes, toleration, err)
	}
	const file = "../../../config/confinement/seats.yaml"
	if *updatePolicy {
		if err := os.WriteFile(file, []byte(policy), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	is, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(policy, string(is)); diff != "" {
		t.Errorf(
			"%s (-want +got); go test ./internal/nodebudget/budget -run TestPolicyOfSeats -update-policy && make generate regenerate it:\n%s",
			file,
			diff,
		)
	}
}

// mayTolerate returns the expression that is true for a toleration of a taint of the node of a seat.
func mayTolerate() string {
	effects := make([]any, 0, len(toleratedEffects))
	for _, e := range toleratedEffects {
		effects = append(effects, string(e))
	}
	list := func(texts []string) string { return literal(sortedKeys(slices.Values(texts))) }
	return `t.?key.orValue("") != "" && t.?operator.orValue("") == "Exists" && t.?effect.orValue("") in ` + literal(effects) +
		` && !has(t.value) && !has(t.tolerationSeconds) && !` + list(transientPrefixes) + `.exists(p, t.key.startsWith(p)) && !` +
		list(transientDomains) + `.exists(d, ("." + t.key).contains("." + d + "/"))`
}

// fieldsOf returns the fields of an object as the API server sees them.
func fieldsOf(t *testing.T, o any) map[string]any {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]any{}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&fields); err != nil {
		t.Fatal(err)
	}
	return fields
}

// literal returns a literal of CEL. The values of a map have different types, which CEL accepts only as dyn.
func literal(value any) string {
	switch value := value.(type) {
	case map[string]any:
		var fields []string
		for _, key := range slices.Sorted(maps.Keys(value)) {
			fields = append(fields, fmt.Sprintf("%q: dyn(%s)", key, literal(value[key])))
		}
		return "{" + strings.Join(fields, ", ") + "}"
	case []any:
		var items []string
		for _, item := range value {
			if _, is := item.(string); is {
				items = append(items, literal(item))
			} else {
				items = append(items, "dyn("+literal(item)+")")
			}
		}
		return "[" + strings.Join(items, ", ") + "]"
	case string:
		return strconv.Quote(value)
	}
	return fmt.Sprint(value)
}

// sortedKeys returns strings as literal takes them.
func sortedKeys(keys iter.Seq[string], more ...[]string) []any {
	var all []any
	for _, key := range slices.Sorted(slices.Values(append(slices.Collect(keys), slices.Concat(more...)...))) {
		all = append(all, key)
	}
	return all
}

const policyOfSeats = `# TestPolicyOfSeats in internal/nodebudget/budget writes this file from the seats that the manager creates.
#
# The manager's account creates pods in its own namespace only as seats, and as placeholders, which differ from them only in that they are
# never scheduled. A pod there that could use a Secret, a service account or a volume, or that a Service selects, would be more than a
# seat. The image is not compared: it differs from installation to installation.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: everynode-confine-seats
spec:
  failurePolicy: Fail # also if an expression fails: that affects the manager only
  matchConstraints:
    resourceRules:
    - apiGroups: [""]
      apiVersions: [v1]
      resources: [pods]
      operations: [CREATE]
      scope: "*"
  matchConditions:
  - name: the-manager-creates-a-pod-in-its-namespace
    expression: >-
      request.userInfo.username == "system:serviceaccount:everynode-system:everynode-manager" && request.namespace == "everynode-system"
  variables:
  - name: labels
    expression: object.metadata.?labels.orValue({})
  - name: wantLabels
    expression: >-
      LABELS
  - name: annotations
    expression: object.metadata.?annotations.orValue({})
  - name: spec
    expression: dyn(object.spec)
  - name: wantSpec
    expression: >-
      SPEC
  - name: container
    expression: dyn(object.spec.containers[0])
  - name: wantContainer
    expression: >-
      CONTAINER
  # The fields that a seat does not have, or has with another value. The API server gives a pod the labels of its node about topology.
  - name: differs
    expression: >-
      LABEL_KEYS.filter(k, !(k in variables.labels) || variables.labels[k] != variables.wantLabels[k]).map(k, "the label " + k)
      + ("everynode.dev/budget-group" in variables.labels ? [] : ["the label everynode.dev/budget-group"])
      + (variables.labels.all(k, k in variables.wantLabels || k == "everynode.dev/budget-group" || k.startsWith("topology.kubernetes.io/")) ? [] : ["other labels"])
      + (variables.annotations.all(k, k in ANNOTATIONS) ? [] : ["other annotations"])
      + (object.metadata.?ownerReferences.orValue([]).size() == 1 && object.metadata.ownerReferences.all(o,
        o.?controller.orValue(false) && o.apiVersion == "v1" && o.kind == "Secret" && o.name == "everynode-seal") ? [] : ["metadata.ownerReferences"])
      + (object.metadata.?finalizers.orValue([]).size() == 0 ? [] : ["metadata.finalizers"])
      + ((variables.labels[?"everynode.dev/budget-group"].orValue("") == "PLACEHOLDER"
        ? object.spec.?nodeName.orValue("") == "" && object.spec.?schedulingGates.orValue([]).exists(g, g.name == "GATE")
        : object.spec.?nodeName.orValue("") != "" && object.spec.?schedulingGates.orValue([]).size() == 0) ? [] : ["spec.nodeName"])
      + (object.spec.containers.size() == 1 ? [] : ["spec.containers"])
      + (object.spec.?tolerations.orValue([]).size() <= TOLERATIONS
        && variables.spec[?"tolerations"].orValue([]).exists(t, t == EACH_SEAT_TOLERATES)
        && object.spec.tolerations.all(t, !has(t.key) && dyn(t) == EACH_SEAT_TOLERATES
          || MAY_TOLERATE) ? [] : ["spec.tolerations"])
      + (object.spec.?serviceAccountName.orValue("default") == "default" ? [] : ["spec.serviceAccountName"])
      + SPEC_KEYS.filter(k, !(k in variables.spec) || variables.spec[k] != variables.wantSpec[k]).map(k, "spec." + k)
      + variables.spec.filter(k, !(k in variables.wantSpec) && !(k in ADDED_TO_SPEC)).map(k, "spec." + k)
      + CONTAINER_KEYS.filter(k, !(k in variables.container) || variables.container[k] != variables.wantContainer[k]).map(k, "spec.containers[0]." + k)
      + variables.container.filter(k, !(k in variables.wantContainer) && !(k in ADDED_TO_CONTAINER)).map(k, "spec.containers[0]." + k)
  validations:
  - expression: variables.differs.size() == 0
    messageExpression: >-
      "Everynode's manager must create only seats in its namespace, and this pod differs from a seat in " + variables.differs.join(", ")
      + ". If an admission webhook or policy adds it, exclude the namespace everynode-system there"
    reason: Forbidden
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: everynode-confine-seats
spec:
  policyName: everynode-confine-seats
  # In the binding, because the API server evaluates the selectors of a policy in each write of any object.
  matchResources:
    namespaceSelector:
      matchLabels:
        kubernetes.io/metadata.name: everynode-system
  validationActions: [Deny, Audit]
`
