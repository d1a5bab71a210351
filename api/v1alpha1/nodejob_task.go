// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
)

// What runs on a node, and when it runs again.

// TaskSpec is what runs on each node: exactly one of script, scriptFrom, command and template.
//
// +kubebuilder:validation:XValidation:rule="(has(self.script) ? 1 : 0) + (has(self.scriptFrom) ? 1 : 0) + (has(self.command) ? 1 : 0) + (has(self.template) ? 1 : 0) == 1",message="set exactly one of task.script, task.scriptFrom, task.command and task.template"
// +kubebuilder:validation:XValidation:rule="!has(self.script) || self.script.matches('[^[:space:]]')",message="task.script is empty: write the commands to run on each node, or use task.scriptFrom or task.template instead"
// +kubebuilder:validation:XValidation:rule="!has(self.script) || !self.script.matches('\\r\\n|\\r$')",message="task.script has Windows line endings (CRLF), and an interpreter takes the carriage return for a part of a word: convert it to Unix line endings (LF)"
// +kubebuilder:validation:XValidation:rule="!has(self.script) || !self.script.matches('(^|\\n)\\ufeff')",message="task.script has a byte order mark (BOM) at the beginning of a line, and an interpreter takes it for a part of a word: save it as UTF-8 without BOM"
// +kubebuilder:validation:XValidation:rule="!has(self.command) || self.command[0].size() > 0",message="task.command begins with an empty text: name the program first, then its arguments"
// +kubebuilder:validation:XValidation:rule="!has(self.command) || !has(self.interpreter)",message="task.interpreter works with task.script and task.scriptFrom only: with task.command, name the interpreter first in the command"
// +kubebuilder:validation:XValidation:rule="!has(self.template) || !has(self.interpreter)",message="task.interpreter works with task.script and task.scriptFrom only: with task.template, set command in the template's container"
// +kubebuilder:validation:XValidation:rule="!has(self.template) || !has(self.env)",message="task.env works with task.script, task.scriptFrom and task.command only: with task.template, set env in the template's container"
// +kubebuilder:validation:XValidation:rule="!has(self.template) || !has(self.outputArchive) || self.outputArchive == 'Never'",message="task.outputArchive works with task.script, task.scriptFrom and task.command only: with task.template, collect the logs of the template's containers"
// +kubebuilder:validation:XValidation:rule="!has(self.env) || self.env.all(e, !e.name.startsWith('EVERYNODE_'))",message="names in task.env must not begin with EVERYNODE_, which is kept for Everynode's own: choose another name"
// +kubebuilder:validation:XValidation:rule="!has(self.template) || !has(self.template.spec) || !has(self.template.spec.restartPolicy) || self.template.spec.restartPolicy == 'Never'",message="task.template.spec.restartPolicy must be Never or omitted: use spec.retry to repeat a failed attempt"
// +kubebuilder:validation:XValidation:rule="!has(self.template) || !has(self.template.spec) || (!has(self.template.spec.nodeName) && !has(self.template.spec.nodeSelector) && !has(self.template.spec.affinity))",message="task.template.spec must not choose nodes (nodeName, nodeSelector, affinity): use spec.nodeSelector"
// +kubebuilder:validation:XValidation:rule="!has(self.template) || (has(self.template.spec) && has(self.template.spec.containers) && self.template.spec.containers.size() > 0)",message="task.template.spec.containers is empty: name at least one container with its image"
// +kubebuilder:validation:XValidation:rule="!has(self.template) || !has(self.template.metadata) || !has(self.template.metadata.labels) || self.template.metadata.labels.all(k, !k.matches('^([^/]*[.])?everynode[.]dev/'))",message="task.template.metadata.labels must not have keys of everynode.dev, which only the manager sets on pods: remove them, or use a prefix of your own"
// +kubebuilder:validation:XValidation:rule="!has(self.template) || !has(self.template.metadata) || !has(self.template.metadata.annotations) || self.template.metadata.annotations.all(k, !k.matches('^([^/]*[.])?everynode[.]dev/'))",message="task.template.metadata.annotations must not have keys of everynode.dev, which only the manager sets on pods: remove them, or use a prefix of your own"
type TaskSpec struct {
	// script runs on the node as root, in the node's own namespaces, by the node's interpreter.
	// At most 65536 bytes.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	Script string `json:"script,omitempty"`

	// scriptFrom takes the script from a ConfigMap of the same namespace. A change of its content is a
	// new revision.
	// +optional
	ScriptFrom *ScriptSource `json:"scriptFrom,omitempty"`

	// command is a program of the node and its arguments, which run as script does and reach the program as they
	// are: no shell reads them. A name without a slash is looked up in PATH on the node. At most 65536 bytes.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=65536
	Command []string `json:"command,omitempty"`

	// template is a whole pod, for a task that brings its own image. Everynode sets where it runs,
	// its tolerations, its restart policy and its activeDeadlineSeconds; it mounts no service account
	// token unless the template names a service account or asks for the token.
	// +optional
	Template *corev1.PodTemplateSpec `json:"template,omitempty"`

	// interpreter is the command on the node that the script is given to, such as ["/bin/bash", "-eu"].
	// Omitted: the script's own #! line, or else /bin/sh.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1024
	Interpreter []string `json:"interpreter,omitempty"`

	// env is added to the environment of script or command. EVERYNODE_NODE_NAME, EVERYNODE_ATTEMPT,
	// EVERYNODE_REVISION and EVERYNODE_RESULTS are always there.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Env []corev1.EnvVar `json:"env,omitempty"`

	// timeoutSeconds is the time limit of one attempt in seconds, image pull included: 1 to 86400,
	// 600 when omitted.
	// +optional
	// +kubebuilder:default=600
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`

	// resources are those of all pods of the runner: script, scriptFrom, command, verify, rollback and reboot. With template,
	// the task itself has the resources of its containers. Without limits.memory the installation's default is the limit:
	// 512Mi, unless the manager has another.
	// +optional
	Resources *TaskResources `json:"resources,omitempty"`

	// output says what is kept of what the task prints: Tail, the default, keeps the end of it in the record,
	// the status and events; None keeps nothing of it. The exit code, the reason and the results are kept either way.
	// +optional
	// +kubebuilder:default=Tail
	Output OutputPolicy `json:"output,omitempty"`

	// outputArchive says of which attempts the whole output is stored in the archive of the installation: Never, the
	// default, or Always. It applies to script, scriptFrom and command, and to their verify and rollback. If the
	// installation has no archive, nothing starts with Always.
	// +optional
	OutputArchive ArchivePolicy `json:"outputArchive,omitempty"`
}

// TaskResources are the resources of a script's pod: cpu, memory and ephemeral-storage.
//
// +kubebuilder:validation:XValidation:rule="!has(self.requests) || !has(self.limits) || self.requests.all(k, !(k in self.limits) || quantity(string(self.requests[k])).compareTo(quantity(string(self.limits[k]))) <= 0)",message="task.resources.requests must not be above task.resources.limits: lower the request or raise the limit"
// +kubebuilder:validation:XValidation:rule="!has(self.limits) || !('memory' in self.limits) || quantity(string(self.limits['memory'])).compareTo(quantity('32Mi')) >= 0",message="task.resources.limits.memory must be at least 32Mi, since the runner itself needs some: 512 are bytes and 512Mi are mebibytes"
type TaskResources struct {
	// requests are what the kubelet must have free before it admits the pod. What is not requested here is requested
	// as 0, also where there is a limit: a task must be able to start on a node that is full.
	// +optional
	// +kubebuilder:validation:MaxProperties=3
	// +kubebuilder:validation:XValidation:rule="self.all(k, k in ['cpu', 'memory', 'ephemeral-storage'])",message="task.resources.requests takes cpu, memory and ephemeral-storage: for other resources use task.template"
	// +kubebuilder:validation:XValidation:rule="self.all(k, quantity(string(self[k])).compareTo(quantity('0')) >= 0)",message="a request in task.resources.requests must be at least 0: leave it out to request nothing"
	Requests corev1.ResourceList `json:"requests,omitempty"`

	// limits are the most that the task may use, with all processes that it starts. Above the limit of memory the
	// container is ended (OOMKilled), and the attempt has failed.
	// +optional
	// +kubebuilder:validation:MaxProperties=3
	// +kubebuilder:validation:XValidation:rule="self.all(k, k in ['cpu', 'memory', 'ephemeral-storage'])",message="task.resources.limits takes cpu, memory and ephemeral-storage: for other resources use task.template"
	// +kubebuilder:validation:XValidation:rule="self.all(k, quantity(string(self[k])).compareTo(quantity('0')) > 0)",message="a limit in task.resources.limits must be above 0: leave it out for the default"
	Limits corev1.ResourceList `json:"limits,omitempty"`
}

// OutputPolicy says what is kept of what a task prints.
//
// +kubebuilder:validation:Enum=Tail;None
type OutputPolicy string

const (
	// OutputTail keeps the end of it.
	OutputTail OutputPolicy = "Tail"
	// OutputNone keeps nothing of it.
	OutputNone OutputPolicy = "None"
)

// ArchivePolicy says of which attempts the whole output is archived.
//
// +kubebuilder:validation:Enum=Never;Always
type ArchivePolicy string

const (
	// ArchiveNever archives nothing.
	ArchiveNever ArchivePolicy = "Never"
	// ArchiveAlways archives the output of every attempt.
	ArchiveAlways ArchivePolicy = "Always"
)

// VerifySpec is a script that checks the task's result: exactly one of script and scriptFrom.
//
// +kubebuilder:validation:XValidation:rule="(has(self.script) ? 1 : 0) + (has(self.scriptFrom) ? 1 : 0) == 1",message="set exactly one of verify.script and verify.scriptFrom"
// +kubebuilder:validation:XValidation:rule="!has(self.script) || self.script.matches('[^[:space:]]')",message="verify.script is empty: write the commands that check the result, or leave verify out"
// +kubebuilder:validation:XValidation:rule="!has(self.script) || !self.script.matches('\\r\\n|\\r$')",message="verify.script has Windows line endings (CRLF), and an interpreter takes the carriage return for a part of a word: convert it to Unix line endings (LF)"
// +kubebuilder:validation:XValidation:rule="!has(self.script) || !self.script.matches('(^|\\n)\\ufeff')",message="verify.script has a byte order mark (BOM) at the beginning of a line, and an interpreter takes it for a part of a word: save it as UTF-8 without BOM"
type VerifySpec struct {
	// script runs like task.script, with the same environment. At most 65536 bytes.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	Script string `json:"script,omitempty"`

	// scriptFrom takes the script from a ConfigMap of the same namespace.
	// +optional
	ScriptFrom *ScriptSource `json:"scriptFrom,omitempty"`

	// interpreter is the command on the node that the script is given to, as for the task.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1024
	Interpreter []string `json:"interpreter,omitempty"`
}

// ScriptSource says where a script is found.
type ScriptSource struct {
	// configMapKeyRef is a key of a ConfigMap in the NodeJob's namespace. Where the ConfigMap or the
	// key does not exist, the NodeJob waits for it and says so.
	// +required
	ConfigMapKeyRef ConfigMapKeyRef `json:"configMapKeyRef,omitzero"`
}

// ConfigMapKeyRef is a key of a ConfigMap in the same namespace.
type ConfigMapKeyRef struct {
	// name of the ConfigMap.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// key in the ConfigMap's data.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key,omitempty"`
}

// RerunSpec says what makes a node that is done run the task again. Removing the record's label
// from a node always does.
type RerunSpec struct {
	// onChange: a new revision (a change of task, verify or the content of a referenced ConfigMap)
	// runs on nodes that are done with an earlier one. True when omitted.
	// +optional
	// +kubebuilder:default=true
	OnChange *bool `json:"onChange,omitempty"`

	// onReplace: another machine (by its machine ID) behind the same node runs the task again. True
	// when omitted.
	// +optional
	// +kubebuilder:default=true
	OnReplace *bool `json:"onReplace,omitempty"`

	// onReboot: a node that has rebooted (by its boot ID) since the task succeeded runs it again.
	// +optional
	OnReboot bool `json:"onReboot,omitempty"`

	// everySeconds: a node that is done runs the task again at this interval: 10 to 31536000, or 0, the
	// default, for never. The nodes are spread over the interval, each at a time of its own, and the first
	// time comes half an interval after the success at the earliest.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=31536000
	// +kubebuilder:validation:XValidation:rule="self == 0 || self >= 10",message="rerun.everySeconds must be 0, for never, or at least 10"
	EverySeconds int32 `json:"everySeconds,omitempty"`

	// onChangeOf are ConfigMaps and Secrets of the namespace whose content counts as part of the revision, such
	// as those that task.template mounts. Of a Secret the manager must be allowed to get it: docs/reruns.md.
	// +optional
	// +listType=map
	// +listMapKey=kind
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	OnChangeOf []ContentRef `json:"onChangeOf,omitempty"`
}

// ContentRef names an object of the NodeJob's namespace whose content counts.
type ContentRef struct {
	// kind is ConfigMap or Secret.
	// +required
	Kind ContentKind `json:"kind,omitempty"`
	// name of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}

// ContentKind is the kind of an object whose content counts.
//
// +kubebuilder:validation:Enum=ConfigMap;Secret
type ContentKind string

const (
	// ContentConfigMap is a ConfigMap.
	ContentConfigMap ContentKind = "ConfigMap"
	// ContentSecret is a Secret.
	ContentSecret ContentKind = "Secret"
)
