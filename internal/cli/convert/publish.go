// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"slices"
	"strings"

	"github.com/everynode/everynode/api/v1alpha1"
)

// setChanges writes what the source changes on the Node object: as suggestions, or as fields if that is all its work.
func (d *draft) setChanges(changes []nodeChange, isWork bool) {
	if len(changes) == 0 {
		return
	}
	d.drop("the commands that change the Node object (%s), and the permission for them: a node that is done has a record", describeChanges(changes))
	var facts, removed []any
	var reports []string
	for _, change := range withoutDuplicates(changes) {
		switch {
		case change.kind == "taint":
			d.setGate(change)
		case change.isReserved():
			d.spec.todo("publish", "the source set or removed %s, which a NodeJob must not do. Use a key with a prefix of your own.", change.key)
		case change.remove && change.kind == "label":
			removed = append(removed, change.key)
		case change.remove:
			d.spec.todo("publish", "the source removed the annotation %s, which has no equivalent.", change.key)
		default:
			facts = append(facts, fact(change, isWork))
			reports = append(reports, change.report())
		}
	}
	if len(removed) > 0 {
		d.spec.set("removeLabels", removed)
	}
	d.publish(facts, reports, isWork)
}

// publish sets or suggests publish.
func (d *draft) publish(facts []any, reports []string, isWork bool) {
	switch {
	case len(facts) == 0:
	case isWork:
		d.spec.set("publish", facts, "The source has already set this on its nodes. With adopt: Always, the NodeJob manages it, and replaces the value.")
	default:
		d.spec.suggest("publish", facts, "If other workloads select the label, publish it, and add this to the script:"+"\n"+strings.Join(reports, "\n"))
	}
}

// withoutDuplicates returns the last change of each key.
func withoutDuplicates(changes []nodeChange) []nodeChange {
	var last []nodeChange
	for i, change := range changes {
		if !slices.ContainsFunc(changes[i+1:], func(c nodeChange) bool { return c.kind == change.kind && c.key == change.key }) {
			last = append(last, change)
		}
	}
	return last
}

// fact returns an entry of publish.
func fact(change nodeChange, isWork bool) map[string]any {
	adopt := v1alpha1.AdoptSameValue
	if isWork || change.isDynamic() {
		adopt = v1alpha1.AdoptAlways
	}
	return map[string]any{"result": change.result(), change.field(): change.key, "adopt": string(adopt)}
}

func (c nodeChange) field() string {
	if c.kind == "annotate" {
		return "annotation"
	}
	return "label"
}

// setGate suggests a gate for a taint that the source removes.
func (d *draft) setGate(change nodeChange) {
	if !change.remove {
		d.spec.todo("gate", "the source set the taint %s on its node, which has no equivalent. See gate.", change.key)
		return
	}
	if !strings.Contains(change.key, "/") {
		d.spec.todo("gate", "the source removed the taint %s from its node. A gate does this, but its key needs a prefix, such as example.com/%s.", change.key, change.key)
		return
	}
	d.spec.suggest("gate", map[string]any{"key": change.key}, "TODO: the source removed this taint from its node. A gate does this, if the node registers with the taint:")
}

func describeChanges(changes []nodeChange) string {
	var keys []string
	for _, change := range changes {
		if key := change.kind + " " + change.key; !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return strings.Join(keys, ", ")
}
