// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

// TestPatchesOfSharedMetadata applies changes of published results, labels and taints to a node that also has those of others.
func TestPatchesOfSharedMetadata(t *testing.T) {
	const key, size, kernel = "ns.everynode.dev/job", "example.com/size", "example.com/kernel"
	ours := Published{Labels: map[string]string{size: key}, Annotations: map[string]string{kernel: key}}
	const says = `{"labels":{"example.com/size":"ns.everynode.dev/job"},"annotations":{"example.com/kernel":"ns.everynode.dev/job"}}`
	published := func(n *corev1.Node) {
		n.Labels[size], n.Annotations[kernel], n.Annotations[v1alpha1.PublishedAnnotation] = "8", "6.8", says
	}
	gate := corev1.Taint{Key: key, Value: v1alpha1.GateValue, Effect: corev1.TaintEffectNoSchedule}
	tests := map[string]struct {
		before func(*corev1.Node)
		change Change
		want   func(*corev1.Node)
	}{
		"results are published with their publisher": {
			change: Change{
				Publish: &Publish{
					Labels:      map[string]*string{size: new("8")},
					Annotations: map[string]*string{kernel: new("6.8")},
					Published:   ours,
				},
			},
			want: published,
		},
		"the last published results are removed": {
			before: published,
			change: Change{
				Publish: &Publish{
					Labels:      map[string]*string{size: nil},
					Annotations: map[string]*string{kernel: nil},
					Published:   Published{}.Clone(),
				},
			},
			want: func(*corev1.Node) {},
		},
		"published results of another NodeJob stay": {
			before: func(n *corev1.Node) {
				published(n)
				n.Labels["example.com/theirs"] = "x"
			},
			change: Change{Publish: &Publish{
				Labels: map[string]*string{
					size: nil,
				},
				Annotations: map[string]*string{kernel: nil},
				Published:   Published{Labels: map[string]string{"example.com/theirs": "ns.everynode.dev/other"}},
			}},
			want: func(n *corev1.Node) {
				n.Labels["example.com/theirs"] = "x"
				n.Annotations[v1alpha1.PublishedAnnotation] = `{"labels":{"example.com/theirs":"ns.everynode.dev/other"}}`
			},
		},
		"an empty value is published": {
			change: Change{
				Publish: &Publish{Labels: map[string]*string{size: new("")}, Published: Published{Labels: map[string]string{size: key}}},
			},
			want: func(n *corev1.Node) {
				n.Labels[size], n.Annotations[v1alpha1.PublishedAnnotation] = "", `{"labels":{"example.com/size":"ns.everynode.dev/job"}}`
			},
		},
		"labels are removed with a success": {
			before: func(n *corev1.Node) { n.Labels["example.com/needs"] = "setup" },
			change: Change{Record: new(succeeded()), RemoveLabels: []string{"example.com/needs"}},
			want: func(n *corev1.Node) {
				n.Labels[key] = succeeded().Revision
				SetOn(n, key, succeeded())
			},
		},
		"a gate is opened and the taints of others stay": {
			before: func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, gate) },
			change: Change{Taints: &Taints{All: nodeOfOthers().Spec.Taints}},
			want:   func(*corev1.Node) {},
		},
		"the last taint leaves an empty list, to which others can add": {
			change: Change{Taints: &Taints{}},
			want:   func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{} },
		},
		"a success, what it publishes, the gate and the cordon are one write": {
			before: func(n *corev1.Node) {
				n.Spec.Taints = append(n.Spec.Taints, gate)
				n.Annotations[v1alpha1.CordonedAnnotation] = key
			},
			change: Change{
				Record: new(succeeded()),
				Cordon: &Cordon{},
				Taints: &Taints{All: nodeOfOthers().Spec.Taints},
				Publish: &Publish{
					Labels:      map[string]*string{size: new("8")},
					Annotations: map[string]*string{kernel: new("6.8")},
					Published:   ours,
				},
			},
			want: func(n *corev1.Node) {
				published(n)
				n.Labels[key] = succeeded().Revision
				SetOn(n, key, succeeded())
				n.Spec.Unschedulable = false
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			before, want := nodeOfOthers(), nodeOfOthers()
			if tt.before != nil {
				tt.before(before)
			}
			tt.want(want)
			tt.change.UID, tt.change.Key, tt.change.ResourceVersion = "node-uid", key, "42"
			if diff := cmp.Diff(want, apply(t, before, tt.change.Patch()), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("node (-want +got):\n%s", diff)
			}
		})
	}
	if patch := string(Change{UID: "u", Taints: &Taints{}}.Patch()); !strings.Contains(patch, `"taints":[]`) {
		t.Errorf("patch %s, want an empty list and not null", patch)
	}
}

func succeeded() Record {
	r := whole()
	r.Outcome = Succeeded
	return r
}

func TestShared(t *testing.T) {
	for name, tt := range map[string]struct {
		change Change
		want   bool
	}{
		"a record is not shared":          {Change{Record: new(whole())}, false},
		"a cordon is shared":              {Change{Cordon: &Cordon{}}, true},
		"taints are shared":               {Change{Taints: &Taints{}}, true},
		"published results are shared":    {Change{Publish: &Publish{}}, true},
		"labels to remove are not shared": {Change{RemoveLabels: []string{"a"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tt.change.Shared(); got != tt.want {
				t.Errorf("shared %v, want %v", got, tt.want)
			}
		})
	}
}

func TestReadPublished(t *testing.T) {
	tests := map[string]struct {
		value string
		want  Published
	}{
		"nothing": {"", Published{}},
		"labels": {
			`{"labels":{"a":"ns.everynode.dev/b"}}`,
			Published{Labels: map[string]string{"a": "ns.everynode.dev/b"}},
		},
		"not JSON":                  {"a=b", Published{}},
		"another type":              {`{"labels":["a"]}`, Published{}},
		"only the labels are valid": {`{"labels":{"a":"b"},"annotations":7}`, Published{}},
		"unknown fields":            {`{"labels":{"a":"b"},"taints":{}}`, Published{Labels: map[string]string{"a": "b"}}},
		"too long":                  {`{"labels":{"a":"` + strings.Repeat("b", maxPublishedBytes) + `"}}`, Published{}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, ReadPublished(map[string]string{v1alpha1.PublishedAnnotation: tt.value})); diff != "" {
				t.Errorf("published (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPublishedIsClonedAndBounded(t *testing.T) {
	p := Published{Labels: map[string]string{"a": "b"}}
	c := p.Clone()
	c.Labels["x"], c.Annotations["y"] = "x", "y"
	if len(p.Labels) != 1 || p.Annotations != nil {
		t.Errorf("%+v was changed by its clone", p)
	}
	if !p.Fits() {
		t.Error("one label does not fit")
	}
	p.Labels["long"] = strings.Repeat("l", maxPublishedBytes)
	if p.Fits() {
		t.Error("more than can be read again fits")
	}
}

// FuzzReadPublished: for any annotation, a result that fits can be written and read again unchanged.
func FuzzReadPublished(f *testing.F) {
	f.Add(`{"labels":{"a":"b"},"annotations":{"c":"d"}}`)
	f.Add(`{"labels":{"a":"\ud800"}}`)
	f.Add(`{"labels":null}`)
	f.Fuzz(func(t *testing.T, value string) {
		p := ReadPublished(map[string]string{v1alpha1.PublishedAnnotation: value})
		if !p.Fits() {
			return
		}
		again := ReadPublished(map[string]string{v1alpha1.PublishedAnnotation: p.encode()})
		if !maps.Equal(p.Labels, again.Labels) || !maps.Equal(p.Annotations, again.Annotations) {
			t.Errorf("read %+v, written and read again %+v", p, again)
		}
	})
}

// TestRebootsInRecord tests the record of a run with a reboot, and of a rerun.
func TestRebootsInRecord(t *testing.T) {
	reboots := func(change func(*Record)) Record {
		r := whole()
		r.Outcome, r.Rollback, r.Drain = Rebooting, nil, nil
		r.Reboot = &Reboot{StartedAt: began, FromBootID: "boot", BackAt: began.Add(time.Minute)}
		r.Rerun, r.NeverStarted, r.RemovedLabels = true, true, map[string]string{"example.com/needs": "setup", "plain": ""}
		if change != nil {
			change(&r)
		}
		return r
	}
	t.Run("it is decoded unchanged", func(t *testing.T) {
		got, err := Decode(Encode(reboots(nil)))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(reboots(nil), got); diff != "" {
			t.Errorf("record (-want +got):\n%s", diff)
		}
	})
	t.Run("it is decoded unchanged if other fields do not fit", func(t *testing.T) {
		removed := map[string]string{}
		for _, c := range "abcdefgh" {
			removed[strings.Repeat(string(c), 60)+"."+strings.Repeat("d", 60)+"."+strings.Repeat("d", 60)+"/"+strings.Repeat("n", 63)] = strings.Repeat(
				"v",
				63,
			)
		}
		r := reboots(func(r *Record) {
			r.RemovedLabels, r.Results = removed, map[string]string{"quotes": strings.Repeat(`"`, 256)}
			r.Message = strings.Repeat(`"`, 4096)
			for i := range 31 {
				r.Results[string(rune('a'+i%26))+strings.Repeat("k", i)] = strings.Repeat(`"`, 50)
			}
		})
		encoded := Encode(r)
		if len(encoded) > MaxBytes {
			t.Errorf("%d bytes, want at most %d", len(encoded), MaxBytes)
		}
		got, err := Decode(encoded)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(
			r.Reboot,
			got.Reboot,
		); diff != "" || !maps.Equal(removed, got.RemovedLabels) || !got.Rerun ||
			!got.NeverStarted {
			t.Errorf(
				"reboot (-want +got):\n%s\nremoved %v, again %v, neverStarted %v",
				diff,
				got.RemovedLabels,
				got.Rerun,
				got.NeverStarted,
			)
		}
	})
	for name, tt := range map[string]struct {
		change func(*Record)
		want   func(*Record)
	}{
		"invalid labels are dropped": {
			func(r *Record) { r.RemovedLabels = map[string]string{"a b": "x", "a": "b c", "ok": "yes"} },
			func(r *Record) { r.RemovedLabels = map[string]string{"ok": "yes"} },
		},
		"the first of too many labels stay": {
			func(r *Record) { r.RemovedLabels = labelsOf("abcdefghijkl") }, func(r *Record) { r.RemovedLabels = labelsOf("abcdefgh") },
		},
		"only invalid labels result in no labels": {func(r *Record) { r.RemovedLabels = map[string]string{"a b": ""} }, func(r *Record) { r.RemovedLabels = nil }},
		"a boot ID is bounded": {
			func(r *Record) { r.Reboot.FromBootID = strings.Repeat("b", 1000) }, func(r *Record) { r.Reboot.FromBootID = "…" + strings.Repeat("b", 125) },
		},
		"an invalid time is dropped": {func(r *Record) { r.Reboot.BackAt = began.AddDate(8000, 0, 0) }, func(r *Record) { r.Reboot.BackAt = Reboot{}.BackAt }},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Decode(Encode(reboots(tt.change)))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(reboots(tt.want), got); diff != "" {
				t.Errorf("record (-want +got):\n%s", diff)
			}
		})
	}
	for name, value := range map[string]string{
		"no reboot":                   `{"revision":"r","outcome":"Rebooting","attempts":1}`,
		"a reboot without a boot ID":  `{"revision":"r","outcome":"Rebooting","attempts":1,"reboot":{"startedAt":"2026-03-01T12:00:00Z"}}`,
		"a rollback that reboots":     `{"revision":"r","outcome":"Failed","attempts":1,"rollback":{"outcome":"Rebooting","attempts":1}}`,
		"an invalid time":             `{"revision":"r","outcome":"Rebooting","attempts":1,"reboot":{"startedAt":"soon","fromBootID":"b"}}`,
		"labels that are not a map":   `{"revision":"r","outcome":"Failed","attempts":1,"removedLabels":["a"]}`,
		"rerun that is not a boolean": `{"revision":"r","outcome":"Failed","attempts":1,"rerun":"yes"}`,
	} {
		t.Run(name+" is not a record", func(t *testing.T) {
			if r, err := Decode(value); err == nil {
				t.Errorf("read %+v, want an error", r)
			}
		})
	}
}

func labelsOf(keys string) map[string]string {
	labels := map[string]string{}
	for _, key := range keys {
		labels[string(key)] = "x"
	}
	return labels
}

func TestTheLimitOfPublishedResults(t *testing.T) {
	empty := len(Published{Labels: map[string]string{"a": ""}}.encode())
	for _, over := range []int{0, 1} {
		p := Published{Labels: map[string]string{"a": strings.Repeat("b", maxPublishedBytes-empty+over)}}
		read := ReadPublished(map[string]string{v1alpha1.PublishedAnnotation: p.encode()})
		if fits := over == 0; p.Fits() != fits || (len(read.Labels) > 0) != fits {
			t.Errorf("%d bytes over the limit: fits %t, read %d labels", over, p.Fits(), len(read.Labels))
		}
	}
}

func TestKeysThatAreNotRemoved(t *testing.T) {
	for key, want := range map[string]bool{
		"size": true, "kubernetes.io": true, "example.com/size": true, "node.kubernetes.io/size": true, "kubelet.kubernetes.io/size": true, "kubernetes.io/hostname": false,
		"topology.kubernetes.io/zone": false, "k8s.io/x": false, "x.k8s.io/x": false, "everynode.dev/x": false, "ns.everynode.dev/job": false, "notk8s.io/x": true,
	} {
		if got := MayPublish(key); got != want {
			t.Errorf("%s: %t, want %t", key, got, want)
		}
	}
}
