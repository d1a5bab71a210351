// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodejob/record"
	"github.com/everynode/everynode/internal/seal"
)

var update = flag.Bool("update", false, "regenerate the pods in testdata")

var options = Options{RunnerImage: "registry.example/everynode-runner:v1", PriorityClassName: "system-node-critical",
	MemoryLimit: resource.MustParse("512Mi"), Version: "v1"}

func attempt() Attempt {
	return Attempt{
		Phase: Task, Revision: "0123456789", Number: 2,
		NodeName: "ip-10-0-0-1.internal", NodeUID: "node-uid", MachineID: "machine", BootID: "boot",
	}
}

func scriptJob() *v1alpha1.NodeJob {
	timeout := int32(120)
	return &v1alpha1.NodeJob{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "node-setup",
			Name:      "max-map-count",
			UID:       "job-uid",
			Labels:    map[string]string{"team": "a"},
		},
		Spec: v1alpha1.NodeJobSpec{
			Nodes: v1alpha1.NodesSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "a"}},
				Tolerations: []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}}},
			Task: v1alpha1.TaskSpec{
				ScriptBlock:    v1alpha1.ScriptBlock{Script: "sysctl -w vm.max_map_count=$WANT", Interpreter: []string{"/bin/bash", "-eu"}},
				Env:            []v1alpha1.EnvVar{{Name: "WANT", Value: "262144"}, {Name: "COPY", Value: "$(WANT)"}},
				TimeoutSeconds: &timeout,
				Check:          &v1alpha1.CheckSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "true", Interpreter: []string{"/bin/dash"}}},
			},
		},
	}
}

func templateJob() *v1alpha1.NodeJob {
	return &v1alpha1.NodeJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "node-setup", Name: "facts", UID: "job-uid"},
		Spec: v1alpha1.NodeJobSpec{Task: v1alpha1.TaskSpec{Template: &corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{
				Labels:      map[string]string{"team": "b", v1alpha1.NodeJobLabel: "somebody-else"},
				Annotations: map[string]string{"note": "mine", v1alpha1.AttemptAnnotation: "99"},
			},
			Spec: corev1.PodSpec{
				InitContainers: []corev1.Container{{Name: "first", Image: "registry.example/first:v1"}},
				Containers: []corev1.Container{{
					Name: "facts", Image: "registry.example/facts:v1",
					Env:          []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "$(A)"}},
					VolumeMounts: []corev1.VolumeMount{{Name: "host", MountPath: "/host", ReadOnly: true}},
				}, {
					Name: "other", Image: "registry.example/other:v1", TerminationMessagePolicy: corev1.TerminationMessageReadFile,
				}},
				Volumes: []corev1.Volume{
					{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}},
				},
				Tolerations: []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}},
			},
		}}},
	}
}

// TestPod compares complete pods, because they run as root on a node.
func TestPod(t *testing.T) {
	bare := scriptJob()
	bare.Spec = v1alpha1.NodeJobSpec{Task: v1alpha1.TaskSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "true"}}}
	tests := map[string]struct {
		job     *v1alpha1.NodeJob
		src     Source
		attempt Attempt
	}{
		"script": {
			scriptJob(),
			Source{Script: "sysctl -w vm.max_map_count=$WANT", Check: "true", Rollback: "false"},
			attempt(),
		},
		"script-of-a-word":        {bare, Source{Script: "true"}, attempt()},
		"template":                {templateJob(), Source{}, attempt()},
		"template-that-has":       {ownTemplateJob(), Source{}, attempt()},
		"script-without-output":   {withoutOutput(scriptJob()), Source{Script: "true", Check: "true"}, attempt()},
		"template-without-output": {withoutOutput(ownTemplateJob()), Source{}, attempt()},
		"rollback": {
			withRollback(scriptJob()),
			Source{Script: "false", Check: "false", Rollback: "echo $(WANT) $?"},
			rollback(),
		},
		"script-with-files": {
			withFiles(
				scriptJob(),
			),
			Source{Script: "true", Check: "true", Files: []Hashes{{Folder: "a1"}, {Folder: "b2"}, {Folder: "c3", Salt: "d4"}}},
			attempt(),
		},
		"script-with-confirm":  {withConfirm(scriptJob()), Source{Script: "true", Check: "true", Rollback: "false"}, attempt()},
		"pull-of-template":     {pulling(templateJob()), Source{}, before()},
		"pull-of-files":        {pulling(withFiles(scriptJob())), Source{Script: "true", Check: "true"}, before()},
		"rollback-of-template": {withRollback(templateJob()), Source{Rollback: "undo"}, deletion()},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			before := tt.job.DeepCopy()
			got, err := yaml.Marshal(Pod(tt.job, tt.src, tt.attempt, options))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, tt.job); diff != "" {
				t.Errorf("the NodeJob was changed (-before +after):\n%s", diff)
			}
			file := filepath.Join("testdata", name+".yaml")
			if *update {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("%s (-want +got; go test ./internal/nodejob/task -update regenerates it):\n%s", file, diff)
			}
		})
	}
}

// withoutOutput retains no output, and has a Secret and its own resources.
func withoutOutput(job *v1alpha1.NodeJob) *v1alpha1.NodeJob {
	job.Spec.Task.Output.Record = v1alpha1.OutputNone
	if job.Spec.Task.Template == nil {
		ref := &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "token"}, Key: "$(A)"}
		job.Spec.Task.Env = append(job.Spec.Task.Env, v1alpha1.EnvVar{Name: "TOKEN", ValueFrom: &v1alpha1.EnvVarSource{SecretKeyRef: ref}})
		job.Spec.Task.Resources = &v1alpha1.TaskResources{
			Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")},
			Limits: corev1.ResourceList{
				corev1.ResourceCPU:    resource.MustParse("500m"),
				corev1.ResourceMemory: resource.MustParse("256Mi"),
			},
		}
	}
	return job
}

// withFiles has files of a ConfigMap and of a Secret.
func withFiles(job *v1alpha1.NodeJob) *v1alpha1.NodeJob {
	job.Spec.Task.Files = []v1alpha1.FilesSource{
		{Name: "agent", ConfigMap: &v1alpha1.FilesFromObject{Name: "agent", Items: []v1alpha1.FileItem{
			{Key: "install.sh", Path: "bin/install", Mode: new(int32(0o755))}, {Key: "agent.conf", Path: "agent.conf"},
		}}},
		{Name: "all", ConfigMap: &v1alpha1.FilesFromObject{Name: "agent", DefaultMode: new(int32(0o755))}},
		{Name: "tools", Image: &v1alpha1.FilesFromImage{Reference: "registry.example/tools@sha256:" + strings.Repeat("a", 64)}},
		{Name: "tls", Secret: &v1alpha1.FilesFromObject{Name: "agent-tls"}},
	}
	return job
}

func withRollback(job *v1alpha1.NodeJob) *v1alpha1.NodeJob {
	timeout := int32(30)
	job.Spec.Rollback = &v1alpha1.RollbackSpec{
		ScriptBlock:    v1alpha1.ScriptBlock{Script: "unused", Interpreter: []string{"/bin/sh", "-u"}},
		TimeoutSeconds: &timeout,
	}
	return job
}

// rollback undoes an attempt that failed with results, with a requested retry.
func rollback() Attempt {
	a, code := attempt(), int32(7)
	a.Phase, a.Retry = Rollback, "0a1b2c3d4e"
	a.Undoes = &record.Record{Revision: a.Revision, Outcome: record.Failed, ExitCode: &code, Reason: "TaskFailed",
		Results: map[string]string{"disk.size-gb": "$(A) 12", "disk_size_gb": "13", "kernel": "6.12"}}
	return a
}

// deletion undoes an attempt that succeeded.
func deletion() Attempt {
	a, code := attempt(), int32(0)
	a.Phase, a.Deleting = Rollback, true
	a.Undoes = &record.Record{Revision: a.Revision, Outcome: record.Succeeded, ExitCode: &code}
	return a
}

// ownTemplateJob sets every field that Everynode does not overwrite.
func ownTemplateJob() *v1alpha1.NodeJob {
	job := templateJob()
	grace := int64(5)
	spec := &job.Spec.Task.Template.Spec
	spec.ServiceAccountName = "facts"
	spec.PriorityClassName = "mine"
	spec.TerminationGracePeriodSeconds = &grace
	spec.RestartPolicy = corev1.RestartPolicyNever
	return job
}

func TestPodMountsTokenOnlyOnRequest(t *testing.T) {
	yes, no := true, false
	tests := map[string]struct {
		change func(spec *corev1.PodSpec)
		want   *bool
	}{
		"a template without a service account gets no token": {func(*corev1.PodSpec) {}, &no},
		"a template with a service account gets its token":   {func(s *corev1.PodSpec) { s.ServiceAccountName = "facts" }, nil},
		"a template with the deprecated field gets a token":  {func(s *corev1.PodSpec) { s.DeprecatedServiceAccount = "facts" }, nil},
		"a template that requests the default token gets it": {func(s *corev1.PodSpec) { s.AutomountServiceAccountToken = &yes }, &yes},
		"a template with a service account and without a token": {func(s *corev1.PodSpec) {
			s.ServiceAccountName, s.AutomountServiceAccountToken = "facts", &no
		}, &no},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			job := templateJob()
			tt.change(&job.Spec.Task.Template.Spec)
			got := Pod(job, Source{}, attempt(), options).Spec.AutomountServiceAccountToken
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("automountServiceAccountToken (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPodNamesWhoHasChangedTheNodeJob(t *testing.T) {
	for name, want := range map[string]string{
		"a user":                               "jane",
		"not the user that the template names": "",
	} {
		t.Run(name, func(t *testing.T) {
			job := &v1alpha1.NodeJob{
				ObjectMeta: metav1.ObjectMeta{
					Name:        "a",
					Namespace:   "ns",
					Annotations: map[string]string{v1alpha1.ChangedByAnnotation: "someone else"},
				},
			}
			job.Spec.Task.Template = &corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.ChangedByAnnotation: "forged"}},
			}
			pod := Pod(job, Source{}, Attempt{Phase: Task, Number: 1, ChangedBy: want}, Options{})
			if got, found := pod.Annotations[v1alpha1.ChangedByAnnotation]; got != want || found != (want != "") {
				t.Errorf("%q, want %q", got, want)
			}
			if job.Spec.Task.Template.Annotations[v1alpha1.ChangedByAnnotation] != "forged" {
				t.Error("the template is changed in place")
			}
		})
	}
}

func TestPodName(t *testing.T) {
	named := func(name string) *v1alpha1.NodeJob {
		return &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "job-uid"}}
	}
	tests := map[string]struct {
		job  string
		want string
	}{
		"a short name is complete":                       {"a", "a-" + suffix},
		"a name with dots":                               {"a.b.c", "a.b.c-" + suffix},
		"the longest name that is not truncated":         {strings.Repeat("a", 52), strings.Repeat("a", 52) + "-" + suffix},
		"the longest name of a NodeJob":                  {strings.Repeat("a", 63), strings.Repeat("a", 52) + "-" + suffix},
		"a dash where it is truncated":                   {strings.Repeat("a", 51) + "-bbb", strings.Repeat("a", 51) + "-" + suffix},
		"a dot where it is truncated":                    {strings.Repeat("a", 51) + ".bbb", strings.Repeat("a", 51) + "-" + suffix},
		"dashes where it is truncated":                   {strings.Repeat("a", 47) + "-----bbbb", strings.Repeat("a", 47) + "-" + suffix},
		"a dot right after the truncated part":           {strings.Repeat("a", 52) + ".bbb", strings.Repeat("a", 52) + "-" + suffix},
		"a name longer than the API allows is truncated": {strings.Repeat("a", 253), strings.Repeat("a", 52) + "-" + suffix},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := PodName(seal.Key{}, named(tt.job), attempt())
			if got != tt.want {
				t.Errorf("name %q, want %q", got, tt.want)
			}
			if again := PodName(seal.Key{}, named(tt.job), attempt()); again != got {
				t.Errorf("name %q, then %q", got, again)
			}
			if len(got) > validation.DNS1123LabelMaxLength {
				t.Errorf("%d characters, want at most %d, which a host name may have", len(got), validation.DNS1123LabelMaxLength)
			}
			if problems := validation.IsDNS1123Subdomain(got); len(problems) > 0 {
				t.Errorf("%q: %v", got, problems)
			}
			if problems := validation.IsDNS1123Label(got); len(problems) > 0 && !strings.Contains(tt.job, ".") {
				t.Errorf("%q: %v", got, problems)
			}
		})
	}
}

// suffix of the pods of attempt(). It is pinned: a name that changes for the same attempt would let
// a manager of a new version run it a second time.
const suffix = "fb6e8f986c"

func TestPodNameIsUniquePerAttempt(t *testing.T) {
	seen := map[string]string{}
	add := func(what string, job types.UID, change func(a *Attempt)) {
		t.Helper()
		a := attempt()
		change(&a)
		name := PodName(seal.Key{}, &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Name: "job", UID: job}}, a)
		if other, ok := seen[name]; ok {
			t.Errorf("%s and %s have the same name %s", what, other, name)
		}
		seen[name] = what
	}
	add("an attempt", "job-uid", func(*Attempt) {})
	add("another NodeJob's", "job-uid-2", func(*Attempt) {})
	add("another revision's", "job-uid", func(a *Attempt) { a.Revision = "1123456789" })
	add("the rollback's", "job-uid", func(a *Attempt) { a.Phase = Rollback })
	add("that of a recreated node", "job-uid", func(a *Attempt) { a.NodeUID = "node-uid-2" })
	for n := range int32(100) {
		if n != attempt().Number {
			add(fmt.Sprintf("attempt %d", n), "job-uid", func(a *Attempt) { a.Number = n })
		}
	}
	if got, want := len(seen), 104; got != want {
		t.Errorf("%d names, want %d", got, want)
	}
}

// The name does not contain data of the machine: the same attempt stays the same when the
// node reboots between two passes of the manager.
func TestPodNameCannotBePredictedWithoutTheKey(t *testing.T) {
	if PodName(seal.Key{}, scriptJob(), attempt()) == PodName(seal.Key{1}, scriptJob(), attempt()) {
		t.Error("the name is the same with another key")
	}
}

// TestATemplateCannotSetKeysOfEverynode compares the pods of a template with and without each key.
func TestATemplateCannotSetKeysOfEverynode(t *testing.T) {
	keys := []string{"other.everynode.dev/x", v1alpha1.Group + "/a-key-of-a-later-version"}
	for _, name := range declaredKeys(t) {
		keys = append(keys, v1alpha1.Group+"/"+name)
	}
	job := scriptJob()
	job.Spec.Task = v1alpha1.TaskSpec{Template: &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}}
	want := Pod(job, Source{}, attempt(), Options{})
	for _, key := range keys {
		t.Run(key, func(t *testing.T) {
			with := job.DeepCopy()
			with.Spec.Task.Template.Labels = map[string]string{key: "Always"}
			with.Spec.Task.Template.Annotations = map[string]string{key: "Always"}
			if diff := cmp.Diff(want, Pod(with, Source{}, attempt(), Options{})); diff != "" {
				t.Errorf("the pod (-without +with the key):\n%s", diff)
			}
		})
	}
}

// declaredKeys are the names of all keys that the API declares.
func declaredKeys(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../../../api/v1alpha1/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range regexp.MustCompile(`= Group \+ "/([a-z-]+)"`).FindAllSubmatch(text, -1) {
			names = append(names, string(found[1]))
		}
	}
	if len(names) < 10 {
		t.Fatalf("only %v are declared", names)
	}
	return names
}

func TestPodNameDoesNotDependOnTheMachine(t *testing.T) {
	a := attempt()
	a.BootID, a.MachineID, a.NodeName, a.Retry = "another", "another", "another", "another"
	if got, want := PodName(seal.Key{}, scriptJob(), a), PodName(seal.Key{}, scriptJob(), attempt()); got != want {
		t.Errorf("name %q, want %q", got, want)
	}
}

// Source of the rule: k8s.io/kubernetes third_party/forked/golang/expansion, which no published module
// holds. $$ becomes $, $(NAME) the value of NAME, and everything else stays.
func TestScriptsReachTheRunnerUnchanged(t *testing.T) {
	tests := map[string]struct{ script, want string }{
		"no dollar":                        {"true", "true"},
		"a variable of the shell":          {"echo $HOME ${HOME}", "echo $$HOME $${HOME}"},
		"a command substitution":           {"echo $(uname -r)", "echo $$(uname -r)"},
		"a reference to our own variables": {"echo $(EVERYNODE_NODE_NAME)", "echo $$(EVERYNODE_NODE_NAME)"},
		"the shell's own process ID":       {"echo $$ $$$$ $$(X)", "echo $$$$ $$$$$$$$ $$$$(X)"},
		"a dollar at the end":              {"grep -q a$", "grep -q a$$"},
		"a reference that never ends":      {"echo $(", "echo $$("},
		"an odd number of them":            {"$$$(A)", "$$$$$$(A)"},
		"a dollar before a multibyte rune": {"$ä$", "$$ä$$"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := map[string]string{}
			job := scriptJob()
			for _, env := range Pod(job, Source{Script: tt.script, Check: tt.script}, attempt(), options).Spec.Containers[0].Env {
				got[env.Name] = env.Value
			}
			if got["EVERYNODE_SCRIPT"] != tt.want || got["EVERYNODE_CHECK"] != tt.want {
				t.Errorf("script %q, check %q, want %q", got["EVERYNODE_SCRIPT"], got["EVERYNODE_CHECK"], tt.want)
			}
			if strings.ReplaceAll(tt.want, "$$", "$") != tt.script {
				t.Errorf("the expectation itself expands to another script than %q", tt.script)
			}
			if got["COPY"] != "$(WANT)" {
				t.Errorf("COPY is %q: the user's own references are the user's", got["COPY"])
			}
		})
	}
}

func TestTimeout(t *testing.T) {
	tests := map[string]struct {
		job   *v1alpha1.NodeJob
		phase Phase
		want  time.Duration
	}{
		"the task's own":          {withRollback(scriptJob()), Task, 2 * time.Minute},
		"the rollback's own":      {withRollback(scriptJob()), Rollback, 30 * time.Second},
		"the default of the task": {templateJob(), Task, 10 * time.Minute},
		"the default of a rollback": {
			&v1alpha1.NodeJob{Spec: v1alpha1.NodeJobSpec{Rollback: &v1alpha1.RollbackSpec{}}},
			Rollback,
			10 * time.Minute,
		},
		"a rollback that was removed from the spec": {scriptJob(), Rollback, 10 * time.Minute},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Timeout(tt.job, tt.phase); got != tt.want {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}

func TestRetryToken(t *testing.T) {
	token := func(value string) string {
		return RetryToken(&v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.RetryAnnotation: value}}})
	}
	if got := RetryToken(&v1alpha1.NodeJob{}) + token(""); got != "" {
		t.Errorf("token %q without a request", got)
	}
	if a, b := token("1"), token("2"); a == b || a != token("1") {
		t.Errorf("tokens %q and %q", a, b)
	}
	if problems := validation.IsValidLabelValue(token(strings.Repeat("x", 1<<20))); len(problems) > 0 {
		t.Errorf("text of a user is copied to pods and nodes: %v", problems)
	}
}

func TestRevisionDoesNotDependOnRollback(t *testing.T) {
	with, without := withRollback(scriptJob()), scriptJob()
	if a, b := Revision(&with.Spec, Source{Script: "x", Rollback: "y"}), Revision(&without.Spec, Source{Script: "x"}); a != b {
		t.Errorf("revisions %s and %s", a, b)
	}
}

// pulling makes a pod pull the images before the maintenance.
func pulling(job *v1alpha1.NodeJob) *v1alpha1.NodeJob {
	job.Spec.Maintenance = v1alpha1.MaintenanceSpec{Cordon: true, PrePull: true}
	if t := job.Spec.Task.Template; t != nil {
		t.Spec.ServiceAccountName, t.Spec.ImagePullSecrets = "puller", []corev1.LocalObjectReference{{Name: "registry"}}
		t.Spec.Containers = append(t.Spec.Containers, corev1.Container{Name: "again", Image: "registry.example/facts:v1"},
			corev1.Container{Name: "newer", Image: "registry.example/facts:v1", ImagePullPolicy: corev1.PullAlways})
	}
	return job
}

func before() Attempt {
	a := attempt()
	a.Phase = CheckBefore
	return a
}
