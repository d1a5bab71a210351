// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

// Package version is the version that a program was built as.
package version

import (
	"regexp"
	"runtime/debug"
	"strings"
)

// version is set by the linker: -ldflags="-X github.com/everynode/everynode/internal/version.version=v1.2.3".
var version string

// String is the version that the linker was given, or else the module's, which Go takes from the version control
// system; "unknown" without either.
func String() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}

// Differ reports whether two versions are known and not the same. A build that was made without a version is not
// known to differ.
func Differ(a, b string) bool { return known(a) && known(b) && a != b }

func known(v string) bool { return v != "" && v != "unknown" && v != "(devel)" }

// semantic matches a tag such as v1.2.3, 1.2.3 or v1.2.3-rc.1.
var semantic = regexp.MustCompile(`^v?\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

// OfImage returns the version that the tag of an image names, such as v1.2.3; "" if the image has no tag, or one that is
// not a version, such as latest.
func OfImage(image string) string {
	image, _, _ = strings.Cut(image, "@")
	name := image[strings.LastIndex(image, "/")+1:] // the host can have a port
	_, tag, _ := strings.Cut(name, ":")
	if !semantic.MatchString(tag) {
		return ""
	}
	return "v" + strings.TrimPrefix(tag, "v")
}
