// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

const (
	digest      = "sha256:0123456789012345678901234567890123456789012345678901234567890123"
	jobsCRD     = "CustomResourceDefinition nodejobs.everynode.dev"
	budget      = "PodDisruptionBudget everynode-system/everynode-manager"
	quota       = "ResourceQuota everynode-system/everynode-critical-pods"
	gate        = "MutatingAdmissionPolicy everynode-gate"
	attribution = "MutatingAdmissionPolicy everynode-attribution"
	rights      = "ValidatingAdmissionPolicy everynode-nodejobs"
	bound       = "ValidatingAdmissionPolicyBinding everynode-nodejobs"
	viewer      = "ClusterRole everynode-nodejob-viewer"
	editor      = "ClusterRole everynode-nodejob-editor"
	service     = "Service everynode-system/everynode-metrics"
	monitor     = "ServiceMonitor everynode-system/everynode"
	alerts      = "PrometheusRule everynode-system/everynode"
	fleet       = "ConfigMap everynode-system/everynode-dashboard-fleet"
	managerRole = "ClusterRole everynode-manager"
	nodeStatus  = "ValidatingAdmissionPolicy everynode-confine-node-status"
	confinement = "ValidatingAdmissionPolicyBinding everynode-confine-pods"
	network     = "NetworkPolicy everynode-system/everynode-manager"
	teamA       = `nodeJobNamespaces: [{name: team-a, create: true, criticalPodsQuota: true, labels: {team: a}}]`
	unwanted    = "the object is not rendered"
)

func TestValues(t *testing.T) {
	with := func(values string, apis ...string) release { return release{values: values, apis: apis} }
	tests := map[string]struct {
		release
		object string
		// has are texts that the object contains as YAML in one line, and hasNot those that it does not contain.
		has, hasNot []string
	}{
		"the images of the release": {
			with(""),
			manager,
			[]string{"image: ghcr.io/everynode/manager:v0.0.0-dev", "value: ghcr.io/everynode/runner:v0.0.0-dev"},
			nil,
		},
		"images from a mirror": {
			with(`images: {registry: "mirror.example:5000/a/"}`), manager,
			[]string{"image: mirror.example:5000/a/manager:v0.0.0-dev", "value: mirror.example:5000/a/runner:v0.0.0-dev"}, nil,
		},
		"images by digest": {
			with(
				`images: {manager: {digest: "` + digest + `"}, runner: {digest: "` + digest + `"}, runnerArchive: {digest: "` + digest + `"}}`,
			),
			manager,
			[]string{
				"image: ghcr.io/everynode/manager@" + digest,
				"value: ghcr.io/everynode/runner@" + digest,
				"value: ghcr.io/everynode/runner-archive@" + digest,
			},
			[]string{"runner:", "manager:v"},
		},
		"images by tag": {
			with(`images: {manager: {tag: a}, runner: {tag: b, repository: c/d}}`), manager,
			[]string{"image: ghcr.io/everynode/manager:a ", "value: ghcr.io/everynode/c/d:b "}, nil,
		},
		"an image by tag and digest": {
			with(`images: {manager: {tag: a, digest: "` + digest + `"}}`),
			manager,
			[]string{"image: ghcr.io/everynode/manager:a@" + digest},
			nil,
		},
		"how the manager is pulled": {
			with(`images: {pullSecrets: [mirror], pullPolicy: Always}`),
			manager,
			[]string{"imagePullSecrets: - name: mirror", "imagePullPolicy: Always"},
			nil,
		},
		"the version of the Deployment": {with(""), manager, []string{versionLabel + ": v0.0.0-dev"}, nil},
		"placement": {
			with(
				`manager: {nodeSelector: {a: b}, tolerations: [{key: t, operator: Exists}], affinity: {nodeAffinity: {}}, topologySpreadConstraints: [{maxSkew: 2}], replicas: 2}`,
			),
			manager,
			[]string{
				"nodeSelector: a: b",
				"- key: t operator: Exists",
				"affinity: nodeAffinity: {}",
				"topologySpreadConstraints: - maxSkew: 2",
				"replicas: 2",
			},
			nil,
		},
		"control plane nodes are preferred": {
			with(""),
			manager,
			[]string{
				"preferredDuringSchedulingIgnoredDuringExecution: - preference: matchExpressions: - key: node-role.kubernetes.io/control-plane",
				"- effect: NoSchedule key: node-role.kubernetes.io/control-plane",
			},
			nil,
		},
		"control plane nodes are not preferred": {
			with(`manager: {preferControlPlane: false}`),
			manager,
			[]string{"replicas"},
			[]string{"control-plane", "affinity"},
		},
		"the manager starts where drains wait for it": {
			with(`manager: {preferControlPlane: false}`),
			manager,
			[]string{"tolerations: - effect: NoSchedule key: node.kubernetes.io/unschedulable operator: Exists"},
			nil,
		},
		"own tolerations besides": {
			with(`manager: {tolerations: [{key: t, operator: Exists}]}`),
			manager,
			[]string{"key: node-role.kubernetes.io/control-plane operator: Exists - key: t operator: Exists"},
			nil,
		},
		"own affinity instead": {
			with(`manager: {affinity: {nodeAffinity: {}}}`),
			manager,
			[]string{"affinity: nodeAffinity: {}"},
			[]string{"preferredDuring"},
		},
		"the confinement of the manager": {with(""), confinement, []string{"policyName: everynode-confine-pods "}, nil},
		"namespaces need a label": {
			with(""),
			"ValidatingAdmissionPolicy everynode-confine-namespaces",
			[]string{"everynode.dev/enabled"},
			nil,
		},
		"namespaces need no label": {
			with("requireNamespaceLabel: false"),
			"ValidatingAdmissionPolicy everynode-confine-namespaces",
			nil,
			[]string{unwanted},
		},
		"namespaces that are not allowed": {
			with(""),
			"ValidatingAdmissionPolicyBinding everynode-warn-namespaces",
			[]string{"validationActions: - Warn "},
			nil,
		},
		"no warning of namespaces": {
			with("requireNamespaceLabel: false"),
			"ValidatingAdmissionPolicyBinding everynode-warn-namespaces",
			nil,
			[]string{unwanted},
		},
		"the manager serves all namespaces": {
			with("requireNamespaceLabel: false"),
			manager,
			[]string{"- --require-namespace-label=false "},
			nil,
		},
		"addresses of requirements": {
			with(`requirements: {allowedAddresses: [am.example.com, 192.0.2.0/24]}`), manager,
			[]string{`- --requirements-allowed-addresses=am.example.com,192.0.2.0/24 `}, nil,
		},
		"the manager serves allowed namespaces": {with(""), manager, []string{"--leader-elect"}, []string{"--require"}},
		"no confinement of the manager":         {with(`confinement: {enabled: false}`), confinement, nil, []string{unwanted}},
		"resources": {
			with(`manager: {goMemoryLimit: 640MiB, goMaxProcs: 4, resources: {limits: {memory: 1Gi}}}`),
			manager,
			[]string{"limits: memory: 1Gi", "value: 640MiB", `name: GOMAXPROCS value: "4"`},
			nil,
		},
		"no resources": {
			with(`manager: {resources: null}`),
			manager,
			[]string{"readOnlyRootFilesystem"},
			[]string{"resources"},
		},
		"labels and annotations of pods": {
			with(`manager: {podLabels: {a: b}, podAnnotations: {c: d}}`),
			manager,
			[]string{"annotations: c: d prometheus.io", "labels: a: b app.kubernetes.io"},
			nil,
		},
		"without annotations": {
			with(`metrics: {scrapeAnnotations: false}`),
			manager,
			[]string{"metadata"},
			[]string{"annotations"},
		},
		"options of the manager": {
			with(
				`{tasks: {pullSecrets: [mirror, other], priorityClassName: "", scriptMemoryLimit: "0"}, manager: {logLevel: DEBUG}}`,
			),
			manager,
			[]string{
				"- --runner-pull-secrets=mirror,other ",
				"- --priority-class= ",
				`- --script-memory-limit=0 `,
				"- --log-level=DEBUG ",
			},
			nil,
		},
		"more arguments and variables": {
			with(
				`manager: {logFormat: text, extraArgs: ["--pprof-bind-address=127.0.0.1:6060"], extraEnv: [{name: HTTPS_PROXY, value: "http://proxy"}]}`,
			),
			manager,
			[]string{
				"- --log-format=text - --pprof-bind-address=127.0.0.1:6060 env:",
				"- name: HTTPS_PROXY value: http://proxy image:",
			},
			nil,
		},
		"labels for all": {
			with(`{commonLabels: {team: a, tier: b}, manager: {podLabels: {team: c}}}`),
			manager,
			[]string{"team: a tier: b name: everynode-manager", "app.kubernetes.io/name: everynode team: c tier: b spec:"},
			nil,
		},
		"no priority class": {
			with(`manager: {priorityClassName: ""}`),
			manager,
			[]string{"replicas"},
			[]string{"priorityClassName"},
		},
		"no quota without a priority class": {with(`manager: {priorityClassName: ""}`), quota, nil, []string{unwanted}},
		"no quota for a class of the user":  {with(`manager: {priorityClassName: mine}`), quota, nil, []string{unwanted}},
		"a quota for the other system class": {
			with(`manager: {priorityClassName: system-node-critical}`),
			quota,
			[]string{"- system-node-critical"},
			[]string{"cluster"},
		},
		"no quota": {with(`criticalPodsQuota: {enabled: false}`), quota, nil, []string{unwanted}},
		"a budget for two managers": {
			with(`manager: {replicas: 2, podDisruptionBudget: {maxUnavailable: 50%}}`),
			budget,
			[]string{"maxUnavailable: 50%", "component: manager"},
			nil,
		},
		"no budget for one manager": {with(""), budget, nil, []string{unwanted}},
		"no budget": {
			with(`manager: {replicas: 2, podDisruptionBudget: {enabled: false}}`),
			budget,
			nil,
			[]string{unwanted},
		},
		"CRDs outlive the release": {
			with(""),
			jobsCRD,
			[]string{"helm.sh/resource-policy: keep", "controller-gen.kubebuilder.io/version"},
			nil,
		},
		"no CRDs":               {with(`crds: {enabled: false}`), jobsCRD, nil, []string{unwanted}},
		"no policy before 1.36": {with("", oldPolicyAPI), gate, nil, []string{unwanted}},
		"no binding before 1.36": {
			with("", oldPolicyAPI),
			"MutatingAdmissionPolicyBinding everynode-gate-node-setup",
			nil,
			[]string{unwanted},
		},
		"no policy without gates": {with(`gate: {enabled: false}`, policyAPI), gate, nil, []string{unwanted}},
		"a gate that fails closed": {
			with(`gate: {failurePolicy: Fail}`, policyAPI),
			gate,
			[]string{"failurePolicy: Fail"},
			nil,
		},
		"a manager is never refused": {
			with(`gate: {failurePolicy: Fail}`, policyAPI),
			"MutatingAdmissionPolicy everynode-manager",
			[]string{"failurePolicy: Ignore"},
			nil,
		},
		"a binding for another namespace": {
			with(teamA, policyAPI),
			"MutatingAdmissionPolicyBinding everynode-gate-team-a",
			[]string{"namespace: team-a", "policyName: everynode-gate "},
			nil,
		},
		"its binding for managers": {
			with(teamA, policyAPI),
			"MutatingAdmissionPolicyBinding everynode-manager-team-a",
			[]string{"namespace: team-a", "policyName: everynode-manager "},
			nil,
		},
		"no binding for a namespace not listed": {
			with(teamA, policyAPI),
			"MutatingAdmissionPolicyBinding everynode-gate-node-setup",
			nil,
			[]string{unwanted},
		},
		"a namespace that exists": {with(""), "Namespace node-setup", nil, []string{unwanted}},
		"a namespace for NodeJobs": {
			with(teamA), "Namespace team-a",
			[]string{"pod-security.kubernetes.io/enforce: privileged", "helm.sh/resource-policy: keep", "team: a"}, nil,
		},
		"its quota": {
			with(teamA),
			"ResourceQuota team-a/everynode-critical-pods",
			[]string{"- system-node-critical"},
			nil,
		},
		"a quota of another class": {
			with(teamA + "\ntasks: {priorityClassName: system-cluster-critical}"),
			"ResourceQuota team-a/everynode-critical-pods",
			[]string{"- system-cluster-critical"},
			nil,
		},
		"a namespace without a quota": {
			with(`nodeJobNamespaces: [{name: team-a, create: true}]`),
			"ResourceQuota team-a/everynode-critical-pods",
			nil,
			[]string{unwanted},
		},
		"policies that deny": {with("", oldPolicyAPI), bound, []string{"validationActions: - Deny "}, nil},
		"policies to try": {
			with(`authorization: {validationActions: [Warn, Audit]}`),
			bound,
			[]string{"validationActions: - Warn - Audit "},
			nil,
		},
		"policies fail closed": {with(`gate: {failurePolicy: Ignore}`), rights, []string{"failurePolicy: Fail"}, nil},
		"the manager requires the policies": {
			with(""),
			"Deployment everynode-system/everynode-manager",
			nil,
			[]string{"--require-policies"},
		},
		"no policies are required": {
			with(`authorization: {enabled: false}`),
			"Deployment everynode-system/everynode-manager",
			[]string{"--require-policies=false"},
			nil,
		},
		"no confinement is required": {
			with(`confinement: {enabled: false}`),
			"Deployment everynode-system/everynode-manager",
			[]string{"--require-policies=false"},
			nil,
		},
		"policies to try are not required": {
			with(`authorization: {validationActions: [Warn]}`),
			"Deployment everynode-system/everynode-manager",
			[]string{"--require-policies=false"},
			nil,
		},
		"policies are kept with the CRDs":    {with(""), bound, []string{"helm.sh/resource-policy: keep"}, nil},
		"the confinement is kept with them":  {with(""), confinement, []string{"helm.sh/resource-policy: keep"}, nil},
		"policies are deleted with the CRDs": {with(`crds: {keep: false}`), bound, nil, []string{"helm.sh/resource-policy"}},
		"no policies for rights":             {with(`authorization: {enabled: false}`), rights, nil, []string{unwanted}},
		"no bindings for rights":             {with(`authorization: {enabled: false}`), bound, nil, []string{unwanted}},
		"who changed an object":              {with("", policyAPI), attribution, []string{"failurePolicy: Fail"}, nil},
		"no names of users before 1.36":      {with("", oldPolicyAPI), attribution, nil, []string{unwanted}},
		"no names of users":                  {with(`attribution: {enabled: false}`, policyAPI), attribution, nil, []string{unwanted}},
		"no wrong names before 1.36": {
			with("", oldPolicyAPI),
			"ValidatingAdmissionPolicy everynode-attribution",
			[]string{"everynode.dev/changed-by"},
			nil,
		},
		"wrong names are always refused": {
			with(`authorization: {validationActions: [Warn]}`),
			"ValidatingAdmissionPolicyBinding everynode-attribution",
			[]string{"validationActions: - Deny "},
			nil,
		},
		"no roles for users":       {with(`userRoles: {enabled: false}`), "ClusterRole everynode-view", nil, []string{unwanted}},
		"roles are not aggregated": {with(""), viewer, []string{"nodejobs"}, []string{"aggregate"}},
		"the roles of viewers": {
			with(`userRoles: {aggregateToView: true}`),
			viewer,
			[]string{`rbac.authorization.k8s.io/aggregate-to-view: "true"`, "nodejobs"},
			nil,
		},
		"the role of editors never is": {
			with(`userRoles: {aggregateToView: true}`),
			editor,
			[]string{"nodejobs"},
			[]string{"aggregate"},
		},
		"no Service for the metrics": {with(""), service, nil, []string{unwanted}},
		"a Service for the metrics":  {with(`metrics: {service: {enabled: true}}`), service, []string{"targetPort: metrics"}, nil},
		"no ServiceMonitor":          {with(`metrics: {service: {enabled: true}}`), monitor, nil, []string{unwanted}},
		"a ServiceMonitor": {
			with(`metrics: {serviceMonitor: {enabled: true, interval: 15s, labels: {team: a}}}`),
			monitor,
			[]string{
				"team: a",
				"interval: 15s",
				"honorLabels: true",
				"scheme: https",
				"bearerTokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token",
			},
			nil,
		},
		"a ServiceMonitor without TLS": {
			with(`metrics: {secure: false, serviceMonitor: {enabled: true}}`),
			monitor,
			[]string{"honorLabels: true"},
			[]string{"scheme", "bearerTokenFile"},
		},
		"metrics without TLS": {
			with(`metrics: {secure: false}`),
			manager,
			[]string{"- --metrics-secure=false ", "prometheus.io/port"},
			[]string{"scheme: https"},
		},
		"metrics with TLS": {with(""), manager, []string{"prometheus.io/scheme: https"}, []string{"--metrics-secure"}},
		"a ServiceMonitor has its Service": {
			with(`metrics: {serviceMonitor: {enabled: true}}`),
			service,
			[]string{"app.kubernetes.io/component: manager"},
			nil,
		},
		"no alerts": {with(`metrics: {serviceMonitor: {enabled: true}}`), alerts, nil, []string{unwanted}},
		"alerts": {
			with(`metrics: {prometheusRule: {enabled: true, labels: {team: a}}}`),
			alerts,
			[]string{"team: a", "for: 300s labels: severity: warning", "{{ $labels.nodejob }}", "> 1800 labels"},
			nil,
		},
		"times of alerts": {
			with(`metrics: {prometheusRule: {enabled: true, afterSeconds: {nodeJobStalled: 7, budgetStalled: 8, gateClosed: 0}}}`),
			alerts,
			[]string{
				"for: 7s",
				"closed_timestamp_seconds > 0)) > 0 labels",
				"hold_timestamp_seconds > 0)) > 3600 labels",
			},
			[]string{"300s"},
		},
		"labels of alerts": {
			with(`metrics: {prometheusRule: {enabled: true, alertLabels: {team: a, severity: page}}}`), alerts,
			[]string{"labels: severity: page team: a - alert"}, []string{"severity: warning", "severity: critical"},
		},
		"alerts that are left out": {
			with(`metrics: {prometheusRule: {enabled: true, disabledAlerts: [EverynodeNoProgress]}}`),
			alerts,
			[]string{"EverynodeGateClosed"},
			[]string{"EverynodeNoProgress"},
		},
		"no dashboards": {with(`metrics: {serviceMonitor: {enabled: true}}`), fleet, nil, []string{unwanted}},
		"dashboards": {
			with(`metrics: {dashboards: {enabled: true}}`),
			fleet,
			[]string{`grafana_dashboard: "1"`, `"uid": "everynode-fleet"`, "{{namespace}}/{{nodejob}}"},
			[]string{"annotations: "},
		},
		"dashboards for another sidecar": {
			with(`metrics: {dashboards: {enabled: true, label: team, labelValue: a, annotations: {folder: b}}}`), fleet,
			[]string{"team: a", "annotations: folder: b"}, []string{"grafana_dashboard"},
		},
		"dashboards in another namespace": {
			with(`metrics: {dashboards: {enabled: true, namespace: monitoring}}`),
			"ConfigMap monitoring/everynode-dashboard-manager",
			[]string{"everynode-manager"},
			nil,
		},
		"no NetworkPolicy": {with(""), network, nil, []string{unwanted}},
		"a NetworkPolicy": {
			with(`networkPolicy: {enabled: true, metricsFrom: [{namespaceSelector: {matchLabels: {a: b}}}]}`),
			network,
			[]string{"from: - namespaceSelector: matchLabels: a: b", "port: probes"},
			nil,
		},
		"a NetworkPolicy for everyone": {with(`networkPolicy: {enabled: true}`), network, []string{"port: metrics"}, []string{"from"}},
		"no notifications": {
			with(`notifications: {url: "https://a.example"}`),
			manager,
			nil,
			[]string{"notifications", "volumes"},
		},
		"notifications": {
			with(`notifications: {enabled: true}`),
			manager,
			[]string{
				"- --notifications-dir=/etc/everynode/notifications ",
				"mountPath: /etc/everynode/notifications",
				"optional: true secretName: everynode-notifications",
			},
			[]string{"--notifications-url", "--notifications-format", "--notifications-source", "--notifications-drain-held"},
		},
		"options of notifications": {
			with(
				`notifications: {enabled: true, url: "https://a.example/x?y=z", secretName: a, format: slack, source: production, drainHeldSeconds: 0}`,
			),
			manager,
			[]string{
				"--notifications-url=https://a.example/x?y=z",
				"- --notifications-format=slack ",
				"- --notifications-source=production ",
				"- --notifications-drain-held=0s ",
				"secretName: a ",
			},
			nil,
		},
		"no node conditions":            {with(""), nodeStatus, nil, []string{unwanted}},
		"no write of the nodes' status": {with(""), managerRole, []string{"- nodes "}, []string{"nodes/status"}},
		"node conditions": {
			with(`nodeConditions: {enabled: true}`),
			manager,
			[]string{"- --node-maintenance-conditions "},
			nil,
		},
		"their permission": {
			with(
				`nodeConditions: {enabled: true}`,
			),
			managerRole,
			[]string{`- apiGroups: - "" resources: - nodes/status verbs: - patch`},
			nil,
		},
		"their confinement": {with(`nodeConditions: {enabled: true}`), nodeStatus, []string{"helm.sh/resource-policy: keep"}, nil},
		"no archive": {
			with(`archive: {secretName: a}`),
			manager,
			[]string{"value: ghcr.io/everynode/runner-archive:v0.0.0-dev"},
			[]string{"--archive", "/etc/everynode/archive", "volumes"},
		},
		"an archive": {
			with(`archive: {enabled: true}`),
			manager,
			[]string{
				"- --archive-dir=/etc/everynode/archive ",
				"mountPath: /etc/everynode/archive",
				"optional: true secretName: everynode-archive",
			},
			[]string{"--archive-max-bytes", "--archive-timeout", "notifications"},
		},
		"options of an archive, beside notifications": {
			with(`{archive: {enabled: true, secretName: a, maxBytes: 64Ki, timeoutSeconds: 5}, notifications: {enabled: true}}`),
			manager,
			[]string{
				"- --archive-max-bytes=64Ki ",
				"- --archive-timeout=5s ",
				"secretName: a ",
				"secretName: everynode-notifications",
			},
			nil,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			objects, err := render(t, tt.release)
			if err != nil {
				t.Fatal(err)
			}
			o, rendered := objects[tt.object]
			if wanted := !slices.Contains(tt.hasNot, unwanted); rendered != wanted {
				t.Fatalf("%s is rendered: %v, want %v, among %v", tt.object, rendered, wanted, slices.Sorted(maps.Keys(objects)))
			}
			content, err := yaml.Marshal(o.Object)
			if err != nil {
				t.Fatal(err)
			}
			line := strings.ReplaceAll(strings.Join(strings.Fields(string(content)), " ")+" ", "'", "")
			for _, text := range tt.has {
				if !strings.Contains(line, text) {
					t.Errorf("it lacks %q:\n%s", text, content)
				}
			}
			for _, text := range tt.hasNot {
				if strings.Contains(line, text) {
					t.Errorf("it contains %q:\n%s", text, content)
				}
			}
		})
	}
}

// TestANamespaceOfTheChartIsThatOfTheSamples compares a namespace that the chart creates with that of config/samples.
func TestANamespaceOfTheChartIsThatOfTheSamples(t *testing.T) {
	samples := kustomization(t, "samples")
	got, err := render(t, release{values: `nodeJobNamespaces: [{name: node-setup, create: true, criticalPodsQuota: true}]`})
	if err != nil {
		t.Fatal(err)
	}
	namespace, sample := got["Namespace node-setup"], samples["Namespace node-setup"]
	for key, value := range sample.GetLabels() {
		if namespace.GetLabels()[key] != value {
			t.Errorf("the label %s is %q, want %q", key, namespace.GetLabels()[key], value)
		}
	}
	const key = "ResourceQuota node-setup/everynode-critical-pods"
	if diff := cmp.Diff(samples[key].Object, got[key].Object); diff != "" || len(samples[key].Object) == 0 {
		t.Errorf("the quota (-samples +helm):\n%s", diff)
	}
}

// TestLabelsAreValidWithAnyVersion : Flux renders the chart of an OCIRepository as version 0.1.0+DIGEST.
func TestLabelsAreValidWithAnyVersion(t *testing.T) {
	for version, want := range map[string]string{
		"0.1.0-trial":              "everynode-0.1.0-trial",
		"0.1.0-trial+0123456789ab": "everynode-0.1.0-trial_0123456789ab",
		"0.1.0-" + strings.Repeat("a", 46) + "-" + "rest": "everynode-0.1.0-" + strings.Repeat("a", 46),
	} {
		chart, err := loader.LoadDir("everynode") // its own: the one of the other tests has the version of the checkout
		if err != nil {
			t.Fatal(err)
		}
		chart.Metadata.Version = version
		got, err := renderChart(t, chart, release{apis: []string{policyAPI}, values: teamA + `
manager: {replicas: 2}
metrics: {serviceMonitor: {enabled: true}, prometheusRule: {enabled: true}, dashboards: {enabled: true}}
networkPolicy: {enabled: true}
`})
		if err != nil {
			t.Fatal(err)
		}
		if label := labels(got[budget])["helm.sh/chart"]; label != want {
			t.Errorf("version %s: the label is %q, want %q", version, label, want)
		}
		for key, object := range got {
			for name, value := range labels(object) {
				if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
					t.Errorf("version %s: %s has the label %s=%s: %v", version, key, name, value, problems)
				}
			}
		}
	}
}

func labels(object unstructured.Unstructured) map[string]string { return object.GetLabels() }

// TestTheChartHasTheOptionalComponentsOfConfig compares what the components of config add with what the values add.
func TestTheChartHasTheOptionalComponentsOfConfig(t *testing.T) {
	got, err := render(t, release{values: asKustomization + `
networkPolicy: {enabled: true}
notifications: {enabled: true}
archive: {enabled: true}
metrics: {prometheusRule: {enabled: true}, dashboards: {enabled: true}}
manager:
  replicas: 2
`})
	if err != nil {
		t.Fatal(err)
	}
	want := overlay(t, `
resources: [../default]
components: [../network-policy, ../high-availability, ../monitoring, ../monitoring/dashboards, ../notifications, ../archive]
`)
	dashboards := 0
	for key := range want {
		if !strings.HasPrefix(key, "ConfigMap everynode-system/everynode-dashboard-") {
			continue
		}
		dashboards++
		wanted, rendered := want[key], got[key]
		const label = "grafana_dashboard"
		if diff := cmp.Diff(
			wanted.Object["data"],
			rendered.Object["data"],
		); diff != "" || wanted.GetLabels()[label] != "1" ||
			rendered.GetLabels()[label] != "1" {
			t.Errorf("%s with the labels %v and %v (-kustomize +helm):\n%s", key, wanted.GetLabels(), rendered.GetLabels(), diff)
		}
	}
	if files, err := filepath.Glob("../config/monitoring/dashboards/*.json"); err != nil || len(files) != dashboards {
		t.Errorf("the component has %d of %d dashboards: %v", dashboards, len(files), err)
	}
	for _, key := range []string{network, budget, alerts} {
		wanted := want[key]
		rendered := got[key]
		if diff := cmp.Diff(wanted.Object["spec"], rendered.Object["spec"]); diff != "" || len(wanted.Object) == 0 {
			t.Errorf("%s (-kustomize +helm):\n%s", key, diff)
		}
	}
	if diff := cmp.Diff(want[manager].Object, unreleased(t, got[manager])); diff != "" {
		t.Errorf("the Deployment (-kustomize +helm):\n%s", diff)
	}
}

func TestInvalidValuesAreRejected(t *testing.T) {
	tests := map[string]struct {
		release
		want string
	}{
		"another namespace": {
			release{namespace: "default"},
			"the namespace of the release is default: install it with --namespace everynode-system",
		},
		"an unknown value": {release{values: `image: {tag: a}`}, "additional properties 'image' not allowed"},
		"an unknown value inside": {
			release{values: `manager: {replica: 2}`},
			"at '/manager': additional properties 'replica' not allowed",
		},
		"an unknown value in a list": {
			release{values: `nodeJobNamespaces: [{name: a, quota: true}]`},
			"at '/nodeJobNamespaces/0': additional properties 'quota' not allowed",
		},
		"a wrong type":             {release{values: `manager: {replicas: two}`}, "at '/manager/replicas': got string, want integer"},
		"a tag as a digest":        {release{values: `images: {manager: {digest: v1}}`}, "at '/images/manager/digest'"},
		"a digest in the tag":      {release{values: `images: {manager: {tag: "a@sha256:b"}}`}, "at '/images/manager/tag'"},
		"a registry with a scheme": {release{values: `images: {registry: "https://mirror.example"}`}, "at '/images/registry'"},
		"an unknown level": {
			release{values: `manager: {logLevel: debug}`},
			"at '/manager/logLevel': value must be one of 'DEBUG', 'INFO', 'WARN', 'ERROR'",
		},
		"an unknown failure policy": {release{values: `gate: {failurePolicy: Deny}`}, "at '/gate/failurePolicy'"},
		"warnings besides refusals": {
			release{values: `authorization: {validationActions: [Deny, Warn]}`},
			"at '/authorization/validationActions'",
		},
		"no action of the policies": {
			release{values: `authorization: {validationActions: []}`},
			"at '/authorization/validationActions'",
		},
		"an unknown alert": {
			release{values: `metrics: {prometheusRule: {disabledAlerts: [Everynode]}}`},
			"at '/metrics/prometheusRule/disabledAlerts/0'",
		},
		"an annotation as a number": {
			release{values: `metrics: {dashboards: {annotations: {folder: 1}}}`},
			"at '/metrics/dashboards/annotations/folder'",
		},
		"a time that is a duration": {
			release{values: `metrics: {prometheusRule: {afterSeconds: {gateClosed: 1h}}}`},
			"at '/metrics/prometheusRule/afterSeconds/gateClosed'",
		},
		"a namespace without a name": {
			release{values: `nodeJobNamespaces: [{create: true}]`},
			"at '/nodeJobNamespaces/0': missing property 'name'",
		},
		"a URL without a scheme":      {release{values: `notifications: {url: events.example.com}`}, "at '/notifications/url'"},
		"an unknown format":           {release{values: `notifications: {format: teams}`}, "at '/notifications/format'"},
		"an archive without a bound":  {release{values: `archive: {maxBytes: ""}`}, "at '/archive/maxBytes'"},
		"an archive that is too slow": {release{values: `archive: {timeoutSeconds: 61}`}, "at '/archive/timeoutSeconds'"},
		"a label that selects pods": {
			release{values: `manager: {podLabels: {app.kubernetes.io/name: a}}`},
			"at '/manager/podLabels/app.kubernetes.io~1name'",
		},
		"a budget that is not a share": {
			release{values: `manager: {podDisruptionBudget: {maxUnavailable: half}}`},
			"at '/manager/podDisruptionBudget/maxUnavailable'",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := render(t, tt.release)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("the error is %v, want %q", err, tt.want)
			}
		})
	}
}
