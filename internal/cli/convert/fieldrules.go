// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// The fields that are converted, that are not needed, or that have a hint. A test sets each field of each kind, and requires
// that the output changes.

// Reasons why fields are no longer needed.
const (
	asRoot      = "a script runs as root in the namespaces of the node"
	allSelected = "the task runs on all nodes that are selected"
	noServer    = "a task is not a server"
)

// oneNode is the hint for nodeName.
const oneNode = "nodes.names selects nodes by their names"

var converted = fieldRule{}

// unless is a rule for a field that is lost, unless it has a default.
func unless(defaults ...any) fieldRule { return fieldRule{defaults: defaults, isLost: true} }

func gone(reason string, defaults ...any) fieldRule {
	return fieldRule{gone: reason, defaults: defaults}
}

func lost(hint string, defaults ...any) fieldRule {
	return fieldRule{isLost: true, hint: hint, defaults: defaults}
}

// byKubernetes are labels and annotations that Kubernetes and kubectl set.
var byKubernetes = []string{
	corev1.LastAppliedConfigAnnotation, "deprecated.daemonset.template.generation", "kubectl.kubernetes.io/restartedAt",
	"controller-uid", "job-name",
	"batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "batch.kubernetes.io/job-tracking",
}

// objectRules are for the fields that all objects have.
func objectRules() fieldRules {
	r := fieldRules{"apiVersion": converted, "kind": converted, "status": converted}
	r.add("metadata", converted, "name", "namespace", "generateName", "uid", "resourceVersion", "generation",
		"creationTimestamp", "selfLink", "managedFields")
	r.add("metadata", fieldRule{gone: "if no other tool needs them", except: byKubernetes}, "labels", "annotations")
	r.add("metadata", lost("the owner may create the object again, so change the owner"), "ownerReferences")
	return r
}

// podRules are for the pod of a task, without what is the same in a template.
func podRules(isTemplate bool, selector map[string]string) fieldRules {
	r := fieldRules{}
	names := fieldRule{gone: "if no NetworkPolicy or Service selects the pods", except: byKubernetes}
	if !isTemplate {
		// The pods of scripts use the network of the node. The labels of a DaemonSet are for its own selector.
		names = fieldRule{gone: "the pods of scripts have their own", except: byKubernetes}
		for key := range selector {
			names.except = append(slices.Clip(names.except), key)
		}
		r.add(templatePath+".metadata", names, "annotations")
	}
	r.add(templatePath+".metadata", names, "labels")
	// Kubernetes ignores what else it stores in the metadata of a template.
	r.add(templatePath+".metadata", converted, "name", "namespace", "generateName", "uid", "resourceVersion", "generation",
		"creationTimestamp", "selfLink", "managedFields", "ownerReferences")

	pod := templatePath + ".spec"
	r.add(pod, converted, "nodeSelector", "tolerations",
		"affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms",
		"affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution",
		"affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution")
	r.add(pod, gone(allSelected), "topologySpreadConstraints",
		"affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution",
		"affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution",
		"affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution")
	r.add(pod, gone("Everynode chooses the node of each pod", "default-scheduler"), "schedulerName")
	r.add(pod, gone("a task ends by itself", int64(30)), "terminationGracePeriodSeconds")
	r.add(pod, gone("retry repeats a failed attempt", "Always", "Never"), "restartPolicy")
	r.add(pod, gone("no container of the task mounts it"), "volumes.unused[]")
	for _, list := range []string{".containers", ".initContainers"} {
		r.addContainer(pod + list + "[]")
		r.addUnneeded(pod + list + ".unneeded[]")
		if !isTemplate {
			r.addScript(pod + list + "[]")
		}
	}
	if !isTemplate {
		r.addScriptPod(pod)
	}
	return r
}

// addContainer adds what no container of a NodeJob has.
func (r fieldRules) addContainer(at string) {
	r.add(at, converted, "command", "args")
	r.add(at, gone(noServer), "ports", "livenessProbe", "readinessProbe", "startupProbe")
	r.add(at, gone("the record has the end of the output", "File"), "terminationMessagePolicy")
	r.add(at, unless("/dev/termination-log"), "terminationMessagePath")
	r.addHooks(at)
}

func (r fieldRules) addHooks(at string) {
	r.add(at, lost("add it to the task"), "lifecycle.postStart")
	r.add(at, lost("spec.rollback with deletionPolicy Rollback runs a script on each node when the NodeJob is deleted"), "lifecycle.preStop")
}

// addUnneeded adds the fields of a container that is not a part of the task. A comment names the container.
func (r fieldRules) addUnneeded(at string) {
	r.add(at, converted, "name", "image", "imagePullPolicy", "command", "args", "workingDir", "env", "envFrom", "ports",
		"resources", "volumeMounts", "volumeDevices",
		"livenessProbe", "readinessProbe", "startupProbe", "securityContext", "terminationMessagePath",
		"terminationMessagePolicy", "stdin", "stdinOnce", "tty")
	r.addHooks(at)
}

// addScript adds what a container has that became a script.
func (r fieldRules) addScript(at string) {
	r.add(at, converted, "name", "image", "imagePullPolicy", "env", "resources.requests", "resources.limits.cpu",
		"resources.limits.memory", "resources.limits[ephemeral-storage]", "volumeMounts")
	r.add(at, lost("a script begins in the directory /"), "workingDir")
	r.addSecurity(at + ".securityContext")
}

// addSecurity adds what a script does not need because it runs as root. Its user has a comment of its own.
func (r fieldRules) addSecurity(at string) {
	r.add(at, converted, "privileged", "runAsUser")
	r.add(at, gone(asRoot), "allowPrivilegeEscalation", "appArmorProfile", "capabilities", "fsGroup", "fsGroupChangePolicy",
		"procMount", "readOnlyRootFilesystem",
		"runAsGroup", "runAsNonRoot", "seLinuxChangePolicy", "seLinuxOptions", "seccompProfile", "supplementalGroups",
		"supplementalGroupsPolicy")
}

// addScriptPod adds what a pod has whose containers became a script.
func (r fieldRules) addScriptPod(pod string) {
	r.add(pod, converted, "hostNetwork", "hostPID", "hostIPC", "enableServiceLinks")
	r.add(pod, unless("linux"), "os.name")
	r.addAccess(pod)
	r.add(pod, gone("a script uses the DNS configuration of the node", "ClusterFirst"), "dnsPolicy")
	r.add(pod, lost("a script uses /etc/hosts of the node"), "hostAliases")
	r.addSecurity(pod + ".securityContext")
	r.add(pod, converted, "volumes[].name", "volumes[].hostPath.path", "volumes.script[]")
	r.add(pod, lost("create it in the script", "", "Directory"), "volumes[].hostPath.type")
	r.add(pod, lost("a script sees the files of the node"), "volumes.other[]")
}

// addAccess adds what a script has no use for: credentials, an image, and a priority.
func (r fieldRules) addAccess(at string) {
	r.add(at, gone("a script has no API credentials", false), "serviceAccountName", "automountServiceAccountToken")
	r.add(at, gone("the image is no longer needed"), "imagePullSecrets")
	r.add(at, gone("the pods of scripts have the class of the installation, system-node-critical by default"), "priorityClassName")
}

func daemonSetRules() fieldRules {
	r := fieldRules{}
	r.add("spec", converted, "selector", "templateGeneration", "updateStrategy.rollingUpdate.maxUnavailable")
	r.add("spec", lost(oneNode), "template.spec.nodeName")
	r.add("spec", unless("RollingUpdate", "OnDelete"), "updateStrategy.type")
	r.add("spec", unless(int64(0)), "updateStrategy.rollingUpdate.maxSurge")
	r.add("spec", lost("rollout.steps[].soakSeconds waits between steps"), "minReadySeconds")
	r.add("spec", gone("the record has the earlier attempts", int64(10)), "revisionHistoryLimit")
	return r
}

func jobRules() fieldRules {
	r := fieldRules{}
	r.add("spec", converted, "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished", "completions",
		"podFailurePolicy", "successPolicy", "selector", "manualSelector",
		"suspend", "template.spec.nodeName", "template.spec.activeDeadlineSeconds")
	r.add("spec", lost("a NodeJob runs the task once on each node", int64(1)), "parallelism")
	r.add("spec", unless("NonIndexed"), "completionMode")
	r.add("spec", unless("TerminatingOrFailed"), "podReplacementPolicy")
	r.add("spec", unless("kubernetes.io/job-controller"), "managedBy")
	return r
}

func broadcastJobRules() fieldRules {
	r := fieldRules{}
	r.add("spec", lost(oneNode), "template.spec.nodeName")
	r.add("spec", unless("Always", "Never"), "completionPolicy.type")
	r.add("spec", converted, "parallelism", "paused", "completionPolicy.activeDeadlineSeconds",
		"completionPolicy.ttlSecondsAfterFinished",
		"failurePolicy.type", "failurePolicy.restartLimit", "template.spec.activeDeadlineSeconds")
	return r
}

// planRules are for a Plan, and for its container at a path: spec.upgrade or spec.prepare.
func planRules(isTemplate bool, at string) fieldRules {
	r := fieldRules{}
	r.add("spec", converted, "concurrency", "jobActiveDeadlineSecs", "nodeSelector", "channel", "version", "tolerations",
		"exclusive", "window", "cordon", "postCompleteDelay",
		"customNodeLabels", "prepare", "upgrade", "secrets.script[]")
	r.add("spec.drain", converted, "timeout", "gracePeriod", "deleteLocalData", "deleteEmptydirData", "ignoreDaemonSets",
		"force", "disableEviction", "skipWaitForDeleteTimeout", "podSelector")
	if isTemplate {
		r.add("spec", converted, "secrets", "serviceAccountName", "imagePullSecrets", "priorityClassName")
		return r
	}
	r.addAccess("spec")
	r.add("spec", lost("task.inputs runs the task again after a change"), "secrets.other[]")
	delete(r, at)
	r.add(at, converted, "image", "command", "args", "envs", "volumes")
	r.addSecurity(at + ".securityContext")
	return r
}
