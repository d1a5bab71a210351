// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/cli/manifest"
)

// pattern is a manifest as people write it, and what must become of it.
type pattern struct {
	manifest string
	// form is script, command, template or refused.
	form string
	// todos are parts of the messages, one for each, in their order. Without one, the conversion must be complete.
	todos []string
	// want are parts of the NodeJob, its comment included, or of the refusal, and not are what must not be there.
	want, not []string
	// script is the whole script.
	script string
}

const pauseContainer = `{name: pause, image: "registry.k8s.io/pause:3.9"}`

// ds returns a DaemonSet whose pod sees the namespaces and the root directory of the node. fields are more fields of the pod.
func ds(fields string) string {
	return "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: d, namespace: ns}\nspec:\n  selector: {matchLabels: {a: b}}\n  template:\n    metadata: {labels: {a: b}}\n    spec: {hostPID: true, hostNetwork: true, volumes: [{name: root, hostPath: {path: /}}, {name: conf, configMap: {name: scripts}}], " + fields + "}\n"
}

// onNode returns a privileged container. fields are its command and more.
func onNode(fields string) string {
	return `{name: c, image: alpine, securityContext: {privileged: true}, volumeMounts: [{name: root, mountPath: /host}], ` + fields + `}`
}

func once(fields string) string {
	return ds("initContainers: [" + onNode(fields) + "], containers: [" + pauseContainer + "]")
}

func running(fields string) string { return ds("containers: [" + onNode(fields) + "]") }

func planOf(spec string) string {
	if !strings.Contains(spec, "nodeSelector") {
		spec += ", nodeSelector: {}"
	}
	return "apiVersion: upgrade.cattle.io/v1\nkind: Plan\nmetadata: {name: p, namespace: ns}\nspec: {concurrency: 1, version: v1, serviceAccountName: s, " + spec + "}\n"
}

func jobOn(node, fields string) string {
	return "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j-" + node + ", namespace: ns}\nspec: {template: {spec: {nodeName: " + node + ", restartPolicy: Never, hostPID: true, volumes: [{name: root, hostPath: {path: /}}], containers: [" + onNode(
		fields,
	) + "]}}}\n"
}

func broadcastOf(spec string) string {
	return "apiVersion: apps.kruise.io/v1beta1\nkind: BroadcastJob\nmetadata: {name: b, namespace: ns}\n" + spec + "\n"
}

func without(label string) string {
	return "{nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: " + label + ", operator: DoesNotExist}]}]}}}"
}

// marking returns a DaemonSet for nodes without the label example.com/done, with a script.
func marking(script string) string {
	return ds(
		"serviceAccountName: s, affinity: " + without(
			"example.com/done",
		) + ", initContainers: [" + onNode(
			shell(script),
		) + "], containers: [" + pauseContainer + "]",
	)
}

func withScripts(fields string) string {
	return "{name: c, image: i, volumeMounts: [{name: conf, mountPath: /conf}], " + fields + "}"
}

func scripts(script string) string {
	return "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: scripts, namespace: ns}\ndata:\n  run.sh: " + quoted(script) + "\n"
}

func quoted(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s) + `"`
}

func shell(script string) string { return "command: [sh, -c, " + quoted(script) + "]" }

func entering(shell, script string) string {
	return "command: [nsenter, -t, '1', -m, -u, -i, -n, -p, --, " + shell + ", " + quoted(script) + "]"
}

// corpus retells public manifests, and the mistakes that an earlier converter made with them.
var corpus = map[string]pattern{
	// What runs on the node as a whole is a script, byte for byte.
	"nsenter and sh": {
		manifest: once(entering("sh, -c", "sysctl -w vm.max_map_count=262144\n")),
		form:     "script",
		script:   "sysctl -w vm.max_map_count=262144\n",
	},
	"nsenter and bash": {
		manifest: once(entering("bash, -c", `[[ -e /x ]] || touch /x`)),
		form:     "script",
		script:   `[[ -e /x ]] || touch /x`,
		want:     []string{"interpreter:\n    - bash\n"},
	},
	"nsenter and bash with options": {
		manifest: once(entering("bash, -euo, pipefail, -c", "a | b")),
		form:     "script",
		script:   "a | b",
		want:     []string{"interpreter:\n    - bash\n    - -euo\n    - pipefail\n"},
	},
	"bash -ec": {
		manifest: once(entering("/bin/bash, -ec", "a; b")),
		form:     "script",
		script:   "a; b",
		want:     []string{"- /bin/bash\n    - -e\n"},
	},
	"a login shell":                    {manifest: once(entering("bash, -lc", "a")), form: "script", want: []string{"- bash\n    - -l\n"}},
	"nsenter with its target together": {manifest: once(`command: [nsenter, "-t 1", -m, --, sh, -c, "a"]`), form: "script", script: "a"},
	"nsenter with long options": {
		manifest: once(`command: [nsenter, --target=1, --mount, --uts, --, sh, -c, "a"]`),
		form:     "script",
		script:   "a",
	},
	"nsenter with a file": {
		manifest: once(`command: [nsenter, --mount=/proc/1/ns/mnt, --, sh, -c, "a"]`),
		form:     "script",
		script:   "a",
	},
	"nsenter in one word": {manifest: once(`command: [nsenter, -t1, -mnpi, sh, -c, "a"]`), form: "script", script: "a"},
	"chroot":              {manifest: once(`command: [chroot, /host, sh, -c, "a"]`), form: "script", script: "a"},
	"a program of the node": {
		manifest: once(`command: [nsenter, -t, "1", -m, --, sysctl, -w, vm.swappiness=1]`),
		form:     "command",
		want:     []string{"- sysctl\n    - -w\n    - vm.swappiness=1\n"},
	},
	"quotes, tabs and dollars": {
		manifest: once(entering("sh, -c", "echo \"$HOME\" '$(date)' \t`id` \\\n x <<'E'\n$(date)\nE\n")),
		form:     "script",
		script:   "echo \"$HOME\" '$(date)' \t`id` \\\n x <<'E'\n$(date)\nE\n",
	},
	"variables": {
		manifest: once(
			entering(
				"sh, -c",
				`echo "$NODE $LEVEL"`,
			) + `, env: [{name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}, {name: LEVEL, value: "3"}]`,
		),
		form:   "script",
		script: `echo "$NODE $LEVEL"`,
		want:   []string{"- name: NODE\n      valueFrom:", `value: "3"`},
	},
	"the startup-script image": {
		manifest: ds(
			`containers: [{name: c, image: "registry.example/startup-script:v2", securityContext: {privileged: true}, env: [{name: STARTUP_SCRIPT, value: "#! /bin/bash\nset -e\ntouch /x\n"}, {name: LEVEL, value: "3"}]}]`,
		),
		form:   "script",
		script: "#! /bin/bash\nset -e\ntouch /x\n",
		want:   []string{"- /bin/bash\n", "name: LEVEL"},
		not:    []string{"STARTUP_SCRIPT"},
	},
	"limits of a script": {
		manifest: once(entering("sh, -c", "a") + ", resources: {limits: {memory: 64Mi, ephemeral-storage: 10Mi}}"),
		form:     "script",
		want:     []string{"ephemeral-storage: 10Mi", "memory: 64Mi"},
	},

	// What is not surely that is a template, with the same commands.
	"nsenter in a variable": {
		manifest: once(shell(`E="nsenter -t 1 -m -p --"` + "\n" + `$E systemctl restart demo`)),
		form:     "template",
	},
	"nsenter in the middle": {
		manifest: once(shell("/app/generate --out /host/etc/x; nsenter -t 1 -m -- systemctl restart x")),
		form:     "template",
	},
	"chroot in a loop": {
		manifest: once(shell("apk add gdisk; for d in $(lsblk -dn -o NAME); do chroot /host sgdisk -Z /dev/$d; done")),
		form:     "template",
	},
	"a copy from the image": {
		manifest: once(shell("cp /usr/lib/libx.so $DEST/") + ", env: [{name: DEST, value: /host}]"),
		form:     "template",
		want:     []string{"name: DEST"},
	},
	"a program of the image": {manifest: jobOn("n1", `command: [sh, -c, "/usr/local/bin/entry.sh join"]`), form: "template"},
	"another mount below the root": {
		manifest: ds(
			`initContainers: [{name: c, image: i, volumeMounts: [{name: root, mountPath: /host}, {name: conf, mountPath: /host/conf}], command: [chroot, /host, sh, -c, "cat /conf/x"]}], containers: [` + pauseContainer + "]",
		),
		form: "template",
	},
	"a root that is read-only": {
		manifest: ds(
			`initContainers: [{name: c, image: i, volumeMounts: [{name: root, mountPath: /host, readOnly: true}], command: [chroot, /host, sh, -c, "touch /x"]}], containers: [` + pauseContainer + "]",
		),
		form: "template",
	},
	"nsenter without hostPID": {
		manifest: strings.Replace(once(entering("sh, -c", "a")), "hostPID: true, ", "", 1),
		form:     "template",
	},
	"nsenter with a dash": {manifest: once(`command: [nsenter, "-", sh, -c, "a"]`), form: "template"},
	"nsenter with a user": {
		manifest: once(`command: [nsenter, -S, "1000", -G, "1000", -t, "1", -m, --, sh, -c, "a"]`),
		form:     "template",
		want:     []string{`- "1000"`},
	},
	"nsenter with a directory":     {manifest: once(`command: [nsenter, --wd=/opt, -t, "1", -m, --, sh, -c, "a"]`), form: "template"},
	"nsenter without the mounts":   {manifest: once(`command: [nsenter, -t, "1", -n, --, sh, -c, "a"]`), form: "template"},
	"a script that reads its file": {manifest: once(entering("sh, -c", `cd "$(dirname "$0")"`)), form: "template"},
	"arguments of a script": {
		manifest: once(`command: [nsenter, -t, "1", -m, --, sh, -c, "echo $1", x, z]`),
		form:     "template",
	},
	"a variable that Kubernetes expands": {
		manifest: once(entering("sh, -c", "echo $(LEVEL)") + `, env: [{name: LEVEL, value: "3"}]`),
		form:     "template",
		want:     []string{"echo $(LEVEL)"},
	},
	"a script in a variable": {
		manifest: once(entering("sh, -c", "$(SETUP)") + `, env: [{name: SETUP, value: "echo \"$X\" > f && g"}]`),
		form:     "template",
		want:     []string{"- $(SETUP)"},
	},
	"a script in a variable of a ConfigMap": {
		manifest: once(
			entering("sh, -c", "$(SETUP)")+`, env: [{name: SETUP, valueFrom: {configMapKeyRef: {name: scripts, key: run.sh}}}]`,
		) + scripts(
			"touch /x\n",
		),
		form: "template",
		want: []string{"- $(SETUP)", "configMapKeyRef"},
	},
	"an argument with a variable": {
		manifest: once(`command: [nsenter, -t, "1", -m, --, tee, "/run/x-$(ZONE)"], env: [{name: ZONE, value: z}]`),
		form:     "template",
		want:     []string{"/run/x-$(ZONE)"},
	},
	"two dollars": {
		manifest: once(entering("sh, -c", "echo host=$$(uname -s)")),
		form:     "template",
		want:     []string{"$$(uname -s)"},
	},
	"a small limit": {
		manifest: once(entering("sh, -c", "a") + ", resources: {limits: {memory: 8Mi}}"),
		form:     "template",
		want:     []string{"memory: 8Mi"},
	},
	"another user": {
		manifest: ds(
			`securityContext: {runAsUser: 7}, initContainers: [` + onNode(
				entering("sh, -c", "a"),
			) + "], containers: [" + pauseContainer + "]",
		),
		form: "template",
		want: []string{"setting securityContext.runAsUser"},
	},
	"several containers": {
		manifest: ds(
			"initContainers: [" + onNode(
				entering("sh, -c", "a"),
			) + ", " + strings.Replace(
				onNode(shell("b")),
				"name: c",
				"name: d",
				1,
			) + "], containers: [" + pauseContainer + "]",
		),
		form: "template",
		want: []string{"several containers"},
	},
	"a script from a ConfigMap": {manifest: once("command: [sh, /conf/run.sh]") + scripts("touch /host/x\n"), form: "template"},
	"an image and environment": {
		manifest: once("command: [/scripts/run.sh], env: [{name: ROOT, value: /host}, {name: LEVEL, value: '3'}]"),
		form:     "template",
		want:     []string{"name: ROOT", "name: LEVEL"},
	},
	"a carriage return": {manifest: once(`command: [nsenter, -t, "1", -m, --, sh, -c, "a\r\nb"]`), form: "template"},
	"a script that is too long": {
		manifest: once(entering("sh, -c", strings.Repeat("work; ", 12000))),
		form:     "template",
		want:     []string{"more than 65536 bytes"},
	},
	"Windows": {
		manifest: ds(
			`nodeSelector: {kubernetes.io/os: windows}, initContainers: [{name: c, image: i, command: [powershell, -c, "x"]}], containers: [` + pauseContainer + "]",
		),
		form: "template",
		want: []string{"os:\n          name: windows"},
	},
	"pod settings": {
		manifest: ds(
			`dnsPolicy: Default, hostAliases: [{ip: 10.0.0.1, hostnames: [r]}], priorityClassName: high, initContainers: [` + onNode(
				shell("a"),
			) + "], containers: [" + pauseContainer + "]",
		),
		form: "template",
		want: []string{"hostAliases", "priorityClassName: high", "dnsPolicy: Default"},
	},

	// A task ends: waits and loops are named, and never removed.
	"a wait at the end": {
		manifest: running(shell("sysctl -w a=b; sleep infinity")),
		form:     "template",
		todos:    []string{`waits or repeats its work in line 1: "sysctl -w a=b; sleep infinity"`},
		want:     []string{"sysctl -w a=b; sleep infinity"},
	},
	"a wait on the node": {
		manifest: running(entering("sh, -c", "sysctl -w a=b\nexec sleep 365d\n")),
		form:     "script",
		todos:    []string{`line 2: "exec sleep 365d"`},
		script:   "sysctl -w a=b\nexec sleep 365d\n",
	},
	"two waits": {
		manifest: running(shell("if [ -e /done ]; then\n  sleep infinity\nfi\ntouch /done\nsleep infinity\n")),
		form:     "template",
		todos:    []string{"line 2"},
	},
	"sleep with arithmetic": {
		manifest: running(shell("touch /x; sleep $((60*60*24))")),
		form:     "template",
		todos:    []string{"sleep $((60*60*24))"},
	},
	"sleep of a variable": {manifest: running(shell("touch /x; sleep $N")), form: "template", todos: []string{"sleep $N"}},
	"tail": {
		manifest: running(shell("touch /x && exec tail -f /dev/null")),
		form:     "template",
		todos:    []string{"tail -f /dev/null"},
	},
	"a loop": {
		manifest: running(shell("while true; do\n  iptables -A x\n  sleep 60\ndone")),
		form:     "template",
		todos:    []string{`waits or repeats its work in line 1: "while true; do"`},
	},
	"a loop with continue": {
		manifest: running(shell("while true; do if [ -e /etc/skip ]; then sleep 60; continue; fi; iptables -A x; sleep 60; done")),
		form:     "template",
		todos:    []string{"while true"},
		want:     []string{"continue"},
	},
	"a loop with a test": {
		manifest: running(shell("touch /x; while [ true ]; do sleep 60; done")),
		form:     "template",
		todos:    []string{"while [ true ]"},
	},
	"a loop as in C": {
		manifest: running("command: [bash, -c, 'touch /x; for ((;;)); do sleep 1h; done']"),
		form:     "template",
		todos:    []string{"for ((;;)); do sleep 1h"},
	},
	"work before a loop": {
		manifest: running(shell("apt-get install -y nfs-common; while true; do date; sleep 3600; done")),
		form:     "template",
		todos:    []string{"while true; do date; sleep 3600"},
		not:      []string{"periodSeconds:"},
	},
	"a retry that ends": {manifest: once(shell("until curl -f x; do sleep 5; done; touch /x")), form: "template"},
	"a script that ends": {
		manifest: running(entering("bash, -c", "sysctl -w kernel.panic=0; sleep 10")),
		form:     "script",
		todos:    []string{`waits or repeats its work in line 1: "sysctl -w kernel.panic=0; sleep 10"`},
		script:   "sysctl -w kernel.panic=0; sleep 10",
		want:     []string{"the DaemonSet repeated its pod when it ended"},
	},
	"a probe of a wait": {
		manifest: running(
			shell("sysctl -w a=b; touch /tmp/done; exec sleep infinity") + ", readinessProbe: {exec: {command: [cat, /tmp/done]}}",
		),
		form:  "template",
		todos: []string{"sleep infinity", "containers[c].readinessProbe.exec (if the probe does a part of the work, add it to the task)"},
		not:   []string{"  readinessProbe:"},
	},
	"a wait in a mounted script": {
		manifest: ds(
			`containers: [{name: c, image: i, volumeMounts: [{name: conf, mountPath: /conf}], command: [sh, /conf/run.sh]}]`,
		) + scripts(
			"touch /x\nsleep infinity\n",
		),
		form: "template",
		todos: []string{
			`the script of container c (in the ConfigMap scripts) waits or repeats its work in line 2`,
		},
		want: []string{"stay as they are: ConfigMap ns/scripts"},
	},

	// Reboots.
	"reboot": {
		manifest: once(entering("sh, -c", "apt-get upgrade -y\nreboot")),
		form:     "script",
		todos:    []string{`may reboot its node: "reboot"`},
		script:   "apt-get upgrade -y\nreboot",
	},
	"systemctl reboot": {manifest: once(shell("chroot /host systemctl reboot")), form: "template", todos: []string{"may reboot"}},
	"rebootmgrctl": {
		manifest: planOf(`upgrade: {image: i, command: [chroot, /host, sh, -c, "[ -f /run/reboot-needed ] && rebootmgrctl reboot now"]}`),
		form:     "script",
		todos:    []string{"rebootmgrctl reboot now"},
	},
	"transactional-update": {
		manifest: planOf(`upgrade: {image: i, command: [chroot, /host, transactional-update, reboot]}`),
		form:     "command",
		todos:    []string{"may reboot"},
	},
	"a reboot in the background": {manifest: once(shell("( sleep 5 && reboot ) &")), form: "template", todos: []string{"may reboot"}},
	"an argument that reboots":   {manifest: once("command: [/usr/bin/upgrade, --reboot]"), form: "template", todos: []string{"--reboot"}},
	"sysrq": {
		manifest: once(shell("echo b > /proc/sysrq-trigger")),
		form:     "template",
		todos:    []string{"sysrq-trigger"},
	},
	"init 6":   {manifest: once(shell("init 6")), form: "template", todos: []string{"init 6"}},
	"kexec":    {manifest: once(shell("kexec -e")), form: "template", todos: []string{"kexec -e"}},
	"shutdown": {manifest: once(shell("shutdown -r +1")), form: "template", todos: []string{"shutdown -r +1"}},
	"a unit that reboots": {
		manifest: once(shell("systemctl start reboot.target")),
		form:     "template",
		todos:    []string{"reboot.target"},
	},
	"D-Bus": {
		manifest: once(shell("busctl call org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager Reboot b true")),
		form:     "template",
		todos:    []string{"Reboot b true"},
	},
	"a power cycle": {manifest: once(shell("ipmitool power cycle")), form: "template", todos: []string{"power cycle"}},
	"runlevel 6": {
		manifest: once(shell("systemctl isolate runlevel6.target")),
		form:     "template",
		todos:    []string{"runlevel6"},
	},
	"a reboot in a Secret": {
		manifest: planOf(
			`secrets: [{name: s, path: /host/run/s}], upgrade: {image: i, command: [chroot, /host], args: [sh, /run/s/up.sh]}`,
		) + "---\napiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: ns}\nstringData: {up.sh: \"d=$(dirname $0)\\napt-get install demo=$(cat $d/version)\\nsystemctl reboot\\n\", version: \"2\"}\n",
		form: "template",
		todos: []string{
			"may reboot its node",
		},
		not:  []string{"systemctl"},
		want: []string{"secretName: s", "stay as they are: Secret ns/s"},
	},

	// Plans.
	"a Plan selects by its own label": {
		manifest: planOf(`nodeSelector: {matchExpressions: [{key: plan.upgrade.cattle.io/p, operator: Exists}]}, upgrade: {image: i}`),
		form:     "template",
		not:      []string{"    assumeDone:"},
		want:     []string{"key: plan.upgrade.cattle.io/p"},
	},
	"a Plan with a hash": {
		manifest: planOf(`upgrade: {image: i}`) + "status: {latestHash: abc}\n",
		form:     "template",
		want:     []string{"plan.upgrade.cattle.io/p: abc"},
	},
	"a Plan whose argument is expanded": {
		manifest: planOf(`upgrade: {image: i, command: [chroot, /host, up, "--to=$(SYSTEM_UPGRADE_PLAN_LATEST_VERSION)"]}`),
		form:     "template",
		want:     []string{"--to=$(SYSTEM_UPGRADE_PLAN_LATEST_VERSION)"},
	},
	"a prepare container of k3s": {
		manifest: planOf(`prepare: {image: i, args: [prepare, server]}, upgrade: {image: i}`),
		form:     "template",
		todos:    []string{"not converted: spec.prepare (if it waits for another Plan, as for k3s and RKE2, resume this NodeJob when"},
	},
	"a prepare container that polls": {
		manifest: planOf(
			`prepare: {image: kubectl, command: [sh, -c, "until [ -z \"$(kubectl get plan cp -o jsonpath='{.status.applying}')\" ]; do sleep 20; done"]}, upgrade: {image: i}`,
		),
		form:  "template",
		todos: []string{"not converted: spec.prepare (if it waits for another Plan"},
	},
	"a Plan with a channel": {
		manifest: "apiVersion: upgrade.cattle.io/v1\nkind: Plan\nmetadata: {name: p, namespace: ns}\nspec: {concurrency: 1, nodeSelector: {}, channel: https://c, upgrade: {image: i}}\n",
		form:     "template",
		todos:    []string{"instead of TAG", "not converted: spec.channel"},
		want:     []string{"no polling of a channel"},
	},
	"a drain without a grace period": {
		manifest: planOf(`drain: {gracePeriod: 0}, upgrade: {image: i}`),
		form:     "template",
		todos:    []string{"not converted: spec.drain.gracePeriod (maintenance.drain.gracePeriodSeconds takes 1 or more)"},
	},
	"a drain without options": {
		manifest: planOf(`drain: {deleteEmptydirData: false}, upgrade: {image: i}`),
		form:     "template",
		want:     []string{"drain: {}"},
	},
	"drain, window and exclusive": {
		manifest: planOf(`exclusive: true, window: {days: [sunday]}, drain: {force: true}, upgrade: {image: i}`),
		form:     "template",
		todos:    []string{"not converted: spec.drain.force (", "spec.exclusive (", "spec.window ("},
	},

	// Which nodes.
	"a label that the script sets": {
		manifest: ds(
			`serviceAccountName: s, affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: example.com/done, operator: DoesNotExist}]}]}}}, containers: [` + onNode(
				shell("kubectl label node $N example.com/done=1"),
			) + "]",
		),
		form: "template",
		want: []string{"assumeDone:", "key: example.com/done"},
		not:  []string{"onReboot"},
	},
	"a label that a program may set": {
		manifest: ds(
			`serviceAccountName: s, affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: example.com/no-agent, operator: DoesNotExist}]}]}}}, containers: [{name: c, image: i, command: [/agent]}]`,
		),
		form:  "template",
		todos: []string{"does not show whether the container c ends and sets the label example.com/no-agent on its node"},
		want:  []string{"assumeDone:", "operator: Exists", "If it runs permanently, keep the DaemonSet."},
		not:   []string{"onReboot", "operator: DoesNotExist\n"},
	},
	"arguments of a script file that are like options": {
		manifest: once(entering("sh, /opt/setup.sh, -c", "x")),
		form:     "template",
	},
	"nsenter with words for its options": {
		manifest: strings.Replace(
			once(`command: [nsenter, --target, "1", --mount, --uts, --ipc, --net, --pid, --, bash, -c, "a"]`),
			"hostNetwork: true, ",
			"",
			1,
		),
		form:   "script",
		script: "a",
	},
	"a label that the script removes": {
		manifest: ds(
			`serviceAccountName: s, nodeSelector: {example.com/wanted: "1"}, containers: [` + onNode(
				shell("kubectl label node $N example.com/wanted-"),
			) + "]",
		),
		form:  "template",
		todos: []string{"may change the label example.com/wanted"},
		want:  []string{"removeLabels:\n  - example.com/wanted"},
	},
	"several terms": {
		manifest: ds(
			`affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}, {matchExpressions: [{key: b, operator: Exists}]}]}}}, initContainers: [` + onNode(
				shell("x"),
			) + "], containers: [" + pauseContainer + "]",
		),
		form:  "template",
		todos: []string{"does not run on all of its nodes"},
	},
	"terms with values": {
		manifest: ds(
			`affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In, values: [x]}]}, {matchExpressions: [{key: a, operator: In, values: [z]}]}]}}}, initContainers: [` + onNode(
				shell("x"),
			) + "], containers: [" + pauseContainer + "]",
		),
		form:  "template",
		todos: []string{"does not run on all of its nodes: only one of 2 nodeSelectorTerms is converted"},
	},
	"a number": {
		manifest: ds(
			`affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Gt, values: ["1"]}]}]}}}, initContainers: [` + onNode(
				shell("x"),
			) + "], containers: [" + pauseContainer + "]",
		),
		form:  "template",
		todos: []string{"can neither compare numbers"},
	},
	"Jobs for two nodes": {
		manifest: jobOn("n1", shell("x")) + "---\n" + jobOn("n2", shell("x")),
		form:     "template",
		want:     []string{"names:\n    - n1\n    - n2"},
	},
	"a Job that names its node": {
		manifest: jobOn("n1", shell("setup n1")),
		form:     "template",
		todos:    []string{"names the node n1"},
	},
	"a Job with a placeholder": {
		manifest: strings.NewReplacer("j-NODE", "j", "nodeName: NODE", "nodeName: $NODE").Replace(jobOn("NODE", shell("x"))),
		form:     "template",
		todos:    []string{"the Job has a placeholder for its node, and the NodeJob runs on all nodes"},
		not:      []string{"    names:"},
	},
	"a Job with a hook and parallelism": {
		manifest: strings.Replace(jobOn("n1", shell("x")), "spec: {template", "spec: {parallelism: 3, template", 1),
		form:     "template",
		todos:    []string{"spec.parallelism"},
	},
	"an owner that creates the object again": {
		manifest: strings.Replace(
			once(shell("x")),
			"namespace: ns}",
			"namespace: ns, ownerReferences: [{apiVersion: v1, kind: A, name: a, uid: u}]}",
			1,
		),
		form:  "template",
		todos: []string{"metadata.ownerReferences"},
	},
	"hooks": {
		manifest: ds(
			`initContainers: [` + onNode(
				shell("x"),
			) + `], containers: [{name: p, image: pause, lifecycle: {preStop: {exec: {command: [undo]}}}}]`,
		),
		form:  "template",
		todos: []string{"spec.template.spec.containers[p].lifecycle.preStop"},
	},
	"an unknown field": {manifest: once(shell("x") + ", newField: 1"), form: "template", todos: []string{"newField"}},

	// What a hostile tester found.
	"a variable of that name": {
		manifest: once(entering("bash, -c", `eval "$STARTUP_SCRIPT"`) + `, env: [{name: STARTUP_SCRIPT, value: sysctl -w a=b}]`),
		form:     "script",
		want:     []string{"name: STARTUP_SCRIPT"},
	},
	"Jobs that differ in more": {
		manifest: jobOn("n1", shell("hostnamectl set-hostname prod-n1")) + "---\n" + jobOn("n2", shell("hostnamectl set-hostname prod-n2")),
		form:     "template",
		todos:    []string{"names the node n1 not only to choose it"},
	},
	"Jobs with other work": {
		manifest: jobOn("n1", shell("x")) + "---\n" + strings.ReplaceAll(jobOn("n2", shell("z")), "j-n2", "j"),
		form:     "template",
		todos:    []string{"another NodeJob has the same name"},
		want:     []string{"name: j\n", "name: j-2\n"},
	},
	"a Job on a tainted node": {
		manifest: jobOn("n1", shell("x")),
		form:     "template",
		want:     []string{"- effect: NoSchedule\n      operator: Exists"},
	},
	"a node with capitals": {
		manifest: strings.ReplaceAll(jobOn("n1", shell("x")), "nodeName: n1", "nodeName: NODE_NAME"),
		form:     "template",
		todos:    []string{"the Job has a placeholder for its node, and the NodeJob runs on all nodes"},
		not:      []string{"    names:"},
	},
	"a Plan for no node": {
		manifest: planOf(`nodeSelector: null, upgrade: {image: i}`),
		form:     "refused",
		want:     []string{"so it runs on no node"},
	},
	"a Plan that nodes can opt out of": {
		manifest: planOf(`upgrade: {image: i}`),
		form:     "template",
		want:     []string{"operator: NotIn\n        values:\n        - disabled"},
	},
	"a label of the cloud that a server does not want": {
		manifest: ds(
			`serviceAccountName: s, affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: type, operator: NotIn, values: [virtual-kubelet]}]}]}}}, containers: [` + onNode(
				"command: [/usr/bin/agent, --type=node]",
			) + "]",
		),
		form: "refused",
		want: []string{"/usr/bin/agent"},
	},
	"a word that is a label": {
		manifest: ds(
			`serviceAccountName: s, affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: gpu, operator: DoesNotExist}]}]}}}, initContainers: [` + onNode(
				shell("lsmod | grep nvidia-gpu || true"),
			) + "], containers: [" + pauseContainer + "]",
		),
		form: "template",
		not:  []string{"    assumeDone:"},
		want: []string{"operator: DoesNotExist"},
	},
	"two labels": {
		manifest: ds(
			`serviceAccountName: s, affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a/x, operator: DoesNotExist}, {key: b/x, operator: DoesNotExist}]}]}}}, containers: [` + onNode(
				shell("kubectl label node n a/x=1 b/x=1"),
			) + "]",
		),
		form:  "template",
		todos: []string{"may change the label b/x"},
	},
	"a label that changes": {
		manifest: ds(
			`serviceAccountName: s, nodeSelector: {setup: pending}, containers: [` + onNode(
				shell("touch /x; kubectl label node n setup=done --overwrite"),
			) + "]",
		),
		form:  "template",
		todos: []string{"may change the label setup"},
	},
	"a label that is not shown": {
		manifest: ds(
			`serviceAccountName: s, nodeSelector: {setup: pending}, containers: [` + onNode(shell(`kubectl label node n "$LABEL-"`)) + "]",
		),
		form:  "template",
		todos: []string{"may change the label setup"},
	},
	"a namespace that is like a label": {
		manifest: ds(
			`serviceAccountName: s, nodeSelector: {gpu: "true"}, initContainers: [` + onNode(
				shell("kubectl get pods -n gpu-operator"),
			) + "], containers: [" + pauseContainer + "]",
		),
		form: "template",
		not:  []string{"  removeLabels:"},
	},
	"kubectl get --watch": {
		manifest: running(shell("kubectl get nodes --watch | while read -r n; do touch /$n; done")),
		form:     "template",
		todos:    []string{"waits or repeats its work in line 1"},
	},
	"a program behind nsenter": {
		manifest: running(shell("nsenter -t 1 -m -- node-agent service")),
		form:     "refused",
		want:     []string{`runs "nsenter -t 1 -m -- node-agent service"`},
	},
	"a loop behind nsenter": {
		manifest: running(shell("nsenter -t 1 -m -- bash -c 'while true; do touch /x; sleep 30; done'")),
		form:     "template",
		todos:    []string{"waits or repeats its work in line 1"},
	},
	"a script in a variable of a shell": {
		manifest: running("command: [bash, -c, '$SETUP'], env: [{name: SETUP, value: 'while true; do touch /x; sleep 5; done'}]"),
		form:     "refused",
		want:     []string{`runs "$SETUP"`},
	},
	"kill -STOP": {
		manifest: running(shell("touch /x; kill -STOP $$")),
		form:     "template",
		todos:    []string{"waits or repeats its work in line 1"},
	},
	"a configuration of a server": {
		manifest: ds(
			`containers: [{name: c, image: i, volumeMounts: [{name: conf, mountPath: /etc/agent}], command: [/usr/bin/agent, --config, /etc/agent/run.sh]}]`,
		) + scripts(
			"KEY=value\n",
		),
		form: "refused",
		want: []string{`runs "/usr/bin/agent --config /etc/agent/run.sh"`},
	},
	"a server in the background": {
		manifest: running(shell(`"$AGENT" & sleep infinity`)),
		form:     "template",
		todos:    []string{"sleep infinity"},
		want:     []string{"what it has started in the background ends with its pod"},
	},
	"an image that is called pause": {
		manifest: ds("containers: [{name: c, image: pause-controller}]"),
		form:     "refused",
		want:     []string{"runs the image pause-controller"},
	},
	"a startup-script image in a template": {
		manifest: ds(
			`containers: [{name: c, image: startup-script, securityContext: {privileged: true}, env: [{name: STARTUP_SCRIPT, value: "echo $$"}]}]`,
		),
		form:  "template",
		todos: []string{"runs its script and then waits without end"},
	},
	"the default service account": {
		manifest: once(shell("kubectl label node $N a=b")),
		form:     "template",
		want:     []string{"automountServiceAccountToken: true"},
	},
	"rights of the default service account": {
		manifest: once(
			shell("kubectl label node $N a=b"),
		) + "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: b}\n",
		form: "template",
		not:  []string{"has no API credentials"},
	},
	"a variable of a Service": {
		manifest: once(entering("sh, -c", "curl $REGISTRY_SERVICE_HOST")),
		form:     "template",
	},
	"nsenter without the network": {
		manifest: strings.Replace(
			once(`command: [nsenter, -t, "1", -m, --, sh, -c, "sysctl -w net.core.somaxconn=1"]`),
			"hostNetwork: true, ",
			"",
			1,
		),
		form: "template",
	},
	"dropped capabilities": {
		manifest: once(strings.Replace(entering("sh, -c", "a"), "command", "workingDir: /, command", 1)),
		form:     "template",
	},
	"a folder that is created": {
		manifest: strings.Replace(once(entering("sh, -c", "a")), "hostPath: {path: /}", "hostPath: {path: /, type: DirectoryOrCreate}", 1),
		form:     "template",
	},
	"labels of the pod": {
		manifest: once(shell("echo $V")),
		form:     "template",
		want:     []string{"labels:\n          a: b"},
	},
	"a long wait in a Job": {
		manifest: jobOn("n1", shell("sleep 1800; touch /x")),
		form:     "template",
		todos:    []string{"waits or repeats its work in line 1"},
	},
	"a shell of its own": {
		manifest: once(`command: [nsenter, -t, "1", -m, --, /opt/busybox/bin/sh, -c, "a"]`),
		form:     "script",
		want:     []string{"- /opt/busybox/bin/sh"},
	},
	"an empty program": {
		manifest: running(`command: [""]`),
		form:     "refused",
		want:     []string{`runs "an empty command"`},
	},
	"a variable twice": {
		manifest: once(shell("a") + ", env: [{name: A, value: b}, {name: A, value: c}]"),
		form:     "refused",
		want:     []string{"has the variable A twice"},
	},
	"a device": {
		manifest: once(entering("sh, -c", "a") + `, resources: {limits: {nvidia.com/gpu: "1"}}`),
		form:     "template",
	},
	"a key of Everynode": {
		manifest: strings.Replace(
			once(shell("a")),
			"metadata: {labels: {a: b}}",
			"metadata: {labels: {a: b}, annotations: {everynode.dev/x: z}}",
			1,
		),
		form:  "template",
		todos: []string{"spec.template.metadata.annotations.everynode.dev/x (only Everynode sets it on pods)"},
	},
	"PowerShell": {
		manifest: once("command: [powershell, -c, Restart-Computer -Force]"),
		form:     "template",
		todos:    []string{"may reboot"},
	},
	"cron":               {manifest: once(shell("echo '@reboot root /x' > /etc/cron.d/x")), form: "template"},
	"a package":          {manifest: once(shell("apt-get install -y kexec-tools")), form: "template"},
	"a sign of a reboot": {manifest: once(shell("touch /var/run/reboot-required")), form: "template"},

	// What a shell reads from elsewhere, and names that occur twice.
	"a pause with a hook": {
		manifest: ds(`containers: [{name: p, image: pause, lifecycle: {postStart: {exec: {command: [sysctl]}}}}]`),
		form:     "refused",
		want:     []string{"only wait. For work in lifecycle.postStart, or to pull images, write a NodeJob"},
	},
	"a script in a projected volume": {
		manifest: strings.Replace(
			ds("containers: [{name: c, image: i, command: [sh, /p/go.sh], volumeMounts: [{name: proj, mountPath: /p}]}]"),
			"volumes: [",
			"volumes: [{name: proj, projected: {sources: [{downwardAPI: {}}, {configMap: {name: scripts, items: [{key: run.sh, path: go.sh}]}}]}}, ",
			1,
		) + scripts(
			"touch /x; sleep 900",
		),
		form:  "template",
		todos: []string{"(in the ConfigMap scripts) waits or repeats its work in line 1"},
	},
	"a projected volume that is absent": {
		manifest: strings.Replace(
			ds("containers: [{name: c, image: i, command: [sh, /p/go.sh], volumeMounts: [{name: proj, mountPath: /p}]}]"),
			"volumes: [",
			"volumes: [{name: proj, projected: {sources: [{configMap: {name: scripts}}]}}, ",
			1,
		),
		form: "refused",
		want: []string{"is in the ConfigMap scripts, which is not in the file"},
	},
	"a Plan that reads its pod": {
		manifest: planOf(`upgrade: {image: i, command: [cat, /run/system-upgrade/pod/labels]}`),
		form:     "template",
		todos:    []string{"reads /run/system-upgrade/pod"},
	},
	"a label without a shell": {
		manifest: ds(
			`serviceAccountName: s, affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: example.com/done, operator: DoesNotExist}]}]}}}, containers: [` + onNode(
				"command: [kubectl, label, node, node-1, example.com/done=1]",
			) + "]",
		),
		form: "template",
		want: []string{"assumeDone:", "key: example.com/done"},
	},
	"a wait without a shell": {
		manifest: jobOn("n1", "command: [sleep, '1800']"),
		form:     "template",
		todos:    []string{"waits or repeats its work in line 1"},
	},
	"an argument with a word of servers": {
		manifest: running(shell("sed -i 's/ server / client /' /host/etc/x; sleep 900")),
		form:     "template",
		todos:    []string{"sleep 900"},
	},
	"an argument in a Secret": {
		manifest: ds(
			`containers: [{name: c, image: i, command: [/agent, "--token=$(T)"], env: [{name: T, valueFrom: {secretKeyRef: {name: s, key: t}}}]}]`,
		) + "---\napiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: ns}\nstringData: {t: \"hunter2\\n\"}\n",
		form: "refused",
		want: []string{`its container c runs "…", and`},
		not:  []string{"hunter2"},
	},
	"a wait in a Secret": {
		manifest: ds(
			`containers: [{name: c, image: i, command: [bash, -c, "$(RUN)"], env: [{name: RUN, valueFrom: {secretKeyRef: {name: s, key: run}}}]}]`,
		) + "---\napiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: ns}\nstringData: {run: \"touch /x; sleep 900 # hunter2\"}\n",
		form:  "template",
		todos: []string{`waits or repeats its work in line 1: "…"`},
		not:   []string{"sleep 900"},
	},
	"kubectl drain of its own node": {
		manifest: once(
			shell(
				"kubectl drain $NODE --ignore-daemonsets; apt-get -y upgrade; kubectl uncordon $NODE",
			) + ", env: [{name: NODE, value: n1}]",
		),
		form:  "template",
		todos: []string{"drains its node"},
	},
	"a reboot without a shell": {
		manifest: once("command: [chroot, /host, rpm-ostree, upgrade, -r]"),
		form:     "command",
		todos:    []string{"may reboot"},
	},
	"a reboot of a Plan, in words": {
		manifest: planOf("upgrade: {image: i, command: [chroot, /host, init, '6']}"),
		form:     "command",
		todos:    []string{"may reboot"},
	},
	"an absent file in a script": {
		manifest: ds(
			"initContainers: [" + withScripts(
				shell("cp /conf/run.sh /host/tmp/ && chroot /host /tmp/run.sh"),
			) + "], containers: [" + pauseContainer + "]",
		),
		form:  "template",
		todos: []string{"is in the ConfigMap scripts, which is not in the file"},
	},
	"a file in a script waits": {
		manifest: ds("containers: ["+withScripts(shell("sh /conf/run.sh; true"))+"]") + scripts("sysctl -w a=b; sleep infinity"),
		form:     "refused",
		want:     []string{`runs "sh /conf/run.sh; true"`},
	},
	"a file in a script is a server": {
		manifest: ds("containers: ["+withScripts(shell("/conf/run.sh"))+"]") + scripts("exec /agent"),
		form:     "refused",
		want:     []string{`runs "/conf/run.sh"`},
	},
	"a script of envFrom": {
		manifest: once(`command: [sh, -c, "$(run.sh)"], envFrom: [{configMapRef: {name: scripts}}]`) + scripts("systemctl reboot"),
		form:     "template",
		todos:    []string{"may reboot"},
	},
	"a label by oc": {
		manifest: ds(
			"serviceAccountName: s, affinity: " + without(
				"example.com/done",
			) + ", initContainers: [" + onNode(
				shell("oc label node $N example.com/done=true"),
			) + "], containers: [" + pauseContainer + "]",
		),
		form: "template",
		want: []string{"assumeDone"},
	},
	"a label by kubectl patch": {
		manifest: ds(
			"serviceAccountName: s, affinity: " + without(
				"example.com/done",
			) + ", initContainers: [" + onNode(
				shell(`kubectl patch node $NODE -p '{"metadata":{"labels":{"example.com/done":"true"}}}'`),
			) + "], containers: [" + pauseContainer + "]",
		),
		form:  "template",
		todos: []string{"may change the label example.com/done"},
	},
	"a label that a Plan removes": {
		manifest: planOf(
			"nodeSelector: {matchLabels: {example.com/setup: pending}}, upgrade: {image: i, " + shell(
				"kubectl label node $N example.com/setup-",
			) + "}",
		),
		form:  "template",
		todos: []string{"may change the label example.com/setup"},
		want:  []string{"removeLabels:\n  - example.com/setup\n"},
	},
	"an image with arguments that wait": {
		manifest: ds(
			"initContainers: [" + onNode(shell("sysctl -w a=b")) + "], containers: [{name: setup, image: setup, args: [sleep, infinity]}]",
		),
		form:  "template",
		todos: []string{"the image setup of the container setup does more than to run"},
	},
	"the default ServiceAccount": {
		manifest: once("command: [/setup]"),
		form:     "template",
		want:     []string{"- The task has no credentials of the ServiceAccount default."},
	},
	"a label of the revision": {
		manifest: once(
			shell(
				"[ -e /host/$R ] || touch /host/$R",
			) + `, env: [{name: R, valueFrom: {fieldRef: {fieldPath: "metadata.labels['controller-revision-hash']"}}}]`,
		),
		form:  "template",
		todos: []string{"reads a label that only the controller of its pod sets"},
	},
	"a parameter of System V IPC": {
		manifest: once(`command: [nsenter, -t, "1", -m, -u, -n, -p, --, sysctl, -w, kernel.shmmax=1]`),
		form:     "template",
	},
	"a mount after chroot": {
		manifest: once("command: [chroot, /host, sh, -c, 'umount /old && mount /dev/sdb /data']"),
		form:     "template",
	},
	"an address of a Service": {
		manifest: once(entering("sh, -c", "echo $R > /etc/mirror") + ", env: [{name: R, value: 'http://$(REGISTRY_SERVICE_HOST)'}]"),
		form:     "template",
	},
	"-cex": {
		manifest: jobOn("n1", `command: [bash, -cex, "apt-get update; sleep 1800"]`),
		form:     "template",
		todos:    []string{"sleep 1800"},
	},
	"bash -cex": {
		manifest: once(entering("bash, -cex", "a")),
		form:     "script",
		script:   "a",
		want:     []string{"- bash\n    - -ex\n"},
	},
	"a loop and a wait in a script": {
		manifest: jobOn("n1", shell("bash -c 'until a; do sleep 5; done; sleep 1800'")),
		form:     "template",
		todos:    []string{"waits or repeats its work in line 1"},
	},
	"a reboot in a Secret of several lines": {
		manifest: once(`command: [sh, -c, "$(S)"], env: [{name: S, valueFrom: {secretKeyRef: {name: s, key: run}}}]`) +
			"---\napiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: ns}\nstringData: {run: \"curl -u admin:pw https://bmc/reboot\\necho done\\n\"}\n",
		form:  "template",
		todos: []string{`may reboot its node: "…"`},
		not:   []string{"admin:pw"},
	},
	"a label in a variable": {
		manifest: marking("kubectl label node $NODE $LABEL --overwrite"),
		form:     "template",
		todos:    []string{"may change the label example.com/done"},
	},
	"a label by k3s kubectl": {
		manifest: marking("k3s kubectl label node $NODE example.com/done=true"),
		form:     "template",
		want:     []string{"assumeDone"},
	},
	"a label by a variable": {
		manifest: marking(`K="kubectl --v=1"; $K label node $NODE example.com/done=true`),
		form:     "template",
		want:     []string{"assumeDone"},
	},
	"a patch of taints":      {manifest: marking(`kubectl patch node $NODE -p '{"spec":{"taints":[]}}'`), form: "template"},
	"a patch in a namespace": {manifest: marking("kubectl patch configmap x -n node-system -p x"), form: "template"},
	"a drain by a variable": {
		manifest: once(shell(`K="kubectl --v=1"; $K drain $NODE --force`)),
		form:     "template",
		todos:    []string{"drains its node"},
	},
	"a comment about reboots": {
		manifest: once(shell("# Does not reboot, and does not drain\nkubectl label pod x drain=false")),
		form:     "template",
	},
	"IPC of the node": {
		manifest: once(`command: [nsenter, -t, "1", -m, -u, -i, -n, -p, --, sysctl, -w, kernel.shmmax=1]`),
		form:     "command",
	},
	"busybox waits": {
		manifest: ds(
			"initContainers: [" + onNode(
				shell("sysctl -w a=b"),
			) + "], containers: [{name: w, image: 'busybox:1.36', args: [sleep, infinity]}]",
		),
		form: "template",
	},
	"a script of a Plan's Secret": {
		manifest: planOf(
			"secrets: [{name: s, path: /host/run/s}], upgrade: {image: i, command: [chroot, /host], args: [sh, /run/s/up.sh]}",
		),
		form:  "template",
		todos: []string{"is in the Secret s, which is not in the file"},
	},
	"a label that a Job changes": {
		manifest: strings.Replace(
			jobOn("n1", shell("kubectl label node $NODE example.com/setup=done --overwrite")),
			"nodeName: n1",
			"nodeSelector: {kubernetes.io/hostname: n1, example.com/setup: pending}",
			1,
		),
		form:  "template",
		todos: []string{"may change the label example.com/setup"},
	},
	"two Plans of one name": {
		manifest: planOf(
			`prepare: {image: i, command: [touch, /a]}, upgrade: {image: i}`,
		) + "---\n" + planOf(
			`prepare: {image: i, command: [touch, /b]}, upgrade: {image: j}`,
		),
		form: "template",
		todos: []string{
			"not converted: spec.prepare",
			"another NodeJob has the same name",
			"not converted: spec.prepare",
		},
		want: []string{"name: p-2\n", "resume p-2 -n ns", "skip p-2"},
	},
	"two long names": {
		manifest: strings.ReplaceAll(once(shell("x"))+"---\n"+once(shell("z")), "name: d,", "name: "+strings.Repeat("n", 63)+","),
		form:     "template",
		todos:    []string{"the same name"},
		want:     []string{"name: " + strings.Repeat("n", 61) + "-2\n"},
	},

	// Not every line with the name of a wait or a reboot is one.
	"a wait that a line only prints": {
		manifest: once(shell("echo 'in a while: sleep 3600'; touch /x")),
		form:     "template",
	},
	"a reboot that a line only prints": {
		manifest: once(shell("if [ -f /run/reboot-required ]; then echo \"node $N: reboot required\"; fi")),
		form:     "template",
	},
	"a reboot after a line that prints": {
		manifest: once(shell("echo reboot now\nsystemctl reboot")),
		form:     "template",
		todos:    []string{`may reboot its node: "systemctl reboot"`},
	},
	"the name of a step": {manifest: once(shell("cat > /x <<E\n- name: reboot the node\nE")), form: "template"},
	"a retry in an init container": {
		manifest: once(shell("until mdadm --detail /dev/md0; do sleep 5; done; md5sum /x | jq .")),
		form:     "template",
	},
	"a loop that also works": {
		manifest: ds(
			"initContainers: [" + onNode(
				shell("a"),
			) + `], containers: [{name: w, image: i, command: [sh, -c, "while sleep 60; do curl -f x; done"]}]`,
		),
		form:  "template",
		todos: []string{"while sleep 60; do curl"},
	},
	"a trap around a wait": {
		manifest: ds(
			"initContainers: [" + onNode(
				shell("a"),
			) + `], containers: [{name: w, image: i, command: [sh, -c, "trap 'exit 0' TERM; echo done; sleep infinity & wait"]}]`,
		),
		form: "template",
		want: []string{"the container w with the image i, which only waits"},
	},
	"a trap that undoes the work": {
		manifest: running(shell("trap 'rm -f /host/x' TERM; sleep infinity & wait")),
		form:     "template",
		todos:    []string{"sleep infinity"},
	},

	// Patches and templates.
	"a patch of an init container": {
		manifest: ds("initContainers: [" + onNode(shell("a")) + "]"),
		form:     "refused",
		want:     []string{"it has no containers, so it is a patch or a template. Convert what is applied: kubectl kustomize DIR"},
	},
	"a patch of a container": {
		manifest: ds("containers: [{name: c, args: [--size, '1']}]"),
		form:     "refused",
		want:     []string{"its container c has no image, so it is a patch or a template"},
	},
	"a Job without an image": {
		manifest: strings.Replace(jobOn("n1", shell("x")), "image: alpine, ", "", 1),
		form:     "refused",
		want:     []string{"container c has no image"},
	},
	"a BroadcastJob without a pod": {manifest: broadcastOf("spec: {}"), form: "refused", want: []string{"it has no containers"}},
	"a Plan without an image": {
		manifest: planOf("upgrade: {command: [x]}"),
		form:     "refused",
		want:     []string{"it has no spec.upgrade with an image"},
	},
	"a placeholder in an image": {
		manifest: strings.Replace(once(shell("x")), "image: alpine", "image: 'r/i:${TAG}'", 1),
		form:     "template",
		todos:    []string{"initContainers[c].image has a placeholder, which must be replaced: r/i:${TAG}"},
	},
	"a placeholder in a path": {
		manifest: strings.Replace(once(shell("x")), "hostPath: {path: /}", "hostPath: {path: <dataDirHostPath>}", 1),
		form:     "template",
		todos:    []string{"volumes[root].hostPath.path has a placeholder, which must be replaced: <dataDirHostPath>"},
	},
	"a placeholder in an argument": {
		manifest: once("command: [setup, '<mode>']"),
		form:     "template",
		todos:    []string{"has a placeholder, which must be replaced: <mode>"},
	},

	// What the source does with failures, and what it undoes.
	"failures of a DaemonSet": {
		manifest: once(shell("x")),
		form:     "template",
		want:     []string{"maxFailures: 100%", "- rollout.maxFailures: a failed node does not stop the others, as with the DaemonSet."},
	},
	"failures of a Job": {manifest: jobOn("n1", shell("x")), form: "template", want: []string{"maxFailures: 100%", "limit: 6\n"}},
	"a BroadcastJob on nodes that join": {
		manifest: broadcastOf(`spec: {template: {spec: {containers: [{name: c, image: i}]}}}`),
		form:     "template",
		todos:    []string{"with completionPolicy Always, the default, nodes that join later do not run the task"},
		want:     []string{"Without rollout.steps, the task must succeed on one node before it runs on several."},
		not:      []string{"maxConcurrent"},
	},
	"a hook that undoes the work": {
		manifest: running(shell("modprobe x; sleep infinity") + ", lifecycle: {preStop: {exec: {command: [rmmod, x]}}}"),
		form:     "template",
		todos:    []string{"sleep infinity", "lifecycle.preStop"},
		want:     []string{"Do not skip them: deleting"},
		not:      []string{"everynode skip"},
	},
	"the priority of a template": {manifest: once(shell("x")), form: "template", want: []string{"- priorityClassName: without one"}},
	"a priority of its own": {
		manifest: ds("priorityClassName: p, initContainers: [" + onNode(shell("x")) + "], containers: [" + pauseContainer + "]"),
		form:     "template",
		not:      []string{"# priorityClassName"},
	},
	"what a Plan's pod lacks": {
		manifest: planOf("upgrade: {image: i}"),
		form:     "template",
		want:     []string{"The pod of the task does not have the volume pod-info", "SYSTEM_UPGRADE_PLAN_LATEST_HASH"},
		not:      []string{"has no time limit"},
	},
	"a program under an affinity to nodes without its label": {
		manifest: ds(
			"serviceAccount: a, affinity: " + without(
				"example.com/anchor-ip",
			) + ", containers: [{name: annotator, image: 'r/floating-ip:0.2.0', command: [/app/annotator]}]",
		),
		form:  "template",
		todos: []string{"does not show whether the container annotator ends and sets the label example.com/anchor-ip on its node"},
		want:  []string{"assumeDone:"},
	},
	"an image under such an affinity": {
		manifest: ds("serviceAccount: a, affinity: " + without("example.com/done") + ", containers: [{name: c, image: i}]"),
		form:     "template",
		todos:    []string{"does not show whether the container c ends"},
	},
	"a server under such an affinity": {
		manifest: ds(
			"serviceAccount: a, affinity: " + without(
				"example.com/done",
			) + ", containers: [{name: c, image: i, ports: [{containerPort: 80}]}]",
		),
		form: "refused",
		want: []string{"so it is a server"},
	},

	// Refusals name what was found.
	"a server with ports": {
		manifest: running(shell("serve") + ", ports: [{containerPort: 80}]"),
		form:     "refused",
		want:     []string{"has the field spec.template.spec.containers[c].ports, so it is a server"},
	},
	"a server with a probe": {
		manifest: running("command: [agent], livenessProbe: {httpGet: {port: 80}}"),
		form:     "refused",
		want:     []string{"has the field spec.template.spec.containers[c].livenessProbe.httpGet, so it is a server"},
	},
	"a program that is not shown": {
		manifest: ds("containers: [{name: c, image: agent}]"),
		form:     "refused",
		want:     []string{"runs the image agent, and the manifest does not show whether that ends"},
	},
	"a script that ends in a server": {
		manifest: running(shell("setup; exec /usr/bin/agent --flag")),
		form:     "refused",
		want:     []string{`runs "setup; exec /usr/bin/agent --flag", and the manifest does not show whether that ends`},
	},
	"a ConfigMap that is absent": {
		manifest: ds(`containers: [{name: c, image: i, volumeMounts: [{name: conf, mountPath: /conf}], command: [sh, /conf/run.sh]}]`),
		form:     "refused",
		want:     []string{"is in the ConfigMap scripts, which is not in the file", "kubectl get configmap scripts -n ns -o yaml"},
	},
	"STARTUP_SCRIPT is absent": {
		manifest: ds(
			`containers: [{name: c, image: startup-script, env: [{name: STARTUP_SCRIPT, valueFrom: {configMapKeyRef: {name: scripts, key: run.sh}}}]}]`,
		),
		form: "refused",
		want: []string{"is in the ConfigMap scripts, which is not in the file"},
	},
	"a placeholder": {
		manifest: strings.Replace(jobOn("n1", shell("x")), "spec: {template", "spec: {completions: NUM, template", 1),
		form:     "refused",
		want:     []string{"spec.completions is a string", "replace the placeholders"},
	},
	"a flag that is text": {
		manifest: strings.Replace(once(shell("x")), "hostPID: true", `hostPID: "yes"`, 1),
		form:     "refused",
		want:     []string{"spec.template.spec.hostPID is a string"},
	},
	"only a pause": {manifest: ds("containers: [" + pauseContainer + "]"), form: "refused", want: []string{"only wait"}},
	"a container that is like a sidecar": {
		manifest: running(shell("touch /x") + ", restartPolicy: Always"),
		form:     "refused",
		want:     []string{"has the field spec.template.spec.containers[c].restartPolicy, so it is a server"},
	},
	"a sidecar": {
		manifest: ds("initContainers: [{name: s, image: i, restartPolicy: Always}], containers: [" + pauseContainer + "]"),
		form:     "refused",
		want:     []string{"has the field spec.template.spec.initContainers[s].restartPolicy, so it is a server"},
	},
}

// TestCorpus retells public manifests. Whatever becomes of one, no command, argument or variable of a template is another one than in
// its source, and each TODO is a warning.
func TestCorpus(t *testing.T) {
	for name, p := range corpus {
		t.Run(name, func(t *testing.T) {
			objects, err := manifest.Decode([]byte(p.manifest))
			var result Result
			if err == nil {
				result = Convert(objects, "")
			} else {
				result.Refused = []error{err}
			}
			text := string(result.YAML)
			for _, err := range result.Refused {
				text += err.Error()
			}
			if form := formOf(t, result); form != p.form {
				t.Fatalf("it is %s, want %s\n%s", form, p.form, text)
			}
			if len(result.Todos) != len(p.todos) {
				t.Errorf("TODOs: %q, want %q", result.Todos, p.todos)
			}
			for i := range min(len(result.Todos), len(p.todos)) {
				if !strings.Contains(result.Todos[i], p.todos[i]) {
					t.Errorf("%q does not contain %q", result.Todos[i], p.todos[i])
				}
			}
			for _, want := range p.want {
				if !strings.Contains(text, want) {
					t.Errorf("it lacks %q\n%s", want, text)
				}
			}
			for _, not := range p.not {
				if strings.Contains(text, not) {
					t.Errorf("it has %q\n%s", not, text)
				}
			}
			if len(result.Refused) == 0 {
				sameWork(t, objects, jobsOf(t, result), p.script)
			}
		})
	}
	if len(corpus) < 90 {
		t.Errorf("the corpus has %d patterns", len(corpus))
	}
}

func jobsOf(t *testing.T, result Result) []*v1alpha1.NodeJob {
	t.Helper()
	var jobs []*v1alpha1.NodeJob
	for document := range strings.SplitSeq(string(result.YAML), "\n---\n") {
		validate(t, document)
		job := &v1alpha1.NodeJob{}
		if err := yaml.UnmarshalStrict([]byte(document), job); err != nil {
			t.Fatal(err)
		}
		jobs = append(jobs, job)
	}
	return jobs
}

// formOf returns the form of the last NodeJob.
func formOf(t *testing.T, result Result) string {
	t.Helper()
	if len(result.Refused) > 0 {
		return "refused"
	}
	jobs := jobsOf(t, result)
	switch task := jobs[len(jobs)-1].Spec.Task; {
	case task.Script != "":
		return "script"
	case len(task.Command) > 0:
		return "command"
	}
	return "template"
}

// sameWork fails if a container of a template is not the one of its source, or if a script is not a whole argument or variable of it.
func sameWork(t *testing.T, objects []*unstructured.Unstructured, jobs []*v1alpha1.NodeJob, script string) {
	t.Helper()
	sources := map[string][]corev1.Container{}
	var words []string
	for _, object := range objects {
		for _, c := range containersOf(t, object) {
			sources[c.Name] = append(sources[c.Name], c)
			words = append(words, slices.Concat(c.Command, c.Args)...)
			for _, env := range c.Env {
				words = append(words, env.Value)
			}
		}
	}
	for _, job := range jobs {
		spec := job.Spec.Task
		if spec.Script != "" && !slices.Contains(words, spec.Script) || script != "" && spec.Script != script {
			t.Errorf("the script is %q, and the source has %q", spec.Script, words)
		}
		if !job.Spec.Suspend {
			t.Error("it is not suspended")
		}
		if spec.Template == nil {
			continue
		}
		for _, c := range slices.Concat(spec.Template.Spec.InitContainers, spec.Template.Spec.Containers) {
			// A container of a Plan has another name there.
			if of := sources[c.Name]; len(of) > 0 &&
				!slices.ContainsFunc(of, func(source corev1.Container) bool { return isSame(&c, &source) }) {
				t.Errorf("container %s is changed: -source +template\n%s", c.Name, cmp.Diff(of[0], c))
			}
		}
	}
}

func isSame(c, source *corev1.Container) bool {
	for _, pair := range [][2]any{{c.Command, source.Command}, {c.Args, source.Args}, {c.Env, source.Env}, {c.EnvFrom, source.EnvFrom}, {c.VolumeMounts, source.VolumeMounts}, {c.Resources, source.Resources}, {c.SecurityContext, source.SecurityContext}} {
		if !reflect.DeepEqual(pair[0], pair[1]) {
			return false
		}
	}
	return true
}

func containersOf(t *testing.T, object *unstructured.Unstructured) []corev1.Container {
	t.Helper()
	var all []corev1.Container
	for _, path := range [][]string{{"spec", "template", "spec", "initContainers"}, {"spec", "template", "spec", "containers"}} {
		list, _, _ := unstructured.NestedSlice(object.Object, path...)
		for _, item := range list {
			c := corev1.Container{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.(map[string]any), &c); err != nil {
				t.Fatal(err)
			}
			all = append(all, c)
		}
	}
	for _, name := range []string{"prepare", "upgrade"} {
		if spec, found, _ := unstructured.NestedMap(object.Object, "spec", name); found {
			c := corev1.Container{Name: " " + name}
			c.Command, _, _ = unstructured.NestedStringSlice(spec, "command")
			c.Args, _, _ = unstructured.NestedStringSlice(spec, "args")
			all = append(all, c)
		}
	}
	return all
}
