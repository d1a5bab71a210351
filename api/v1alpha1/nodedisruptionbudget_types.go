// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// NodeDisruptionBudget limits how many of the selected nodes are unavailable at the same time, and when disruptions may begin. It
// binds NodeJobs that disrupt nodes, and every tool that drains nodes with evictions: on each selected node, the manager runs a seat,
// a small pod with a PodDisruptionBudget that allows only as many evictions as the budget allows.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=nodedisruptionbudgets,singular=nodedisruptionbudget,scope=Cluster,shortName=ndb,categories=everynode
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.nodes.total`,description="Nodes that are selected"
// +kubebuilder:printcolumn:name="Unavailable",type=integer,JSONPath=`.status.nodes.unavailable`,description="Nodes that use the budget"
// +kubebuilder:printcolumn:name="Waiting",type=integer,JSONPath=`.status.nodes.waiting`,description="Nodes that wait for the budget"
// +kubebuilder:printcolumn:name="Allowed",type=integer,JSONPath=`.status.disruptionsAllowed`,description="Disruptions that may begin now"
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Expires",type=string,JSONPath=`.spec.expiresAt`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NodeDisruptionBudget struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec defines which nodes the budget selects, and which disruptions it allows.
	// +required
	Spec NodeDisruptionBudgetSpec `json:"spec,omitzero"`

	// status is the most recently observed state of the budget. Its size does not depend on the number of nodes. Nothing is decided
	// from it. An observedGeneration of -1 means that the manager has not observed the budget yet.
	// +optional
	// +kubebuilder:default:={"observedGeneration":-1}
	Status NodeDisruptionBudgetStatus `json:"status,omitzero"`
}

// NodeDisruptionBudgetList is a list of NodeDisruptionBudgets.
//
// +kubebuilder:object:root=true
type NodeDisruptionBudgetList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`
	// items is the list of NodeDisruptionBudgets.
	Items []NodeDisruptionBudget `json:"items"`
}

// NodeDisruptionBudgetSpec defines the desired state of a NodeDisruptionBudget. A disruption may begin only if all limits allow it,
// a window is open, the date is not excepted, the pace is reached, and all requirements are met. If several budgets select a node, all
// must allow it.
//
// +kubebuilder:validation:XValidation:rule="has(self.limits) || has(self.windows) || has(self.exceptDates) || has(self.paceSeconds) || has(self.requirements)",message="spec limits nothing: set limits, windows, exceptDates, paceSeconds or requirements; to freeze all nodes: limits: [{maxUnavailable: 0}]"
type NodeDisruptionBudgetSpec struct {
	// selector selects nodes by their labels. If unset, all nodes are selected. An empty selector is rejected, because it may be the
	// result of a misspelled field.
	//
	// Example: {matchLabels: {pool: production}}
	// +optional
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) && self.matchLabels.size() > 0) || (has(self.matchExpressions) && self.matchExpressions.size() > 0)",message="the selector is empty: write selector.matchLabels.KEY: VALUE, or omit selector for all nodes"
	Selector *metav1.LabelSelector `json:"selector,omitempty"`

	// appliesTo is Disruptions or AllTasks. Disruptions, the default, limits what makes nodes unavailable: drains, and NodeJobs that
	// cordon, drain or reboot. With AllTasks, no NodeJob starts anything on the selected nodes while the budget is closed.
	// +optional
	// +kubebuilder:default=Disruptions
	AppliesTo BudgetAppliesTo `json:"appliesTo,omitempty"`

	// limits are how many nodes may be unavailable at the same time: at most 8. All must hold.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	Limits []BudgetLimit `json:"limits,omitempty"`

	// windows are the times at which a disruption may begin: at most 16. If unset, it may begin at any time. What has begun is not
	// stopped at the end of a window. A NodeJob starts on a node only if its time limits end within the window.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Windows []BudgetWindow `json:"windows,omitempty"`

	// exceptDates are dates on which no disruption begins, each as YYYY-MM-DD, or as YYYY-MM-DD/YYYY-MM-DD with the first and the last
	// date: at most 64.
	//
	// Example: ["2026-12-24/2027-01-02"]
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=21
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^[0-9]{4}-[0-9]{2}-[0-9]{2}(/[0-9]{4}-[0-9]{2}-[0-9]{2})?$')",message="must be a date such as 2026-12-24, or the first and the last date such as 2026-12-24/2027-01-02"
	// +kubebuilder:validation:items:XValidation:rule="!self.matches('^[0-9]{4}-[0-9]{2}-[0-9]{2}(/[0-9]{4}-[0-9]{2}-[0-9]{2})?$') || self.split('/').all(d, timestamp(d + 'T00:00:00Z') == timestamp(d + 'T00:00:00Z'))",message="each date must exist"
	// +kubebuilder:validation:items:XValidation:rule="self.split('/')[0] <= self.split('/')[self.split('/').size() - 1]",message="the last date must not be before the first one"
	ExceptDates []string `json:"exceptDates,omitempty"`

	// timeZone is the time zone of windows and exceptDates, as a name of the IANA time zone database. The default is UTC.
	//
	// Example: Europe/Berlin
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z][A-Za-z0-9_+/-]*$') && self != 'Local' && timestamp('2026-01-01T00:00:00Z').getHours(self) >= 0",message="timeZone must be a name of the IANA time zone database, such as Europe/Berlin"
	TimeZone string `json:"timeZone,omitempty"`

	// paceSeconds is the minimum time in seconds between the end of one disruption and the begin of the next: 0 to 604800. The
	// default is 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=604800
	PaceSeconds *int32 `json:"paceSeconds,omitempty"`

	// requirements are what must all be met before a disruption begins: at most 8. The manager checks each every 15 seconds. A
	// requirement that cannot be checked is not met. What has begun is not stopped.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	Requirements []BudgetRequirement `json:"requirements,omitempty"`

	// joiningNodes is Exempt or Included. With Exempt, the default, a node is not limited and does not count until 10 minutes after it
	// was created, so that a NodeJob can prepare it at once.
	// +optional
	// +kubebuilder:default=Exempt
	JoiningNodes JoiningNodes `json:"joiningNodes,omitempty"`

	// enforcement is Enforce or Report. Enforce is the default. With Report, the status shows what the budget would allow, and nothing
	// is held.
	// +optional
	// +kubebuilder:default=Enforce
	Enforcement BudgetEnforcement `json:"enforcement,omitempty"`

	// expiresAt is the time from which the budget has no effect. If unset, it does not expire.
	// +optional
	ExpiresAt *metav1.Time `json:"expiresAt,omitempty"`

	// description says why the budget exists, for those whose work waits for it: at most 1024 characters.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Description string `json:"description,omitempty"`
}

// BudgetLimit is a maximum number of unavailable nodes.
//
// +kubebuilder:validation:XValidation:rule="type(self.maxUnavailable) == int ? self.maxUnavailable >= 0 : self.maxUnavailable.matches('^(100|[1-9]?[0-9])%$')",message="maxUnavailable must be a number of nodes, or a percentage from \"0%\" to \"100%\"; with 0, no disruption begins"
type BudgetLimit struct {
	// maxUnavailable is the maximum number of nodes that are unavailable at the same time: a number, or a percentage of the selected
	// nodes, which is rounded down to at least one node unless it is 0%. With 0, no disruption begins.
	// +required
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=4
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`

	// topologyKey is a label key of nodes. If set, the limit applies to the nodes of each value of the label separately. Nodes without
	// the label are limited together.
	//
	// Example: topology.kubernetes.io/zone
	// +optional
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
	TopologyKey string `json:"topologyKey,omitempty"`
}

// BudgetWindow is a time at which disruptions may begin, which recurs.
type BudgetWindow struct {
	// schedule is when the window opens: minute, hour, day of month, month and day of week, as in a CronJob.
	//
	// Example: "0 2 * * SUN"
	// +required
	// +kubebuilder:validation:MinLength=9
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="!self.contains('TZ=')",message="schedule must not contain a time zone: use timeZone"
	// +kubebuilder:validation:XValidation:rule="self.contains('TZ=') || self.matches('(?i)^ *([*?](/[1-9][0-9]*)?|[0-5]?[0-9](-[0-5]?[0-9])?(/[1-9][0-9]*)?)(,([*?](/[1-9][0-9]*)?|[0-5]?[0-9](-[0-5]?[0-9])?(/[1-9][0-9]*)?))* +([*?](/[1-9][0-9]*)?|([01]?[0-9]|2[0-3])(-([01]?[0-9]|2[0-3]))?(/[1-9][0-9]*)?)(,([*?](/[1-9][0-9]*)?|([01]?[0-9]|2[0-3])(-([01]?[0-9]|2[0-3]))?(/[1-9][0-9]*)?))* +([*?](/[1-9][0-9]*)?|(0?[1-9]|[12][0-9]|3[01])(-(0?[1-9]|[12][0-9]|3[01]))?(/[1-9][0-9]*)?)(,([*?](/[1-9][0-9]*)?|(0?[1-9]|[12][0-9]|3[01])(-(0?[1-9]|[12][0-9]|3[01]))?(/[1-9][0-9]*)?))* +([*?](/[1-9][0-9]*)?|(0?[1-9]|1[0-2]|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)(-(0?[1-9]|1[0-2]|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec))?(/[1-9][0-9]*)?)(,([*?](/[1-9][0-9]*)?|(0?[1-9]|1[0-2]|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)(-(0?[1-9]|1[0-2]|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec))?(/[1-9][0-9]*)?))* +([*?](/[1-9][0-9]*)?|([0-7]|sun|mon|tue|wed|thu|fri|sat)(-([0-7]|sun|mon|tue|wed|thu|fri|sat))?)(,([*?](/[1-9][0-9]*)?|([0-7]|sun|mon|tue|wed|thu|fri|sat)(-([0-7]|sun|mon|tue|wed|thu|fri|sat))?))* *$')",message="schedule must have five fields, as in a CronJob: minute (0-59), hour (0-23), day of month (1-31), month (1-12, JAN-DEC) and day of week (0-7, SUN-SAT), such as \"0 2 * * SUN\""
	// +kubebuilder:validation:XValidation:rule="self.matches('^ *[^ ]+ +[^ ]+ +([^ ]+,)?[*?](/1)?[, ]') || self.matches('[ ,][*?](/1)?(,[^ ]*)? *$') || !self.matches('^ *([^ ]+ +){4}[^ ]+ *$')",message="schedule must not restrict both the day of month and the day of week, because either of them would match: use two windows if either should, and two budgets if both should"
	Schedule string `json:"schedule,omitempty"`

	// durationSeconds is how long the window stays open in seconds: 60 to 604800.
	// +required
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=604800
	DurationSeconds int32 `json:"durationSeconds,omitempty"`
}

// BudgetRequirement is something that must be true before a disruption begins.
//
// +kubebuilder:validation:XValidation:rule="has(self.alerts) != has(self.object)",message="set exactly one of alerts and object"
type BudgetRequirement struct {
	// name identifies the requirement in the status and in messages, such as no-critical-alerts: a DNS label.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`

	// alerts requires that alerts of an Alertmanager are not active.
	// +optional
	Alerts *RequiredAlerts `json:"alerts,omitempty"`

	// object requires that an expression about an object is true.
	// +optional
	Object *RequiredObject `json:"object,omitempty"`
}

// RequiredAlerts requires that no alert of an Alertmanager that is neither silenced nor inhibited matches all matchers.
type RequiredAlerts struct {
	// url is the address of the Alertmanager without /api/v2, with http or https: at most 512 characters. It cannot contain credentials,
	// a query or a fragment. Redirects are not followed. Its address must be that of a Service of the cluster, or allowed by
	// --requirements-allowed-addresses of the manager.
	//
	// Example: http://alertmanager.monitoring.svc:9093
	// +required
	// +kubebuilder:validation:MinLength=8
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^https?://[^/?#@\s]+(/[^?#@\s]*)?$`
	URL string `json:"url,omitempty"`

	// matchers select alerts by their labels, in the syntax of Alertmanager: 1 to 16. An alert must match all of them.
	//
	// Example: ["severity=critical"]
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	Matchers []string `json:"matchers,omitempty"`
}

// RequiredObject requires that an expression about an object is true.
//
// +kubebuilder:validation:XValidation:rule="!(self.apiVersion == 'v1' && self.kind == 'Secret')",message="a Secret cannot be read, because messages and the result could reveal what it contains"
type RequiredObject struct {
	// apiVersion is the API group and version of the object.
	//
	// Example: ceph.rook.io/v1
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion,omitempty"`

	// kind is the kind of the object, as in kubectl api-resources. It cannot be Secret. The ServiceAccount everynode-requirements needs the
	// permission to get the object.
	//
	// Example: CephCluster
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind,omitempty"`

	// namespace is the namespace of the object; unset for a cluster-scoped object.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`

	// name is the name of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// expression is an expression of the Common Expression Language (CEL) about the variable object, which must be true: at most 1024
	// characters.
	//
	// Example: object.status.ceph.health == 'HEALTH_OK'
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Expression string `json:"expression,omitempty"`
}

// BudgetAppliesTo is what a closed budget holds.
//
// +kubebuilder:validation:Enum=Disruptions;AllTasks
type BudgetAppliesTo string

const (
	// AppliesToDisruptions holds what makes nodes unavailable.
	AppliesToDisruptions BudgetAppliesTo = "Disruptions"
	// AppliesToAllTasks also holds all attempts of NodeJobs.
	AppliesToAllTasks BudgetAppliesTo = "AllTasks"
)

// JoiningNodes defines whether a budget applies to nodes that were created a short time ago.
//
// +kubebuilder:validation:Enum=Exempt;Included
type JoiningNodes string

const (
	// JoiningNodesExempt does not limit or count nodes that were created less than 10 minutes ago.
	JoiningNodesExempt JoiningNodes = "Exempt"
	// JoiningNodesIncluded treats them like other nodes.
	JoiningNodesIncluded JoiningNodes = "Included"
)

// BudgetEnforcement defines whether a budget holds anything.
//
// +kubebuilder:validation:Enum=Enforce;Report
type BudgetEnforcement string

const (
	// BudgetEnforce holds what the budget does not allow.
	BudgetEnforce BudgetEnforcement = "Enforce"
	// BudgetReport only reports.
	BudgetReport BudgetEnforcement = "Report"
)

// NodeDisruptionBudgetStatus is the most recently observed state of a NodeDisruptionBudget. It is written at most once per second.
type NodeDisruptionBudgetStatus struct {
	// conditions are Ready, Reconciling and Stalled.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the metadata.generation that the manager observed last; -1 if it has not observed the object.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// disruptionsAllowed is how many disruptions may begin now, as far as this budget is concerned.
	// +optional
	DisruptionsAllowed int32 `json:"disruptionsAllowed"`

	// nodes is the number of nodes in each state.
	// +optional
	Nodes BudgetCounts `json:"nodes,omitempty"`

	// unavailable are at most 10 nodes that use the budget, those that do so the longest first.
	// +optional
	// +listType=map
	// +listMapKey=node
	// +kubebuilder:validation:MaxItems=10
	Unavailable []UnavailableNode `json:"unavailable,omitempty"`

	// waiting are at most 10 nodes that wait for the budget, those that have waited the longest first.
	// +optional
	// +listType=map
	// +listMapKey=node
	// +kubebuilder:validation:MaxItems=10
	Waiting []WaitingNode `json:"waiting,omitempty"`

	// window is the window that is open, or the next one. It is absent without spec.windows, and if no window opens within a year.
	// +optional
	Window *BudgetWindowStatus `json:"window,omitempty"`

	// requirements are the states of spec.requirements, in the same order.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	Requirements []BudgetRequirementStatus `json:"requirements,omitempty"`

	// controllerState is the memory of the manager. It is not for users, and may change in any version.
	// +optional
	ControllerState NodeDisruptionBudgetControllerState `json:"controllerState,omitzero"`
}

// NodeDisruptionBudgetControllerState is what the manager must remember of a NodeDisruptionBudget.
type NodeDisruptionBudgetControllerState struct {
	// notifications is the state of the notifications to the URL of the manager's flag --notifications-url. It is absent without that
	// flag.
	// +optional
	Notifications *NodeDisruptionBudgetNotifications `json:"notifications,omitempty"`
}

// BudgetCounts is the number of selected nodes in each state.
type BudgetCounts struct {
	// total is the number of selected nodes.
	// +optional
	Total int32 `json:"total"`
	// exempt is the number of selected nodes that are exempt because they were created a short time ago.
	// +optional
	Exempt int32 `json:"exempt"`
	// seats is the number of nodes with a ready seat. It is 0 with enforcement Report.
	// +optional
	Seats int32 `json:"seats"`
	// unavailable is the number of nodes that use the budget.
	// +optional
	Unavailable int32 `json:"unavailable"`
	// waiting is the number of nodes that wait for the budget.
	// +optional
	Waiting int32 `json:"waiting"`
	// exceeding is how many more nodes are unavailable than the limits allow, such as nodes that have failed, or that were drained
	// without evictions. A limit of 0 does not count. It is 0 with enforcement Report.
	// +optional
	Exceeding int32 `json:"exceeding"`
}

// BudgetWindowStatus is a window of a budget.
type BudgetWindowStatus struct {
	// opensAt is the time at which the window opens, or has opened.
	// +optional
	OpensAt metav1.Time `json:"opensAt,omitzero"`
	// closesAt is the time at which the window closes.
	// +optional
	ClosesAt metav1.Time `json:"closesAt,omitzero"`
}

// BudgetRequirementStatus is the state of a requirement.
type BudgetRequirementStatus struct {
	// name is the name of the requirement.
	// +required
	Name string `json:"name,omitempty"`
	// state is Met, NotMet or Unknown.
	// +optional
	State RequirementState `json:"state,omitempty"`
	// since is the time at which the manager first observed this state.
	// +optional
	Since metav1.Time `json:"since,omitzero"`
	// message describes why the requirement is not met, or cannot be checked.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
}

// RequirementState is whether a requirement is met.
//
// +kubebuilder:validation:Enum=Met;NotMet;Unknown
type RequirementState string

const (
	// RequirementMet means that the requirement is met.
	RequirementMet RequirementState = "Met"
	// RequirementNotMet means that it was checked, and is not met.
	RequirementNotMet RequirementState = "NotMet"
	// RequirementUnknown means that it could not be checked, or has not been checked yet.
	RequirementUnknown RequirementState = "Unknown"
)
