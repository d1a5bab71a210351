package image

import "runtime"

const architecture = runtime.GOARCH
