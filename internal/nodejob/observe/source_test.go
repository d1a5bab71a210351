// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"errors"
	"maps"
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
				Contents: func() ([]string, *task.Obstacle, error) { return []string{"hash"}, nil, nil },
			})
			if (err != nil) != tt.wantErr || (obstacle != nil) != (tt.want != "") {
				t.Fatalf("%+v, %v", obstacle, err)
			}
			if obstacle != nil && (obstacle.Reason != tt.want || !strings.Contains(obstacle.Message, tt.says)) {
				t.Errorf("%+v, want %s with %q", obstacle, tt.want, tt.says)
			}
			if works := tt.want == "" && !tt.wantErr; works != (src.Script != "" && len(src.Contents) == 1) {
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
	job.Spec.Task.Inputs = []v1alpha1.ContentRef{
		{Kind: v1alpha1.ContentConfigMap, Name: "settings"},
		{Kind: v1alpha1.ContentSecret, Name: "token"},
	}
	if diff := cmp.Diff([]string{"check", "settings"}, ConfigMapNames(job)); diff != "" {
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
	fetch := Fetch{Contents: func() ([]string, *task.Obstacle, error) { return []string{"hash"}, nil, nil }}
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
