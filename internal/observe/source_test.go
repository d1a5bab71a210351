// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/runner/contract"
)

func TestScriptsInConfigMaps(t *testing.T) {
	job := &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}}
	job.Spec.Task.ScriptFrom = &v1alpha1.ScriptSource{ConfigMapKeyRef: v1alpha1.ConfigMapKeyRef{Name: "cm", Key: "sh"}}
	job.Spec.Task.Inputs = []v1alpha1.ContentRef{{Kind: v1alpha1.ContentSecret, Name: "inputs"}}
	job.Spec.Task.Files = []v1alpha1.FilesSource{{Name: "tools", ConfigMap: &v1alpha1.FilesFromObject{Name: "agent"}}}
	scripts := map[string]string{v1alpha1.ScriptLabel: v1alpha1.ScriptLabelValue}
	for name, tt := range map[string]struct {
		labels, data map[string]string
		err          error
		want         string // the reason of the obstacle
		says         string
		wantErr      bool
	}{
		"a script":                  {labels: scripts, data: map[string]string{"sh": "true"}},
		"no label":                  {data: map[string]string{"sh": "true"}, want: v1alpha1.ReasonConfigMapNotLabeled, says: "label configmap cm"},
		"no key":                    {labels: scripts, data: map[string]string{"other": "true"}, want: v1alpha1.ReasonConfigMapNotFound, says: `has no key "sh"`},
		"an empty key":              {labels: scripts, data: map[string]string{"sh": " \n"}, want: v1alpha1.ReasonInvalidScript, says: "is empty"},
		"a script that is unusable": {labels: scripts, data: map[string]string{"sh": "\x00"}, want: v1alpha1.ReasonInvalidScript, says: "zero byte"},
		"an unknown error":          {err: errors.New("no connection"), wantErr: true},
	} {
		t.Run(name, func(t *testing.T) {
			src, obstacle, err := Source(job, Fetch{
				Script: func(_ string, ref v1alpha1.ConfigMapKeyRef) (string, bool, error) {
					if tt.err != nil {
						return "", false, tt.err
					}
					return ScriptIn(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Labels: tt.labels}, Data: tt.data}, ref.Key)
				},
				Contents: hashes,
			})
			if (err != nil) != tt.wantErr || (obstacle != nil) != (tt.want != "") {
				t.Fatalf("%+v, %v", obstacle, err)
			}
			if obstacle != nil && (obstacle.Reason != tt.want || !strings.Contains(obstacle.Message, tt.says)) {
				t.Errorf("%+v, want %s with %q", obstacle, tt.want, tt.says)
			}
			if works := tt.want == "" &&
				!tt.wantErr; works != (src.Script != "" && slices.Equal(src.Inputs, hashesOf("inputs")) && slices.Equal(src.Files, hashesOf("agent"))) {
				t.Errorf("the source is %+v", src)
			}
		})
	}
}

func TestCommandsThatLinuxRejects(t *testing.T) {
	for name, tt := range map[string]struct {
		command []string
		says    string // "" if it can be executed
	}{
		"none":                              {nil, ""},
		"a command":                         {[]string{"echo", "a"}, ""},
		"a zero byte":                       {[]string{"echo", "\x00"}, "spec.task.command contains a zero byte"},
		"too long":                          {[]string{strings.Repeat("a", contract.MaxScriptBytes+1)}, "spec.task.command has"},
		"too long with the escapes of JSON": {[]string{strings.Repeat("\"", contract.MaxScriptBytes/2)}, "spec.task.command, written as JSON, has"},
	} {
		obstacle := unusableCommand(tt.command)
		if (obstacle != nil) != (tt.says != "") || obstacle != nil && !strings.HasPrefix(obstacle.Message, tt.says) {
			t.Errorf("%s: %+v, want %q", name, obstacle, tt.says)
		}
	}
}

func TestConfigMapsOfANodeJob(t *testing.T) {
	job := &v1alpha1.NodeJob{}
	job.Spec.Task.Script = "true"
	job.Spec.Task.Check = &v1alpha1.CheckSpec{
		ScriptBlock: v1alpha1.ScriptBlock{ScriptFrom: &v1alpha1.ScriptSource{ConfigMapKeyRef: v1alpha1.ConfigMapKeyRef{Name: "check"}}},
	}
	job.Spec.Task.Files = []v1alpha1.FilesSource{
		{Name: "a", ConfigMap: &v1alpha1.FilesFromObject{Name: "agent"}}, {Name: "b", Secret: &v1alpha1.FilesFromObject{Name: "tls"}},
	}
	job.Spec.Task.Inputs = []v1alpha1.ContentRef{
		{Kind: v1alpha1.ContentConfigMap, Name: "settings"},
		{Kind: v1alpha1.ContentSecret, Name: "token"},
	}
	if diff := cmp.Diff([]string{"check", "settings", "agent"}, ConfigMapNames(job)); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	for name, binary := range map[string]map[string][]byte{"text": nil, "text and bytes": {"b": {0}}} {
		want := map[string][]byte{"a": []byte("x")}
		maps.Copy(want, binary)
		if diff := cmp.Diff(want, ConfigMapData(&corev1.ConfigMap{Data: map[string]string{"a": "x"}, BinaryData: binary})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// Of a NodeJob that is deleted, only the rollback runs.
func TestACommandOfADeletedNodeJobIsNotChecked(t *testing.T) {
	fetch := Fetch{Contents: hashes}
	job := &v1alpha1.NodeJob{}
	job.Spec.Task.Command = []string{"\x00"}
	if _, obstacle, err := Source(job, fetch); err != nil || obstacle == nil || obstacle.Reason != v1alpha1.ReasonInvalidScript {
		t.Errorf("before: %+v, %v", obstacle, err)
	}
	job.DeletionTimestamp = new(metav1.Now())
	if src, obstacle, err := Source(job, fetch); err != nil || obstacle != nil || src.Inputs != nil || src.Files != nil {
		t.Errorf("%+v, %+v, %v", src, obstacle, err)
	}
}

// hashes are those of all contents.
func hashes(contents []task.Content) ([]task.Hashes, *hold.Why, error) {
	var names []string
	for _, content := range contents {
		names = append(names, content.Name)
	}
	return hashesOf(names...), nil, nil
}

func hashesOf(names ...string) []task.Hashes {
	var hashes []task.Hashes
	for _, name := range names {
		hashes = append(hashes, task.Hashes{Content: "hash of " + name, Folder: "folder of " + name})
	}
	return hashes
}

// What a pod mounts is checked for each phase, also for the rollback at the deletion, when nothing else is read.
func TestFilesAreReadForEachPodThatMountsThem(t *testing.T) {
	script := func(change func(*v1alpha1.NodeJob)) *v1alpha1.NodeJob {
		job := &v1alpha1.NodeJob{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}}
		job.Spec.Task.Script = "true"
		job.Spec.Task.Inputs = []v1alpha1.ContentRef{{Kind: v1alpha1.ContentSecret, Name: "inputs"}}
		job.Spec.Task.Files = []v1alpha1.FilesSource{{Name: "tools", ConfigMap: &v1alpha1.FilesFromObject{Name: "agent"}}}
		job.Spec.Rollback = &v1alpha1.RollbackSpec{ScriptBlock: v1alpha1.ScriptBlock{Script: "undo"}}
		change(job)
		return job
	}
	deleted := func(policy v1alpha1.DeletionPolicy) func(*v1alpha1.NodeJob) {
		return func(job *v1alpha1.NodeJob) {
			job.DeletionTimestamp, job.Spec.DeletionPolicy = new(metav1.Now()), policy
		}
	}
	for name, tt := range map[string]struct {
		job       *v1alpha1.NodeJob
		wantFiles bool // read, and an obstacle of all phases
		wantOther bool // the inputs are read
	}{
		"before its deletion":                  {script(func(*v1alpha1.NodeJob) {}), true, true},
		"deleted with a rollback":              {script(deleted(v1alpha1.DeletionRollback)), true, false},
		"deleted without a rollback":           {script(deleted(v1alpha1.DeletionForget)), false, false},
		"deleted, and the records are kept":    {script(deleted(v1alpha1.DeletionRetain)), false, false},
		"deleted with nothing to roll it back": {script(func(j *v1alpha1.NodeJob) { deleted(v1alpha1.DeletionRollback)(j); j.Spec.Rollback = nil }), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			src, obstacle, err := Source(tt.job, Fetch{Contents: hashes})
			if err != nil || obstacle != nil || (src.Files != nil) != tt.wantFiles || (src.Inputs != nil) != tt.wantOther {
				t.Errorf("%+v, %+v, %v", src, obstacle, err)
			}
			for _, lacks := range []string{"agent", "inputs"} {
				_, obstacle, err := Source(tt.job, Fetch{Contents: func(contents []task.Content) ([]task.Hashes, *hold.Why, error) {
					if slices.ContainsFunc(contents, func(c task.Content) bool { return c.Name == lacks }) {
						return nil, &hold.Why{Reason: v1alpha1.ReasonSecretNotFound, Message: "create it"}, nil
					}
					return hashes(contents)
				}})
				var want *hold.Why
				if lacks == "agent" && tt.wantFiles || lacks == "inputs" && tt.wantOther {
					want = &hold.Why{Reason: v1alpha1.ReasonSecretNotFound, Message: "create it", AllPhases: lacks == "agent"}
				}
				if diff := cmp.Diff(want, obstacle); diff != "" || err != nil {
					t.Errorf("without %s (-want +got):\n%s%v", lacks, diff, err)
				}
			}
		})
	}
}

func TestUnusableFiles(t *testing.T) {
	labels := map[string]string{v1alpha1.ScriptLabel: v1alpha1.ScriptLabelValue}
	data := map[string][]byte{"a": nil, "b": nil}
	for name, tt := range map[string]struct {
		kind         v1alpha1.ContentKind
		keys         string
		labels       map[string]string
		data         map[string][]byte
		reason, says string
	}{
		"a ConfigMap":               {kind: v1alpha1.ContentConfigMap, labels: labels, data: data},
		"keys of a ConfigMap":       {kind: v1alpha1.ContentConfigMap, keys: "a\x00a\x00b\x00b\x00", labels: labels, data: data},
		"a ConfigMap without label": {kind: v1alpha1.ContentConfigMap, data: data, reason: v1alpha1.ReasonConfigMapNotLabeled, says: "kubectl -n ns label configmap x everynode.dev/script=true"},
		"a ConfigMap without a key": {kind: v1alpha1.ContentConfigMap, keys: "a\x00a\x00c\x00c\x00", labels: labels, data: data, reason: v1alpha1.ReasonConfigMapNotFound,
			says: `spec.task.files[tools]: ConfigMap ns/x has no key "c"`},
		"an empty ConfigMap":     {kind: v1alpha1.ContentConfigMap, labels: labels, reason: v1alpha1.ReasonConfigMapNotFound, says: "is empty"},
		"a Secret without label": {kind: v1alpha1.ContentSecret, keys: "b\x00b\x00", data: data},
		"a Secret without a key": {kind: v1alpha1.ContentSecret, keys: "c\x00c\x00", data: data, reason: v1alpha1.ReasonSecretNotFound, says: `Secret ns/x has no key "c"`},
	} {
		t.Run(name, func(t *testing.T) {
			obstacle := UnusableFiles("ns", task.Content{Kind: tt.kind, Name: "x", File: "tools", Items: tt.keys}, tt.labels, tt.data)
			if (obstacle != nil) != (tt.reason != "") ||
				(obstacle != nil && (obstacle.Reason != tt.reason || !strings.Contains(obstacle.Message, tt.says))) {
				t.Errorf("%+v, want %s with %q", obstacle, tt.reason, tt.says)
			}
		})
	}
}
