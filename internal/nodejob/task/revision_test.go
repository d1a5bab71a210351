// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package task

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/everynode/everynode/api/v1alpha1"
)

// The values are pinned. When one changes, every task runs again on every node on the day on which
// Everynode is upgraded: a new field must be left out of the hash where it is not set, and so must one
// that a newer k8s.io/api brings.
func TestRevisionStaysTheSameFromReleaseToRelease(t *testing.T) {
	tests := map[string]struct {
		spec v1alpha1.NodeJobSpec
		src  Source
		want string
	}{
		"a script":                    {v1alpha1.NodeJobSpec{}, Source{Script: "true"}, "26c9694296"},
		"a script with all its parts": {scriptJob().Spec, Source{Script: "true", Check: "false"}, "17c51ffb32"},
		"a command": {
			v1alpha1.NodeJobSpec{Task: v1alpha1.TaskSpec{Command: []string{"uname", "-r"}}},
			Source{},
			"c57233c5ef",
		},
		"a template": {templateJob().Spec, Source{}, "3be895aa09"},
		"files": {
			withFiles(scriptJob()).Spec,
			Source{Script: "true", Files: []Hashes{{Content: "a", Folder: "of no influence"}, {Content: "b"}, {Content: "c"}}},
			"4cc371d052",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := Revision(&tt.spec, tt.src)
			if got != tt.want {
				t.Errorf("revision %s, want %s", got, tt.want)
			}
			if problems := validation.IsValidLabelValue(got); len(problems) > 0 {
				t.Errorf("%q is not a label value: %v", got, problems)
			}
		})
	}
}

func TestRevision(t *testing.T) {
	seconds, yes := int32(5), true
	half := intstr.FromString("50%")
	tests := map[string]struct {
		change     func(spec *v1alpha1.NodeJobSpec, src *Source)
		wantChange bool
	}{
		"the script changes it": {func(_ *v1alpha1.NodeJobSpec, src *Source) { src.Script += " " }, true},
		"the interpreter changes it": {
			func(s *v1alpha1.NodeJobSpec, _ *Source) { s.Task.Interpreter = []string{"/bin/bash"} },
			true,
		},
		"a command changes it":       {func(s *v1alpha1.NodeJobSpec, _ *Source) { s.Task.Command = []string{"true"} }, true},
		"the environment changes it": {func(s *v1alpha1.NodeJobSpec, _ *Source) { s.Task.Env[0].Value = "1" }, true},
		"the order of the environment does": {
			func(s *v1alpha1.NodeJobSpec, _ *Source) { s.Task.Env[0], s.Task.Env[1] = s.Task.Env[1], s.Task.Env[0] },
			true,
		},
		"check changes it":                    {func(_ *v1alpha1.NodeJobSpec, src *Source) { src.Check = "false" }, true},
		"removing check changes it":           {func(s *v1alpha1.NodeJobSpec, src *Source) { s.Task.Check, src.Check = nil, "" }, true},
		"the interpreter of check changes it": {func(s *v1alpha1.NodeJobSpec, _ *Source) { s.Task.Check.Interpreter = nil }, true},
		"swapping script and check changes it": {
			func(_ *v1alpha1.NodeJobSpec, src *Source) { src.Script, src.Check = src.Check, src.Script },
			true,
		},
		"files change it": {func(s *v1alpha1.NodeJobSpec, _ *Source) {
			s.Task.Files = withFiles(&v1alpha1.NodeJob{}).Spec.Task.Files
		}, true},
		"the content of files changes it": {func(_ *v1alpha1.NodeJobSpec, src *Source) { src.Files = []Hashes{{Content: "hash"}} }, true},

		"node names do not": {func(s *v1alpha1.NodeJobSpec, _ *Source) { s.Nodes.Names = []string{"a"} }, false},
		"a time to live does not": {func(s *v1alpha1.NodeJobSpec, _ *Source) {
			s.TTLSecondsAfterFinished, s.StartingDeadlineSeconds, s.RetainPodsSeconds = &seconds, &seconds, 5
		}, false},
		"the time limit does not": {func(s *v1alpha1.NodeJobSpec, _ *Source) { s.Task.TimeoutSeconds = &seconds }, false},
		"resources do not": {func(s *v1alpha1.NodeJobSpec, _ *Source) {
			s.Task.Resources = &v1alpha1.TaskResources{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}}
		}, false},
		"task.output does not": {func(s *v1alpha1.NodeJobSpec, _ *Source) { s.Task.Output.Record = v1alpha1.OutputNone }, false},
		"retry does not": {
			func(s *v1alpha1.NodeJobSpec, _ *Source) { s.Retry.Limit, s.Retry.BackoffSeconds = &seconds, &seconds },
			false,
		},
		"the rollout does not":         {func(s *v1alpha1.NodeJobSpec, _ *Source) { s.Rollout.MaxConcurrent = &half }, false},
		"suspend does not":             {func(s *v1alpha1.NodeJobSpec, _ *Source) { s.Suspend = true }, false},
		"rerun does not":               {func(s *v1alpha1.NodeJobSpec, _ *Source) { s.Rerun.OnMachineChange = &yes }, false},
		"the choice of nodes does not": {func(s *v1alpha1.NodeJobSpec, _ *Source) { s.Nodes.Selector = &metav1.LabelSelector{} }, false},
		"tolerations do not":           {func(s *v1alpha1.NodeJobSpec, _ *Source) { s.Nodes.Tolerations = nil }, false},
		"deletionPolicy does not":      {func(s *v1alpha1.NodeJobSpec, _ *Source) { s.DeletionPolicy = v1alpha1.DeletionRetain }, false},
		"where the script comes from does not": {func(s *v1alpha1.NodeJobSpec, _ *Source) {
			s.Task.Script = ""
			s.Task.ScriptFrom = &v1alpha1.ScriptSource{ConfigMapKeyRef: v1alpha1.ConfigMapKeyRef{Name: "scripts", Key: "a.sh"}}
		}, false},
		"where check comes from does not": {func(s *v1alpha1.NodeJobSpec, _ *Source) {
			s.Task.Check.Script = ""
			s.Task.Check.ScriptFrom = &v1alpha1.ScriptSource{ConfigMapKeyRef: v1alpha1.ConfigMapKeyRef{Name: "scripts", Key: "b.sh"}}
		}, false},
		"an empty list instead of none does not": {func(s *v1alpha1.NodeJobSpec, _ *Source) {
			s.Task.Template, s.Nodes.Tolerations = nil, []corev1.Toleration{}
		}, false},
	}
	src := Source{Script: "true", Check: "test -e /done"}
	before := Revision(&scriptJob().Spec, src)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			changed, changedSrc := scriptJob().Spec, src
			tt.change(&changed, &changedSrc)
			if got := Revision(&changed, changedSrc) != before; got != tt.wantChange {
				t.Errorf("changed %v, want %v", got, tt.wantChange)
			}
		})
	}
}

func TestRevisionOfATemplate(t *testing.T) {
	tests := map[string]func(template *corev1.PodTemplateSpec){
		"its image":       func(p *corev1.PodTemplateSpec) { p.Spec.Containers[0].Image = "registry.example/facts:v2" },
		"its labels":      func(p *corev1.PodTemplateSpec) { p.Labels["team"] = "c" },
		"its tolerations": func(p *corev1.PodTemplateSpec) { p.Spec.Tolerations = nil },
	}
	before := Revision(&templateJob().Spec, Source{})
	for name, change := range tests {
		t.Run(name+" changes it", func(t *testing.T) {
			job := templateJob()
			change(job.Spec.Task.Template)
			if Revision(&job.Spec, Source{}) == before {
				t.Error("the revision is the same")
			}
		})
	}
}

// A NodeJob is read from the API as JSON: the same spec must result in the same revision.
func TestRevisionIsStableAcrossJSON(t *testing.T) {
	for name, job := range map[string]*v1alpha1.NodeJob{"script": scriptJob(), "template": templateJob()} {
		t.Run(name, func(t *testing.T) {
			b, err := json.Marshal(job)
			if err != nil {
				t.Fatal(err)
			}
			var back v1alpha1.NodeJob
			if err := json.Unmarshal(b, &back); err != nil {
				t.Fatal(err)
			}
			if got, want := Revision(&back.Spec, Source{}), Revision(&job.Spec, Source{}); got != want {
				t.Errorf("revision %s, want %s", got, want)
			}
		})
	}
}

func TestContents(t *testing.T) {
	spec := &withFiles(scriptJob()).Spec.Task
	spec.Inputs = []v1alpha1.ContentRef{{Kind: v1alpha1.ContentSecret, Name: "token"}}
	want := []Content{
		{Kind: v1alpha1.ContentSecret, Name: "token"},
		{Kind: v1alpha1.ContentConfigMap, Name: "agent", File: "agent", Items: "install.sh\x00bin/install\x00agent.conf\x00agent.conf\x00"},
		{Kind: v1alpha1.ContentConfigMap, Name: "agent", File: "all"},
		{Kind: v1alpha1.ContentSecret, Name: "agent-tls", File: "tls"},
	}
	if diff := cmp.Diff(want, append(Inputs(spec), FilesOf(spec)...)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestFolder(t *testing.T) {
	data := map[string][]byte{"a": []byte("1"), "b": []byte("2")}
	for items, want := range map[string]map[string][]byte{
		"":                              data,
		"a\x00bin/a\x00":                {"bin/a": []byte("1")},
		"a\x00x\x00b\x00y\x00":          {"x": []byte("1"), "y": []byte("2")},
		"a\x00x\x00a\x00y\x00":          {"x": []byte("1"), "y": []byte("1")},
		"a\x00x\x00missing\x00y\x00":    nil,
		"missing\x00x\x00a\x00y\x00":    nil,
		"a\x00with\x00zero\x00byte\x00": nil, // no path can have one
	} {
		got, missing := Content{Items: items}.Folder(data)
		if diff := cmp.Diff(want, got); diff != "" || (missing != "") != (want == nil) {
			t.Errorf("%q: missing %q, (-want +got):\n%s", items, missing, diff)
		}
	}
}

func TestTaggedImages(t *testing.T) {
	job := &v1alpha1.NodeJob{}
	if got := TaggedImages(job); got != nil {
		t.Errorf("a script has the images %v", got)
	}
	job.Spec.Task.Template = &corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Image: "registry.example:5000/a:1"}, {Image: "b@sha256:" + strings.Repeat("0", 64)}},
		Containers:     []corev1.Container{{Image: "c"}, {Image: "registry.example:5000/a:1"}},
	}}
	if diff := cmp.Diff([]string{"registry.example:5000/a:1", "c"}, TaggedImages(job)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
