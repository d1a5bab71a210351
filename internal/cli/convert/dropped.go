// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// What a NodeJob does not have of its source.

// nameFields says what became of the fields at a path of the sources: which are no longer needed, and which are not converted.
// at is "" for all fields.
func (d *draft) nameFields(w *workload, at string, rules fieldRules, sources ...*fields) {
	all := objectRules()
	maps.Copy(all, rules)
	walk := newFieldWalk(all, d.groups(w))
	if d.usesTemplate() {
		walk.template, _ = d.spec.in("task").field("template").value.(map[string]any)
	}
	for _, source := range sources {
		walk.visit(at, at, source.at(at), nil)
		for _, path := range source.unknown {
			if at == "" || isWithin(path, at) {
				walk.loseUnknown(path)
			}
		}
	}
	for _, field := range walk.gone {
		d.drop("%s", field)
	}
	slices.SortStableFunc(walk.lost, func(a, b lostField) int { return strings.Compare(a.path, b.path) })
	d.warnLost(walk.lost)
}

// at returns the field at a path.
func (f *fields) at(path string) any {
	var value any = f.object
	for key := range strings.SplitSeq(path, ".") {
		if object, ok := value.(map[string]any); ok && key != "" {
			value = object[key]
		}
	}
	return value
}

// warnLost lists the fields that are not converted.
func (d *draft) warnLost(lost []lostField) {
	const most = 5
	if len(lost) == 0 {
		return
	}
	var b strings.Builder
	var paths []string
	fmt.Fprintf(&b, "These fields of the %s are not converted. Check whether the task needs them:", d.kind())
	for i, field := range lost {
		b.WriteString("\n- " + strings.ReplaceAll(field.path, "\n", " "))
		if field.hint != "" {
			b.WriteString(" (" + field.hint + ")")
		}
		if i < most {
			paths = append(paths, field.path)
		}
	}
	message := "not converted: " + strings.Join(paths, ", ")
	if len(lost) > most {
		message += fmt.Sprintf(" and %d more", len(lost)-most)
	}
	d.warn(message, b.String())
}

// dropContainer says that a container is not a part of the task.
func (d *draft) dropContainer(c *corev1.Container, why string) {
	d.unneeded = append(d.unneeded, c.Name)
	d.drop("the container %s with the image %s, which %s", c.Name, c.Image, why)
}

// groups returns the groups of containers, volumes and secrets that have rules of their own.
func (d *draft) groups(w *workload) map[string]string {
	groups := map[string]string{}
	for _, name := range d.unneeded {
		groups["containers/"+name], groups["initContainers/"+name] = "unneeded", "unneeded"
	}
	for _, volume := range w.template.Spec.Volumes {
		group := d.groupOf(w, volume)
		if group != "" {
			groups["volumes/"+volume.Name] = group
		}
		if volume.Secret != nil {
			groups["secrets/"+volume.Secret.SecretName] = group
		}
	}
	return groups
}

// groupOf returns the group of a volume; "" if its fields have rules. In a template, only volumes that are mounted are kept.
func (d *draft) groupOf(w *workload, volume corev1.Volume) string {
	switch {
	case !slices.ContainsFunc(w.steps, func(s *step) bool { return mountsVolume(s.container, volume.Name) }):
		return "unused"
	case d.usesTemplate() || volume.HostPath != nil:
		return ""
	case slices.ContainsFunc(w.steps, func(s *step) bool { return s.readsScript(w, volume) }):
		return "script"
	}
	return "other"
}

// readsScript reports whether the script of a step is in a volume.
func (s *step) readsScript(w *workload, volume corev1.Volume) bool {
	if s.from != nil {
		return volumeObject(volume) == s.from.ConfigMapKeyRef.Name
	}
	return s.content != "" && slices.Contains(w.mountedContents(volume), s.content)
}

// mountedContents returns the ConfigMap or Secret in a volume, by contentKey.
func (w *workload) mountedContents(volume corev1.Volume) []string {
	switch {
	case volume.ConfigMap != nil:
		return []string{contentKey("ConfigMap", w.namespace, volume.ConfigMap.Name)}
	case volume.Secret != nil:
		return []string{contentKey("Secret", w.namespace, volume.Secret.SecretName)}
	}
	return nil
}
