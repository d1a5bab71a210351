// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package notify reports what happens to NodeJobs and NodeGuards to one URL, as CloudEvents or as messages of Slack.
//
// A notification is first written to the status of its object, together with the change that it reports, and is removed
// from there after its delivery. So a manager that is killed at any time loses none, and sends some twice.
//
//	report ──► Notifier.NodeJob ──► status ──► Offer ──► queue ──► Sender ──► URL
//	             (pure rules)     (API server)         (memory)
//	                ▲                                    │ delivered
//	                └────────────────────────────────────┘
package notify
