// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"github.com/everynode/everynode/internal/nodejob/record"
)

// An audit is a NodeJob with task.check and no task. It asks each node, and never changes one:
//
//	may start ──► check ──► yes or no ──► done (compliant or not) ──► with periodSeconds: asked again
//	                │  ▲
//	                └──┴─ error, disrupted: repeated with the backoff, not a failure
//
// Since it disturbs nothing, it has no slots: only maxChecksBefore limits how many nodes are asked at the same time.

// audited completes the record of a node that has answered an audit.
func (a *attemptReader) audited(pod *Pod, r record.Record, answer record.Answer) record.Record {
	r.Outcome = record.Succeeded
	r.Asked = record.Answers{}.With(record.QuestionCheck, record.Asked{}.Next(record.Asked{
		Answer: answer, At: a.recordedAt(), ExitCode: r.ExitCode, Message: r.Message, PodUID: pod.UID,
	}))
	return r
}
