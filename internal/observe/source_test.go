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
				!tt.wantErr; works != (src.Script != "" && slices.Equal(src.Contents, []string{"hash of inputs"}) && slices.Equal(src.Files, []string{"hash of agent"})) {
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
	job.Spec.Task.Check = &v1alpha1.CheckSpec{ScriptFrom: &v1alpha1.ScriptSource{ConfigMapKeyRef: v1alpha1.ConfigMapKeyRef{Name: "check"}}}
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
	if src, obstacle, err := Source(job, fetch); err != nil || obstacle != nil || src.Contents != nil {
		t.Errorf("%+v, %+v, %v", src, obstacle, err)
	}
}

// hashes are those of all contents.
func hashes(contents []task.Content) ([]string, *task.Obstacle, error) {
	var hashes []string
	for _, content := range contents {
		hashes = append(hashes, "hash of "+content.Name)
	}
	return hashes, nil, nil
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
		"keys of a ConfigMap":       {kind: v1alpha1.ContentConfigMap, keys: "a,b", labels: labels, data: data},
		"a ConfigMap without label": {kind: v1alpha1.ContentConfigMap, data: data, reason: v1alpha1.ReasonConfigMapNotLabeled, says: "kubectl -n ns label configmap x everynode.dev/script=true"},
		"a ConfigMap without a key": {kind: v1alpha1.ContentConfigMap, keys: "a,c", labels: labels, data: data, reason: v1alpha1.ReasonConfigMapNotFound,
			says: `spec.task.files[tools]: ConfigMap ns/x has no key "c"`},
		"an empty ConfigMap":     {kind: v1alpha1.ContentConfigMap, labels: labels, reason: v1alpha1.ReasonConfigMapNotFound, says: "is empty"},
		"a Secret without label": {kind: v1alpha1.ContentSecret, keys: "b", data: data},
		"a Secret without a key": {kind: v1alpha1.ContentSecret, keys: "c", data: data, reason: v1alpha1.ReasonSecretNotFound, says: `Secret ns/x has no key "c"`},
	} {
		t.Run(name, func(t *testing.T) {
			obstacle := UnusableFiles("ns", task.Content{Kind: tt.kind, Name: "x", File: "tools", Keys: tt.keys}, tt.labels, tt.data)
			if (obstacle != nil) != (tt.reason != "") ||
				(obstacle != nil && (obstacle.Reason != tt.reason || !strings.Contains(obstacle.Message, tt.says))) {
				t.Errorf("%+v, want %s with %q", obstacle, tt.reason, tt.says)
			}
		})
	}
}
