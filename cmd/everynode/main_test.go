// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/everynode/everynode/internal/manager/archive"
	"github.com/everynode/everynode/internal/manager/notify"
)

// Pages and scripts read the flags from stdout, where nothing else is written.
func TestHelpGoesToStdout(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "stdout"))
	if err != nil {
		t.Fatal(err)
	}
	stdout := os.Stdout
	os.Stdout = file
	_, helpErr := parse([]string{"--help"})
	_, wrongErr := parse([]string{"--no-such-flag"})
	os.Stdout = stdout
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	if !errors.Is(helpErr, flag.ErrHelp) || !strings.Contains(string(written), "\n  -version\n") {
		t.Errorf("--help: %v, and stdout is:\n%s", helpErr, written)
	}
	if wrongErr == nil || strings.Contains(string(written), "no-such-flag") {
		t.Errorf("a wrong flag: %v, and stdout is:\n%s", wrongErr, written)
	}
}

func TestParsePullSecrets(t *testing.T) {
	tests := map[string]struct {
		value   string
		want    []string
		wantErr string
	}{
		"none":                 {value: ""},
		"one":                  {value: "mirror", want: []string{"mirror"}},
		"two":                  {value: "mirror,other.example", want: []string{"mirror", "other.example"}},
		"a space":              {value: "mirror, other", wantErr: `" other" is not the name of a Secret`},
		"an empty name":        {value: "mirror,", wantErr: `"" is not the name of a Secret`},
		"a name in upper case": {value: "Mirror", wantErr: `"Mirror" is not the name of a Secret`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f, err := parse([]string{"--runner-image=runner", "--runner-pull-secrets=" + tt.value})
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Errorf("the error is %v", err)
				}
				return
			}
			if diff := cmp.Diff(tt.want, f.pullSecrets); err != nil || diff != "" {
				t.Errorf("%v, the Secrets (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestParseProfilesAndLogs(t *testing.T) {
	type got struct {
		Pprof string
		Text  bool
	}
	for name, tt := range map[string]struct {
		args    []string
		want    got
		wantErr string
	}{
		"neither":         {nil, got{}, ""},
		"both":            {[]string{"--pprof-bind-address=127.0.0.1:6060", "--log-format=text"}, got{"127.0.0.1:6060", true}, ""},
		"IPv6":            {[]string{"--pprof-bind-address=[::1]:0", "--log-format=json"}, got{"[::1]:0", false}, ""},
		"for everyone":    {[]string{"--pprof-bind-address=:6060"}, got{}, "for flag -pprof-bind-address: give a loopback address with a port"},
		"a name":          {[]string{"--pprof-bind-address=localhost:6060"}, got{}, "give a loopback address"},
		"another address": {[]string{"--pprof-bind-address=10.0.0.1:6060"}, got{}, "give a loopback address"},
		"another format":  {[]string{"--log-format=yaml"}, got{}, "for flag -log-format: give json or text"},
	} {
		t.Run(name, func(t *testing.T) {
			checkParsed(t, tt.args, tt.wantErr, tt.want, func(f flags) got { return got{f.pprofAddr, f.logText} })
		})
	}
}

func TestParseAddressesOfRequirements(t *testing.T) {
	for value, wantErr := range map[string]bool{
		"": false, "am.example.com,192.0.2.0/24,2001:db8::1": false, "http://am.example.com": true, "192.0.2.0/33": true,
	} {
		if _, err := parse([]string{"--runner-image=r", "--requirements-allowed-addresses=" + value}); (err != nil) != wantErr {
			t.Errorf("%q: %v", value, err)
		}
	}
}

func TestParseNotifications(t *testing.T) {
	tests := map[string]struct {
		args    []string
		want    notify.Config
		wantErr string
	}{
		"none": {nil, notify.Config{Format: notify.FormatCloudEvents, Source: notify.DefaultSource, DrainHeld: time.Hour}, ""},
		"an empty URL": {
			[]string{"--notifications-url="},
			notify.Config{Format: notify.FormatCloudEvents, Source: notify.DefaultSource, DrainHeld: time.Hour}, "",
		},
		"all": {
			[]string{
				"--notifications-url=https://events.example.com/x",
				"--notifications-dir=/d",
				"--notifications-format=slack",
				"--notifications-source=prod",
				"--notifications-drain-held=0s",
			},
			notify.Config{URL: "https://events.example.com/x", Directory: "/d", Format: notify.FormatSlack, Source: "prod"},
			"",
		},
		"a URL without a scheme": {[]string{"--notifications-url=events.example.com"}, notify.Config{},
			"for flag -notifications-url: this is not the URL of an HTTP endpoint: give one such as https://events.example.com/everynode"},
		"an unknown format": {
			[]string{"--notifications-format=teams"},
			notify.Config{},
			"for flag -notifications-format: give cloudevents or slack",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			checkParsed(t, tt.args, tt.wantErr, tt.want, func(f flags) notify.Config { return f.notifications })
		})
	}
}

// checkParsed parses arguments, and compares an error, or what they configure.
func checkParsed[T any](t *testing.T, args []string, wantErr string, want T, configured func(flags) T) {
	t.Helper()
	f, err := parse(append([]string{"--runner-image=runner"}, args...))
	if wantErr != "" {
		if err == nil || !strings.Contains(err.Error(), wantErr) {
			t.Errorf("the error is %v, want %q", err, wantErr)
		}
		return
	}
	if diff := cmp.Diff(want, configured(f)); err != nil || diff != "" {
		t.Errorf("%v, the configuration (-want +got):\n%s", err, diff)
	}
}

func TestParseArchive(t *testing.T) {
	tests := map[string]struct {
		args    []string
		want    archive.Config
		wantErr string
	}{
		"none": {nil, archive.Config{MaxBytes: 16 << 20, UploadTime: 30 * time.Second}, ""},
		"all": {
			[]string{"--archive-dir=/d", "--archive-max-bytes=64Ki", "--archive-timeout=1m"},
			archive.Config{Directory: "/d", MaxBytes: 64 << 10, UploadTime: time.Minute},
			"",
		},

		"an output that is too small": {
			[]string{"--archive-max-bytes=1"},
			archive.Config{},
			"for flag -archive-max-bytes: give 64Ki to 256Mi, such as 16Mi",
		},
		"an output that is too large": {[]string{"--archive-max-bytes=1Gi"}, archive.Config{}, "give 64Ki to 256Mi"},
		"an output that is no number": {[]string{"--archive-max-bytes=much"}, archive.Config{}, "for flag -archive-max-bytes"},
		"an upload that is too long":  {[]string{"--archive-timeout=61s"}, archive.Config{}, "for flag -archive-timeout: give 1s to 60s"},
		"an upload without time":      {[]string{"--archive-timeout=0s"}, archive.Config{}, "give 1s to 60s"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			checkParsed(t, tt.args, tt.wantErr, tt.want, func(f flags) archive.Config { return f.archive })
		})
	}
}
