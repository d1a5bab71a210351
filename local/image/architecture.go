// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import "runtime"

const architecture = runtime.GOARCH
