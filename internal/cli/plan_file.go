// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/console"
	"github.com/everynode/everynode/internal/cli/manifest"
	"github.com/everynode/everynode/internal/ui/cmdutil"
)

// planFile is the content of a file: NodeJobs, NodeGuards, NodeDisruptionBudgets, and the objects to which they may refer and that are applied with
// them.
type planFile struct {
	// namespace is the namespace of all objects that do not name one.
	namespace  string
	jobs       []*v1alpha1.NodeJob
	guards     []*v1alpha1.NodeGuard
	budgets    []*v1alpha1.NodeDisruptionBudget
	configMaps map[client.ObjectKey]*corev1.ConfigMap
	secrets    map[client.ObjectKey]*corev1.Secret
	accounts   map[client.ObjectKey]bool
	// skipped are the kinds of the other objects in the file.
	skipped []string
}

// fileOptions are the options of a command that reads a planFile.
type fileOptions struct {
	*console.Factory
	file, output, namespace string
	client                  client.WithWatch
}

func (o *fileOptions) addFlag(cmd *cobra.Command, what string) {
	cmd.Flags().StringVarP(&o.file, "filename", "f", "", what+"; - for standard input")
	_ = cmd.MarkFlagFilename("filename", "yaml", "yml", "json")
}

func (o *fileOptions) complete(cmd *cobra.Command) error {
	if o.file == "" {
		return cmdutil.Failf(cmdutil.ExitUsage, "which file? %s -f FILE, or %[1]s -f - for standard input", cmd.Name())
	}
	key, c, err := o.Target("")
	o.namespace, o.client = key.Namespace, c
	return err
}

func (o *fileOptions) read() (*planFile, error) {
	in, err := o.Open(o.file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }()
	return readFile(o.file, in, o.namespace)
}

// readFile reads a file with this name. Unknown fields are errors, because they are usually fields at the wrong place.
func readFile(name string, in io.Reader, namespace string) (*planFile, error) {
	f := &planFile{namespace: namespace, configMaps: map[client.ObjectKey]*corev1.ConfigMap{}, secrets: map[client.ObjectKey]*corev1.Secret{}, accounts: map[client.ObjectKey]bool{}}
	content, err := io.ReadAll(in)
	if err != nil {
		return nil, cmdutil.Failf(cmdutil.ExitUsage, "reading %s: %w", name, err)
	}
	for document, err := range manifest.Documents(content) {
		if err == nil {
			err = cmp.Or(tabIn(content, document), f.add(document))
		}
		if err != nil {
			return nil, cmdutil.Failf(cmdutil.ExitUsage, "reading %s: %w", name, err)
		}
	}
	return f, nil
}

// tabInYAML finds the line of an error about a tab, which the parser does not always call a tab.
var (
	tabInYAML = regexp.MustCompile(`line (\d+): found (?:a tab character|character that cannot start any token)`)
	tabbed    = regexp.MustCompile(`^[ -]*\t`)
)

// tabIn returns an error with the line of a file in which a tab makes one of its documents invalid; nil if none does.
func tabIn(content, document []byte) error {
	err := sigsyaml.Unmarshal(document, &metav1.TypeMeta{})
	if err == nil {
		return nil
	}
	named := tabInYAML.FindStringSubmatch(err.Error())
	if named == nil {
		return nil
	}
	line, _ := strconv.Atoi(named[1])
	lines := strings.Split(string(document), "\n")
	if line < 1 || line > len(lines) || !tabbed.MatchString(lines[line-1]) {
		return nil
	}
	before, _, found := strings.Cut(strings.ReplaceAll(string(content), "\r\n", "\n"), strings.TrimRight(string(document), "\n"))
	if !found {
		return nil
	}
	return fmt.Errorf("line %d contains a tab; YAML permits only spaces for indentation", strings.Count(before, "\n")+line)
}

func (f *planFile) add(document []byte) error {
	var kind metav1.TypeMeta
	if err := sigsyaml.Unmarshal(document, &kind); err != nil {
		return fmt.Errorf("it is not a file of Kubernetes objects in YAML or JSON: %w", err)
	}
	job, guard, configMap, secret, account := &v1alpha1.NodeJob{}, &v1alpha1.NodeGuard{}, &corev1.ConfigMap{}, &corev1.Secret{}, &corev1.ServiceAccount{}
	budget := &v1alpha1.NodeDisruptionBudget{}
	var object client.Object
	var add func()
	switch kind {
	case metav1.TypeMeta{}:
		return nil
	case metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeJob"}:
		object, add = job, func() { f.jobs = append(f.jobs, job) }
	case metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeGuard"}:
		object, add = guard, func() { f.guards = append(f.guards, guard) }
	case metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeDisruptionBudget"}:
		object, add = budget, func() {
			budget.Namespace = ""
			f.budgets = append(f.budgets, budget)
		}
	case metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}:
		object, add = configMap, func() { f.configMaps[client.ObjectKeyFromObject(configMap)] = configMap }
	case metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}:
		object, add = secret, func() {
			secret.Data = dataOf(secret)
			f.secrets[client.ObjectKeyFromObject(secret)] = secret
		}
	case metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"}:
		object, add = account, func() { f.accounts[client.ObjectKeyFromObject(account)] = true }
	default:
		f.skipped = append(f.skipped, kind.APIVersion+" "+kind.Kind)
		return nil
	}
	if err := f.read(document, object); err != nil {
		return err
	}
	add()
	return nil
}

// applied returns the NodeDisruptionBudgets of the cluster after those of a file are applied, sorted by name.
func applied(live, file []*v1alpha1.NodeDisruptionBudget) []*v1alpha1.NodeDisruptionBudget {
	after := slices.Clone(live)
	for _, b := range file {
		after = slices.DeleteFunc(after, func(o *v1alpha1.NodeDisruptionBudget) bool { return o.Name == b.Name })
		after = append(after, b)
	}
	slices.SortFunc(after, func(a, b *v1alpha1.NodeDisruptionBudget) int { return cmp.Compare(a.Name, b.Name) })
	return after
}

// sortedConfigMaps returns the ConfigMaps in the order of their names.
func (f *planFile) sortedConfigMaps() []*corev1.ConfigMap {
	return slices.SortedFunc(maps.Values(f.configMaps), func(a, b *corev1.ConfigMap) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

func (f *planFile) read(document []byte, into client.Object) error {
	if err := sigsyaml.UnmarshalStrict(document, into); err != nil {
		return cmp.Or(unknownFields(document, into), err)
	}
	into.SetNamespace(cmp.Or(into.GetNamespace(), f.namespace))
	return nil
}

// unknownFields returns the unknown fields of an object with their paths, which UnmarshalStrict does not return; nil if
// there are none, or if something else is wrong.
func unknownFields(document []byte, into client.Object) error {
	var fields map[string]any
	if err := sigsyaml.Unmarshal(document, &fields); err != nil {
		return err
	}
	strict, ok := runtime.AsStrictDecodingError(runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(fields, into, true))
	if !ok {
		return nil
	}
	var all []error
	for _, err := range strict.Errors() {
		path := strings.Split(strings.TrimSuffix(strings.TrimPrefix(err.Error(), `unknown field "`), `"`), ".")
		if instead := misplaced()[reflect.TypeOf(into)][listIndex.ReplaceAllString(strings.Join(path, "."), "[]")]; instead != "" {
			err = fmt.Errorf("%w: %s", err, instead)
		} else if near := cmdutil.Similar(path[len(path)-1], fieldsAt(reflect.TypeOf(into), path[:len(path)-1])); near != "" {
			err = fmt.Errorf("%w: did you mean %s?", err, near)
		} else if m := labelInSelector.FindStringSubmatch(err.Error()); m != nil {
			err = fmt.Errorf("%w. A selector has matchLabels and matchExpressions: for the nodes with a label %s, write it under %s.matchLabels", err, m[2], m[1])
		}
		all = append(all, err)
	}
	return errors.Join(all...)
}

//go:embed misplaced.yaml
var misplacedYAML []byte

// misplaced returns the fields that users write in an object and that its kind does not have, by the type of the object and their paths.
var misplaced = sync.OnceValue(func() map[reflect.Type]map[string]string {
	var fields struct{ NodeJob, NodeDisruptionBudget map[string]string }
	if err := sigsyaml.UnmarshalStrict(misplacedYAML, &fields); err != nil {
		panic(err) // a test reads the file
	}
	return map[reflect.Type]map[string]string{
		reflect.TypeFor[*v1alpha1.NodeJob](): fields.NodeJob, reflect.TypeFor[*v1alpha1.NodeDisruptionBudget](): fields.NodeDisruptionBudget,
	}
})

var listIndex = regexp.MustCompile(`\[\d+\]`)

// labelInSelector finds labels in the place of matchLabels.
var labelInSelector = regexp.MustCompile(`unknown field "(\S*?[sS]elector)\.([^"]+)"`)

// fieldsAt returns the names of the fields at a path in objects of a type; nil if the path does not lead to an object.
func fieldsAt(t reflect.Type, path []string) []string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	var names []string
	for _, field := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "": // its own fields are visible too
		case len(path) == 0:
			names = append(names, name)
		case name == strings.Split(path[0], "[")[0]:
			return fieldsAt(field.Type, path[1:])
		}
	}
	return names
}

// dataOf returns the data of a Secret after it is written: the API server moves stringData into data.
func dataOf(secret *corev1.Secret) map[string][]byte {
	data := maps.Clone(secret.Data)
	for key, value := range secret.StringData {
		if data == nil {
			data = map[string][]byte{}
		}
		data[key] = []byte(value)
	}
	return data
}
