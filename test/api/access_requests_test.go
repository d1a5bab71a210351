// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"slices"

	"github.com/everynode/everynode/api/v1alpha1"
)

// ask is a request of the table of accesses. In name and body, NAMESPACE, NODE and the UIDs JOB-UID, GUARD-UID and NODE-UID are
// replaced.
type ask struct {
	// kind and name of the object, and the namespace, unless it is that of the test; "-" for objects of the cluster.
	kind, name, namespace string
	verb, subresource     string
	// what is done, in words.
	what string
	// body is a merge patch, or the object to create.
	body string
	// notBefore136 marks a request for which older versions of Kubernetes have no kind, or other roles.
	notBefore136 bool
}

// groups has the group and version of each kind. A kind that the manager reads and that is not here makes the test fail.
var groups = map[string]string{
	"NodeJob":                          "everynode.dev/v1alpha1",
	"NodeGuard":                        "everynode.dev/v1alpha1",
	"NodeDisruptionBudget":             "everynode.dev/v1alpha1",
	"Pod":                              "v1",
	"ConfigMap":                        "v1",
	"Namespace":                        "v1",
	"Node":                             "v1",
	"Secret":                           "v1",
	"ServiceAccount":                   "v1",
	"Binding":                          "v1",
	"Event":                            "events.k8s.io/v1",
	"PodDisruptionBudget":              "policy/v1",
	"DaemonSet":                        "apps/v1",
	"Lease":                            "coordination.k8s.io/v1",
	"ServiceCIDR":                      "networking.k8s.io/v1",
	"ClusterRole":                      "rbac.authorization.k8s.io/v1",
	"ClusterRoleBinding":               "rbac.authorization.k8s.io/v1",
	"CustomResourceDefinition":         "apiextensions.k8s.io/v1",
	"ValidatingAdmissionPolicy":        "admissionregistration.k8s.io/v1",
	"ValidatingAdmissionPolicyBinding": "admissionregistration.k8s.io/v1",
	"MutatingAdmissionPolicy":          "admissionregistration.k8s.io/v1",
	"MutatingAdmissionPolicyBinding":   "admissionregistration.k8s.io/v1",
	"TokenReview":                      "authentication.k8s.io/v1",
	"SubjectAccessReview":              "authorization.k8s.io/v1",
}

const (
	jobOwner   = `ownerReferences: [{apiVersion: everynode.dev/v1alpha1, kind: NodeJob, name: script, uid: JOB-UID, controller: true}]`
	guardOwner = `ownerReferences: [{apiVersion: everynode.dev/v1alpha1, kind: NodeGuard, name: guard, uid: GUARD-UID, controller: true}]`
	noOwner    = `{metadata: {ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: missing, uid: missing}]}}`
	container  = `containers: [{name: c, image: i}]`
	// bound is the spec of a pod that its creator puts on the node.
	bound      = `spec: {nodeName: NODE, automountServiceAccountToken: false, ` + container + `}`
	attempt    = `metadata: {labels: {everynode.dev/nodejob: script}, finalizers: [everynode.dev/outcome-tracking], ` + jobOwner + `}`
	ofNoNode   = `nodes: {selector: {matchLabels: {example.com/no: node}}}`
	ofTemplate = ofNoNode + `, task: {template: {spec: {` + container + `}}}`
)

// seatOwner is the controller of a seat, and ofBudget the owner of its PodDisruptionBudget.
const (
	seatOwner = `ownerReferences: [{apiVersion: v1, kind: Secret, name: everynode-seal, uid: SEAL-UID, controller: true}]`
	ofBudget  = `ownerReferences: [{apiVersion: everynode.dev/v1alpha1, kind: NodeDisruptionBudget, name: NAMESPACE, uid: BUDGET-UID}]`
	ofSeats   = `metadata: {labels: {everynode.dev/budget-group: x}, ` + ofBudget + `}`
	ofGroup   = `selector: {matchExpressions: [{key: everynode.dev/budget-group, operator: In, values: [x, placeholder]}]}`
)

// asksOfBudgets are the requests about NodeDisruptionBudgets, seats, and their PodDisruptionBudgets.
var asksOfBudgets = []ask{
	{kind: "NodeDisruptionBudget", namespace: "-", name: "NAMESPACE-new", verb: "create", body: `spec: {limits: [{maxUnavailable: 0}]}`},
	{kind: "NodeDisruptionBudget", namespace: "-", name: "NAMESPACE", verb: "patch", what: "the spec", body: `spec: {expiresAt: null}`},
	{kind: "NodeDisruptionBudget", namespace: "-", name: "NAMESPACE", verb: "delete"},
	{
		kind:        "NodeDisruptionBudget",
		namespace:   "-",
		name:        "NAMESPACE",
		verb:        "update",
		subresource: "status",
		body:        `status: {disruptionsAllowed: 5}`,
	},
	{
		kind:      "Pod",
		namespace: "everynode-system",
		name:      "seat",
		verb:      "create",
		what:      "a seat",
		body: `metadata: {labels: {app.kubernetes.io/name: everynode, app.kubernetes.io/component: seat, app.kubernetes.io/managed-by: everynode,
		everynode.dev/budget-group: x}, ` + seatOwner + `}, spec: {nodeName: NODE, automountServiceAccountToken: false, enableServiceLinks: false,
		securityContext: {runAsNonRoot: true, runAsUser: 65532, runAsGroup: 65532, seccompProfile: {type: RuntimeDefault}},
		terminationGracePeriodSeconds: 5, tolerations: [{operator: Exists, effect: NoExecute}],
		containers: [{name: seat, image: a, args: [--wait], imagePullPolicy: IfNotPresent,
		securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}}]}`,
	},
	{
		kind: "Pod", namespace: "everynode-system", name: "seat", verb: "create", what: "the label of seats, and another program",
		body: `metadata: {labels: {everynode.dev/budget-group: x}, ` + seatOwner + `}, ` + bound,
	},
	{
		kind: "Pod", namespace: "everynode-system", name: "seat", verb: "create", what: "a seat with a token",
		body: `metadata: {labels: {everynode.dev/budget-group: x}, ` + seatOwner + `}, spec: {nodeName: NODE, ` + container + `}`,
	},
	{
		kind: "Pod", namespace: "everynode-system", name: "seat", verb: "create", what: "a seat of another owner",
		body: `metadata: {labels: {everynode.dev/budget-group: x}}, ` + bound,
	},
	{
		kind:      "Pod",
		namespace: "everynode-system",
		name:      "seat",
		verb:      "create",
		what:      "a mirror pod with the label of seats",
		body: `metadata: {labels: {everynode.dev/budget-group: x}, annotations: {kubernetes.io/config.mirror: a, kubernetes.io/config.hash: a, kubernetes.io/config.source: file},
		ownerReferences: [{apiVersion: v1, kind: Node, name: NODE, uid: NODE-UID, controller: true}]}, ` + bound,
	},
	{
		kind: "Pod", name: "seat", verb: "create", what: "a seat in the namespace of a tenant",
		body: `metadata: {labels: {everynode.dev/budget-group: x}, ` + seatOwner + `}, ` + bound,
	},
	{
		kind: "Pod", name: "unbound", verb: "patch", what: "the label of seats, on a pod of a tenant",
		body: `metadata: {labels: {everynode.dev/budget-group: x}}`,
	},
	{
		kind: "PodDisruptionBudget", namespace: "everynode-system", name: "seats", verb: "create", what: "for seats",
		body: ofSeats + `, spec: {minAvailable: 1, ` + ofGroup + `}`,
	},
	{
		kind:      "PodDisruptionBudget",
		namespace: "everynode-system",
		name:      "seats",
		verb:      "create",
		what:      "for seats, and it selects all pods",
		body:      ofSeats + `, spec: {minAvailable: 1, selector: {}}`,
	},
	{
		kind: "PodDisruptionBudget", name: "seats", verb: "create", what: "for seats in the namespace of a tenant",
		body: ofSeats + `, spec: {minAvailable: 1, ` + ofGroup + `}`,
	},
}

// asks are the requests of the table, by hand.
var accessAsks = slices.Concat(
	asksOfNodeJobs,
	asksOfNodeGuards,
	asksOfBudgets,
	asksOfPods,
	asksOfScripts,
	asksOfNamespaces,
	asksOfNodes,
	asksOfOthers,
	asksOfTheInstallation,
)

var asksOfNodeJobs = []ask{
	{kind: "NodeJob", name: "new", verb: "create", what: "with a script", body: `spec: {` + ofNoNode + `, task: {script: "true"}}`},
	{kind: "NodeJob", name: "new", verb: "create", what: "with a template", body: `spec: {` + ofTemplate + `}`},
	{
		kind: "NodeJob",
		name: "new",
		verb: "create",
		what: "with a template and a drain",
		body: `spec: {` + ofTemplate + `, maintenance: {drain: {}}}`,
	},
	{kind: "NodeJob", name: "new", verb: "create", what: "with a template and a gate", body: `spec: {` + ofTemplate + `, gate: {}}`},
	{
		kind: "NodeJob",
		name: "new",
		verb: "create",
		what: "with a template and a published result",
		body: `spec: {` + ofTemplate + `, publish: [{result: a, label: x.test/a}]}`,
	},
	{kind: "NodeJob", name: "script", verb: "patch", what: "the script", body: `spec: {task: {script: "false"}}`},
	{kind: "NodeJob", name: "gated", verb: "patch", what: "no gate any more", body: `spec: {gate: null}`},
	{kind: "NodeJob", name: "publishes", verb: "patch", what: "no published result any more", body: `spec: {publish: null}`},
	{kind: "NodeJob", name: "cordons", verb: "patch", what: "no cordon of failed nodes any more", body: `spec: {onFailure: null}`},
	{kind: "NodeJob", name: "script", verb: "patch", what: "an owner that does not exist", body: noOwner},
	{kind: "NodeJob", name: "script", verb: "patch", what: "the finalizer", body: `metadata: {finalizers: [everynode.dev/node-records]}`},
	{
		kind: "NodeJob",
		name: "script",
		verb: "patch",
		what: "a label and an annotation of another tool",
		body: `metadata: {labels: {x.test/a: b}, annotations: {x.test/a: b}}`,
	},
	{kind: "NodeJob", name: "script", verb: "delete", what: "nothing stays on nodes"},
	{kind: "NodeJob", name: "expires", verb: "delete", what: "with a time to live"},
	{kind: "NodeJob", name: "gated", verb: "delete", what: "with a gate"},
	{kind: "NodeJob", name: "publishes", verb: "delete", what: "with a published result"},
	{kind: "NodeJob", name: "cordons", verb: "delete", what: "with cordons of failed nodes"},
	{kind: "NodeJob", name: "undone", verb: "delete", what: "with a rollback"},
	{
		kind:        "NodeJob",
		name:        "script",
		verb:        "update",
		subresource: "status",
		what:        "a soak that is over",
		body:        `status: {rollout: {stableAt: "2020-01-01T00:00:00Z"}}`,
	},
}

var asksOfNodeGuards = []ask{
	{kind: "NodeGuard", name: "new", verb: "create", what: "for a DaemonSet", body: `spec: {target: {daemonSet: a}}`},
	{
		kind: "NodeGuard",
		name: "new",
		verb: "create",
		what: "with a script",
		body: `spec: {target: {daemonSet: a}, release: {check: {script: "true"}}}`,
	},
	{kind: "NodeGuard", name: "guard", verb: "patch", what: "the spec", body: `spec: {maxUnavailable: 2}`},
	{kind: "NodeGuard", name: "guard", verb: "patch", what: "an owner that does not exist", body: noOwner},
	{kind: "NodeGuard", name: "guard", verb: "delete"},
	{kind: "NodeGuard", name: "guard", verb: "update", subresource: "status", what: "an emergency release",
		body: `status: {released: [{node: NODE, uid: NODE-UID, since: "2020-01-01T00:00:00Z", reason: BreakGlass}]}`},
}

var asksOfPods = []ask{
	{kind: "Pod", name: "new", verb: "create", what: "a pod without an owner", body: `spec: {` + container + `}`},
	{kind: "Pod", name: "new", verb: "create", what: "an attempt of a NodeJob", body: attempt + `, ` + bound},
	{
		kind: "Pod",
		name: "new",
		verb: "create",
		what: "a companion of a NodeGuard",
		body: `metadata: {labels: {everynode.dev/nodeguard: guard}, ` + guardOwner + `}, ` + bound,
	},
	{kind: "Pod", name: "new", verb: "create", what: "an owner, without the label", body: `metadata: {` + jobOwner + `}, ` + bound},
	{
		kind: "Pod",
		name: "new",
		verb: "create",
		what: "a mirror pod",
		body: `metadata: {annotations: {kubernetes.io/config.mirror: a, kubernetes.io/config.hash: a, kubernetes.io/config.source: file},
		ownerReferences: [{apiVersion: v1, kind: Node, name: NODE, uid: NODE-UID, controller: true}]}, ` + bound,
	},
	{
		kind: "Pod",
		name: "new",
		verb: "create",
		what: "a mirror pod with the label",
		body: `metadata: {labels: {everynode.dev/nodejob: script}, annotations: {kubernetes.io/config.mirror: a, kubernetes.io/config.hash: a, kubernetes.io/config.source: file},
		ownerReferences: [{apiVersion: v1, kind: Node, name: NODE, uid: NODE-UID, controller: true}]}, ` + bound,
	},
	{kind: "Pod", name: "attempt", verb: "patch", what: "the owner of an attempt", body: `metadata: {ownerReferences: null}`},
	{kind: "Pod", name: "attempt", verb: "patch", what: "the finalizer of an attempt", body: `metadata: {finalizers: null}`},
	{kind: "Pod", name: "attempt", verb: "patch", what: "the deadline of an attempt", body: `spec: {activeDeadlineSeconds: 1}`},
	{
		kind: "Pod",
		name: "attempt",
		verb: "patch",
		what: "a label and an annotation of another tool, on an attempt",
		body: `metadata: {labels: {x.test/a: b}, annotations: {x.test/a: b}}`,
	},
	{kind: "Pod", name: "attempt", verb: "delete", what: "an attempt"},
	{
		kind:        "Pod",
		name:        "attempt",
		verb:        "patch",
		subresource: "status",
		what:        "the success of an attempt",
		body:        `status: {phase: Succeeded}`,
	},
	{
		kind:        "Pod",
		name:        "attempt",
		verb:        "patch",
		subresource: "status",
		what:        "a condition of an attempt",
		body:        `status: {conditions: [{type: DisruptionTarget, status: "True"}]}`,
	},
	{
		kind:        "Pod",
		name:        "attempt",
		verb:        "patch",
		subresource: "status",
		what:        "the finalizer of an attempt",
		body:        `metadata: {finalizers: null}`,
	},
	{
		kind:        "Pod",
		name:        "attempt",
		verb:        "patch",
		subresource: "ephemeralcontainers",
		what:        "a container in an attempt",
		body:        `spec: {ephemeralContainers: [{name: e, image: i, terminationMessagePolicy: File, imagePullPolicy: Always}]}`,
	},
	{
		kind:        "Pod",
		name:        "attempt",
		verb:        "create",
		subresource: "eviction",
		what:        "of an attempt",
		body:        `{apiVersion: policy/v1, kind: Eviction, metadata: {name: attempt}, deleteOptions: {dryRun: [All]}}`,
	},
	{
		kind:        "Pod",
		name:        "companion",
		verb:        "patch",
		subresource: "status",
		what:        "a companion that is not ready",
		body:        `status: {conditions: [{type: Ready, status: "False"}]}`,
	},
	{kind: "Pod", name: "companion", verb: "delete", what: "a companion"},
	{
		kind:        "Pod",
		name:        "unbound",
		verb:        "create",
		subresource: "binding",
		what:        "with the label",
		body:        `{apiVersion: v1, kind: Binding, metadata: {name: unbound, labels: {everynode.dev/nodejob: script}}, target: {kind: Node, name: NODE}}`,
	},
	{
		kind: "Binding",
		name: "unbound",
		verb: "create",
		what: "with the label",
		body: `{metadata: {labels: {everynode.dev/nodejob: script}}, target: {kind: Node, name: NODE}}`,
	},
	{kind: "Pod", name: "unbound", verb: "patch", what: "an owner of another pod", body: `metadata: {` + jobOwner + `}`},
}

var asksOfScripts = []ask{
	{
		kind: "ConfigMap",
		name: "new",
		verb: "create",
		what: "with the label of scripts",
		body: `{metadata: {labels: {everynode.dev/script: "true"}}, data: {sh: "true"}}`,
	},
	{kind: "ConfigMap", name: "labeled", verb: "patch", what: "a script", body: `data: {sh: reboot}`},
	{kind: "ConfigMap", name: "labeled", verb: "patch", what: "immutable", body: `immutable: true`},
	{
		kind: "ConfigMap",
		name: "labeled",
		verb: "patch",
		what: "no label any more",
		body: `metadata: {labels: {everynode.dev/script: null}}`,
	},
	{kind: "ConfigMap", name: "labeled", verb: "delete", what: "with the label"},
	{kind: "ConfigMap", name: "plain", verb: "patch", what: "the label", body: `metadata: {labels: {everynode.dev/script: "true"}}`},
	{kind: "ConfigMap", name: "plain", verb: "patch", what: "data without the label", body: `data: {sh: reboot}`},
}

var asksOfNamespaces = []ask{
	{
		kind:      "Namespace",
		name:      "NAMESPACE",
		namespace: "-",
		verb:      "patch",
		what:      "not allowed any more",
		body:      `metadata: {labels: {everynode.dev/enabled: null}}`,
	},
	{
		kind:        "Namespace",
		name:        "NAMESPACE",
		namespace:   "-",
		verb:        "patch",
		subresource: "status",
		what:        "not allowed any more",
		body:        `metadata: {labels: {everynode.dev/enabled: null}}`,
	},
	{
		kind:        "Namespace",
		name:        "NAMESPACE",
		namespace:   "-",
		verb:        "update",
		subresource: "finalize",
		what:        "not allowed any more",
		body:        `metadata: {labels: {everynode.dev/enabled: null}}`,
	},
	{
		kind:      "Namespace",
		name:      "OTHER",
		namespace: "-",
		verb:      "patch",
		what:      "allowed",
		body:      `metadata: {labels: {everynode.dev/enabled: "true"}}`,
	},
	{
		kind:        "Namespace",
		name:        "OTHER",
		namespace:   "-",
		verb:        "patch",
		subresource: "status",
		what:        "allowed",
		body:        `metadata: {labels: {everynode.dev/enabled: "true"}}`,
	},
	{
		kind:        "Namespace",
		name:        "OTHER",
		namespace:   "-",
		verb:        "update",
		subresource: "finalize",
		what:        "allowed",
		body:        `metadata: {labels: {everynode.dev/enabled: "true"}}`,
	},
	{kind: "Namespace", name: "NAMESPACE", namespace: "-", verb: "delete"},
}

var asksOfNodes = []ask{
	{
		kind:      "Node",
		name:      "NODE",
		namespace: "-",
		verb:      "patch",
		what:      "the label of a record",
		body:      `metadata: {labels: {NAMESPACE.everynode.dev/script: r}}`,
	},
	{
		kind:      "Node",
		name:      "NODE",
		namespace: "-",
		verb:      "patch",
		what:      "a record",
		body:      `metadata: {annotations: {NAMESPACE.everynode.dev/script: r}}`,
	},
	{
		kind:      "Node",
		name:      "NODE",
		namespace: "-",
		verb:      "patch",
		what:      "a seal",
		body:      `metadata: {labels: {NAMESPACE.everynode.node-restriction.kubernetes.io/script: r}}`,
	},
	{
		kind:        "Node",
		name:        "NODE",
		namespace:   "-",
		verb:        "patch",
		subresource: "status",
		what:        "a seal",
		body:        `metadata: {labels: {NAMESPACE.everynode.node-restriction.kubernetes.io/script: r}}`,
	},
	{
		kind:      "Node",
		name:      "NODE",
		namespace: "-",
		verb:      "patch",
		what:      "a gate",
		body:      `spec: {taints: [{key: node.kubernetes.io/not-ready, effect: NoSchedule}, {key: NAMESPACE.everynode.dev/script, value: everynode, effect: NoSchedule}]}`,
	},
	{kind: "Node", name: "NODE", namespace: "-", verb: "patch", what: "a cordon", body: `spec: {unschedulable: true}`},
	{
		kind:      "Node",
		name:      "NODE",
		namespace: "-",
		verb:      "patch",
		what:      "out of load balancers",
		body:      `metadata: {labels: {node.kubernetes.io/exclude-from-external-load-balancers: "true"}}`,
	},
	{kind: "Node", name: "NODE", namespace: "-", verb: "delete"},
}

var asksOfOthers = []ask{
	{
		kind: "PodDisruptionBudget",
		name: "new",
		verb: "create",
		what: "without an owner",
		body: `spec: {minAvailable: 1, selector: {matchLabels: {a: b}}}`,
	},
	{
		kind: "PodDisruptionBudget",
		name: "new",
		verb: "create",
		what: "of a NodeGuard",
		body: `{metadata: {` + guardOwner + `}, spec: {minAvailable: 1, selector: {matchLabels: {everynode.dev/nodeguard: guard}}}}`,
	},
	{kind: "PodDisruptionBudget", name: "budget", verb: "update", what: "open", body: `spec: {minAvailable: 0}`},
	{
		kind:        "PodDisruptionBudget",
		name:        "budget",
		verb:        "patch",
		subresource: "status",
		what:        "an eviction that is allowed",
		body:        `status: {disruptionsAllowed: 1, observedGeneration: 1}`,
	},
	{kind: "PodDisruptionBudget", name: "budget", verb: "delete", what: "of a NodeGuard"},
	{
		kind: "DaemonSet",
		name: "target",
		verb: "patch",
		what: "pods with our label",
		body: `spec: {template: {metadata: {labels: {everynode.dev/nodeguard: guard}}}}`,
	},
	{
		kind:        "DaemonSet",
		name:        "target",
		verb:        "patch",
		subresource: "status",
		what:        "the status",
		body:        `status: {desiredNumberScheduled: 7}`,
	},
	{kind: "DaemonSet", name: "target", verb: "delete"},
	{kind: "ServiceCIDR", name: "new", verb: "create", body: `spec: {cidrs: [10.99.0.0/24]}`},
	// Who may create events differs with the version of Kubernetes.
	{
		kind:         "Event",
		name:         "new",
		verb:         "create",
		notBefore136: true,
		body:         `{eventTime: "2026-01-01T00:00:00.000000Z", reportingController: x.test/a, reportingInstance: a, action: A, reason: R, type: Normal, regarding: {namespace: NAMESPACE, name: script, kind: NodeJob}}`,
	},
}

var asksOfTheInstallation = []ask{
	{kind: "Secret", name: "everynode-seal", namespace: "everynode-system", verb: "get"},
	{kind: "Secret", name: "everynode-seal", namespace: "everynode-system", verb: "patch", body: `stringData: {a: b}`},
	{kind: "Secret", name: "everynode-seal", namespace: "everynode-system", verb: "delete"},
	{
		kind:      "ServiceAccount",
		name:      "everynode-manager",
		namespace: "everynode-system",
		verb:      "patch",
		what:      "an identity of a cloud",
		body:      `metadata: {annotations: {eks.amazonaws.com/role-arn: x}}`,
	},
	{
		kind:        "ServiceAccount",
		name:        "everynode-manager",
		namespace:   "everynode-system",
		verb:        "create",
		subresource: "token",
		what:        "of the manager",
		body:        `{apiVersion: authentication.k8s.io/v1, kind: TokenRequest, spec: {audiences: [x]}}`,
	},
	{
		kind:        "ServiceAccount",
		name:        "everynode-requirements",
		namespace:   "everynode-system",
		verb:        "create",
		subresource: "token",
		what:        "of requirements",
		body:        `{apiVersion: authentication.k8s.io/v1, kind: TokenRequest, spec: {audiences: [x]}}`,
	},
	{kind: "Lease", name: "everynode-manager", namespace: "everynode-system", verb: "patch", body: `spec: {holderIdentity: x}`},
	{kind: "ClusterRole", name: "everynode-manager", namespace: "-", verb: "patch", what: "no rules any more", body: `rules: []`},
	{
		kind:      "ClusterRole",
		name:      "everynode-manager",
		namespace: "-",
		verb:      "patch",
		what:      "a finalizer",
		body:      `metadata: {finalizers: [everynode.dev/installation]}`,
	},
	{
		kind:      "ClusterRoleBinding",
		name:      "everynode-manager",
		namespace: "-",
		verb:      "patch",
		what:      "another subject",
		body:      `subjects: [{kind: ServiceAccount, namespace: default, name: x}]`,
	},
	{
		kind:      "CustomResourceDefinition",
		name:      "nodejobs.everynode.dev",
		namespace: "-",
		verb:      "patch",
		body:      `metadata: {annotations: {x.test/a: b}}`,
	},
	{kind: "ValidatingAdmissionPolicy", name: "everynode-status", namespace: "-", verb: "delete"},
	{kind: "ValidatingAdmissionPolicyBinding", name: "everynode-status", namespace: "-", verb: "delete"},
	{
		kind:      "ValidatingAdmissionPolicyBinding",
		name:      "everynode-pods",
		namespace: "-",
		verb:      "patch",
		what:      "only warnings",
		body:      `spec: {validationActions: [Warn]}`,
	},
	{kind: "MutatingAdmissionPolicy", name: "everynode-attribution", namespace: "-", verb: "delete", notBefore136: true},
	{kind: "MutatingAdmissionPolicyBinding", name: "everynode-attribution", namespace: "-", verb: "delete", notBefore136: true},
	{kind: "TokenReview", name: "", namespace: "-", verb: "create", body: `spec: {token: x}`},
	{
		kind:      "SubjectAccessReview",
		name:      "",
		namespace: "-",
		verb:      "create",
		body:      `spec: {user: x, nonResourceAttributes: {path: /metrics, verb: get}}`,
	},
}

// family are requests that put each key of Everynode on an object, as a label or as an annotation.
type family struct {
	kind, name, namespace, subresource string
}

// families are the objects that the manager reads keys from.
var families = []family{
	{
		"NodeJob",
		"script",
		"",
		"",
	},
	{"NodeJob", "script", "", "status"},
	{"NodeGuard", "guard", "", ""},
	{"NodeGuard", "guard", "", "status"},
	{
		"Pod",
		"attempt",
		"",
		"",
	},
	{"Pod", "attempt", "", "status"},
	{"Pod", "attempt", "", "ephemeralcontainers"},
	{"Pod", "attempt", "", "resize"},
	{"Pod", "companion", "", ""},
	{"Pod", "unbound", "", ""},
	{"Pod", "unbound", "", "status"},
	{"Node", "NODE", "-", ""},
	{"Node", "NODE", "-", "status"},
	{"Namespace", "NAMESPACE", "-", ""},
	{"ConfigMap", "labeled", "", ""},
	{"PodDisruptionBudget", "budget", "", ""},
	{"PodDisruptionBudget", "budget", "", "status"},
}

// keysOf returns the requests of a family, each with the key that it sets.
func keysOf(f family, keys map[string]string, place string) map[string]ask {
	found := map[string]ask{}
	for _, key := range keys {
		if f.kind != "Namespace" || key != v1alpha1.EnabledLabel || place != "labels" { // that one is in asksOfNamespaces
			found[key] = ask{
				kind:        f.kind,
				name:        f.name,
				namespace:   f.namespace,
				verb:        "patch",
				subresource: f.subresource,
				body:        `metadata: {` + place + `: {` + key + `: "` + valueOf(place, key) + `"}}`,
			}
		}
	}
	return found
}

// valueOf is the value of a label or annotation in a request.
func valueOf(place, key string) string {
	if key == v1alpha1.NodesAnnotation && place == "annotations" {
		return teamLabel + "=a" // others are refused to all
	}
	return "x"
}
