// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/hold"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/runner/contract"
	"github.com/everynode/everynode/internal/script"
)

// Fetch reads what a NodeJob references.
type Fetch struct {
	// Script returns the content of a ConfigMap's key for a field of the spec, or false if it does not have the key. If
	// the ConfigMap does not exist, it returns the API server's NotFound error, and ErrNotLabeled if it has no ScriptLabel.
	Script func(field string, ref v1alpha1.ConfigMapKeyRef) (string, bool, error)
	// Contents returns hashes of objects, or why one of them cannot be used.
	Contents func([]task.Content) ([]task.Hashes, *hold.Why, error)
}

// ErrNotLabeled says that a ConfigMap does not have the label that lets NodeJobs run its scripts.
var ErrNotLabeled = errors.New("the ConfigMap has no label " + v1alpha1.ScriptLabel + "=" + v1alpha1.ScriptLabelValue)

// ScriptIn returns the content of a ConfigMap's key, as Fetch.Script does.
func ScriptIn(configMap *corev1.ConfigMap, key string) (string, bool, error) {
	if configMap.Labels[v1alpha1.ScriptLabel] != v1alpha1.ScriptLabelValue {
		return "", false, ErrNotLabeled
	}
	script, ok := configMap.Data[key]
	return script, ok, nil
}

// Source resolves the scripts of the NodeJob. A problem that the user has to fix is returned as an obstacle. A problem
// of the rollback counts from the start, so that nothing is done that cannot be rolled back.
func Source(job *v1alpha1.NodeJob, fetch Fetch) (task.Source, *hold.Why, error) {
	var src task.Source
	into := map[string]*string{fieldTask: &src.Script, fieldCheck: &src.Check, fieldRollback: &src.Rollback, fieldExpires: &src.Expires}
	for _, s := range scriptsOf(job) {
		if !s.needed(job) {
			continue
		}
		content, obstacle, err := s.resolve(job, fetch)
		if err != nil || obstacle != nil {
			return src, obstacle, err
		}
		*into[s.field] = content
	}
	return withContents(job, src, fetch)
}

// withContents adds the hashes of the objects of task.files and task.inputs. In a deletion, only a rollback needs files.
func withContents(job *v1alpha1.NodeJob, src task.Source, fetch Fetch) (task.Source, *hold.Why, error) {
	deleting := !job.DeletionTimestamp.IsZero()
	if deleting && !rollsBack(job) {
		return src, nil, nil
	}
	var obstacle *hold.Why
	var err error
	if src.Files, obstacle, err = fetch.Contents(task.FilesOf(&job.Spec.Task)); obstacle != nil {
		obstacle = &hold.Why{Reason: obstacle.Reason, Message: obstacle.Message, AllPhases: true}
	}
	if deleting || err != nil || obstacle != nil {
		return src, obstacle, err
	}
	if obstacle := cmp.Or(unusableCommand(job.Spec.Task.Command), unusableEnv(job.Spec.Task.Env)); obstacle != nil {
		return src, obstacle, nil
	}
	src.Inputs, obstacle, err = fetch.Contents(task.Inputs(&job.Spec.Task))
	return src, obstacle, err
}

// rollsBack reports whether the deletion of a NodeJob runs its rollback.
func rollsBack(job *v1alpha1.NodeJob) bool {
	return job.Spec.DeletionPolicy == v1alpha1.DeletionRollback && job.Spec.Rollback != nil
}

// UnusableFiles returns why an object cannot be one of task.files, or nil. Its content may run as root, as scripts in ConfigMaps do.
func UnusableFiles(namespace string, content task.Content, labels map[string]string, data map[string][]byte) *hold.Why {
	notFound := v1alpha1.ReasonSecretNotFound
	if content.Kind == v1alpha1.ContentConfigMap {
		notFound = v1alpha1.ReasonConfigMapNotFound
		if labels[v1alpha1.ScriptLabel] != v1alpha1.ScriptLabelValue {
			return notLabeled(content.Field(), namespace, content.Name)
		}
	}
	switch _, missing := content.Folder(data); {
	case missing != "":
		return &hold.Why{Reason: notFound, Message: fmt.Sprintf("%s: %s %s/%s has no key %q. Add it, or correct items; the NodeJob then continues automatically",
			content.Field(), content.Kind, namespace, content.Name, missing)}
	case len(data) == 0:
		return &hold.Why{Reason: notFound, Message: fmt.Sprintf("%s: %s %s/%s is empty. Add a key; the NodeJob then continues automatically",
			content.Field(), content.Kind, namespace, content.Name)}
	}
	return nil
}

func notLabeled(field, namespace, name string) *hold.Why {
	return &hold.Why{Reason: v1alpha1.ReasonConfigMapNotLabeled, Message: fmt.Sprintf(
		"%s: ConfigMap %[2]s/%[3]s does not have the label that lets NodeJobs run its content as root. Check its content, and add the label: kubectl -n %[2]s label configmap %[3]s %[4]s=%[5]s",
		field, namespace, name, v1alpha1.ScriptLabel, v1alpha1.ScriptLabelValue)}
}

// Fields of a NodeJob's spec that hold a script.
const (
	fieldTask     = "task"
	fieldCheck    = "task.check"
	fieldRollback = "rollback"
	fieldExpires  = "expires.check"
)

// scriptSpec is a field that contains a script, or references one.
type scriptSpec struct {
	field  string
	inline string
	from   *v1alpha1.ScriptSource
}

func scriptsOf(job *v1alpha1.NodeJob) []scriptSpec {
	spec := &job.Spec
	scripts := []scriptSpec{{fieldTask, spec.Task.Script, spec.Task.ScriptFrom}}
	if spec.Task.Check != nil {
		scripts = append(scripts, scriptSpec{fieldCheck, spec.Task.Check.Script, spec.Task.Check.ScriptFrom})
	}
	if spec.Rollback != nil {
		scripts = append(scripts, scriptSpec{fieldRollback, spec.Rollback.Script, spec.Rollback.ScriptFrom})
	}
	if task.ChecksExpiry(job) {
		scripts = append(scripts, scriptSpec{fieldExpires, spec.Expires.Check.Script, spec.Expires.Check.ScriptFrom})
	}
	return scripts
}

// needed reports whether the script is required. If the NodeJob is being deleted, only the rollback runs. The rest may
// already be deleted, for example if all objects of a release are deleted at once.
func (s *scriptSpec) needed(job *v1alpha1.NodeJob) bool {
	return job.DeletionTimestamp.IsZero() ||
		(s.field == fieldRollback && rollsBack(job))
}

// resolve returns the script itself.
func (s *scriptSpec) resolve(job *v1alpha1.NodeJob, fetch Fetch) (string, *hold.Why, error) {
	if s.from == nil {
		return s.inline, unusableScript(s.inline, fmt.Sprintf("spec.%s.script", s.field)), nil
	}
	ref := s.from.ConfigMapKeyRef
	obstacle := func(reason, format string, args ...any) *hold.Why {
		return &hold.Why{Reason: reason, Message: fmt.Sprintf("spec.%s.scriptFrom: ", s.field) + fmt.Sprintf(format, args...)}
	}
	text, ok, err := fetch.Script(s.field, ref)
	switch {
	case apierrors.IsNotFound(err):
		return "", obstacle(v1alpha1.ReasonConfigMapNotFound,
			"ConfigMap %s/%s does not exist. Create it; the NodeJob then continues automatically", job.Namespace, ref.Name), nil
	case errors.Is(err, ErrNotLabeled):
		return "", notLabeled(fmt.Sprintf("spec.%s.scriptFrom", s.field), job.Namespace, ref.Name), nil
	case err != nil:
		return "", nil, fmt.Errorf("getting ConfigMap %s: %w", ref.Name, err)
	case !ok:
		return "", obstacle(v1alpha1.ReasonConfigMapNotFound,
			"ConfigMap %s/%s has no key %q. Add it; the NodeJob then continues automatically", job.Namespace, ref.Name, ref.Key), nil
	case strings.TrimSpace(text) == "":
		return "", obstacle(v1alpha1.ReasonInvalidScript,
			"key %q of ConfigMap %s/%s is empty. Write the commands to run on each node into it", ref.Key, job.Namespace, ref.Name), nil
	}
	return text, unusableScript(text, fmt.Sprintf("spec.%s.scriptFrom: key %q of ConfigMap %s/%s", s.field, ref.Key, job.Namespace, ref.Name)), nil
}

// unusableScript returns why a script cannot run, or nil.
func unusableScript(text, where string) *hold.Why {
	if obstacle := unusable(text, where); obstacle != nil {
		return obstacle
	}
	if problem := script.Problem(text); problem != "" {
		return &hold.Why{Reason: v1alpha1.ReasonInvalidScript, Message: where + " " + problem}
	}
	return nil
}

// unusable returns why a text cannot be passed to a container, or nil. The API limits an inline script in characters,
// not in bytes, and allows a zero byte.
func unusable(text, where string) *hold.Why {
	obstacle := &hold.Why{Reason: v1alpha1.ReasonInvalidScript}
	switch {
	case len(text) > contract.MaxScriptBytes:
		obstacle.Message = fmt.Sprintf("%s has %d bytes, of which %d are allowed. Put large files into an image and use spec.task.template",
			where, len(text), contract.MaxScriptBytes)
	case strings.ContainsRune(text, 0):
		obstacle.Message = where + " contains a zero byte, which an environment variable cannot contain. Remove it"
	default:
		return nil
	}
	return obstacle
}

// unusableCommand is the same for a command, which is passed as JSON.
func unusableCommand(command []string) *hold.Why {
	if obstacle := unusable(strings.Join(command, " "), "spec.task.command"); obstacle != nil {
		return obstacle
	}
	return unusable(contract.JSON(command), "spec.task.command, written as JSON,")
}

// maxVariableBytes is how much of a variable, with its name, "=" and the byte at its end, Linux takes (MAX_ARG_STRLEN).
const maxVariableBytes = 128 << 10

// unusableEnv returns why no program can be started with the variables, or nil. Values from ConfigMaps and Secrets are not read.
func unusableEnv(env []v1alpha1.EnvVar) *hold.Why {
	for i := range env {
		if most := maxVariableBytes - len(env[i].Name) - len("=") - 1; len(env[i].Value) > most {
			return &hold.Why{Reason: v1alpha1.ReasonInvalidScript, Message: fmt.Sprintf(
				"spec.task.env: %s has %d bytes, of which %d are allowed, since Linux starts no program with a longer variable. Put the value into a file, or split it",
				env[i].Name, len(env[i].Value), most)}
		}
	}
	return nil
}

// ConfigMapNames returns the ConfigMaps that a NodeJob references.
func ConfigMapNames(job *v1alpha1.NodeJob) []string {
	var names []string
	for _, s := range scriptsOf(job) {
		if s.from != nil {
			names = append(names, s.from.ConfigMapKeyRef.Name)
		}
	}
	for _, content := range slices.Concat(task.Inputs(&job.Spec.Task), task.FilesOf(&job.Spec.Task)) {
		if content.Kind == v1alpha1.ContentConfigMap {
			names = append(names, content.Name)
		}
	}
	return names
}

// ConfigMapData returns all data of a ConfigMap.
func ConfigMapData(configMap *corev1.ConfigMap) map[string][]byte {
	data := maps.Clone(configMap.BinaryData)
	if data == nil {
		data = map[string][]byte{}
	}
	for k, v := range configMap.Data {
		data[k] = []byte(v)
	}
	return data
}
