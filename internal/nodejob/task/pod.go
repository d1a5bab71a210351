// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package task creates the pod of one attempt from a NodeJob and a node. It is pure: the same input always results in
// the same pod with the same name, so that creating it twice does no harm.
package task

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/kube"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/runner/contract"
	"github.com/everynode/everynode/internal/seal"
)

const (
	// ContainerName is the container of a script's pod.
	ContainerName = "task"

	// DefaultTimeoutSeconds is task.timeoutSeconds when omitted.
	DefaultTimeoutSeconds = 600

	// DefaultRebootTimeoutSeconds is maintenance.reboot.timeoutSeconds when omitted.
	DefaultRebootTimeoutSeconds = 900

	// KubeletSlack is how long after the attempt's timeout the kubelet ends the pod. This is the last resort if the
	// manager is not running; the runner and the plan act earlier.
	KubeletSlack = 60 * time.Second

	// graceSeconds is the time between SIGTERM and SIGKILL for a script whose pod is deleted.
	graceSeconds = 30

	managedBy = "everynode"

	// runDir is where the runner stores what it has done for a later container of the pod, because a kubelet may start
	// two. Container runtimes share this file system among the containers of a pod. An emptyDir would also work, but
	// kubectl drain refuses pods with one, and the cluster autoscaler does not remove their nodes.
	runDir = "/dev/shm"
)

// Options are the settings of the installation, the same for all NodeJobs.
type Options struct {
	// RunnerImage is an image with everynode-runner as its entrypoint.
	RunnerImage string
	// ArchiveRunnerImage is an image with everynode-runner as its entrypoint, and everynode-upload beside it. It is used if the
	// output is archived. "" if there is none.
	ArchiveRunnerImage string
	// PullSecrets are the names of Secrets in the namespace of each pod, for pulling RunnerImage. Without names, those of the
	// service account of the pod are used.
	PullSecrets []string
	// PriorityClassName for pods whose template has none, such as system-node-critical.
	PriorityClassName string
	// MemoryLimit of scripts whose NodeJob sets none; zero for no limit.
	MemoryLimit resource.Quantity
	// Version of the manager, which the runner compares with its own; "" if it is unknown.
	Version string
	// Key is the secret of the installation. It is part of the names of pods and of their seals.
	Key seal.Key
}

// ImagePullSecrets are the references of a pod to PullSecrets.
func (o *Options) ImagePullSecrets() []corev1.LocalObjectReference {
	var references []corev1.LocalObjectReference
	for _, name := range o.PullSecrets {
		references = append(references, corev1.LocalObjectReference{Name: name})
	}
	return references
}

// Phase is the part of a NodeJob that a pod runs.
type Phase string

const (
	// Task : the task, and its check.
	Task Phase = "task"
	// Rollback : the script that undoes the task.
	Rollback Phase = "rollback"
	// Reboot : the node's reboot, after the task has succeeded.
	Reboot Phase = "reboot"
	// Check : the check of the task, after the reboot.
	Check Phase = "check"
	// CheckBefore : the check of the task, before the maintenance of the node.
	CheckBefore Phase = "check-before"
	// CheckDrift : the check of the task, on a node that is done.
	CheckDrift Phase = "check-drift"
	// CheckExpires : the check of spec.expires, before the task and on a node that is done.
	CheckExpires Phase = "check-expires"
)

// phases are all parts that a pod may run.
var phases = []Phase{Task, Rollback, Reboot, Check, CheckBefore, CheckDrift, CheckExpires}

// completesRun reports whether the phase completes what a task has started, or undoes it.
func (p Phase) completesRun() bool { return p != Task && !p.Asks() }

// Asks reports whether the phase only asks a question. It disturbs nothing on its node, so it needs no slot.
func (p Phase) Asks() bool { return p == CheckBefore || p == CheckExpires || p.AsksDone() }

// AsksDone reports whether the phase asks a question of a node that is done.
func (p Phase) AsksDone() bool { return p == CheckDrift }

// PhaseOf returns the phase for the value of a pod's label. A pod without the label is a task.
func PhaseOf(label string) Phase {
	if phase := Phase(label); slices.Contains(phases, phase) {
		return phase
	}
	return Task
}

// Attempt is the attempt for which a pod is created.
type Attempt struct {
	Phase    Phase
	Revision string
	// Number of the attempt, from 1.
	Number int32

	NodeName  string
	NodeUID   types.UID
	MachineID string
	BootID    string

	// Retry is RetryToken of the NodeJob.
	Retry string
	// ChangedBy is who has caused it; "" if that is unknown.
	ChangedBy string
	// Undoes is the record that a rollback undoes. Deleting is true if it is part of the NodeJob's deletion, and Expiring if the task
	// is no longer needed (spec.expires).
	Undoes             *record.Record
	Deleting, Expiring bool
	// Checks is the record of the run that a check after a reboot completes.
	Checks *record.Record
	// Gates are the keys of all gates, of any NodeJob. Tasks tolerate them.
	Gates []string
	// OutsideWindow is the NodeDisruptionBudget whose closed window it ignores; "" if it ignores none.
	OutsideWindow string
	// NodeValues are the values of task.env that come from the Node. They are not those of a reboot, which has no task.env.
	NodeValues NodeValues
	// Archive is where the output is stored; nil for nowhere. It is not part of a plan: it is added when the pod is created.
	Archive *Archive
}

// Timeout returns the timeout of one attempt, image pull included.
func Timeout(job *v1alpha1.NodeJob, phase Phase) time.Duration {
	seconds, otherwise := job.Spec.Task.TimeoutSeconds, int32(DefaultTimeoutSeconds)
	switch {
	case phase == Reboot:
		seconds, otherwise = job.Spec.Maintenance.Reboot.TimeoutSeconds, DefaultRebootTimeoutSeconds
	case phase == Rollback && job.Spec.Rollback != nil:
		seconds = job.Spec.Rollback.TimeoutSeconds
	case phase == Rollback:
		seconds = nil
	}
	if seconds == nil {
		seconds = &otherwise
	}
	return time.Duration(*seconds) * time.Second
}

// RetryToken returns a hash of the annotation with which a user requests a retry on every failed node; "" without it.
func RetryToken(job *v1alpha1.NodeJob) string { return RetryTokenOf(job) }

// RequestToken returns a hash of all annotations of a NodeJob with which users request something; "" without them.
func RequestToken(job *v1alpha1.NodeJob) string {
	if nodes := job.Annotations[v1alpha1.TakeOverAnnotation]; nodes != "" {
		return kube.ShortHash(RetryToken(job) + " " + nodes)
	}
	return RetryToken(job)
}

// RetryTokenOf returns the same of any object. On a NodeGuard, the annotation confirms what was written while no admission policy
// was in force.
func RetryTokenOf(o metav1.Object) string {
	value := o.GetAnnotations()[v1alpha1.RetryAnnotation]
	if value == "" {
		return ""
	}
	return kube.ShortHash(value)
}

// nameDigits is how much of a digest the name of a pod has.
const nameDigits = 10

// PodName is the only name that the pod of this attempt can have. Node names may have up to 253 characters and the same
// first label, so the name contains a digest of the node's UID. Without the key, the name of a pod that does not exist yet
// cannot be predicted, so no kubelet or user can take it.
func PodName(key seal.Key, job *v1alpha1.NodeJob, a Attempt) string {
	hash := key.Digest("name", string(job.UID), a.Revision, string(a.NodeUID), string(a.Phase), strconv.Itoa(int(a.Number)))[:nameDigits]
	prefix := job.Name
	if len(prefix) > 52 {
		prefix = strings.TrimRight(prefix[:52], "-.")
	}
	return prefix + "-" + hash
}

// Machine returns the value of the annotation that says on which machine and in which boot an attempt started.
func Machine(machineID, bootID string) string {
	return machineID + "/" + bootID
}

// MachineID returns the machine ID in a value of Machine.
func MachineID(machine string) string {
	id, _, _ := strings.Cut(machine, "/")
	return id
}

// BootID returns the boot ID in a value of Machine.
func BootID(machine string) string {
	_, id, _ := strings.Cut(machine, "/")
	return id
}

// Pod returns the pod of an attempt. It is bound to its node without a scheduler, so that it runs on a node on which
// nothing can be scheduled yet.
func Pod(job *v1alpha1.NodeJob, src Source, a Attempt, opts Options) *corev1.Pod {
	pod := &corev1.Pod{}
	if t := job.Spec.Task.Template; t != nil && a.Phase == Task {
		pod.Labels = WithoutOurKeys(t.Labels)
		pod.Annotations = WithoutOurKeys(t.Annotations)
		pod.Spec = templateSpec(t, job.Spec.Task.Output.Record)
	} else {
		pod.Spec = runnerPodSpec(job, src, a, opts)
	}

	controller := true
	pod.Name = PodName(opts.Key, job, a)
	pod.Namespace = job.Namespace
	pod.Finalizers = []string{v1alpha1.PodFinalizer}
	pod.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(),
		Kind:       "NodeJob",
		Name:       job.Name,
		UID:        job.UID,
		Controller: &controller,
	}}
	pod.Labels = with(pod.Labels, map[string]string{
		v1alpha1.NodeJobLabel:          job.Name,
		v1alpha1.RevisionLabel:         a.Revision,
		v1alpha1.PhaseLabel:            string(a.Phase),
		"app.kubernetes.io/managed-by": managedBy,
	})
	pod.Annotations = with(pod.Annotations, map[string]string{
		v1alpha1.AttemptAnnotation: strconv.Itoa(int(a.Number)),
		v1alpha1.NodeUIDAnnotation: string(a.NodeUID),
		v1alpha1.MachineAnnotation: Machine(a.MachineID, a.BootID),
	})
	for key, value := range map[string]string{
		v1alpha1.ChangedByAnnotation: a.ChangedBy, v1alpha1.InputsAnnotation: a.NodeValues.Hash(), v1alpha1.RetryAnnotation: a.Retry,
		v1alpha1.ConfirmAnnotation: confirmDigest(job, a, opts), v1alpha1.CheckBeforeAnnotation: trueIf(checksInPod(job, a.Phase)),
		v1alpha1.DisruptsAnnotation: trueIf(Disrupts(job) && !a.Phase.Asks()), v1alpha1.OutsideWindowAnnotation: a.OutsideWindow,
	} {
		if value != "" {
			pod.Annotations[key] = value
		}
	}
	if a.Archive != nil {
		pod.Annotations[v1alpha1.ArchiveAnnotation] = a.Archive.Location
	}
	if reboot := RebootPolicy(job); a.Phase == Task && reboot != v1alpha1.RebootNever {
		pod.Annotations[v1alpha1.RebootAnnotation] = string(reboot)
	}

	deadline := int64((PodTimeout(job, a.Phase) + KubeletSlack) / time.Second)
	pod.Spec.ActiveDeadlineSeconds = &deadline
	pod.Spec.NodeName = a.NodeName
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	pod.Spec.Tolerations = tolerationsOf(job, pod, a)
	if pod.Spec.PriorityClassName == "" {
		pod.Spec.PriorityClassName = opts.PriorityClassName
	}
	NameContainers(pod)
	opts.Key.SealPod(pod)
	return pod
}

// trueIf is the value of an annotation that pods have only if something is so.
func trueIf(is bool) string {
	if is {
		return "true"
	}
	return ""
}

// tolerationsOf returns the tolerations of the pod of an attempt.
func tolerationsOf(job *v1alpha1.NodeJob, pod *corev1.Pod, a Attempt) []corev1.Toleration {
	if a.Phase.completesRun() {
		// What has started is completed or rolled back, even if the node was tainted meanwhile.
		return []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	}
	return append(Tolerations(slices.Concat(job.Spec.Nodes.Tolerations, pod.Spec.Tolerations)), tolerating(a.Gates)...)
}

// WithoutOurKeys returns the labels or annotations of a template without those of Everynode, which the manager obeys: keys with
// the prefix everynode.dev or one of its subdomains. The API refuses them too.
func WithoutOurKeys(all map[string]string) map[string]string {
	kept := maps.Clone(all)
	maps.DeleteFunc(kept, func(key, _ string) bool {
		prefix, _, _ := strings.Cut(key, "/")
		return prefix == v1alpha1.Group || strings.HasSuffix(prefix, "."+v1alpha1.Group)
	})
	return kept
}

// templateSpec returns the user's pod, without a service account token that was not requested explicitly.
func templateSpec(t *corev1.PodTemplateSpec, output v1alpha1.OutputPolicy) corev1.PodSpec {
	spec := *t.Spec.DeepCopy()
	WithoutToken(&spec)
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			policy := &containers[i].TerminationMessagePolicy
			if *policy == "" || output == v1alpha1.OutputNone {
				*policy = messagePolicy(output)
			}
		}
	}
	return spec
}

// WithoutToken disables the service account token in a pod of a template that specifies no account. The template may
// specify it in the deprecated field, which the API still accepts.
func WithoutToken(spec *corev1.PodSpec) {
	named := spec.ServiceAccountName != "" || spec.DeprecatedServiceAccount != ""
	if !named && spec.AutomountServiceAccountToken == nil {
		spec.AutomountServiceAccountToken = new(false)
	}
}

// ScriptPodSpec returns the pod that runs a script on a node, as the script of a NodeJob runs. owner is the namespace
// and the name of the object that the script belongs to.
func ScriptPodSpec(text, owner, node string, timeout time.Duration, opts Options) corev1.PodSpec {
	env := append(script(text, nil), runEnv(owner, timeout, Attempt{NodeName: node, Revision: "check", Number: 1}, opts)...)
	spec := runnerSpec(escaped(env), resources(nil, opts.MemoryLimit), messagePolicy(v1alpha1.OutputTail), opts)
	spec.PriorityClassName = opts.PriorityClassName
	return spec
}

// runnerPodSpec returns the pod of the runner for a phase of a NodeJob, which runs a script or only pulls images.
func runnerPodSpec(job *v1alpha1.NodeJob, src Source, a Attempt, opts Options) corev1.PodSpec {
	if a.Phase == CheckBefore && OnlyPulls(job) {
		return pullSpec(job, opts)
	}
	return scriptSpec(job, src, a, opts)
}

// scriptSpec returns the pod of the runner for a phase that runs a script.
func scriptSpec(job *v1alpha1.NodeJob, src Source, a Attempt, opts Options) corev1.PodSpec {
	if a.Archive != nil {
		opts.RunnerImage = opts.ArchiveRunnerImage
	}
	spec := runnerSpec(scriptEnv(job, src, a, opts), resources(job.Spec.Task.Resources, opts.MemoryLimit), messagePolicy(job.Spec.Task.Output.Record), opts)
	if a.Phase != Reboot { // a reboot needs nothing that may be missing
		addFiles(&spec, job.Spec.Task.Files, src.Files)
	}
	if Confirms(job, a.Phase) {
		confirmSpec(&spec, Timeout(job, Rollback))
	}
	return spec
}

// runnerSpec returns the pod of the runner. It uses the host's PID namespace to find the other namespaces of the host,
// and the host's network so that it needs no CNI plugin: it may run before there is one.
func runnerSpec(env []corev1.EnvVar, resources corev1.ResourceRequirements, policy corev1.TerminationMessagePolicy, opts Options) corev1.PodSpec {
	yes, no := true, false
	root, grace := int64(0), int64(graceSeconds)
	return corev1.PodSpec{
		// If a node does not have the label kubernetes.io/os, this makes a kubelet on another system reject the pod.
		OS:                            &corev1.PodOS{Name: corev1.Linux},
		HostPID:                       true,
		HostNetwork:                   true,
		DNSPolicy:                     corev1.DNSDefault,
		AutomountServiceAccountToken:  &no,
		EnableServiceLinks:            &no,
		TerminationGracePeriodSeconds: &grace,
		ImagePullSecrets:              opts.ImagePullSecrets(),
		Containers: []corev1.Container{{
			Name:                     ContainerName,
			Image:                    opts.RunnerImage,
			Args:                     []string{"--" + contract.FlagRunDir + "=" + runDir},
			ImagePullPolicy:          corev1.PullIfNotPresent,
			Env:                      env,
			Resources:                resources,
			TerminationMessagePolicy: policy,
			SecurityContext: &corev1.SecurityContext{
				Privileged: &yes,
				RunAsUser:  &root,
			},
		}},
	}
}

// RebootPolicy returns maintenance.reboot of a NodeJob.
func RebootPolicy(job *v1alpha1.NodeJob) v1alpha1.RebootPolicy {
	if job.Spec.Maintenance.Reboot.Policy == "" {
		return v1alpha1.RebootNever
	}
	return job.Spec.Maintenance.Reboot.Policy
}

// scriptEnv returns the environment of the runner's contract (docs/runner.md).
func scriptEnv(job *v1alpha1.NodeJob, src Source, a Attempt, opts Options) []corev1.EnvVar {
	var env []corev1.EnvVar
	if a.Phase != Reboot { // a reboot needs nothing that may be missing
		env = taskEnv(job, a.NodeValues)
	}
	return append(env, escaped(slices.Concat(phaseEnv(job, src, a), outputEnv(job, a.Phase), archiveEnv(a.Archive),
		confirmEnv(job, src, a, opts), runEnv(job.Namespace+"/"+job.Name, Timeout(job, a.Phase), a, opts)))...)
}

// runEnv tells the runner which run it is. owner is the namespace and the name of the object that the run belongs to.
func runEnv(owner string, timeout time.Duration, a Attempt, opts Options) []corev1.EnvVar {
	return append([]corev1.EnvVar{
		{Name: contract.EnvTimeout, Value: strconv.Itoa(int(timeout / time.Second))},
		{Name: contract.EnvNodeJob, Value: owner},
		{Name: contract.EnvNodeName, Value: a.NodeName},
		{Name: contract.EnvRevision, Value: a.Revision},
		{Name: contract.EnvAttempt, Value: strconv.Itoa(int(a.Number))},
	}, versionEnv(opts)...)
}

// escaped returns the variables so that the kubelet does not expand their values.
func escaped(env []corev1.EnvVar) []corev1.EnvVar {
	for i := range env {
		env[i].Value = literal(env[i].Value)
	}
	return env
}

// phaseEnv tells the runner what to do.
func phaseEnv(job *v1alpha1.NodeJob, src Source, a Attempt) []corev1.EnvVar {
	switch a.Phase {
	case Rollback:
		return append(script(src.Rollback, job.Spec.Rollback.Interpreter), undoes(a)...)
	case Reboot:
		// The runner does nothing on a node that is already in another boot.
		return []corev1.EnvVar{{Name: contract.EnvReboot, Value: string(contract.RebootNow)}, {Name: contract.EnvBootID, Value: a.BootID}}
	case Check:
		return append(script(src.Check, checkInterpreter(job)), runResults(a.Checks)...)
	case CheckBefore, CheckDrift:
		return script(src.Check, checkInterpreter(job))
	case CheckExpires:
		return script(src.Expires, expiresInterpreter(job))
	case Task:
	}
	return taskPhaseEnv(job, src)
}

// taskPhaseEnv tells the runner to run the task.
func taskPhaseEnv(job *v1alpha1.NodeJob, src Source) []corev1.EnvVar {
	env := script(src.Script, job.Spec.Task.Interpreter)
	if command := job.Spec.Task.Command; len(command) > 0 {
		env = []corev1.EnvVar{{Name: contract.EnvCommand, Value: contract.JSON(command)}}
	}
	reboot := RebootPolicy(job)
	if src.Check != "" && reboot != v1alpha1.RebootAlways {
		env = append(env, scriptIn(contract.EnvCheck, src.Check, contract.EnvCheckInterpreter, checkInterpreter(job))...)
	}
	if checksInPod(job, Task) {
		env = append(env, corev1.EnvVar{Name: contract.EnvCheckBefore, Value: contract.CheckBefore})
	}
	if reboot != v1alpha1.RebootNever {
		env = append(env, corev1.EnvVar{Name: contract.EnvReboot, Value: string(rebootAfter(reboot))})
	}
	return env
}

// rebootAfter is how the pod of a task takes part in a reboot.
func rebootAfter(policy v1alpha1.RebootPolicy) contract.Reboot {
	if policy == v1alpha1.RebootAlways {
		return contract.RebootAlways
	}
	return contract.RebootIfRequested
}

func checkInterpreter(job *v1alpha1.NodeJob) []string {
	if job.Spec.Task.Check == nil {
		return nil
	}
	return job.Spec.Task.Check.Interpreter
}

// ChecksExpiry reports whether a NodeJob has a check that says where its task is no longer needed.
func ChecksExpiry(job *v1alpha1.NodeJob) bool {
	return job.Spec.Expires != nil && job.Spec.Expires.Check != nil
}

func expiresInterpreter(job *v1alpha1.NodeJob) []string {
	if !ChecksExpiry(job) {
		return nil
	}
	return job.Spec.Expires.Check.Interpreter
}

// script returns the variables for the script that a pod runs and its interpreter.
func script(text string, interpreter []string) []corev1.EnvVar {
	return scriptIn(contract.EnvScript, text, contract.EnvInterpreter, interpreter)
}

// scriptIn returns the same with the names of the variables.
func scriptIn(name, text, by string, interpreter []string) []corev1.EnvVar {
	env := []corev1.EnvVar{{Name: name, Value: text}}
	if len(interpreter) > 0 {
		env = append(env, corev1.EnvVar{Name: by, Value: contract.JSON(interpreter)})
	}
	return env
}

// literal prevents Kubernetes from expanding $(NAME) and $$ in a value, because shell scripts use both. Source:
// k8s.io/kubernetes third_party/forked/golang/expansion, where $$ stands for one $.
func literal(s string) string {
	return strings.ReplaceAll(s, "$", "$$")
}

func with(m, more map[string]string) map[string]string {
	if m == nil {
		return more
	}
	maps.Copy(m, more)
	return m
}
