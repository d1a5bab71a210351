package controller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What was decoded is kept until the annotation, the NodeJob or the node is another.
func TestRecordsAreDecodedOnce(t *testing.T) {
	const key = "ns.everynode.dev/job"
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "n", Labels: map[string]string{key: "rev"},
		Annotations: map[string]string{key: `{"revision":"rev","outcome":"Succeeded","attempts":1}`},
	}}
	r := newRecords()
	first := r.read(node.Name, node.Labels, node.Annotations, key)
	if again := r.read(node.Name, node.Labels, node.Annotations, key); again.Record != first.Record || again.Label != "rev" || !again.Present {
		t.Errorf("read again it is %+v, want the same record", again)
	}
	delete(node.Labels, key)
	if got := r.read(node.Name, node.Labels, node.Annotations, key); got.Record != first.Record || got.Label != "" {
		t.Errorf("without its label it is %+v", got)
	}
	node.Annotations[key] = `{"revision":"other","outcome":"Failed","attempts":2}`
	if got := r.read(node.Name, node.Labels, node.Annotations, key); got.Record == nil || got.Record.Revision != "other" {
		t.Errorf("with another annotation it is %+v", got.Record)
	}
	node.Annotations[key] = "nonsense"
	for range 2 {
		if got := r.read(node.Name, node.Labels, node.Annotations, key); got.Record != nil || !got.Present {
			t.Errorf("with nonsense it is %+v", got)
		}
	}
	delete(node.Annotations, key)
	if got := r.read(node.Name, node.Labels, node.Annotations, key); got.Present {
		t.Errorf("with nothing it is %+v", got)
	}
	for name, forget := range map[string]func(){"the NodeJob": func() { r.forget(key) }, "the node": func() { r.forgetNode("n") }} {
		node.Annotations[key] = "nonsense"
		r.read(node.Name, node.Labels, node.Annotations, key)
		forget()
		if len(r.seen[key]) != 0 {
			t.Errorf("%s is gone, and %v is kept", name, r.seen)
		}
	}
}
