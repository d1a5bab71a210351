// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/everynode/everynode/internal/runner/contract"
)

// Confirm is what an attempt waits for after its scripts, and what it does without it.
type Confirm struct {
	// Digest is contract.ConfirmDigest of the confirmation.
	Digest string
	// Window is how long the attempt waits.
	Window time.Duration
	// Rollback runs without a confirmation, for at most RollbackTimeout.
	Rollback        Script
	RollbackTimeout time.Duration
	// Probes must succeed before the task, and again within the window.
	Probes []Probe
}

// Probe is a script that tests whether something on the node works.
type Probe struct {
	Name    string
	Script  Script
	Timeout time.Duration
}

// parseConfirm reads a JSON object and the rollback; nil for no object.
func parseConfirm(own map[string]string, reboot contract.Reboot) (*Confirm, error) {
	object := own[contract.EnvConfirm]
	if object == "" {
		return nil, nil
	}
	var c contract.Confirm
	if json.Unmarshal([]byte(object), &c) != nil || len(c.SHA256) != len(contract.ConfirmDigest("")) {
		return nil, fmt.Errorf("reading %s as a JSON object with a sha256: it is something else", contract.EnvConfirm)
	}
	if c.Seconds < contract.MinConfirmSeconds || c.Seconds > contract.MaxConfirmSeconds || c.RollbackSeconds < 1 || c.RollbackSeconds > maxSeconds {
		return nil, fmt.Errorf("%s has %d for seconds and %d for rollbackSeconds; give %d to %d and 1 to %d", contract.EnvConfirm,
			c.Seconds, c.RollbackSeconds, contract.MinConfirmSeconds, contract.MaxConfirmSeconds, maxSeconds)
	}
	if reboot != "" {
		return nil, fmt.Errorf("%s and %s are both set: a reboot after the confirmation is not reverted, so leave one out", contract.EnvConfirm, contract.EnvReboot)
	}
	if own[contract.EnvRollback] == "" {
		return nil, fmt.Errorf("%s is set, and there is no rollback: set %s, or leave %s out", contract.EnvConfirm, contract.EnvRollback, contract.EnvConfirm)
	}
	rollback, err := parseScript(contract.EnvRollback, own[contract.EnvRollback], contract.EnvRollbackInterpreter, own[contract.EnvRollbackInterpreter])
	if err != nil {
		return nil, err
	}
	probes, err := parseProbes(c.Probes)
	return &Confirm{
		Digest: c.SHA256, Window: time.Duration(c.Seconds) * time.Second,
		Rollback: rollback, RollbackTimeout: time.Duration(c.RollbackSeconds) * time.Second, Probes: probes,
	}, err
}

func parseProbes(probes []contract.Probe) (parsed []Probe, err error) {
	for _, p := range probes {
		if p.Seconds < 1 || p.Seconds > maxSeconds {
			return nil, fmt.Errorf("probe %s of %s has %d for seconds; give 1 to %d", p.Name, contract.EnvConfirm, p.Seconds, maxSeconds)
		}
		s, err := parseScript("probe "+p.Name, p.Script, "", "")
		if err != nil {
			return nil, err
		}
		parsed = append(parsed, Probe{p.Name, s, time.Duration(p.Seconds) * time.Second})
	}
	return parsed, nil
}

// maxSeconds keeps the product with time.Second far from overflow.
const maxSeconds = 1<<31 - 1
