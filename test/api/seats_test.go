// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/nodebudget/budget"
	"github.com/everynode/everynode/internal/nodejob/task"
	"github.com/everynode/everynode/internal/seal"
	"github.com/everynode/everynode/internal/uninstall"
)

// The values with which a pod is more than a seat, for each field of a pod and of a container that the policy of seats does not accept.
// A field of a later version of Kubernetes needs an entry here.
var (
	fieldsOfNoSeat = map[string]string{
		"volumes":                       "[{name: a, emptyDir: {}}]",
		"initContainers":                "[{name: a, image: b}]",
		"ephemeralContainers":           "[{name: a, image: b}]",
		"restartPolicy":                 "Never",
		"terminationGracePeriodSeconds": "600",
		"activeDeadlineSeconds":         "5",
		"serviceAccountName":            "everynode-manager",
		"automountServiceAccountToken":  "true",
		"hostNetwork":                   "true",
		"hostPID":                       "true",
		"hostIPC":                       "true",
		"shareProcessNamespace":         "true",
		"securityContext":               "{runAsNonRoot: true, runAsUser: 1, seccompProfile: {type: RuntimeDefault}}",
		"hostname":                      "manager",
		"subdomain":                     "everynode",
		"affinity":                      "{nodeAffinity: {}}",
		"tolerations":                   "[{operator: Exists}]",
		"hostAliases":                   "[{ip: 10.0.0.1, hostnames: [a]}]",
		"dnsConfig":                     "{nameservers: [10.0.0.1]}",
		"readinessGates":                "[{conditionType: a}]",
		"runtimeClassName":              "kata",
		"enableServiceLinks":            "true",
		"topologySpreadConstraints":     "[{maxSkew: 1, topologyKey: a, whenUnsatisfiable: ScheduleAnyway}]",
		"setHostnameAsFQDN":             "true",
		"os":                            "{name: linux}",
		"hostUsers":                     "false",
		"schedulingGates":               "[{name: a}]",
		"resourceClaims":                "[{name: a, resourceClaimName: b}]",
		"resources":                     "{limits: {cpu: 1}}",
		"hostnameOverride":              "a",
		"evictionResponders":            "[{name: a.test/b, priority: 1}]",
		"workloadRef":                   "{name: a, podGroup: b}",
		"schedulingGroup":               "{podGroupName: a}",
		"containers":                    "[{name: guard, image: a, args: [--wait]}, {name: b, image: b}]",
	}
	// Accepted: the node, the pull secrets, and what the API server and its admission plugins add.
	fieldsOfSeats = []string{
		"nodeName", "imagePullSecrets", "dnsPolicy", "nodeSelector", "serviceAccount", "schedulerName", "priorityClassName", "priority",
		"preemptionPolicy", "overhead",
	}
	fieldsOfNoContainer = map[string]string{
		"name":               "b",
		"command":            "[sh]",
		"args":               "[--run-dir=/]",
		"workingDir":         "/proc",
		"ports":              "[{containerPort: 8080}]",
		"envFrom":            "[{secretRef: {name: everynode-archive}}]",
		"env":                "[{name: A, valueFrom: {secretKeyRef: {name: everynode-archive, key: a}}}]",
		"resizePolicy":       "[{resourceName: cpu, restartPolicy: NotRequired}]",
		"restartPolicy":      "Always",
		"restartPolicyRules": "[{action: Restart, exitCodes: {operator: In, values: [1]}}]",
		"volumeMounts":       "[{name: a, mountPath: /a}]",
		"volumeDevices":      "[{name: a, devicePath: /a}]",
		"livenessProbe":      "{exec: {command: [a]}}",
		"readinessProbe":     "{exec: {command: [a]}}",
		"startupProbe":       "{exec: {command: [a]}}",
		"lifecycle":          "{preStop: {exec: {command: [a]}}}",
		"imagePullPolicy":    "Always",
		"securityContext":    "{allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}",
		"stdin":              "true",
		"stdinOnce":          "true",
		"tty":                "true",
	}
	fieldsOfContainers = []string{"image", "resources", "terminationMessagePath", "terminationMessagePolicy"}
)

var errLeftOut = errors.New("the API server has left the field out")

// TestASeatIsASeatInEveryField has a stolen token of the manager create pods in the namespace of the manager that differ from a seat in one
// field each.
func TestASeatIsASeatInEveryField(t *testing.T) {
	f := newRemovable(t)
	f.installed()
	config := rest.CopyConfig(f.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: managerUser, Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	token, err := client.New(config, client.Options{Scheme: scheme})
	must(t, err)
	var secret corev1.Secret
	must(t, f.admin.Get(f.Ctx, client.ObjectKey{Namespace: uninstall.Namespace, Name: "everynode-seal"}, &secret))
	place := budget.Place{
		Namespace: uninstall.Namespace,
		Key:       seal.Key{1},
		Options:   task.Options{RunnerImage: "registry.test/runner:1", PullSecrets: []string{"a"}},
		Owner:     metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: secret.Name, UID: secret.UID, Controller: new(true)},
	}
	seat, err := runtime.DefaultUnstructuredConverter.ToUnstructured(
		place.Seat(budget.CreateSeat{Node: "node-1", NodeUID: "uid", Group: "g", Returned: true}),
	)
	must(t, err)
	delete(seat, "status")
	// What the API server leaves out, because its feature is off, makes no difference.
	create := func(change func(pod, spec, container map[string]any)) error {
		pod := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(seat)}
		pod.SetAPIVersion("v1")
		pod.SetKind("Pod")
		spec := pod.Object["spec"].(map[string]any)
		change(pod.Object, spec, spec["containers"].([]any)[0].(map[string]any))
		want := runtime.DeepCopyJSON(spec)
		err := token.Create(f.Ctx, pod, client.DryRunAll)
		if err == nil {
			is := pod.Object["spec"].(map[string]any)
			leftOut := func(is, want map[string]any) bool {
				for key := range want {
					if _, has := is[key]; !has {
						return true
					}
				}
				return false
			}
			if leftOut(is, want) || leftOut(is["containers"].([]any)[0].(map[string]any), want["containers"].([]any)[0].(map[string]any)) {
				return errLeftOut
			}
		}
		return err
	}
	parse := func(text string) (value any) {
		must(t, yaml.Unmarshal([]byte(text), &value))
		return value
	}
	f.Eventually("a seat is accepted, and another pod is refused by the policy", func() error {
		if err := create(func(_, _, _ map[string]any) {}); err != nil {
			return err
		}
		err := create(func(_, _, container map[string]any) { container["stdin"] = true })
		if err == nil || !strings.Contains(err.Error(), "everynode-confine-seats") {
			return err
		}
		return nil
	})
	if err := create(func(pod, _, _ map[string]any) {
		pod["metadata"].(map[string]any)["labels"].(map[string]any)["topology.kubernetes.io/zone"] = "a"
	}); err != nil {
		t.Errorf("a seat with the zone of its node, which the API server adds: %v", err)
	}
	refused := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, errLeftOut) && !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
			t.Errorf("%s: the API server says %v, want a refusal", what, err)
		}
	}
	eachField := func(of any, values map[string]string, accepted []string, try func(field string, value any) error) {
		for field := range reflect.TypeOf(of).Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			value, known := values[name]
			switch {
			case known:
				refused(name, try(name, parse(value)))
			case !slices.Contains(accepted, name):
				t.Errorf("the field %s is unknown to this test: add a value that no seat may have", name)
			}
		}
	}
	tolerating := func(more ...any) error {
		return create(func(_, spec, _ map[string]any) { spec["tolerations"] = append(spec["tolerations"].([]any), more...) })
	}
	toleration := func(change string) any {
		value := map[string]any{"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}
		maps.Copy(value, parse(change).(map[string]any))
		return value
	}
	for _, change := range []string{"{}", "{effect: PreferNoSchedule}", "{key: node-role.kubernetes.io/control-plane}", "{key: notkarpenter.sh/a}"} {
		if err := tolerating(toleration(change)); err != nil {
			t.Errorf("a seat that tolerates %s: %v", change, err)
		}
	}
	for _, change := range []string{
		"{effect: NoExecute}", "{effect: null}", "{operator: Equal, value: a}", "{operator: Equal}", "{operator: null}", "{key: null}",
		"{effect: NoExecute, tolerationSeconds: 5}", "{key: node.kubernetes.io/unschedulable}", "{key: karpenter.sh/disrupted}",
		"{key: ToBeDeletedByClusterAutoscaler}", "{key: a.everynode.dev/b}",
	} {
		refused("a seat that tolerates "+change, tolerating(toleration(change)))
	}
	refused("a seat with too many tolerations", tolerating(slices.Repeat([]any{toleration("{}")}, 17)...))
	if err := tolerating(slices.Repeat([]any{toleration("{}")}, 16)...); err != nil {
		t.Errorf("a seat with 16 tolerations: %v", err)
	}
	placeholder := func(gates ...any) error {
		return create(func(pod, spec, _ map[string]any) {
			pod["metadata"].(map[string]any)["labels"].(map[string]any)[v1alpha1.BudgetGroupLabel] = budget.PlaceholderGroup
			delete(spec, "nodeName")
			spec["schedulingGates"] = gates
		})
	}
	gate := func(name string) any { return map[string]any{"name": name} }
	if err := placeholder(gate(v1alpha1.PlaceholderGate)); err != nil {
		t.Errorf("a placeholder: %v", err)
	}
	refused("a placeholder that is scheduled", placeholder())
	refused("a placeholder with another gate", placeholder(gate("example.com/gate")))
	refused("a seat without a node", create(func(_, spec, _ map[string]any) { delete(spec, "nodeName") }))
	// What is changed later.
	made := place.Seat(budget.CreateSeat{Node: "node-1", NodeUID: "changed", Group: "g"})
	must(t, token.Create(f.Ctx, made))
	change := func(edit func(*corev1.Pod)) error {
		changed := made.DeepCopy()
		edit(changed)
		return token.Patch(f.Ctx, changed, client.MergeFrom(made), client.DryRunAll)
	}
	if err := change(func(p *corev1.Pod) {
		p.Spec.Tolerations = append(p.Spec.Tolerations, budget.Taints("dedicated:NoSchedule,team:PreferNoSchedule").Tolerations()...)
	}); err != nil {
		t.Errorf("a seat gets tolerations: %v", err)
	}
	for what, edit := range map[string]func(*corev1.Pod){
		"an image": func(p *corev1.Pod) { p.Spec.Containers[0].Image = "registry.test/other:1" },
		"an image and a toleration": func(p *corev1.Pod) {
			p.Spec.Containers[0].Image = "registry.test/other:1"
			p.Spec.Tolerations = append(p.Spec.Tolerations, budget.Taints("dedicated:NoSchedule").Tolerations()...)
		},
		"the end": func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64(1)) },
		"a toleration of an autoscaler": func(p *corev1.Pod) {
			p.Spec.Tolerations = append(p.Spec.Tolerations, budget.Taints("karpenter.sh/disrupted:NoSchedule").Tolerations()...)
		},
		"a toleration of everything": func(p *corev1.Pod) {
			p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Operator: corev1.TolerationOpExists})
		},
		"too many tolerations": func(p *corev1.Pod) {
			p.Spec.Tolerations = append(p.Spec.Tolerations, slices.Repeat(budget.Taints("a:NoSchedule").Tolerations(), 17)...)
		},
	} {
		refused("a seat gets "+what, change(edit))
	}
	eachField(corev1.PodSpec{}, fieldsOfNoSeat, fieldsOfSeats, func(name string, value any) error {
		return create(func(_, spec, _ map[string]any) { spec[name] = value })
	})
	eachField(corev1.Container{}, fieldsOfNoContainer, fieldsOfContainers, func(name string, value any) error {
		return create(func(_, _, container map[string]any) { container[name] = value })
	})
	for what, metadata := range map[string]string{
		"a label of the manager":    "labels: {app.kubernetes.io/name: everynode, app.kubernetes.io/component: manager, app.kubernetes.io/managed-by: everynode, everynode.dev/budget-group: g}",
		"another label":             "labels: {app.kubernetes.io/name: everynode, app.kubernetes.io/component: seat, app.kubernetes.io/managed-by: everynode, everynode.dev/budget-group: g, a: b}",
		"fewer labels":              "labels: {everynode.dev/budget-group: g}",
		"another annotation":        "annotations: {k8s.v1.cni.cncf.io/networks: a}",
		"a finalizer":               "finalizers: [a/b]",
		"a second owner":            "ownerReferences: [{apiVersion: v1, kind: Secret, name: everynode-seal, uid: SEAL-UID, controller: true}, {apiVersion: v1, kind: Pod, name: a, uid: b}]",
		"another owner":             "ownerReferences: [{apiVersion: v1, kind: Secret, name: other, uid: SEAL-UID, controller: true}]",
		"an owner of another group": "ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: everynode-seal, uid: SEAL-UID, controller: true}]",
	} {
		refused(what, create(func(pod, _, _ map[string]any) {
			changed := parse(strings.ReplaceAll(metadata, "SEAL-UID", string(secret.UID))).(map[string]any)
			maps.Copy(pod["metadata"].(map[string]any), changed)
		}))
	}
	wantText(t, create(func(_, spec, container map[string]any) {
		spec["serviceAccountName"], container["env"] = "everynode-manager", parse(fieldsOfNoContainer["env"])
	}).Error(), "this pod differs from a seat in spec.serviceAccountName, spec.containers[0].env")
}

// TestAKubeletCreatesNoPodsBesideTheManager has a kubelet, and a user with all permissions in the namespace of the manager, create pods that a
// Service of Everynode selects.
func TestAKubeletCreatesNoPodsBesideTheManager(t *testing.T) {
	f := newRemovable(t)
	f.installed()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
	must(t, f.admin.Create(f.Ctx, node))
	as := func(user string, groups ...string) client.Client {
		config := rest.CopyConfig(f.config)
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append(groups, "system:authenticated")}
		c, err := client.New(config, client.Options{Scheme: scheme})
		must(t, err)
		return c
	}
	f.create(binding(uninstall.Namespace, "tenant"))
	mirror := func(namespace string) *corev1.Pod {
		pod := plainPod(namespace, "mirror-node-1")
		pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "hash"}
		pod.Labels = map[string]string{"app.kubernetes.io/name": "everynode", "app.kubernetes.io/component": "manager"}
		pod.OwnerReferences = []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID, Controller: new(true)},
		}
		pod.Spec.NodeName = "node-1"
		restrict(pod)
		return pod
	}
	labelled := func(name string, labels map[string]string) *corev1.Pod {
		pod := plainPod(uninstall.Namespace, name)
		pod.Labels = labels
		restrict(pod)
		return pod
	}
	ours := map[string]string{"app.kubernetes.io/name": "everynode", "app.kubernetes.io/component": "manager"}
	f.Eventually("the policies are enforced", func() error {
		if err := as(
			"tenant",
		).Create(f.Ctx, labelled("a", ours), client.DryRunAll); err == nil ||
			!strings.Contains(err.Error(), "everynode-own-pods") {
			return err
		}
		return nil
	})
	for what, tt := range map[string]struct {
		err     error
		refused string
	}{
		"a kubelet, in the namespace of the manager": {as("system:node:node-1", "system:nodes").Create(f.Ctx, mirror(uninstall.Namespace), client.DryRunAll), "a kubelet must not create pods in the namespace of Everynode"},
		"a kubelet, elsewhere":                       {as("system:node:node-1", "system:nodes").Create(f.Ctx, mirror("default"), client.DryRunAll), ""},
		"a tenant, with the labels":                  {as("tenant").Create(f.Ctx, labelled("a", ours), client.DryRunAll), "has the label app.kubernetes.io/name=everynode"},
		"a tenant, without the labels":               {as("tenant").Create(f.Ctx, labelled("a", nil), client.DryRunAll), ""},
		"the controller of ReplicaSets":              {as("system:serviceaccount:kube-system:replicaset-controller", "system:serviceaccounts").Create(f.Ctx, labelled("a", ours), client.DryRunAll), ""},
	} {
		switch {
		case tt.refused == "" && tt.err != nil:
			t.Errorf("%s: the API server says %v", what, tt.err)
		case tt.refused != "" && (!apierrors.IsForbidden(tt.err) || !strings.Contains(tt.err.Error(), tt.refused)):
			t.Errorf("%s: the API server says %v, want %q", what, tt.err, tt.refused)
		}
	}
	// Labels that are added later.
	f.create(labelled("later", nil))
	err := as(
		"tenant",
	).Patch(f.Ctx, labelled("later", nil), mergePatch(`{"metadata":{"labels":{"app.kubernetes.io/name":"everynode"}}}`), client.DryRunAll)
	if !apierrors.IsForbidden(err) {
		t.Errorf("labels that are added later: the API server says %v", err)
	}
}

// restrict makes a pod comply with the strictest Pod Security Standard.
func restrict(pod *corev1.Pod) {
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{
		RunAsNonRoot:   new(true),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].SecurityContext = &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}
	}
}

// binding gives a user all permissions in a namespace.
func binding(namespace, user string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"}, Subjects: subject(user),
	}
}
