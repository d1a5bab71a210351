// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
)

// What runs on a node, and when it runs again.

// TaskSpec defines what runs on each node. Exactly one of script, scriptFrom, command and template must be set. With check alone, the
// NodeJob is an audit: it only asks the check, and never changes a node.
//
// +kubebuilder:validation:XValidation:rule="(has(self.script) ? 1 : 0) + (has(self.scriptFrom) ? 1 : 0) + (has(self.command) ? 1 : 0) + (has(self.template) ? 1 : 0) == 1 || (has(self.check) && !has(self.script) && !has(self.scriptFrom) && !has(self.command) && !has(self.template))",message="set exactly one of task.script, task.scriptFrom, task.command and task.template, or only task.check for an audit"
// +kubebuilder:validation:XValidation:rule="!has(self.command) || self.command[0].size() > 0",message="task.command begins with an empty text: name the program first, then its arguments"
// +kubebuilder:validation:XValidation:rule="!has(self.command) || !has(self.interpreter)",message="task.interpreter works with task.script and task.scriptFrom only: with task.command, name the interpreter first in the command"
// +kubebuilder:validation:XValidation:rule="!has(self.template) || !has(self.interpreter)",message="task.interpreter works with task.script and task.scriptFrom only: with task.template, set command in the template's container"
// +kubebuilder:validation:XValidation:rule="!has(self.template) || !has(self.env)",message="task.env works with task.script, task.scriptFrom and task.command only: with task.template, set env in the template's container"
// +kubebuilder:validation:XValidation:rule="!has(self.template) || !has(self.files)",message="task.files works with task.script, task.scriptFrom and task.command only: with task.template, set volumes in the template"
// +kubebuilder:validation:XValidation:rule="!has(self.template) || !has(self.output) || !has(self.output.archive) || self.output.archive == 'Never'",message="task.output.archive works with task.script, task.scriptFrom and task.command only: with task.template, collect the logs of the template's containers"
// +kubebuilder:validation:XValidation:rule="!has(self.template) || !has(self.check)",message="task.check works with task.script, task.scriptFrom and task.command only: with task.template, check the result in the template's own container and end it with another exit code than 0"
// +kubebuilder:validation:XValidation:rule="!has(self.env) || self.env.all(e, !e.name.startsWith('EVERYNODE_'))",message="names in task.env must not begin with EVERYNODE_, which is reserved for Everynode: choose another name"
// +kubebuilder:validation:XValidation:rule="!has(self.template) || !has(self.template.spec) || !has(self.template.spec.restartPolicy) || self.template.spec.restartPolicy == 'Never'",message="task.template.spec.restartPolicy must be Never or omitted: use spec.retry to repeat a failed attempt"
// +kubebuilder:validation:XValidation:rule="!has(self.template) || !has(self.template.spec) || (!has(self.template.spec.nodeName) && !has(self.template.spec.nodeSelector) && !has(self.template.spec.affinity))",message="task.template.spec must not choose nodes (nodeName, nodeSelector, affinity): use spec.nodes.selector"
// +kubebuilder:validation:XValidation:rule="!has(self.template) || (has(self.template.spec) && has(self.template.spec.containers) && self.template.spec.containers.size() > 0)",message="task.template.spec.containers is empty: name at least one container with its image"
// +kubebuilder:validation:XValidation:rule="!has(self.template) || !has(self.template.metadata) || !has(self.template.metadata.labels) || self.template.metadata.labels.all(k, !k.matches('^([^/]*[.])?everynode[.]dev/'))",message="task.template.metadata.labels must not have keys of everynode.dev, which only the manager sets on pods: remove them, or use a prefix of your own"
// +kubebuilder:validation:XValidation:rule="!has(self.template) || !has(self.template.metadata) || !has(self.template.metadata.annotations) || self.template.metadata.annotations.all(k, !k.matches('^([^/]*[.])?everynode[.]dev/'))",message="task.template.metadata.annotations must not have keys of everynode.dev, which only the manager sets on pods: remove them, or use a prefix of your own"
// +kubebuilder:validation:XValidation:rule="has(self.script) || has(self.scriptFrom) || has(self.command) || has(self.template) || !has(self.check) || ((!has(self.check.before) || !self.check.before) && !has(self.check.onDrift) && !has(self.interpreter))",message="an audit (task.check without a task) runs the check only: remove task.check.before, task.check.onDrift and task.interpreter, or add task.script"
type TaskSpec struct {
	ScriptBlock `json:",inline"`

	// command is a program of the node and its arguments: at most 65536 bytes. It runs as script does, but without a shell: the
	// arguments are passed to the program unchanged. A name without a slash is looked up in the PATH of the node. With files,
	// $(EVERYNODE_FILES) is replaced by the path of the files.
	//
	// Example: ["systemctl", "restart", "chrony"]
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=65536
	Command []string `json:"command,omitempty"`

	// template is a pod template, for a task with its own image. Everynode sets the node, the tolerations, the restart policy and
	// activeDeadlineSeconds. The pod has no service account token unless the template sets a service account or
	// automountServiceAccountToken.
	// +optional
	Template *corev1.PodTemplateSpec `json:"template,omitempty"`

	// env is added to the environment of script, scriptFrom and command, and of their check and rollback. The variables
	// EVERYNODE_NODEJOB, EVERYNODE_NODE_NAME, EVERYNODE_ATTEMPT, EVERYNODE_REVISION and EVERYNODE_RESULTS are always set.
	//
	// Example: [{name: PROXY, value: "http://proxy.example.com:3128"}]
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Env []EnvVar `json:"env,omitempty"`

	// timeoutSeconds is the time limit of one attempt in seconds, including the image pull: 1 to 86400. The default is 600.
	// +optional
	// +kubebuilder:default=600
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`

	// resources are the resource requests and limits of the pods that run script, scriptFrom, command, check, rollback and reboots.
	// With template, the containers of the template define the resources of the task itself. The memory limit defaults to that of the
	// installation, which is 512Mi unless the manager is configured otherwise.
	//
	// Example: {limits: {memory: 1Gi}}
	// +optional
	Resources *TaskResources `json:"resources,omitempty"`

	// inputs are ConfigMaps and Secrets of the namespace whose content is part of the revision, such as those that template mounts. For
	// a Secret, the manager needs the right to get it: see docs/reruns.md.
	//
	// Example: [{kind: ConfigMap, name: chrony-conf}]
	// +optional
	// +listType=map
	// +listMapKey=kind
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Inputs []ContentRef `json:"inputs,omitempty"`

	// files are folders with files, which script, scriptFrom, command, check and rollback find in $EVERYNODE_FILES/NAME while their
	// pod runs. They are not copied to the disk of the node. The content is part of the revision.
	//
	// Example: [{name: agent, configMap: {name: agent, defaultMode: 0755}}]
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Files []FilesSource `json:"files,omitempty"`

	// check is a script that runs after the task has succeeded, in the same pod and within the same time limit. If the node is
	// rebooted, it runs after the reboot, in a pod of its own. The attempt fails if its exit code is not 0. With before, it also runs
	// before the task.
	//
	// Example: {script: "grep -qx 262144 /proc/sys/vm/max_map_count", before: true}
	// +optional
	Check *CheckSpec `json:"check,omitempty"`

	// output defines which parts of the output of an attempt are stored.
	//
	// Example: {record: None}
	// +optional
	// +kubebuilder:default={}
	Output OutputSpec `json:"output,omitzero"`
}

// EnvVar is a variable of the environment, as in a container, but its value may also come from the Node.
//
// +kubebuilder:validation:XValidation:rule="!has(self.valueFrom) || !has(self.value) || self.value.size() == 0",message="task.env sets both value and valueFrom of a variable: remove one of them"
type EnvVar struct {
	// name is the name of the variable.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Name string `json:"name,omitempty"`
	// value is the value of the variable. As in a container, $(NAME) is replaced by the value of an earlier variable, and $$ by $.
	// +optional
	// +kubebuilder:validation:MaxLength=131071
	Value string `json:"value,omitempty"`
	// valueFrom is the source of the value.
	//
	// Example: {nodeFieldRef: {fieldPath: "metadata.labels['topology.kubernetes.io/zone']"}}
	// +optional
	ValueFrom *EnvVarSource `json:"valueFrom,omitempty"`
}

// EnvVarSource is the source of a variable. Exactly one of its fields must be set.
//
// +kubebuilder:validation:XValidation:rule="(has(self.nodeFieldRef) ? 1 : 0) + (has(self.configMapKeyRef) ? 1 : 0) + (has(self.secretKeyRef) ? 1 : 0) + (has(self.fieldRef) ? 1 : 0) == 1",message="set exactly one source in task.env.valueFrom, such as nodeFieldRef, configMapKeyRef or secretKeyRef"
type EnvVarSource struct {
	// configMapKeyRef selects a key of a ConfigMap in the namespace of the NodeJob.
	// +optional
	ConfigMapKeyRef *corev1.ConfigMapKeySelector `json:"configMapKeyRef,omitempty"`

	// secretKeyRef selects a key of a Secret in the namespace of the NodeJob. The value is masked in the output.
	// +optional
	SecretKeyRef *corev1.SecretKeySelector `json:"secretKeyRef,omitempty"`

	// fieldRef selects a field of the pod, as in a container.
	// +optional
	FieldRef *corev1.ObjectFieldSelector `json:"fieldRef,omitempty"`

	// nodeFieldRef selects a field of the Node on which the pod runs. The manager reads the value when it creates the pod.
	// +optional
	NodeFieldRef *NodeFieldSelector `json:"nodeFieldRef,omitempty"`
}

// NodeFieldSelector selects a field of the Node.
//
// +kubebuilder:validation:XValidation:rule="self.fieldPath.matches(\"^(metadata[.](labels|annotations)[[]'([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?'[]]|spec[.]providerID|status[.]nodeInfo[.]architecture)$\")",message="task.env.valueFrom.nodeFieldRef.fieldPath must be metadata.labels['KEY'], metadata.annotations['KEY'], spec.providerID or status.nodeInfo.architecture: for the zone, use metadata.labels['topology.kubernetes.io/zone']"
// +kubebuilder:validation:XValidation:rule="!self.fieldPath.matches(\"'([^/]*[.])?everynode[.]dev/\")",message="task.env.valueFrom.nodeFieldRef.fieldPath must not name a key of everynode.dev, which the manager changes with each run: publish a result under a key of your own, and read that"
type NodeFieldSelector struct {
	// fieldPath is the field: metadata.labels['KEY'], metadata.annotations['KEY'], spec.providerID or status.nodeInfo.architecture. The
	// zone of a node is its label topology.kubernetes.io/zone. A node may change its own annotations and many of its labels: see
	// docs/security.md.
	//
	// Example: metadata.annotations['example.com/bond-mode']
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=340
	FieldPath string `json:"fieldPath,omitempty"`

	// default is the value on a node that does not have the label or the annotation, or whose field is empty. Without it, such a
	// node waits until the value exists. A value may have at most 4096 bytes.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Default *string `json:"default,omitempty"`
}

// OutputSpec defines which parts of the output of an attempt are stored.
type OutputSpec struct {
	// record defines which part of the output is recorded. Tail, the default, records the end of the output on the node and shows it
	// in the status and in events. None records no output. The exit code, the reason and the results are always recorded.
	// +optional
	// +kubebuilder:default=Tail
	Record OutputPolicy `json:"record,omitempty"`

	// archive defines which attempts have their whole output stored in the archive of the installation: Never, which is the default,
	// or Always. It applies to script, scriptFrom and command, and to their check and rollback. With Always, no attempt starts if the
	// installation has no archive.
	// +optional
	Archive ArchivePolicy `json:"archive,omitempty"`
}

// TaskResources are the resource requests and limits of the pod of a script: cpu, memory and ephemeral-storage.
//
// +kubebuilder:validation:XValidation:rule="!has(self.requests) || !has(self.limits) || self.requests.all(k, !(k in self.limits) || quantity(string(self.requests[k])).compareTo(quantity(string(self.limits[k]))) <= 0)",message="task.resources.requests must not be above task.resources.limits: lower the request or raise the limit"
// +kubebuilder:validation:XValidation:rule="!has(self.limits) || !('memory' in self.limits) || quantity(string(self.limits['memory'])).compareTo(quantity('32Mi')) >= 0",message="task.resources.limits.memory must be at least 32Mi, since the runner itself needs some: 512 are bytes and 512Mi are mebibytes"
type TaskResources struct {
	// requests are the resources that must be free on the node when the pod starts. The default is 0 for each resource, even if it has
	// a limit, so that a task can start on a node without free capacity.
	// +optional
	// +kubebuilder:validation:MaxProperties=3
	// +kubebuilder:validation:XValidation:rule="self.all(k, k in ['cpu', 'memory', 'ephemeral-storage'])",message="task.resources.requests takes cpu, memory and ephemeral-storage: for other resources use task.template"
	// +kubebuilder:validation:XValidation:rule="self.all(k, quantity(string(self[k])).compareTo(quantity('0')) >= 0)",message="a request in task.resources.requests must be at least 0: leave it out to request nothing"
	Requests corev1.ResourceList `json:"requests,omitempty"`

	// limits are the maximum resources of the task and of all processes that it starts. If the task exceeds the memory limit, the
	// container is terminated (OOMKilled) and the attempt fails.
	// +optional
	// +kubebuilder:validation:MaxProperties=3
	// +kubebuilder:validation:XValidation:rule="self.all(k, k in ['cpu', 'memory', 'ephemeral-storage'])",message="task.resources.limits takes cpu, memory and ephemeral-storage: for other resources use task.template"
	// +kubebuilder:validation:XValidation:rule="self.all(k, quantity(string(self[k])).compareTo(quantity('0')) > 0)",message="a limit in task.resources.limits must be above 0: leave it out for the default"
	Limits corev1.ResourceList `json:"limits,omitempty"`
}

// OutputPolicy defines which part of the output of an attempt is recorded.
//
// +kubebuilder:validation:Enum=Tail;None
type OutputPolicy string

const (
	// OutputTail records the end of the output.
	OutputTail OutputPolicy = "Tail"
	// OutputNone records no output.
	OutputNone OutputPolicy = "None"
)

// ArchivePolicy defines which attempts have their whole output archived.
//
// +kubebuilder:validation:Enum=Never;Always
type ArchivePolicy string

const (
	// ArchiveNever archives no output.
	ArchiveNever ArchivePolicy = "Never"
	// ArchiveAlways archives the output of every attempt.
	ArchiveAlways ArchivePolicy = "Always"
)

// CheckSpec is a script that checks the result of the task. Exactly one of script and scriptFrom must be set.
//
// +kubebuilder:validation:XValidation:rule="(has(self.script) ? 1 : 0) + (has(self.scriptFrom) ? 1 : 0) == 1",message="set exactly one of task.check.script and task.check.scriptFrom"
// +kubebuilder:validation:XValidation:rule="!has(self.onDrift) || (has(self.periodSeconds) && self.periodSeconds > 0)",message="task.check.onDrift needs task.check.periodSeconds, which says how often nodes are asked whether they have drifted: set it, or remove onDrift"
type CheckSpec struct {
	ScriptBlock `json:",inline"`

	// before makes the check run before the task, too. If its exit code is 0, the node is done without the task (AlreadyDone): it is
	// not cordoned, drained or rebooted. If it is 75 or at least 128, after a signal or a timeout, or without the interpreter, the check
	// itself has failed (CheckError): it is repeated with the backoff of retry, and does not count as a failure. With any other exit
	// code, the task runs. With maintenance, the check runs in a pod of its own, with the time limit of the task, and needs no slot. It
	// is not part of the revision. The default is false.
	// +optional
	Before bool `json:"before,omitempty"`

	// periodSeconds is the interval in seconds at which the check is asked again on nodes that are done: 0, or 10 to 31536000. Each
	// node has its own fixed time in the interval. The check runs in a pod of its own, which needs no slot. If it answers no, the node
	// has drifted. It is not part of the revision. With 0, which is the default, the check is not asked again.
	//
	// Example: 86400
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=31536000
	// +kubebuilder:validation:XValidation:rule="self == 0 || self >= 10",message="task.check.periodSeconds must be 0, for never, or at least 10"
	PeriodSeconds int32 `json:"periodSeconds,omitempty"`

	// onDrift defines what happens on a node that has drifted. Report, the default, reports it only. Run runs the task again there,
	// within all limits, budgets and windows. Both require periodSeconds.
	// +optional
	OnDrift DriftPolicy `json:"onDrift,omitempty"`
}

// DriftPolicy defines what happens on a node that has drifted.
//
// +kubebuilder:validation:Enum=Report;Run
type DriftPolicy string

const (
	// DriftReport reports the drift only.
	DriftReport DriftPolicy = "Report"
	// DriftRun runs the task again.
	DriftRun DriftPolicy = "Run"
)

// ScriptBlock is a script.
//
// +kubebuilder:validation:XValidation:rule="!has(self.script) || self.script.matches('[^[:space:]]')",message="script is empty: write the commands to run on the node"
// +kubebuilder:validation:XValidation:rule="!has(self.script) || !self.script.matches('\\r\\n|\\r$')",message="script has Windows line endings (CRLF), and an interpreter takes the carriage return for a part of a word: convert it to Unix line endings (LF)"
// +kubebuilder:validation:XValidation:rule="!has(self.script) || !self.script.matches('(^|\\n)\\ufeff')",message="script has a byte order mark (BOM) at the beginning of a line, and an interpreter takes it for a part of a word: save it as UTF-8 without BOM"
type ScriptBlock struct {
	// script is run by an interpreter of the node, as root and in the namespaces of the host: at most 65536 bytes. It has succeeded if
	// the exit code is 0. The environment of rollbacks describes why they run.
	//
	// Example: "apt-get update && apt-get install -y nfs-common"
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	Script string `json:"script,omitempty"`

	// scriptFrom references a script in a ConfigMap of the same namespace. For a task and its check, a change of its content is a new
	// revision.
	// +optional
	ScriptFrom *ScriptSource `json:"scriptFrom,omitempty"`

	// interpreter is the command of the node that runs the script. If unset, the first line of the script with #! names it; without
	// such a line it is /bin/sh. With files, $(EVERYNODE_FILES) is replaced by the path of the files.
	//
	// Example: ["/bin/bash", "-eu"]
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1024
	Interpreter []string `json:"interpreter,omitempty"`
}

// ScriptSource references a script.
type ScriptSource struct {
	// configMapKeyRef selects a key of a ConfigMap in the namespace of the NodeJob. While the ConfigMap or the key does not exist, the
	// NodeJob is Stalled.
	// +required
	ConfigMapKeyRef ConfigMapKeyRef `json:"configMapKeyRef,omitzero"`
}

// ConfigMapKeyRef selects a key of a ConfigMap in the same namespace.
type ConfigMapKeyRef struct {
	// name is the name of the ConfigMap.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// key is the key in the data of the ConfigMap.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key,omitempty"`
}

// RerunSpec defines when a node that is done runs the task again. Independently of these fields, a node runs the task again if the
// label of its record is removed.
type RerunSpec struct {
	// onRevisionChange reruns the task on nodes that are done with an earlier revision. The revision changes with the task and with the
	// content of its inputs and of referenced scripts. The default is true.
	// +optional
	// +kubebuilder:default=true
	OnRevisionChange *bool `json:"onRevisionChange,omitempty"`

	// onMachineChange reruns the task if another machine takes the place of the node, that is, if its machine ID changes. The default is
	// true.
	// +optional
	// +kubebuilder:default=true
	OnMachineChange *bool `json:"onMachineChange,omitempty"`

	// onReboot reruns the task if the node has rebooted since the task succeeded, that is, if its boot ID has changed. The default is
	// false.
	// +optional
	OnReboot bool `json:"onReboot,omitempty"`

	// onNodeFieldChange reruns the task if the values that task.env takes from the Node (valueFrom.nodeFieldRef) differ from those of
	// the last run, which must have succeeded with the same revision. The rerun starts at least 60 seconds after the end of that run.
	// A value that is missing or invalid does not rerun the task. The default is false.
	// +optional
	OnNodeFieldChange bool `json:"onNodeFieldChange,omitempty"`

	// periodSeconds reruns the task periodically, in seconds: 10 to 31536000. The runs on the nodes are spread over the period. The
	// first rerun takes place at least half a period after the success. With 0, which is the default, the task is not rerun
	// periodically.
	//
	// Example: 86400
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=31536000
	// +kubebuilder:validation:XValidation:rule="self == 0 || self >= 10",message="rerun.periodSeconds must be 0, for never, or at least 10"
	PeriodSeconds int32 `json:"periodSeconds,omitempty"`
}

// ContentRef references an object in the namespace of the NodeJob whose content is part of the revision.
type ContentRef struct {
	// kind is ConfigMap or Secret.
	// +required
	Kind ContentKind `json:"kind,omitempty"`
	// name is the name of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}

// ContentKind is the kind of an object whose content is part of the revision.
//
// +kubebuilder:validation:Enum=ConfigMap;Secret
type ContentKind string

const (
	// ContentConfigMap is a ConfigMap.
	ContentConfigMap ContentKind = "ConfigMap"
	// ContentSecret is a Secret.
	ContentSecret ContentKind = "Secret"
)
