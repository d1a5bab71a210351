// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
)

const stepPercent = `nodes of a step must be a number of at least 1, or a percentage from "1%" to "100%": for all that are left, leave it out`

// TestTheAPIRejectsWhatCannotWork sends what a user would write as YAML, so that nothing is dropped
// on the way. Each message must say what to write instead.
func TestTheAPIRejectsWhatCannotWork(t *testing.T) {
	w := newWorld(t)
	for name, test := range map[string]struct{ name, spec, wantMessage string }{
		"an empty task":                                 {spec: `task: {}`, wantMessage: "exactly one of task.script, task.scriptFrom, task.command and task.template"},
		"a missing task":                                {spec: `suspend: true`, wantMessage: "spec.task: Required value"},
		"an empty script":                               {spec: `task: {script: ""}`, wantMessage: "script is empty: write the commands to run on the node"},
		"a script with only blanks":                     {spec: `task: {script: " \n\t"}`, wantMessage: "script is empty: write the commands to run on the node"},
		"Windows line endings":                          {spec: `task: {script: "#!/bin/sh\r\ntrue\r\n"}`, wantMessage: "script has Windows line endings (CRLF)"},
		"a carriage return at the end of a script":      {spec: `task: {script: "true\r"}`, wantMessage: "script has Windows line endings (CRLF)"},
		"a byte order mark":                             {spec: `task: {script: "\uFEFF#!/bin/bash\n"}`, wantMessage: "script has a byte order mark (BOM)"},
		"a byte order mark after an empty line":         {spec: `task: {script: "\n\uFEFF#!/bin/bash\n"}`, wantMessage: "script has a byte order mark (BOM)"},
		"a check with Windows line endings":             {spec: `{task: {script: "true", check: {script: "true\r\n"}}}`, wantMessage: "script has Windows line endings (CRLF)"},
		"a rollback with Windows line endings":          {spec: `{task: {script: "true"}, rollback: {script: "true\r\n"}}`, wantMessage: "script has Windows line endings (CRLF)"},
		"a script that is too long":                     {spec: `task: {script: "` + strings.Repeat("x", 65537) + `"}`, wantMessage: "65536"},
		"both script and scriptFrom":                    {spec: `task: {script: "true", scriptFrom: {configMapKeyRef: {name: a, key: b}}}`, wantMessage: "exactly one of"},
		"both script and template":                      {spec: `task: {script: "true", template: {spec: {containers: [{name: a, image: b}]}}}`, wantMessage: "exactly one of"},
		"both script and command":                       {spec: `task: {script: "true", command: [uname]}`, wantMessage: "exactly one of"},
		"an empty command":                              {spec: `task: {command: []}`, wantMessage: "task.command"},
		"a command without a program":                   {spec: `task: {command: ["", "-r"]}`, wantMessage: "name the program first"},
		"an interpreter for a command":                  {spec: `task: {command: [uname], interpreter: [sh]}`, wantMessage: "name the interpreter first in the command"},
		"no node names":                                 {spec: `{task: {script: "true"}, nodes: {names: []}}`, wantMessage: "nodes.names"},
		"an empty node name":                            {spec: `{task: {script: "true"}, nodes: {names: [""]}}`, wantMessage: "nodes.names[0]"},
		"nodes with only tolerations":                   {spec: withTask(`nodes: {tolerations: [{operator: Exists}]}`), wantMessage: "nodes has no selector and no names"},
		"a gate for named nodes":                        {spec: `{task: {script: "true"}, nodes: {names: [a]}, gate: {}}`, wantMessage: "use nodes.selector with a gate"},
		"a starting deadline of zero":                   {spec: `{task: {script: "true"}, startingDeadlineSeconds: 0}`, wantMessage: "greater than or equal to 1"},
		"a negative time to live":                       {spec: `{task: {script: "true"}, ttlSecondsAfterFinished: -1}`, wantMessage: "greater than or equal to 0"},
		"a time to live and a schedule":                 {spec: `{task: {script: "true"}, ttlSecondsAfterFinished: 1, rerun: {periodSeconds: 60}}`, wantMessage: "gone after its first run"},
		"pods that are retained for more than a day":    {spec: `{task: {script: "true"}, retainPodsSeconds: 86401}`, wantMessage: "less than or equal to 86400"},
		"a scriptFrom without a name":                   {spec: `task: {scriptFrom: {configMapKeyRef: {key: b}}}`, wantMessage: "configMapKeyRef.name: Required value"},
		"an empty interpreter":                          {spec: `task: {script: "true", interpreter: []}`, wantMessage: "task.interpreter"},
		"an interpreter for a template":                 {spec: `task: {interpreter: [sh], template: {spec: {containers: [{name: a, image: b}]}}}`, wantMessage: "set command in the template's container"},
		"env for a template":                            {spec: `task: {env: [{name: A, value: b}], template: {spec: {containers: [{name: a, image: b}]}}}`, wantMessage: "set env in the template's container"},
		"a reserved environment name":                   {spec: `task: {script: "true", env: [{name: EVERYNODE_SCRIPT, value: b}]}`, wantMessage: "must not begin with EVERYNODE_"},
		"the same environment name twice":               {spec: `task: {script: "true", env: [{name: A, value: b}, {name: A, value: c}]}`, wantMessage: "Duplicate value"},
		"no source of a variable":                       {spec: `{task: {script: "true", env: [{name: A, valueFrom: {}}]}}`, wantMessage: "set exactly one source in task.env.valueFrom"},
		"two sources of a variable":                     {spec: `{task: {script: "true", env: [{name: A, valueFrom: {nodeFieldRef: {fieldPath: spec.providerID}, fieldRef: {fieldPath: metadata.name}}}]}}`, wantMessage: "set exactly one source in task.env.valueFrom"},
		"another field of the Node":                     {spec: `{task: {script: "true", env: [{name: A, valueFrom: {nodeFieldRef: {fieldPath: metadata.name}}}]}}`, wantMessage: "fieldPath must be metadata.labels['KEY']"},
		"a label of the Node without quotes":            {spec: `{task: {script: "true", env: [{name: A, valueFrom: {nodeFieldRef: {fieldPath: 'metadata.labels[zone]'}}}]}}`, wantMessage: "fieldPath must be metadata.labels['KEY']"},
		"text after a label of the Node":                {spec: `{task: {script: "true", env: [{name: A, valueFrom: {nodeFieldRef: {fieldPath: "metadata.labels['a'] "}}}]}}`, wantMessage: "fieldPath must be metadata.labels['KEY']"},
		"a label that no node can have":                 {spec: `{task: {script: "true", env: [{name: A, valueFrom: {nodeFieldRef: {fieldPath: "metadata.labels['a/b/c']"}}}]}}`, wantMessage: "fieldPath must be metadata.labels['KEY']"},
		"a label name that is too long":                 {spec: `{task: {script: "true", env: [{name: A, valueFrom: {nodeFieldRef: {fieldPath: "metadata.labels['` + strings.Repeat("x", 64) + `']"}}}]}}`, wantMessage: "fieldPath must be metadata.labels['KEY']"},
		"a record as a value":                           {spec: `{task: {script: "true", env: [{name: A, valueFrom: {nodeFieldRef: {fieldPath: "metadata.labels['ns.everynode.dev/other']"}}}]}}`, wantMessage: "must not name a key of everynode.dev"},
		"a default value that is too long":              {spec: `{task: {script: "true", env: [{name: A, valueFrom: {nodeFieldRef: {fieldPath: spec.providerID, default: " ` + strings.Repeat("x", 4096) + `"}}}]}}`, wantMessage: "4096"},
		"a change of values without values":             {spec: `{task: {script: "true", env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]}, rerun: {onNodeFieldChange: true}}`, wantMessage: "add a variable with valueFrom.nodeFieldRef"},
		"a value that the task publishes":               {spec: `{task: {script: "true", env: [{name: A, valueFrom: {nodeFieldRef: {fieldPath: "metadata.labels['example.com/a']"}}}]}, rerun: {onNodeFieldChange: true}, publish: [{result: a, label: example.com/a}]}`, wantMessage: "must not read a label or an annotation that publish writes"},
		"an annotation that the task publishes":         {spec: `{task: {script: "true", env: [{name: A, valueFrom: {nodeFieldRef: {fieldPath: "metadata.annotations['example.com/a']"}}}]}, rerun: {onNodeFieldChange: true}, publish: [{result: a, annotation: example.com/a}]}`, wantMessage: "must not read a label or an annotation that publish writes"},
		"both a value and a source of a variable":       {spec: `{task: {script: "true", env: [{name: A, value: b, valueFrom: {nodeFieldRef: {fieldPath: spec.providerID}}}]}}`, wantMessage: "both value and valueFrom"},
		"a timeout of zero":                             {spec: `task: {script: "true", timeoutSeconds: 0}`, wantMessage: "greater than or equal to 1"},
		"a timeout over a day":                          {spec: `task: {script: "true", timeoutSeconds: 86401}`, wantMessage: "less than or equal to 86400"},
		"a template that restarts":                      {spec: `task: {template: {spec: {restartPolicy: OnFailure, containers: [{name: a, image: b}]}}}`, wantMessage: "use spec.retry"},
		"a template that chooses a node":                {spec: `task: {template: {spec: {nodeName: x, containers: [{name: a, image: b}]}}}`, wantMessage: "use spec.nodes.selector"},
		"a template with a node selector":               {spec: `task: {template: {spec: {nodeSelector: {a: b}, containers: [{name: a, image: b}]}}}`, wantMessage: "use spec.nodes.selector"},
		"a template with affinity":                      {spec: `task: {template: {spec: {affinity: {}, containers: [{name: a, image: b}]}}}`, wantMessage: "use spec.nodes.selector"},
		"a template without containers":                 {spec: `task: {template: {spec: {containers: []}}}`, wantMessage: "containers is empty"},
		"a template without spec":                       {spec: `task: {template: {}}`, wantMessage: "containers is empty"},
		"a check for a template":                        {spec: `{task: {check: {script: "true"}, template: {spec: {containers: [{name: a, image: b}]}}}}`, wantMessage: "task.check works with task.script"},
		"a period of a check that is too short":         {spec: `{task: {script: "true", check: {script: "true", periodSeconds: 9}}}`, wantMessage: "task.check.periodSeconds must be 0, for never, or at least 10"},
		"a period of a check that is too long":          {spec: `{task: {script: "true", check: {script: "true", periodSeconds: 31536001}}}`, wantMessage: "31536000"},
		"onDrift without a period":                      {spec: `{task: {script: "true", check: {script: "true", onDrift: Run}}}`, wantMessage: "task.check.onDrift needs task.check.periodSeconds"},
		"an unknown onDrift":                            {spec: `{task: {script: "true", check: {script: "true", periodSeconds: 60, onDrift: Repair}}}`, wantMessage: "supported values"},
		"an audit that checks before the task":          {spec: `{task: {check: {script: "true", before: true}}}`, wantMessage: "an audit (task.check without a task) runs the check only"},
		"an audit that repairs":                         {spec: `{task: {check: {script: "true", periodSeconds: 60, onDrift: Report}}}`, wantMessage: "an audit (task.check without a task) runs the check only"},
		"an audit that drains":                          {spec: `{task: {check: {script: "true"}}, maintenance: {drain: {}}}`, wantMessage: "an audit (task.check without a task) never changes a node"},
		"an audit that cordons":                         {spec: `{task: {check: {script: "true"}}, maintenance: {cordon: true}}`, wantMessage: "an audit (task.check without a task) never changes a node"},
		"an audit that reboots":                         {spec: `{task: {check: {script: "true"}}, maintenance: {reboot: {policy: Always}}}`, wantMessage: "an audit (task.check without a task) never changes a node"},
		"an audit with a rollback":                      {spec: `{task: {check: {script: "true"}}, rollback: {script: "true"}}`, wantMessage: "an audit (task.check without a task) never changes a node"},
		"an audit with a gate":                          {spec: `{task: {check: {script: "true"}}, gate: {}}`, wantMessage: "an audit (task.check without a task) never changes a node"},
		"an audit that publishes":                       {spec: `{task: {check: {script: "true"}}, publish: [{result: a, label: x.test/a}]}`, wantMessage: "an audit (task.check without a task) never changes a node"},
		"an audit on a schedule of the task":            {spec: `{task: {check: {script: "true"}}, rerun: {periodSeconds: 60}}`, wantMessage: "an audit (task.check without a task) has no task to rerun"},
		"an empty check":                                {spec: `{task: {script: "true", check: {}}}`, wantMessage: "exactly one of task.check.script and task.check.scriptFrom"},
		"an empty check script":                         {spec: `{task: {script: "true", check: {script: " "}}}`, wantMessage: "script is empty: write the commands to run on the node"},
		"a retry limit below zero":                      {spec: `{task: {script: "true"}, retry: {limit: -1}}`, wantMessage: "greater than or equal to 0"},
		"a backoff above its maximum":                   {spec: `{task: {script: "true"}, retry: {backoffSeconds: 20, maxBackoffSeconds: 10}}`, wantMessage: "raise maxBackoffSeconds or lower backoffSeconds"},
		"a default backoff above the maximum given":     {spec: `{task: {script: "true"}, retry: {maxBackoffSeconds: 5}}`, wantMessage: "raise maxBackoffSeconds or lower backoffSeconds"},
		"zero nodes at once":                            {spec: `{task: {script: "true"}, rollout: {maxConcurrent: 0}}`, wantMessage: "rollout.maxConcurrent must be a number of nodes of at least 1"},
		"zero percent of the nodes at once":             {spec: `{task: {script: "true"}, rollout: {maxConcurrent: "0%"}}`, wantMessage: "rollout.maxConcurrent must be"},
		"more than all nodes at once":                   {spec: `{task: {script: "true"}, rollout: {maxConcurrent: "101%"}}`, wantMessage: "rollout.maxConcurrent must be"},
		"an invalid number of nodes":                    {spec: `{task: {script: "true"}, rollout: {maxConcurrent: "many"}}`, wantMessage: "rollout.maxConcurrent must be"},
		"a deletion policy that does not exist":         {spec: `{task: {script: "true"}, deletionPolicy: Keep}`, wantMessage: `supported values: "Forget", "Retain"`},
		"a step of zero nodes":                          {spec: `{task: {script: "true"}, rollout: {steps: [{name: a, nodes: 0}, {name: b}]}}`, wantMessage: `nodes of a step must be a number of at least 1, or a percentage from "1%" to "100%"`},
		"a step of less than zero nodes":                {spec: `{task: {script: "true"}, rollout: {steps: [{name: a, nodes: -1}, {name: b}]}}`, wantMessage: `nodes of a step must be a number of at least 1, or a percentage from "1%" to "100%"`},
		"a step of zero percent":                        {spec: `{task: {script: "true"}, rollout: {steps: [{name: a, nodes: "0%"}, {name: b}]}}`, wantMessage: stepPercent},
		"a step of more than all nodes":                 {spec: `{task: {script: "true"}, rollout: {steps: [{name: a, nodes: "101%"}, {name: b}]}}`, wantMessage: stepPercent},
		"a step with an invalid number":                 {spec: `{task: {script: "true"}, rollout: {steps: [{name: a, nodes: abc}, {name: b}]}}`, wantMessage: stepPercent},
		"a step with a number in quotes":                {spec: `{task: {script: "true"}, rollout: {steps: [{name: a, nodes: "1"}, {name: b}]}}`, wantMessage: stepPercent},
		"a step for all that is not the last":           {spec: `{task: {script: "true"}, rollout: {steps: [{name: a}, {name: b}]}}`, wantMessage: "Add {name: all} as the last step, or give the others nodes or selector"},
		"a step for all before one with nodes":          {spec: `{task: {script: "true"}, rollout: {steps: [{name: a}, {name: b, nodes: 1}]}}`, wantMessage: "add {name: all} as the last step; to hold the rollout before it, set rollout.promoteTo"},
		"a last step with nodes":                        {spec: `{task: {script: "true"}, rollout: {steps: [{name: a, nodes: 1}, {name: b, nodes: "50%"}]}}`, wantMessage: "add {name: all} as the last step; to hold the rollout before it, set rollout.promoteTo"},
		"a last step with a node selector":              {spec: `{task: {script: "true"}, rollout: {steps: [{name: a, nodes: 1}, {name: b, selector: {matchLabels: {c: d}}}]}}`, wantMessage: "Add {name: all} as the last step"},
		"no steps at all":                               {spec: `{task: {script: "true"}, rollout: {steps: []}}`, wantMessage: "should have at least 1 items"},
		"two steps of the same name":                    {spec: `{task: {script: "true"}, rollout: {steps: [{name: a, nodes: 1}, {name: a}]}}`, wantMessage: "spec.rollout.steps[1]: Duplicate value"},
		"more steps than allowed":                       {spec: `{task: {script: "true"}, rollout: {steps: [` + list("{name: s%d, nodes: 1}", 16) + `, {name: all}]}}`, wantMessage: "must have at most 16 items"},
		"a step without a name":                         {spec: `{task: {script: "true"}, rollout: {steps: [{nodes: 1}, {name: b}]}}`, wantMessage: "spec.rollout.steps[0].name: Required value"},
		"a step with an empty name":                     {spec: `{task: {script: "true"}, rollout: {steps: [{name: "", nodes: 1}, {name: b}]}}`, wantMessage: "should be at least 1 chars long"},
		"a step with a name in capitals":                {spec: `{task: {script: "true"}, rollout: {steps: [{name: Canary, nodes: 1}, {name: b}]}}`, wantMessage: "spec.rollout.steps[0].name in body should match '^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'"},
		"a step with a dot in its name":                 {spec: `{task: {script: "true"}, rollout: {steps: [{name: a.b, nodes: 1}, {name: b}]}}`, wantMessage: "should match"},
		"a step with a name that ends in a dash":        {spec: `{task: {script: "true"}, rollout: {steps: [{name: a-, nodes: 1}, {name: b}]}}`, wantMessage: "should match"},
		"a step with a name that is too long":           {spec: `{task: {script: "true"}, rollout: {steps: [{name: ` + strings.Repeat("n", 64) + `}]}}`, wantMessage: "may not be more than 63"},
		"a negative soak":                               {spec: `{task: {script: "true"}, rollout: {steps: [{name: a, nodes: 1, soakSeconds: -1}, {name: b}]}}`, wantMessage: "greater than or equal to 0"},
		"a soak over a week":                            {spec: `{task: {script: "true"}, rollout: {steps: [{name: a, nodes: 1, soakSeconds: 604801}, {name: b}]}}`, wantMessage: "less than or equal to 604800"},
		"promotion to no step":                          {spec: `{task: {script: "true"}, rollout: {steps: [{name: a, nodes: 1}, {name: b}], promoteTo: canary}}`, wantMessage: "rollout.promoteTo must be the name of one of rollout.steps"},
		"promotion to none of the default steps":        {spec: `{task: {script: "true"}, rollout: {promoteTo: prod}}`, wantMessage: "without steps of your own these are canary and all"},
		"more failures than nodes":                      {spec: `{task: {script: "true"}, rollout: {maxFailures: "101%"}}`, wantMessage: `rollout.maxFailures must be a number of nodes of at least 0, or a percentage from "0%" to "100%"`},
		"a progress deadline that is too short":         {spec: `{task: {script: "true"}, rollout: {progressDeadlineSeconds: 59}}`, wantMessage: "rollout.progressDeadlineSeconds must be at least 60, or 0 for no limit"},
		"a negative number of failures":                 {spec: `{task: {script: "true"}, rollout: {maxFailures: -1}}`, wantMessage: "rollout.maxFailures must be a number"},
		"an invalid number of failures":                 {spec: `{task: {script: "true"}, rollout: {maxFailures: x}}`, wantMessage: "rollout.maxFailures must be a number"},
		"a deletion that rolls back without a rollback": {spec: `{task: {script: "true"}, deletionPolicy: Rollback}`, wantMessage: "write the script that undoes the task, or use Forget or Retain"},
		"an empty rollback":                             {spec: `{task: {script: "true"}, rollback: {}}`, wantMessage: "set exactly one of rollback.script and rollback.scriptFrom"},
		"a rollback with both":                          {spec: `{task: {script: "true"}, rollback: {script: "true", scriptFrom: {configMapKeyRef: {name: a, key: b}}}}`, wantMessage: "set exactly one of rollback.script and rollback.scriptFrom"},
		"an empty rollback script":                      {spec: `{task: {script: "true"}, rollback: {script: " "}}`, wantMessage: "script is empty: write the commands to run on the node"},
		"a rollback with a timeout of zero":             {spec: `{task: {script: "true"}, rollback: {script: "true", timeoutSeconds: 0}}`, wantMessage: "greater than or equal to 1"},
		"a drain of failed nodes without an action":     {spec: `{task: {script: "true"}, onFailure: {drain: {}}}`, wantMessage: "set action to Drain, or leave drain out"},
		"a drain of nodes that are cordoned only":       {spec: `{task: {script: "true"}, onFailure: {action: Cordon, drain: {}}}`, wantMessage: "set action to Drain, or leave drain out"},
		"a drain with a timeout of zero":                {spec: `{task: {script: "true"}, onFailure: {action: Drain, drain: {timeoutSeconds: 0}}}`, wantMessage: "greater than or equal to 1"},
		"an unknown action for failed nodes":            {spec: `{task: {script: "true"}, onFailure: {action: Reboot}}`, wantMessage: `supported values: "None", "Cordon", "Drain"`},
		"a name that does not fit into a node's label":  {name: strings.Repeat("n", 64), spec: `task: {script: "true"}`, wantMessage: "at most 63 characters"},

		"an expiry without a rollback":             {spec: `{task: {script: "true"}, expires: {at: "2027-01-31T00:00:00Z"}}`, wantMessage: "expires needs spec.rollback: write the script that undoes the task, or leave expires out"},
		"an expiry of nothing":                     {spec: `{task: {script: "true"}, rollback: {script: "true"}, expires: {}}`, wantMessage: "set expires.check, expires.at, or both"},
		"an expiry at no time":                     {spec: `{task: {script: "true"}, rollback: {script: "true"}, expires: {at: tomorrow}}`, wantMessage: "must be of type date-time"},
		"an expiry of a NodeJob that is deleted":   {spec: `{task: {script: "true"}, rollback: {script: "true"}, ttlSecondsAfterFinished: 9, expires: {check: {script: "true"}}}`, wantMessage: "with ttlSecondsAfterFinished the NodeJob is gone before it can undo its task: leave it out, or expires"},
		"an expiry after a deadline":               {spec: `{task: {script: "true"}, rollback: {script: "true"}, startingDeadlineSeconds: 9, expires: {check: {script: "true"}}}`, wantMessage: "after startingDeadlineSeconds no rollback starts, so nothing could expire: leave it out, or expires"},
		"an expiry check with nothing":             {spec: `{task: {script: "true"}, rollback: {script: "true"}, expires: {check: {}}}`, wantMessage: "set exactly one of expires.check.script and expires.check.scriptFrom"},
		"an expiry check with both":                {spec: `{task: {script: "true"}, rollback: {script: "true"}, expires: {check: {script: "true", scriptFrom: {configMapKeyRef: {name: a, key: b}}}}}`, wantMessage: "set exactly one of expires.check.script and expires.check.scriptFrom"},
		"an empty expiry check":                    {spec: `{task: {script: "true"}, rollback: {script: "true"}, expires: {check: {script: " "}}}`, wantMessage: "script is empty: write the commands to run on the node"},
		"an expiry check with Windows line ends":   {spec: `{task: {script: "true"}, rollback: {script: "true"}, expires: {check: {script: "true\r\n"}}}`, wantMessage: "script has Windows line endings (CRLF)"},
		"an expiry check with a byte order mark":   {spec: `{task: {script: "true"}, rollback: {script: "true"}, expires: {check: {script: "\ufefftrue"}}}`, wantMessage: "script has a byte order mark (BOM)"},
		"an expiry check that runs without a rest": {spec: `{task: {script: "true"}, rollback: {script: "true"}, expires: {check: {script: "true", periodSeconds: 59}}}`, wantMessage: "expires.check.periodSeconds must be 0, for never, or at least 60"},
		"an expiry check with no interpreter":      {spec: `{task: {script: "true"}, rollback: {script: "true"}, expires: {check: {script: "true", interpreter: []}}}`, wantMessage: "should have at least 1 items"},

		"a rollback on Windows": {spec: `{task: {template: {spec: {os: {name: windows}, containers: [{name: a, image: b}]}}}, rollback: {script: "true"}}`, wantMessage: "rollback and maintenance.reboot work on Linux nodes only: with another task.template.spec.os, leave them out"},
		"a reboot of Windows":   {spec: `{task: {template: {spec: {os: {name: windows}, containers: [{name: a, image: b}]}}}, maintenance: {reboot: {policy: Always}}}`, wantMessage: "work on Linux nodes only"},

		"a limit of a device":                        {spec: `task: {script: "true", resources: {limits: {vendor.example/gpu: 1}}}`, wantMessage: "task.resources.limits takes cpu, memory and ephemeral-storage: for other resources use task.template"},
		"a request of a device":                      {spec: `task: {script: "true", resources: {requests: {vendor.example/gpu: 1}}}`, wantMessage: "task.resources.requests takes cpu, memory and ephemeral-storage"},
		"a request above its limit":                  {spec: `task: {script: "true", resources: {requests: {memory: 1Gi}, limits: {memory: 512Mi}}}`, wantMessage: "lower the request or raise the limit"},
		"a limit of memory that is too low to start": {spec: `task: {script: "true", resources: {limits: {memory: 512}}}`, wantMessage: "must be at least 32Mi, since the runner itself needs some: 512 are bytes and 512Mi are mebibytes"},
		"a limit of zero":                            {spec: `task: {script: "true", resources: {limits: {cpu: 0}}}`, wantMessage: "a limit in task.resources.limits must be above 0: leave it out for the default"},
		"a negative request":                         {spec: `task: {script: "true", resources: {requests: {cpu: -1}}}`, wantMessage: "a request in task.resources.requests must be at least 0"},
		"a limit that is not a quantity":             {spec: `task: {script: "true", resources: {limits: {memory: much}}}`, wantMessage: "spec.task.resources.limits.memory"},
		"an archive for a template":                  {spec: `task: {output: {archive: Always}, template: {spec: {containers: [{name: a, image: b}]}}}`, wantMessage: "task.output.archive works with task.script, task.scriptFrom and task.command only"},
		"an unknown policy for the archive":          {spec: `task: {script: "true", output: {archive: Sometimes}}`, wantMessage: `supported values: "Never", "Always"`},
		"an unknown policy for the output":           {spec: `task: {script: "true", output: {record: All}}`, wantMessage: `supported values: "Tail", "None"`},

		"a published result without a label or annotation":   {spec: withTask(`publish: [{result: a}]`), wantMessage: "set exactly one of annotation, label and condition: what the result is published as"},
		"a published result with a label and an annotation":  {spec: withTask(`publish: [{result: a, annotation: b, label: c}]`), wantMessage: "set exactly one of annotation, label and condition"},
		"a published condition with a label":                 {spec: withTask(`publish: [{result: a, label: c, condition: example.com/C}]`), wantMessage: "set exactly one of annotation, label and condition"},
		"a published condition with a result":                {spec: withTask(`publish: [{result: a, condition: example.com/C}]`), wantMessage: "a condition has no result"},
		"a published condition that is adopted":              {spec: withTask(`publish: [{condition: example.com/C, adopt: Always}]`), wantMessage: "a condition cannot be adopted"},
		"a published condition without a domain":             {spec: withTask(`publish: [{condition: Ready}]`), wantMessage: "spec.publish[0].condition"},
		"a published condition of Kubernetes":                {spec: withTask(`publish: [{condition: node.kubernetes.io/Ready}]`), wantMessage: "use a domain of your own"},
		"the same published condition twice":                 {spec: withTask(`publish: [{condition: example.com/C}, {condition: example.com/C}]`), wantMessage: "two results are published under the same key"},
		"a published result without a result":                {spec: withTask(`publish: [{label: a}]`), wantMessage: "set result with annotation or label"},
		"a published result of a result with an invalid key": {spec: withTask(`publish: [{result: a b, label: c}]`), wantMessage: "spec.publish[0].result in body should match"},
		"a label of Kubernetes":                              {spec: withTask(`publish: [{result: a, label: kubernetes.io/arch}]`), wantMessage: "labels of kubernetes.io, k8s.io and everynode.dev must not be published"},
		"a label that takes nodes off load balancers":        {spec: withTask(`publish: [{result: a, label: node.kubernetes.io/exclude-from-external-load-balancers}]`), wantMessage: "take nodes out of load balancers or hide their failures: use a prefix of your own"},
		"a label that hides failures":                        {spec: withTask(`publish: [{result: a, label: node.kubernetes.io/exclude-disruption}]`), wantMessage: "node.kubernetes.io/exclude- must not be published"},
		"an old label that does so":                          {spec: withTask(`publish: [{result: a, label: alpha.service-controller.kubernetes.io/exclude-balancer}]`), wantMessage: "labels of kubernetes.io"},
		"a label of Kubernetes with a longer prefix":         {spec: withTask(`publish: [{result: a, label: node-role.kubernetes.io/worker}]`), wantMessage: "use a prefix of your own"},
		"a label of a Kubernetes project":                    {spec: withTask(`publish: [{result: a, label: cluster.x-k8s.io/a}, {result: a, label: b.k8s.io/a}]`), wantMessage: "spec.publish[1]"},
		"a label of Everynode":                               {spec: withTask(`publish: [{result: a, label: node-setup.everynode.dev/a}]`), wantMessage: "labels of kubernetes.io, k8s.io and everynode.dev"},
		"an annotation of Kubernetes":                        {spec: withTask(`publish: [{result: a, annotation: k8s.io/a}]`), wantMessage: "annotations of kubernetes.io, k8s.io and everynode.dev must not be published"},
		"an annotation that only looks like a node's":        {spec: withTask(`publish: [{result: a, annotation: my.node.kubernetes.io/a}]`), wantMessage: "annotations of kubernetes.io"},
		"an annotation of Everynode":                         {spec: withTask(`publish: [{result: a, annotation: everynode.dev/published}]`), wantMessage: "use a prefix of your own"},
		"an invalid label key":                               {spec: withTask(`publish: [{result: a, label: a b}]`), wantMessage: "spec.publish[0].label in body should match"},
		"a label with a prefix in capitals":                  {spec: withTask(`publish: [{result: a, label: Example.com/a}]`), wantMessage: "should match"},
		"a label with a prefix only":                         {spec: withTask(`publish: [{result: a, label: example.com/}]`), wantMessage: "should match"},
		"an annotation with a name that is too long":         {spec: withTask(`publish: [{result: a, annotation: example.com/` + strings.Repeat("n", 64) + `}]`), wantMessage: "should match"},
		"an annotation with a prefix that is too long":       {spec: withTask(`publish: [{result: a, annotation: ` + strings.Repeat("p", 252) + `/n}]`), wantMessage: "may not be more than 253"},
		"two results under one label":                        {spec: withTask(`publish: [{result: a, label: c}, {result: b, label: c}]`), wantMessage: "two results are published under the same key: give each a key of its own"},
		"an unknown policy for existing labels":              {spec: withTask(`publish: [{result: a, label: c, adopt: IfEqual}]`), wantMessage: `supported values: "Never", "SameValue", "Always"`},
		"nodes assumed to be done without a selector":        {spec: withTask(`nodes: {assumeDone: {}}`), wantMessage: "spec.nodes.assumeDone.selector: Required value"},
		"nodes assumed to be done by an empty selector":      {spec: withTask(`nodes: {assumeDone: {selector: {}}}`), wantMessage: "write nodes.assumeDone.selector.matchLabels.KEY: VALUE, or omit nodes.assumeDone"},
		"more published results than allowed":                {spec: withTask(`publish: [` + list("{result: a, label: l%d}", 33) + `]`), wantMessage: "must have at most 32 items"},

		"a removed label of Kubernetes":         {spec: withTask(`removeLabels: [a, kubernetes.io/hostname]`), wantMessage: "removeLabels must not name labels of kubernetes.io, k8s.io or everynode.dev"},
		"a removed label of load balancers":     {spec: withTask(`removeLabels: [node.kubernetes.io/exclude-from-external-load-balancers]`), wantMessage: "remove them with kubectl label node"},
		"a removed label of Everynode":          {spec: withTask(`removeLabels: [node-setup.everynode.dev/a]`), wantMessage: "use a label with a prefix of your own"},
		"a removed label with an invalid key":   {spec: withTask(`removeLabels: ["a=b"]`), wantMessage: "spec.removeLabels[0] in body should match"},
		"a removed label without a name":        {spec: withTask(`removeLabels: [""]`), wantMessage: "should be at least 1 chars long"},
		"a label that is removed twice":         {spec: withTask(`removeLabels: [a, a]`), wantMessage: "Duplicate value"},
		"more removed labels than allowed":      {spec: withTask(`removeLabels: [` + list("l%d", 9) + `]`), wantMessage: "must have at most 8 items"},
		"a label that is published and removed": {spec: withTask(`publish: [{result: a, annotation: b}, {result: a, label: c}], removeLabels: [c]`), wantMessage: "a label in removeLabels is published as well: remove it from one of the two"},

		"a gate of Kubernetes":                                  {spec: withTask(`gate: {key: node.kubernetes.io/not-ready}`), wantMessage: "gate.key must not be of kubernetes.io, k8s.io, everynode.dev or karpenter.sh"},
		"a gate of a Kubernetes project":                        {spec: withTask(`gate: {key: a.k8s.io/b}`), wantMessage: "use a prefix of your own, or leave it out"},
		"a gate of Karpenter's own":                             {spec: withTask(`gate: {key: karpenter.sh/unregistered}`), wantMessage: "or karpenter.sh"},
		"a gate with a key that has no prefix":                  {spec: withTask(`gate: {key: dedicated}`), wantMessage: "gate.key must have a prefix"},
		"a reboot that cannot end before the deadline":          {spec: withTask(`maintenance: {reboot: {policy: Always, minReadySeconds: 900}}`), wantMessage: "raise timeoutSeconds"},
		"a gate with another NodeJob's key":                     {spec: withTask(`gate: {key: node-setup.everynode.dev/other}`), wantMessage: "or leave it out"},
		"a gate that only looks like a startup taint":           {spec: withTask(`gate: {key: my.startup-taint.cluster-autoscaler.kubernetes.io/a}`), wantMessage: "gate.key must not be"},
		"a gate with an invalid key":                            {spec: withTask(`gate: {key: a/b/c}`), wantMessage: "spec.gate.key in body should match"},
		"a gate with an empty key":                              {spec: withTask(`gate: {key: ""}`), wantMessage: "spec.gate.key in body should match"},
		"a gate with a prefix that is too long":                 {spec: withTask(`gate: {key: ` + strings.Repeat("p", 252) + `/n}`), wantMessage: "may not be more than 253"},
		"a gate with effect PreferNoSchedule":                   {spec: withTask(`gate: {effect: PreferNoSchedule}`), wantMessage: `supported values: "NoSchedule", "NoExecute"`},
		"a gate for other nodes":                                {spec: withTask(`gate: {nodes: Existing}`), wantMessage: `supported values: "Joining", "JoiningAndRebooted", "All"`},
		"a gate after a reboot that runs nothing":               {spec: withTask(`gate: {nodes: JoiningAndRebooted}`), wantMessage: "needs rerun.onReboot: set it to true, or leave gate.nodes out"},
		"a gate after a reboot without a rerun, set explicitly": {spec: withTask(`gate: {nodes: JoiningAndRebooted}, rerun: {onReboot: false}`), wantMessage: "needs rerun.onReboot"},

		"images before no maintenance":                   {spec: withTask(`maintenance: {prePull: true, reboot: {policy: Never}}`), wantMessage: "set maintenance.cordon, maintenance.drain or maintenance.reboot, or remove prePull"},
		"a time to live and checks on a schedule":        {spec: `{task: {script: "true", check: {script: "true", periodSeconds: 60}}, ttlSecondsAfterFinished: 1}`, wantMessage: "task.check.periodSeconds"},
		"a time to live and an end":                      {spec: `{task: {script: "true"}, rollback: {script: "true"}, expires: {at: "2030-01-01T00:00:00Z"}, ttlSecondsAfterFinished: 1}`, wantMessage: "gone before its task expires"},
		"zero unavailable nodes":                         {spec: withTask(`maintenance: {cordon: true, maxUnavailable: 0}`), wantMessage: `maintenance.maxUnavailable must be a number of nodes of at least 1, or a percentage from "1%" to "100%"`},
		"zero percent unavailable nodes":                 {spec: withTask(`maintenance: {maxUnavailable: "0%"}`), wantMessage: "maintenance.maxUnavailable must be"},
		"more than 100 percent unavailable nodes":        {spec: withTask(`maintenance: {maxUnavailable: "101%"}`), wantMessage: "maintenance.maxUnavailable must be"},
		"a number of unavailable nodes in quotes":        {spec: withTask(`maintenance: {maxUnavailable: "3"}`), wantMessage: "maintenance.maxUnavailable must be"},
		"an unknown reboot policy":                       {spec: withTask(`maintenance: {reboot: {policy: Sometimes}}`), wantMessage: `supported values: "Never", "IfRequested", "Always"`},
		"a reboot with a timeout of zero":                {spec: withTask(`maintenance: {reboot: {policy: Always, timeoutSeconds: 9}}`), wantMessage: "greater than or equal to 10"},
		"a reboot that takes more than a day":            {spec: withTask(`maintenance: {reboot: {policy: Always, timeoutSeconds: 86401}}`), wantMessage: "less than or equal to 86400"},
		"a negative Ready time":                          {spec: withTask(`maintenance: {reboot: {policy: Always, minReadySeconds: -1}}`), wantMessage: "greater than or equal to 0"},
		"a Ready time over an hour":                      {spec: withTask(`maintenance: {reboot: {policy: Always, minReadySeconds: 3601}}`), wantMessage: "less than or equal to 3600"},
		"a drain before the task with a timeout of zero": {spec: withTask(`maintenance: {drain: {timeoutSeconds: 0}}`), wantMessage: "greater than or equal to 1"},

		"a run every 5 seconds":                             {spec: withTask(`rerun: {periodSeconds: 5}`), wantMessage: "rerun.periodSeconds must be 0, for never, or at least 10"},
		"a negative interval":                               {spec: withTask(`rerun: {periodSeconds: -1}`), wantMessage: "greater than or equal to 0"},
		"an interval over a year":                           {spec: withTask(`rerun: {periodSeconds: 31536001}`), wantMessage: "less than or equal to 31536000"},
		"files without a source":                            {spec: `{task: {script: "true", files: [{name: a}]}}`, wantMessage: "set exactly one of"},
		"files of two objects":                              {spec: `{task: {script: "true", files: [{name: a, configMap: {name: a}, secret: {name: b}}]}}`, wantMessage: "set exactly one of"},
		"two folders with one name":                         {spec: `{task: {script: "true", files: [{name: a, configMap: {name: a}}, {name: a, secret: {name: b}}]}}`, wantMessage: "spec.task.files[1]: Duplicate value"},
		"a folder with a name for a file":                   {spec: `{task: {script: "true", files: [{name: a/b, configMap: {name: a}}]}}`, wantMessage: "task.files.name must consist of lower case letters"},
		"a folder without a name":                           {spec: `{task: {script: "true", files: [{configMap: {name: a}}]}}`, wantMessage: "spec.task.files[0].name: Required value"},
		"a folder with a long name":                         {spec: `{task: {script: "true", files: [{name: ` + strings.Repeat("a", 51) + `, configMap: {name: a}}]}}`, wantMessage: "may not be more than 50"},
		"files of an object without a name":                 {spec: `{task: {script: "true", files: [{name: a, configMap: {}}]}}`, wantMessage: "configMap.name: Required value"},
		"no items":                                          {spec: `{task: {script: "true", files: [{name: a, configMap: {name: a, items: []}}]}}`, wantMessage: "should have at least 1 items"},
		"an item without a path":                            {spec: `{task: {script: "true", files: [{name: a, configMap: {name: a, items: [{key: a}]}}]}}`, wantMessage: "items[0].path: Required value"},
		"an item without a key":                             {spec: `{task: {script: "true", files: [{name: a, configMap: {name: a, items: [{path: a}]}}]}}`, wantMessage: "items[0].key: Required value"},
		"an item with a key that no object has":             {spec: `{task: {script: "true", files: [{name: a, configMap: {name: a, items: [{key: a/b, path: a}]}}]}}`, wantMessage: "task.files items.key must consist of"},
		"two files with one path":                           {spec: `{task: {script: "true", files: [{name: a, configMap: {name: a, items: [{key: a, path: a}, {key: b, path: a}]}}]}}`, wantMessage: "Duplicate value"},
		"a file outside of its folder":                      {spec: `{task: {script: "true", files: [{name: a, configMap: {name: a, items: [{key: a, path: a/../../b}]}}]}}`, wantMessage: "task.files items.path must be relative, without .."},
		"a file with an absolute path":                      {spec: `{task: {script: "true", files: [{name: a, configMap: {name: a, items: [{key: a, path: /a}]}}]}}`, wantMessage: "task.files items.path must be relative"},
		"a file with a name of the kubelet":                 {spec: `{task: {script: "true", files: [{name: a, configMap: {name: a, items: [{key: a, path: ..data}]}}]}}`, wantMessage: "task.files items.path must be relative"},
		"permissions above 0777":                            {spec: `{task: {script: "true", files: [{name: a, configMap: {name: a, defaultMode: 512}}]}}`, wantMessage: "less than or equal to 511"},
		"permissions of a file above 0777":                  {spec: `{task: {script: "true", files: [{name: a, configMap: {name: a, items: [{key: a, path: a, mode: 1000}]}}]}}`, wantMessage: "less than or equal to 511"},
		"an executable Secret":                              {spec: `{task: {script: "true", files: [{name: a, secret: {name: a, defaultMode: 320}}]}}`, wantMessage: "must not make files executable"},
		"an executable file of a Secret":                    {spec: `{task: {script: "true", files: [{name: a, secret: {name: a, items: [{key: a, path: a, mode: 265}]}}]}}`, wantMessage: "must not make a file executable"},
		"more folders than allowed":                         {spec: `{task: {script: "true", files: [` + list("{name: f%d, configMap: {name: a}}", 17) + `]}}`, wantMessage: "must have at most 16 items"},
		"more files than allowed":                           {spec: `{task: {script: "true", files: [{name: a, configMap: {name: a, items: [` + list("{key: a, path: f%d}", 65) + `]}}]}}`, wantMessage: "must have at most 64 items"},
		"an image with a tag":                               {spec: `{task: {script: "true", files: [{name: a, image: {reference: "registry.example.com/tools:v1"}}]}}`, wantMessage: "write NAME@sha256:DIGEST"},
		"an image with a digest of another kind":            {spec: `{task: {script: "true", files: [{name: a, image: {reference: "tools@sha512:` + strings.Repeat("a", 64) + `"}}]}}`, wantMessage: "write NAME@sha256:DIGEST"},
		"an image without a reference":                      {spec: `{task: {script: "true", files: [{name: a, image: {}}]}}`, wantMessage: "image.reference: Required value"},
		"files of an image and a ConfigMap":                 {spec: `{task: {script: "true", files: [{name: a, configMap: {name: a}, image: {reference: "tools@sha256:` + strings.Repeat("a", 64) + `"}}]}}`, wantMessage: "set exactly one of"},
		"files for a template":                              {spec: `task: {files: [{name: a, configMap: {name: a}}], template: {spec: {containers: [{name: a, image: b}]}}}`, wantMessage: "set volumes in the template"},
		"content that is named twice":                       {spec: `{task: {script: "true", inputs: [{kind: Secret, name: a}, {kind: ConfigMap, name: a}, {kind: Secret, name: a}]}}`, wantMessage: "spec.task.inputs[2]: Duplicate value"},
		"content of another kind":                           {spec: `{task: {script: "true", inputs: [{kind: Pod, name: a}]}}`, wantMessage: `supported values: "ConfigMap", "Secret"`},
		"content without a kind":                            {spec: `{task: {script: "true", inputs: [{name: a}]}}`, wantMessage: "spec.task.inputs[0].kind: Required value"},
		"content of an object without a name":               {spec: `{task: {script: "true", inputs: [{kind: Secret, name: ""}]}}`, wantMessage: "should be at least 1 chars long"},
		"content of more objects than allowed":              {spec: `{task: {script: "true", inputs: [` + list("{kind: Secret, name: s%d}", 17) + `]}}`, wantMessage: "must have at most 16 items"},
		"a NodeJob that depends on itself":                  {name: "myself", spec: withTask(`dependsOn: [other, myself]`), wantMessage: "spec.dependsOn names the NodeJob itself: remove it"},
		"a NodeJob that depends on another twice":           {spec: withTask(`dependsOn: [a, a]`), wantMessage: "Duplicate value"},
		"a NodeJob that depends on an empty name":           {spec: withTask(`dependsOn: [""]`), wantMessage: "should be at least 1 chars long"},
		"a NodeJob that depends on a name that is too long": {spec: withTask(`dependsOn: [` + strings.Repeat("n", 64) + `]`), wantMessage: "may not be more than 63"},
		"a NodeJob that depends on too many":                {spec: withTask(`dependsOn: [` + list("n%d", 17) + `]`), wantMessage: "must have at most 16 items"},

		"a confirmation without a rollback":              {spec: `{task: {script: "true"}, confirm: {}}`, wantMessage: "write spec.rollback, the script that undoes the task, or leave confirm out"},
		"a confirmation of a template":                   {spec: `{task: {template: {spec: {containers: [{name: c, image: i}]}}}, rollback: {script: "true"}, confirm: {}}`, wantMessage: "use task.script or task.command, or leave confirm out"},
		"a confirmation before a reboot":                 {spec: `{task: {script: "true"}, rollback: {script: "true"}, confirm: {}, maintenance: {reboot: {policy: IfRequested}}}`, wantMessage: "or leave confirm out"},
		"a confirmation that takes longer than the task": {spec: `{task: {script: "true", timeoutSeconds: 30}, rollback: {script: "true"}, confirm: {}}`, wantMessage: "choose a shorter time for the confirmation"},
		"a confirmation within too short a time":         {spec: `{task: {script: "true"}, rollback: {script: "true"}, confirm: {timeoutSeconds: 59}}`, wantMessage: "spec.confirm.timeoutSeconds"},
	} {
		t.Run(name, func(t *testing.T) {
			job := jobFromYAML(t, w.Namespace, test.name, test.spec)
			err := admin.Create(w.Ctx, job)
			if !apierrors.IsInvalid(err) {
				t.Fatalf("the API server answered %v, want Invalid", err)
			}
			wantText(t, err.Error(), test.wantMessage)
		})
	}
}

// TestWhatIsLeftOfAMisspelledFieldSelectsNoNodes creates NodeJobs as a client that does not validate strictly, such as kubectl apply
// --validate=ignore and some GitOps tools: the API server drops fields that it does not know.
func TestWhatIsLeftOfAMisspelledFieldSelectsNoNodes(t *testing.T) {
	w := newWorld(t)
	const noNodes = "nodes has no selector and no names: write nodes.selector.matchLabels.KEY: VALUE, such as kubernetes.io/os: linux for all Linux nodes"
	for _, spec := range []string{
		"nodes: {pool: db}", "nodes: {matchLabels: {pool: db}}", "nodes: {nodeSelector: {pool: db}}", "nodes: {}",
		"nodeSelector: {pool: db}", "nodeName: a", "selector: {matchLabels: {pool: db}}", "affinity: {}", "",
	} {
		job := fromYAML(t, "NodeJob", w.Namespace, "", strings.TrimSuffix("task: {script: \"true\"}\n"+spec, "\n"))
		err := admin.Create(w.Ctx, job, &client.CreateOptions{Raw: &metav1.CreateOptions{FieldValidation: metav1.FieldValidationIgnore}})
		if err == nil {
			t.Errorf("%s: the API server accepted it", spec)
			continue
		}
		wantText(t, err.Error(), noNodes)
	}
}

func TestTheAPIAcceptsWhatWorksAndFillsInDefaults(t *testing.T) {
	w := newWorld(t)
	for name, spec := range map[string]string{
		"a script":                                    `task: {script: "true"}`,
		"a script as long as allowed":                 `task: {script: "` + strings.Repeat("x", 65536) + `"}`,
		"a script from a ConfigMap":                   `task: {scriptFrom: {configMapKeyRef: {name: a, key: b}}}`,
		"a template":                                  `task: {template: {spec: {containers: [{name: a, image: b}]}}}`,
		"a template with restartPolicy Never":         `task: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: b}]}}}`,
		"all nodes at once":                           `{task: {script: "true"}, rollout: {maxConcurrent: "100%"}}`,
		"a number of nodes at once":                   `{task: {script: "true"}, rollout: {maxConcurrent: 7}}`,
		"a name as long as allowed":                   `task: {script: "true"}`,
		"promotion to the first of the default steps": `{task: {script: "true"}, rollout: {promoteTo: canary}}`,
		"promotion to the last of the default steps":  `{task: {script: "true"}, rollout: {promoteTo: all}}`,
		"promotion to a step of one's own":            `{task: {script: "true"}, rollout: {steps: [{name: a, nodes: 1}, {name: b}], promoteTo: a}}`,
		"as many steps as allowed":                    `{task: {script: "true"}, rollout: {steps: [` + list("{name: s%d, nodes: 1}", 15) + `, {name: all}]}}`,
		"a step of all nodes":                         `{task: {script: "true"}, rollout: {steps: [{name: a, nodes: "100%", soakSeconds: 604800}, {name: b}]}}`,
		"a step of some of the nodes that it selects": `{task: {script: "true"}, rollout: {steps: [{name: a, nodes: "1%", selector: {matchLabels: {c: d}}}, {name: b}]}}`,
		"no progress deadline":                        `{task: {script: "true"}, rollout: {progressDeadlineSeconds: 0}}`,
		"no failures":                                 `{task: {script: "true"}, rollout: {maxFailures: "0%"}}`,
		"any number of failures":                      `{task: {script: "true"}, rollout: {maxFailures: "100%"}}`,
		"a deletion that rolls back":                  `{task: {script: "true"}, deletionPolicy: Rollback, rollback: {script: "true"}}`,
		"a template with a rollback":                  `{task: {template: {spec: {containers: [{name: a, image: b}]}}}, rollback: {scriptFrom: {configMapKeyRef: {name: a, key: b}}}}`,
		"a drain":                                     `{task: {script: "true"}, onFailure: {action: Drain, drain: {timeoutSeconds: 604800, gracePeriodSeconds: 1}}}`,

		"published results":                                             withTask(`publish: [{result: A.b_c-d, annotation: example.com/a}, {result: a, label: b}]`),
		"published results that a node may set itself":                  withTask(`publish: [{result: a, label: node.kubernetes.io/a}, {result: a, label: kubelet.kubernetes.io/a}, {result: a, annotation: node.kubernetes.io/a}]`),
		"published results with a prefix similar to that of Kubernetes": withTask(`publish: [{result: a, label: mykubernetes.io/a}, {result: b, annotation: kubernetes.io.example/a}]`),
		"a label and an annotation of one name":                         withTask(`publish: [{result: a, label: b}, {result: a, annotation: b}], removeLabels: [c]`),
		"as many published results as allowed":                          withTask(`publish: [` + list("{result: r, label: "+strings.Repeat("p", 230)+"/l%d}", 32) + `]`),
		"removed labels":                                                withTask(`removeLabels: [example.com/a, node.kubernetes.io/b, kubelet.kubernetes.io/c]`),
		"as many removed labels as allowed":                             withTask(`removeLabels: [` + list(strings.Repeat("p", 230)+"/l%d", 8) + `]`),
		"a gate":                                                        withTask(`gate: {}`),
		"a gate with a key of one's own":                                withTask(`gate: {key: example.com/setup, effect: NoExecute, nodes: All}`),
		"a gate with a key as long as allowed":                          withTask(`gate: {key: ` + strings.Repeat("p", 189) + `/` + strings.Repeat("n", 63) + `}`),
		"a gate that the autoscaler knows":                              withTask(`gate: {key: startup-taint.cluster-autoscaler.kubernetes.io/setup}`),
		"a gate that the autoscaler knew":                               withTask(`gate: {key: ignore-taint.cluster-autoscaler.kubernetes.io/setup}`),
		"a gate of the node readiness controller":                       withTask(`gate: {key: readiness.k8s.io/setup}`),
		"a gate that closes after a reboot":                             withTask(`gate: {nodes: JoiningAndRebooted}, rerun: {onReboot: true}`),
		"all nodes unavailable":                                         withTask(`maintenance: {maxUnavailable: "100%"}`),
		"a number of unavailable nodes":                                 withTask(`maintenance: {cordon: true, drain: {podSelector: {matchLabels: {a: b}}}, reboot: {policy: IfRequested}, maxUnavailable: 3}`),
		"images before a reboot":                                        withTask(`maintenance: {prePull: true, reboot: {policy: Always}}`),
		"images before a drain":                                         withTask(`maintenance: {prePull: true, drain: {}}`),
		"a reboot as slow as allowed":                                   withTask(`maintenance: {reboot: {policy: Always, timeoutSeconds: 86400, minReadySeconds: 3600}}`),
		"a run every 10 seconds":                                        withTask(`rerun: {periodSeconds: 10}`),
		"no interval":                                                   withTask(`rerun: {periodSeconds: 0}`),
		"an interval of a year":                                         withTask(`rerun: {periodSeconds: 31536000}`),
		"files of a ConfigMap and a Secret":                             `{task: {script: "true", files: [{name: a-1, configMap: {name: a, defaultMode: 0755, items: [{key: a.sh, path: bin/.a, mode: 0}]}}, {name: b, secret: {name: a, defaultMode: 0600}}, {name: c, image: {reference: "registry.example.com:5000/Tools/x:v1@sha256:` + strings.Repeat("a", 64) + `"}}]}}`,
		"content of one name and two kinds":                             `{task: {script: "true", inputs: [{kind: Secret, name: a}, {kind: ConfigMap, name: a}]}}`,
		"resources":                                                     `task: {script: "true", resources: {requests: {memory: 64Mi, cpu: 0}, limits: {memory: 67108864, cpu: "1.5", ephemeral-storage: 1Gi}}}`,
		"a request as high as its limit":                                `task: {command: ["true"], resources: {requests: {memory: "1024Mi"}, limits: {memory: 1Gi}}}`,
		"an output that is not retained":                                `task: {output: {record: None}, template: {spec: {containers: [{name: a, image: b}]}}}`,
		"a template for Windows":                                        `task: {template: {spec: {os: {name: windows}, containers: [{name: a, image: b}]}}}`,
		"a template for Linux with a rollback":                          `{task: {template: {spec: {os: {name: linux}, containers: [{name: a, image: b}]}}}, rollback: {script: "true"}, maintenance: {reboot: {policy: Always}}}`,
		"a NodeJob that depends on others":                              withTask(`dependsOn: [` + list("n%d", 16) + `]`),
	} {
		t.Run(name, func(t *testing.T) {
			objectName := ""
			if strings.HasPrefix(name, "a name") {
				objectName = strings.Repeat("n", 63)
			}
			must(t, admin.Create(w.Ctx, jobFromYAML(t, w.Namespace, objectName, spec)))
		})
	}

	job := jobFromYAML(t, w.Namespace, "defaults", withTask(`gate: {}, nodes: {selector: {matchLabels: {pool: db}}}`))
	must(t, admin.Create(w.Ctx, job))
	spec, _, _ := unstructured.NestedMap(job.Object, "spec")
	got, err := yaml.Marshal(spec)
	must(t, err)
	want := `deletionPolicy: Forget
gate:
  effect: NoSchedule
  nodes: Joining
maintenance:
  reboot:
    minReadySeconds: 10
    policy: Never
    timeoutSeconds: 900
nodes:
  selector:
    matchLabels:
      pool: db
onFailure:
  action: None
rerun:
  onMachineChange: true
  onRevisionChange: true
retry:
  backoffSeconds: 10
  limit: 3
  maxBackoffSeconds: 300
rollout:
  maxConcurrent: 25%
  maxFailures: 0
  progressDeadlineSeconds: 3600
  steps:
  - name: canary
    nodes: 1
  - name: all
task:
  output:
    record: Tail
  script: "true"
  timeoutSeconds: 600
`
	if string(got) != want {
		t.Errorf("the defaults are\n%s\nwant\n%s", got, want)
	}
}

// withTask returns a spec with a valid task and the fields under test.
func withTask(rest string) string { return `{task: {script: "true"}, ` + rest + `}` }

// list are n numbered items, with commas between them.
func list(item string, n int) string {
	items := make([]string, n)
	for i := range items {
		items[i] = fmt.Sprintf(item, i)
	}
	return strings.Join(items, ", ")
}

// jobFromYAML reads a NodeJob, which selects all nodes unless it says which.
func jobFromYAML(t *testing.T, namespace, name, spec string) *unstructured.Unstructured {
	t.Helper()
	job := fromYAML(t, "NodeJob", namespace, name, spec)
	if spec, ok := job.Object["spec"].(map[string]any); ok && spec["nodes"] == nil {
		nodes, err := runtime.DefaultUnstructuredConverter.ToUnstructured(new(allNodes()))
		must(t, err)
		spec["nodes"] = nodes
	}
	return job
}

func guardFromYAML(t *testing.T, namespace, name, spec string) *unstructured.Unstructured {
	t.Helper()
	return fromYAML(t, "NodeGuard", namespace, name, spec)
}

func fromYAML(t *testing.T, kind, namespace, name, spec string) *unstructured.Unstructured {
	t.Helper()
	var content map[string]any
	must(t, yaml.Unmarshal([]byte(spec), &content))
	job := &unstructured.Unstructured{Object: map[string]any{"spec": content}}
	job.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	job.SetNamespace(namespace)
	if name == "" {
		job.SetGenerateName("job-")
	}
	job.SetName(name)
	return job
}

// decode reads an object with its type.
func (w *world) decode(t *testing.T, from *unstructured.Unstructured, into client.Object) {
	t.Helper()
	content, err := yaml.Marshal(from)
	must(t, err)
	must(t, yaml.UnmarshalStrict(content, into))
}
