package controller

import (
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/record"
)

// records keeps what was decoded from the nodes' annotations. A pass looks at every node, and nearly
// all of them are as they were: decoding them anew would be most of what a pass over thousands costs.
type records struct {
	mu sync.Mutex
	// seen holds, by the record's key and the node's name, what a value was decoded to.
	seen map[string]map[string]decoded
	// facts holds, by the node's name, who has published what there.
	facts map[string]decodedFacts
}

// decodedFacts is shared by all passes, and only read.
type decodedFacts struct {
	value     string
	published record.Published
}

type decoded struct {
	value string
	// record is nil when the value is none. It is shared by all passes, and only read.
	record *record.Record
}

func newRecords() records {
	return records{seen: map[string]map[string]decoded{}, facts: map[string]decodedFacts{}}
}

// read is record.Read with a memory.
func (r *records) read(node string, labels, annotations map[string]string, key string) record.OnNode {
	r.mu.Lock()
	defer r.mu.Unlock()
	value, annotated := annotations[key]
	known, ok := r.seen[key][node]
	if annotated && ok && known.value == value {
		return record.OnNode{Label: labels[key], Record: known.record, Present: true}
	}
	on := record.Read(labels, annotations, key)
	if annotated {
		if r.seen[key] == nil {
			r.seen[key] = map[string]decoded{}
		}
		r.seen[key][node] = decoded{value, on.Record}
	} else if ok {
		delete(r.seen[key], node)
	}
	return on
}

// published is record.ReadPublished with a memory.
func (r *records) published(node *corev1.Node) record.Published {
	value := node.Annotations[v1alpha1.PublishedAnnotation]
	if value == "" {
		return record.Published{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if known, ok := r.facts[node.Name]; ok && known.value == value {
		return known.published
	}
	published := record.ReadPublished(node.Annotations)
	r.facts[node.Name] = decodedFacts{value, published}
	return published
}

// forget drops what was kept for a NodeJob.
func (r *records) forget(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.seen, key)
}

// forgetNode drops what was kept for a node.
func (r *records) forgetNode(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, nodes := range r.seen {
		delete(nodes, name)
	}
	delete(r.facts, name)
}
