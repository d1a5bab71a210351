// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/prometheus/procfs"

	"github.com/everynode/everynode/test/bench/report"
)

// machine describes this machine.
func machine() (report.Machine, error) {
	m := report.Machine{Cores: runtime.NumCPU(), Go: runtime.Version(), OS: runtime.GOOS + "/" + runtime.GOARCH}
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return m, err
	}
	memory, err := proc.Meminfo()
	if err != nil {
		return m, fmt.Errorf("reading the memory of the machine: %w", err)
	}
	if memory.MemTotal != nil {
		m.MemoryGiB = report.Rounded(float64(*memory.MemTotal) / (1 << 20))
	}
	if cpus, err := proc.CPUInfo(); err == nil && len(cpus) > 0 { // not on all architectures
		m.CPU = cpus[0].ModelName
	}
	return m, nil
}

// cpuSeconds is the CPU time of the process since its start, in user and kernel mode.
func cpuSeconds(pid int) (float64, error) {
	proc, err := procfs.NewProc(pid)
	if err != nil {
		return 0, err
	}
	stat, err := proc.Stat()
	return stat.CPUTime(), err
}

// machineCPUSeconds is the CPU time of all processes of the machine since its boot.
func machineCPUSeconds() (float64, error) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, err
	}
	stat, err := proc.Stat()
	cpu := stat.CPUTotal
	return cpu.User + cpu.Nice + cpu.System + cpu.IRQ + cpu.SoftIRQ, err
}

// memoryMiB is the resident memory of the process, now and at most since its start.
func memoryMiB(pid int) (resident, peak float64, err error) {
	proc, err := procfs.NewProc(pid)
	if err != nil {
		return 0, 0, err
	}
	status, err := proc.NewStatus()
	return float64(status.VmRSS) / (1 << 20), float64(status.VmHWM) / (1 << 20), err
}

// processes are the measured processes, by name.
func (w *world) processes() (map[string]int, error) {
	pids, err := w.cluster.Processes()
	if err != nil {
		return nil, err
	}
	pids["harness"] = os.Getpid()
	if w.program != nil {
		if err := w.program.alive(); err != nil {
			return nil, err
		}
		name := report.Own
		if w.subject == report.DaemonSet {
			name = "labeler"
		}
		pids[name] = w.program.pid()
	}
	return pids, nil
}

// usage is what was used between two times.
type usage struct {
	from, to time.Time
	// cpu is in seconds by process, and requests are those that the API server has counted.
	cpu      map[string]float64
	requests report.Counts
	// clients are the requests by client; nil without an audit log.
	clients report.ClientCounts
}

// measure calls a function with the time, and returns what was used meanwhile. It reads the requests outside of the measured period: to
// report them costs the API server more than many requests.
func (w *world) measure(ctx context.Context, do func(began time.Time) error) (*usage, error) {
	requests, err := w.requests(ctx)
	if err != nil {
		return nil, err
	}
	before, err := w.cpu()
	if err != nil {
		return nil, err
	}
	u := &usage{from: time.Now()}
	if err := do(u.from); err != nil {
		return nil, err
	}
	u.to = time.Now()
	if u.cpu, err = w.cpu(); err != nil {
		return nil, err
	}
	for name := range u.cpu {
		u.cpu[name] -= before[name]
	}
	if u.requests, err = w.requests(ctx); err != nil {
		return nil, err
	}
	u.requests = u.requests.Since(requests)
	u.clients, err = w.clients(ctx, u.from, u.to)
	return u, err
}

// cpu is the CPU time of all measured processes since their start.
func (w *world) cpu() (map[string]float64, error) {
	pids, err := w.processes()
	if err != nil {
		return nil, err
	}
	cpu := map[string]float64{}
	for name, pid := range pids {
		used, err := cpuSeconds(pid)
		if err != nil {
			return nil, fmt.Errorf("reading the CPU time of %s: %w", name, err)
		}
		cpu[name] = used
		switch name {
		case "kube-apiserver", "etcd", "kube-controller-manager", "kube-scheduler":
			cpu[report.ControlPlane] += used
		}
	}
	if cpu[report.WholeMachine], err = machineCPUSeconds(); err != nil {
		return nil, fmt.Errorf("reading the CPU time of the machine: %w", err)
	}
	return cpu, nil
}

func (w *world) requests(ctx context.Context) (report.Counts, error) {
	text, err := w.client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the API server's metrics: %w", err)
	}
	return report.RequestCounts(bytes.NewReader(text))
}

// setMemory sets the maximums of resident memory by process.
func (w *world) setMemory(run *report.Run) error {
	pids, err := w.processes()
	if err != nil {
		return err
	}
	for name, pid := range pids {
		_, peak, err := memoryMiB(pid)
		if err != nil {
			return fmt.Errorf("reading the memory of %s: %w", name, err)
		}
		run.Set(report.Memory, name, peak)
	}
	return nil
}

// clients counts the requests of a period in the audit log, which is written with a delay; nil without an audit log.
func (w *world) clients(ctx context.Context, from, to time.Time) (report.ClientCounts, error) {
	if !w.audited {
		return nil, nil
	}
	if err := pause(ctx, 3*time.Second); err != nil {
		return nil, err
	}
	log, err := os.Open(w.cluster.AuditLog())
	if err != nil {
		return nil, fmt.Errorf("reading the audit log: %w", err)
	}
	defer log.Close()
	counts, err := report.AuditCounts(log, from, to)
	delete(counts, harnessAgent) // these are not those of a subject
	return counts, err
}
