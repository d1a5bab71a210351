// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package record_test

import (
	"strings"
	"time"

	"github.com/everynode/everynode/internal/nodejob/record"
)

// readingsOfV010 are what the golden records of v0.1.0 mean. After the release of v0.1.0, neither the records nor this table
// changes, except that a new Go field of a reading is added here with the value that it has for these records.
var readingsOfV010 = map[string]reading{
	"archived": {
		On: record.NodeRecord{Sealed: true, Present: true, Record: &record.Record{
			Revision: "8ef4ff86f1", Digest: "8ef4ff86f1e1e1b4cfc680a01977fd7ceb8532b4367d46bf054e0f4805efdc27", Outcome: record.Failed,
			Attempts:  1,
			StartedAt: at("12:00:00"), FinishedAt: at("12:00:20"), RecordedAt: at("12:00:20"),
			ExitCode: new(int32(3)), Reason: "TaskFailed", Message: "no disk at /dev/sdb",
			Archives: record.Archives{
				{Phase: "task", Location: "s3://outputs/node-setup/disk/8ef4ff86f1/node-1/task-1.log", Stored: true, Bytes: 16777216, Dropped: 1234, SHA256: strings.Repeat("0a", 32)},
				{Phase: "rollback", Location: "s3://outputs/node-setup/disk/8ef4ff86f1/node-1/rollback-1.log", Error: "the response is 403 Forbidden (AccessDenied)"},
			},
			BootID: "00000000-0000-4000-8000-000000000003", MachineID: "00000000000040008000000000000004", PodUID: "00000000-0000-4000-8000-000000000009",
			Rollback: &record.Rollback{Outcome: record.Succeeded, Attempts: 1, StartedAt: at("12:00:20"), FinishedAt: at("12:00:40"), RecordedAt: at("12:00:40"), ExitCode: new(int32(0)), PodUID: "00000000-0000-4000-8000-000000000011"},
		}},
	},
	"assumed-done": {
		On: record.NodeRecord{Label: "8ef4ff86f1", Sealed: true, Present: true, Record: &record.Record{
			Revision: "8ef4ff86f1", Digest: "8ef4ff86f1e1e1b4cfc680a01977fd7ceb8532b4367d46bf054e0f4805efdc27", Outcome: record.Succeeded,
			Attempts: 0, Label: "8ef4ff86f1",
			FinishedAt: at("12:00:00"), RecordedAt: at("12:00:00"),
			Reason: "AssumedDone", Message: "it matched spec.nodes.assumeDone",
			BootID: "00000000-0000-4000-8000-000000000003", MachineID: "00000000000040008000000000000004",
			Assumed: true, ChangedBy: "alice", NeverStarted: true,
		}},
	},
	"cut": {
		On: record.NodeRecord{Sealed: true, Present: true, Record: &record.Record{
			Revision: "84a1093fbc", Digest: "84a1093fbc74a7642f5f770a5a00127d077ef3f73bafe5e8652e08d70776cee0", Outcome: record.Failed,
			Attempts:  1,
			StartedAt: at("12:00:00"), FinishedAt: at("12:00:20"), RecordedAt: at("12:00:20"),
			ExitCode: new(int32(1)), Reason: "TaskFailed", Message: "\\x1b[31mfailed",
			Results:   map[string]string{"log": "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012…"},
			Truncated: true,
			BootID:    "00000000-0000-4000-8000-000000000003", MachineID: "00000000000040008000000000000004", PodUID: "00000000-0000-4000-8000-000000000009",
		}},
	},
	"done": {
		On: record.NodeRecord{Label: "8ef4ff86f1", Sealed: true, Present: true, Record: &record.Record{
			Revision: "8ef4ff86f1", Digest: "8ef4ff86f1e1e1b4cfc680a01977fd7ceb8532b4367d46bf054e0f4805efdc27", Outcome: record.Succeeded,
			Attempts: 2, Label: "8ef4ff86f1",
			StartedAt: at("12:00:40"), FirstStartedAt: at("12:00:00"), FinishedAt: at("12:01:00"), RecordedAt: at("12:01:00"),
			ExitCode: new(int32(0)), Message: "1 disk",
			Results: map[string]string{"disks": "sda, sdb", "kernel": "6.12"},
			BootID:  "00000000-0000-4000-8000-000000000003", MachineID: "00000000000040008000000000000004", PodUID: "00000000-0000-4000-8000-000000000013",
			RemovedLabels: map[string]string{"example.com/needs-disk": "yes"},
			Earlier: record.Attempts{
				{Revision: "8ef4ff86f1", Number: 1, Outcome: record.Failed, StartedAt: at("12:00:00"), FinishedAt: at("12:00:20"), ExitCode: new(int32(3)), Reason: "TaskFailed", Message: "no disk at /dev/sdb"},
			},
		}},
		Published: record.Published{Labels: map[string]string{"example.com/kernel": "node-setup.everynode.dev/disk"}, Annotations: map[string]string{"example.com/disks": "node-setup.everynode.dev/disk"}},
	},
	"failed-and-rolled-back": {
		On: record.NodeRecord{Sealed: true, Present: true, Record: &record.Record{
			Revision: "8ef4ff86f1", Digest: "8ef4ff86f1e1e1b4cfc680a01977fd7ceb8532b4367d46bf054e0f4805efdc27", Outcome: record.Failed,
			Attempts:  3,
			StartedAt: at("12:01:20"), FirstStartedAt: at("12:00:00"), FinishedAt: at("12:01:40"), RecordedAt: at("12:01:40"),
			ExitCode: new(int32(3)), Reason: "TaskFailed", Message: "no disk at /dev/sdb",
			BootID: "00000000-0000-4000-8000-000000000003", MachineID: "00000000000040008000000000000004", PodUID: "00000000-0000-4000-8000-000000000015",
			Cordoned: true,
			Rollback: &record.Rollback{Outcome: record.Succeeded, Attempts: 2, StartedAt: at("12:02:10"), FinishedAt: at("12:02:30"), RecordedAt: at("12:02:30"), ExitCode: new(int32(0)), PodUID: "00000000-0000-4000-8000-000000000020"},
			Drain:    &record.Drain{StartedAt: at("12:02:30"), FinishedAt: at("12:02:35"), Outcome: "Drained"},
			Earlier: record.Attempts{
				{Revision: "8ef4ff86f1", Number: 1, Outcome: record.Failed, StartedAt: at("12:00:00"), FinishedAt: at("12:00:20"), ExitCode: new(int32(3)), Reason: "TaskFailed", Message: "no disk at /dev/sdb"},
				{Revision: "8ef4ff86f1", Number: 2, Outcome: record.Failed, StartedAt: at("12:00:40"), FinishedAt: at("12:01:00"), ExitCode: new(int32(3)), Reason: "TaskFailed", Message: "no disk at /dev/sdb"},
				{Revision: "8ef4ff86f1", Rollback: true, Number: 1, Outcome: record.Failed, StartedAt: at("12:01:40"), FinishedAt: at("12:02:00"), ExitCode: new(int32(3)), Reason: "TaskFailed", Message: "the disk is busy"},
			},
		}},
		CordonedBy: []string{"node-setup.everynode.dev/disk"},
	},
	"never-started": {
		On: record.NodeRecord{Sealed: true, Present: true, Record: &record.Record{
			Revision: "8ef4ff86f1", Digest: "8ef4ff86f1e1e1b4cfc680a01977fd7ceb8532b4367d46bf054e0f4805efdc27", Outcome: record.Failed,
			Attempts:  1,
			StartedAt: at("12:00:00"), FinishedAt: at("12:01:00"), RecordedAt: at("12:01:00"),
			Reason: "DrainTimedOut", Message: "1 pod not evicted within 60 s; shop/db-0: The disruption budget db needs 2 healthy pods and has 2 currently",
			BootID: "00000000-0000-4000-8000-000000000003", MachineID: "00000000000040008000000000000004",
			ChangedBy: "alice", NeverStarted: true,
		}},
	},
	"new-revision": {
		On: record.NodeRecord{Label: "567c22226c", Sealed: true, Present: true, Record: &record.Record{
			Revision: "567c22226c", Digest: "567c22226cc66be9c40ac173a0e5ab2829062fd0d6416bb3f09c0607120e341a", Outcome: record.Succeeded,
			Attempts: 1, Label: "567c22226c",
			StartedAt: at("12:01:00"), FinishedAt: at("12:01:20"), RecordedAt: at("12:01:20"),
			ExitCode: new(int32(0)),
			BootID:   "00000000-0000-4000-8000-000000000003", MachineID: "00000000000040008000000000000004", PodUID: "00000000-0000-4000-8000-000000000013",
			ChangedBy: "bob\\x1b[2J",
			Earlier: record.Attempts{
				{Revision: "8ef4ff86f1", Number: 1, Outcome: record.Succeeded, StartedAt: at("12:00:00"), FinishedAt: at("12:00:20"), ExitCode: new(int32(0))},
			},
			Previous: &record.Previous{Revision: "8ef4ff86f1", Outcome: record.Succeeded, Attempts: 1, FinishedAt: at("12:00:20"), ExitCode: new(int32(0)), Results: map[string]string{"disks": "sda", "log": "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012…"}, Truncated: true},
		}},
	},
	"rebooting": {
		On: record.NodeRecord{Sealed: true, Present: true, Record: &record.Record{
			Revision: "026f9e9199", Digest: "026f9e9199c96af0218c23aaa3806ab3525b8a77f741429f36d305429f677a6e", Outcome: record.Rebooting,
			Attempts:  1,
			StartedAt: at("12:00:00"), FinishedAt: at("12:00:20"), RecordedAt: at("12:00:20"),
			ExitCode: new(int32(0)),
			BootID:   "00000000-0000-4000-8000-000000000003", MachineID: "00000000000040008000000000000004", PodUID: "00000000-0000-4000-8000-000000000009",
			Reboot: &record.Reboot{StartedAt: at("12:00:20"), FromBootID: "00000000-0000-4000-8000-000000000003", BackAt: at("12:01:00"), ReadySince: at("12:01:00"), BootID: "00000000-0000-4000-8000-000000000014"},
		}},
	},
	"rerun-disrupted": {
		On: record.NodeRecord{Label: "8ef4ff86f1", Sealed: true, Present: true, Record: &record.Record{
			Revision: "8ef4ff86f1", Digest: "8ef4ff86f1e1e1b4cfc680a01977fd7ceb8532b4367d46bf054e0f4805efdc27", Outcome: record.Disrupted,
			Attempts: 0, Disruptions: 2, DisruptedSince: at("12:01:05"), Label: "8ef4ff86f1",
			StartedAt: at("12:01:15"), FirstStartedAt: at("12:00:00"), FinishedAt: at("12:01:20"), RecordedAt: at("12:01:20"),
			ExitCode: new(int32(143)), Reason: "Disrupted", Message: "the task was interrupted by a signal from outside",
			BootID: "00000000-0000-4000-8000-000000000099", MachineID: "00000000000040008000000000000004", PodUID: "00000000-0000-4000-8000-000000000015",
			Rerun: true,
			Earlier: record.Attempts{
				{Revision: "8ef4ff86f1", Number: 1, Outcome: record.Succeeded, StartedAt: at("12:00:00"), FinishedAt: at("12:00:20"), ExitCode: new(int32(0))},
			},
		}},
	},
	"run-requested": {
		On: record.NodeRecord{Sealed: true, Present: true, Record: &record.Record{
			Revision: "8ef4ff86f1", Digest: "8ef4ff86f1e1e1b4cfc680a01977fd7ceb8532b4367d46bf054e0f4805efdc27", Outcome: record.Succeeded,
			Attempts: 1, Label: "8ef4ff86f1", LabelRemoved: true,
			StartedAt: at("12:00:00"), FinishedAt: at("12:00:20"), RecordedAt: at("12:00:20"),
			ExitCode: new(int32(0)),
			BootID:   "00000000-0000-4000-8000-000000000003", MachineID: "00000000000040008000000000000004", PodUID: "00000000-0000-4000-8000-000000000009",
		}},
	},
	"retry-requested": {
		On: record.NodeRecord{Sealed: true, Present: true, Record: &record.Record{
			Revision: "8ef4ff86f1", Digest: "8ef4ff86f1e1e1b4cfc680a01977fd7ceb8532b4367d46bf054e0f4805efdc27", Outcome: record.Failed,
			Attempts:  1,
			StartedAt: at("12:00:00"), FinishedAt: at("12:00:20"), RecordedAt: at("12:00:20"),
			ExitCode: new(int32(3)), Reason: "TaskFailed", Message: "no disk at /dev/sdb",
			BootID: "00000000-0000-4000-8000-000000000003", MachineID: "00000000000040008000000000000004", PodUID: "00000000-0000-4000-8000-000000000009",
			RetryRequested: true, RunsAlone: true,
		}},
	},
	"rollback-disrupted": {
		On: record.NodeRecord{Sealed: true, Present: true, Record: &record.Record{
			Revision: "8ef4ff86f1", Digest: "8ef4ff86f1e1e1b4cfc680a01977fd7ceb8532b4367d46bf054e0f4805efdc27", Outcome: record.Failed,
			Attempts: 2, Retry: "6b86b273ff",
			StartedAt: at("12:00:40"), FirstStartedAt: at("12:00:00"), FinishedAt: at("12:01:00"), RecordedAt: at("12:01:00"),
			ExitCode: new(int32(3)), Reason: "TaskFailed", Message: "no disk at /dev/sdb",
			BootID: "00000000-0000-4000-8000-000000000003", MachineID: "00000000000040008000000000000004", PodUID: "00000000-0000-4000-8000-000000000013",
			Rollback: &record.Rollback{Outcome: record.Disrupted, Attempts: 1, Disruptions: 1, StartedAt: at("12:01:30"), FinishedAt: at("12:01:35"), RecordedAt: at("12:01:35"), ExitCode: new(int32(143)), Reason: "Disrupted", Message: "the task was interrupted by a signal from outside", Retry: "6b86b273ff", PodUID: "00000000-0000-4000-8000-000000000017"},
			Earlier: record.Attempts{
				{Revision: "8ef4ff86f1", Number: 1, Outcome: record.Failed, StartedAt: at("12:00:00"), FinishedAt: at("12:00:20"), ExitCode: new(int32(3)), Reason: "TaskFailed", Message: "no disk at /dev/sdb"},
				{Revision: "8ef4ff86f1", Rollback: true, Number: 1, Outcome: record.Failed, StartedAt: at("12:01:00"), FinishedAt: at("12:01:20"), ExitCode: new(int32(3)), Reason: "TaskFailed", Message: "the disk is busy"},
			},
		}},
	},
	"skipped": {
		On: record.NodeRecord{Label: "8ef4ff86f1", Sealed: true, Present: true, Record: &record.Record{
			Revision: "8ef4ff86f1", Digest: "8ef4ff86f1e1e1b4cfc680a01977fd7ceb8532b4367d46bf054e0f4805efdc27", Outcome: record.Failed,
			Attempts:  3,
			StartedAt: at("12:01:20"), FirstStartedAt: at("12:00:00"), FinishedAt: at("12:01:40"), RecordedAt: at("12:01:40"),
			ExitCode: new(int32(3)), Reason: "TaskFailed", Message: "3",
			BootID: "00000000-0000-4000-8000-000000000003", MachineID: "00000000000040008000000000000004", PodUID: "00000000-0000-4000-8000-000000000015",
			Earlier: record.Attempts{
				{Revision: "8ef4ff86f1", Number: 1, Outcome: record.Failed, StartedAt: at("12:00:00"), FinishedAt: at("12:00:20"), ExitCode: new(int32(3)), Reason: "TaskFailed", Message: "1"},
				{Revision: "8ef4ff86f1", Number: 2, Outcome: record.Failed, StartedAt: at("12:00:40"), FinishedAt: at("12:01:00"), ExitCode: new(int32(3)), Reason: "TaskFailed", Message: "2"},
			},
		}},
	},
	"waiting-for-retry": {
		On: record.NodeRecord{Sealed: true, Present: true, Record: &record.Record{
			Revision: "8ef4ff86f1", Digest: "8ef4ff86f1e1e1b4cfc680a01977fd7ceb8532b4367d46bf054e0f4805efdc27", Outcome: record.Failed,
			Attempts:  1,
			StartedAt: at("12:00:25"), FirstStartedAt: at("12:00:00"), FinishedAt: at("12:00:45"), RecordedAt: at("12:00:45"),
			ExitCode: new(int32(3)), Reason: "TaskFailed", Message: "looking for the disk\nno disk at /dev/sdb",
			BootID: "00000000-0000-4000-8000-000000000003", MachineID: "00000000000040008000000000000004", PodUID: "00000000-0000-4000-8000-000000000013",
			Earlier: record.Attempts{
				{Revision: "8ef4ff86f1", Number: 1, Outcome: record.Disrupted, Disruptions: 1, StartedAt: at("12:00:00"), FinishedAt: at("12:00:05"), ExitCode: new(int32(143)), Reason: "Disrupted", Message: "the task was interrupted by a signal from outside"},
			},
		}},
	},
}

// at returns a time of the day on which the golden records were written.
func at(clock string) time.Time {
	t, err := time.Parse(time.RFC3339, "2026-07-01T"+clock+"Z")
	if err != nil {
		panic(err)
	}
	return t
}
