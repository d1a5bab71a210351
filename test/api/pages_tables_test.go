// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

// onlyNames are spans that name a command, and do not show one.
var onlyNames = []string{
	"kubectl delete -k",
	"kubectl delete pod",
	"kubectl describe nodejob",
	"kubectl drain --disable-eviction",
	"kubectl edit --subresource=status",
	"kubectl everynode status --watch",
	"kubectl get nodejobs",
	"kubectl label node",
	"kubectl logs --follow",
	"kubectl rollout undo",
}

// notExecuted are the beginnings of the commands that are not executed here, and why.
var notExecuted = map[string]string{
	"make ":        "builds and tests the repository, as continuous integration does",
	"go test ":     "tests the repository, as continuous integration does",
	"go -C ":       "tests the repository, as continuous integration does",
	"go mod ":      "changes the module of a user",
	"git ":         "changes the checkout",
	"diff dist/":   "compares two releases",
	"install bin/": "installs the result of make build on the machine",

	"tar -xzf dist/": "unpacks the plugin of a release, as test/released does",

	"helm ": "needs a registry: TestTheChartIsInstalledUpgradedRolledBackAndUninstalled",

	"#!/bin/bash\nset":              "a script of a task, which changes its node",
	`echo "reboot=true"`:            "a line of such a script",
	"[ ! -e /run/reboot-required ]": "a line of such a script",

	"kubectl everynode dashboard":                      "serves a page until it is interrupted: test/browser, and TestTheDashboardFollowsTheLogOfATask",
	"kubectl -n everynode-system scale ":               "stops the manager of all tests",
	"while read -r namespace name":                     "changes the NodeJobs of all tests",
	"kubectl -n everynode-system delete pod ":          "needs the seat of a node",
	"kubectl everynode plan -f kernel.yaml --on-nodes": "waits for the nodes: TestTheNodesAreAskedBeforeAFileIsApplied",
	"kubectl drain ":                                   "evicts pods, which needs a disruption controller: TestR25_TwoDrainsGoOneAfterTheOther",
	"kubectl -n everynode-system logs ":                "reads a log, which needs a kubelet",
	"kubectl delete -k your-overlay":                   "waits for a manager that is told to exit: TestUninstallByDeletingConfigDefault",
}

// placeholders are the parts of commands that a user replaces.
var placeholders = []string{
	"max-map-count NODE", "max-map-count node-1",
	"explain NODE", "explain node-1",
	"explain NAME NODE", "explain kernel-facts node-1 -n node-setup",
	"NODE KEY-", "node-1 example.com/not-set-up-",
	"budgets NAME", "budgets production",
	"retry NAME", "retry core-pattern -n node-setup",
	"convert -f FILE", "convert -f node-setup-daemonset.yaml",
	"plan -f FILE", "plan -f core-pattern.yaml",
	"can-i -f FILE", "can-i -f core-pattern.yaml",
	"pod POD", "$(kubectl -n node-setup get pods -l everynode.dev/nodejob=core-pattern -o name)",
	"NAMESPACE:NAME", "storage:agent",
	`__complete "$@"`, `__complete status -n node-setup ""`,
}

// state is a script that brings about the state in which a page shows a command. The command begins with these words.
type state struct{ page, command, script string }

// states are in the order of the pages. Each is for the first command that fits. testdata/pages/states.sh has their functions.
var states = []state{
	{"docs/cli.md", "kubectl everynode list -A", "kubectl apply -f somaxconn.yaml -f config/samples/max-map-count.yaml -f no-thp.yaml"},
	{
		"docs/cli.md",
		"kubectl everynode results node-facts",
		"kubectl apply -f recipes/node-facts.yaml; await node-facts condition=Complete",
	},
	{"docs/cli.md", "kubectl everynode report", `kubectl apply -f - <<'END'
apiVersion: everynode.dev/v1alpha1
kind: NodeJob
metadata: {name: sshd-config, namespace: node-setup}
spec: {nodes: {selector: {matchExpressions: [{key: example.com/none, operator: DoesNotExist}]}}, task: {check: {script: "! grep -q '^PermitRootLogin yes' /etc/ssh/sshd_config"}}}
END`},
	{"docs/cli.md", "kubectl everynode logs", "fail max-map-count node-2"},
	{"docs/cli.md", "kubectl everynode budgets", "kubectl everynode freeze tonight --for 1h --reason INC-43"},
	{
		"docs/cli.md",
		"kubectl get plans.upgrade.cattle.io",
		"kubectl apply -f plans.yaml; kubectl wait crd/plans.upgrade.cattle.io --for=condition=Established; kubectl apply -f plan.yaml",
	},
	{
		"docs/publish.md",
		"kubectl label node node-1 example.com/gpu-setup",
		`kubectl -n node-setup patch nodejob gpu-setup --type=merge -p '{"spec": {"task": {"script": "hangs on node-1"}}}'`,
	},
	{
		"docs/publish.md",
		"kubectl get nodes -l node-setup",
		`again gpu-setup; kubectl wait --timeout=60s node/node-1 --for=jsonpath='{.metadata.labels.node-setup\.everynode\.dev/gpu-setup}'`,
	},
	{"docs/gate.md", "kubectl taint nodes NODE", "kubectl taint node node-1 example.com/not-set-up=registered:NoSchedule"},
	{
		"docs/gate.md",
		"kubectl taint node node-1 ",
		"kubectl -n node-setup delete nodejob inotify; kubectl taint node node-1 node-setup.everynode.dev/inotify=registered:NoSchedule",
	},
	{"docs/install.md", "kubectl apply -f dist/install.yaml", "mkdir dist; kubectl kustomize config/local > dist/install.yaml"},
	{"docs/install.md", "kubectl get nodejobs --all-namespaces", "kubectl apply -f max-map-count.yaml"},
	{
		"docs/maintenance.md",
		"kubectl -n node-setup get nodejob no-thp -o",
		"await no-thp jsonpath='{.status.nodes.done}'=1; kubectl apply -f blocked.yaml; kubectl label node node-1 node-setup.everynode.dev/no-thp-; await no-thp jsonpath='{.status.drains}'",
	},
	{
		"docs/mcp.md",
		"kubectl get nodejobs -A -l",
		`sed -e 's/^spec:/&\n  suspend: true/' -e 's/name: max-map-count/name: proposal-max-map-count-4t8kd2m7xq\n  labels: {app.kubernetes.io\/created-by: kubectl-everynode-mcp}/' max-map-count.yaml | kubectl create --field-manager=kubectl-everynode-mcp -f -`,
	},
	{"docs/nodeguard.md", "kubectl get events", "kubectl apply -f event.yaml"},
	{"docs/nodejob.md", "kubectl -n node-setup events", "await core-pattern condition=Complete"},
	{"docs/nodejob.md", "kubectl -n node-setup get pods", "mix node-3"},
	{"docs/nodejob.md", "kubectl -n node-setup wait nodejob", "again core-pattern"},
	{"docs/nodejob.md", "kubectl -n node-setup delete pod", "mix node-1"},
	{"docs/nodejob.md", "kubectl -n node-setup patch nodejob core-pattern --type=merge -p '{\"metadata\"", "mix node-1"},
	{"docs/nodejob.md", "kubectl get nodes -o json | jq -r '.items[]\n", "kubectl -n node-setup delete nodejob core-pattern"},
	{"docs/releasing.md", "kubectl apply -f dist/install.yaml", "mkdir dist; kubectl kustomize config/local > dist/install.yaml"},
	{
		"docs/rollout.md",
		`kubectl -n node-setup get nodejob somaxconn -o jsonpath='{.status.conditions[?(@.type=="Complete"`,
		"await somaxconn jsonpath='{.status.nodes.done}'=1",
	},
	{
		"docs/rollout.md",
		`kubectl -n node-setup get nodejob somaxconn -o jsonpath='{.status.conditions[?(@.type=="Stalled"`,
		"fail somaxconn node-1",
	},
	{"docs/security.md", "kubectl everynode explain", "again core-pattern"},
	{"docs/troubleshooting.md", "kubectl everynode status core-pattern", "again core-pattern"},
	{"docs/troubleshooting.md", "kubectl everynode status core-pattern", "mix node-3"},
	{"docs/troubleshooting.md", "kubectl everynode retry core-pattern", "mix node-3"},
	{
		"docs/troubleshooting.md",
		"kubectl label configmap scripts",
		"kubectl -n node-setup create configmap scripts --from-literal=tune.sh=true --dry-run=client -o yaml | kubectl apply -f -",
	},
	{
		"docs/troubleshooting.md",
		"kubectl everynode budgets NAME",
		`printf '%s' '{"apiVersion": "everynode.dev/v1alpha1", "kind": "NodeDisruptionBudget", "metadata": {"name": "production"},
		"spec": {"enforcement": "Report", "limits": [{"maxUnavailable": 1}]}}' | kubectl create -f -`,
	},
	{"docs/upgrade.md", "kubectl everynode list -A", "kubectl apply -f max-map-count.yaml"},
	{"docs/upgrade.md", "kubectl apply -f dist/install.yaml", "mkdir dist; kubectl kustomize config/local > dist/install.yaml"},
}

// exitCodes are those that are not 0.
var exitCodes = map[string]int{
	"kubectl everynode run --all --save first -f fix.sh -n node-setup":                                                                           10, // a node has failed
	"kubectl everynode run --all --limit @first --save second -f fix.sh -n node-setup":                                                           10, // it has failed again
	"kubectl everynode can-i -f FILE --as system:serviceaccount:NAMESPACE:NAME":                                                                  1,  // it has no rights
	"kubectl auth can-i patch nodes/status --as=system:serviceaccount:NAMESPACE:NAME":                                                            1,  // it may not
	"kubectl auth can-i get cephclusters.ceph.rook.io/rook-ceph -n rook-ceph --as=system:serviceaccount:everynode-system:everynode-requirements": 1,  // nobody has granted it
}

// printsNothing are the beginnings of the commands without output, and why.
var printsNothing = map[string]string{
	"source <(kubectl-everynode ":                          "defines functions of the shell",
	"kubectl -n nvsentinel get serviceaccounts":            "NVSentinel is not installed",
	"kubectl get nodeguards --all-namespaces":              "there is no NodeGuard",
	"kubectl -n storage get nodeguards --sort-by":          "there is no NodeGuard",
	"kubectl -n everynode-system describe replicaset":      "there is no controller of Deployments",
	"kubectl -n everynode-system get poddisruptionbudgets": "there is no controller of NodeDisruptionBudgets",
	"kubectl get nodes -o json | jq -r '.items[]\n  | [.metadata.name, .metadata.annotations[\"everynode.dev/cordoned-by\"": "the manager has removed the cordons",
	"kubectl everynode run --all --yes -o jsonl":                     "no node fails",
	"kubectl -n node-setup get pods -l everynode.dev/nodejob=no-thp": "its node is being drained",
}

// last removes Everynode, so it is executed after all pages.
const last = "kubectl everynode uninstall"
