// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package outcome

import (
	"fmt"
	"strings"
	"testing"
)

func TestRebootRequested(t *testing.T) {
	tests := map[string]struct {
		file string
		want bool
	}{
		"a line requests a reboot":                  {file: "kernel=6.8\nreboot=true\n", want: true},
		"white space does not count":                {file: " reboot = true \r\n", want: true},
		"JSON requests a reboot with a boolean":     {file: `{"reboot": true}`, want: true},
		"JSON requests a reboot with a string":      {file: `{"reboot": "true"}`, want: true},
		"the later of two lines counts":             {file: "reboot=true\nreboot=false\n"},
		"another key requests no reboot":            {file: "Reboot=true\n"},
		"another value requests no reboot":          {file: "reboot=yes\n"},
		"an upper case value requests no reboot":    {file: "reboot=True\n"},
		"quotes are part of the value":              {file: "reboot=\"true\"\n"},
		"no results request no reboot":              {},
		"the request is kept with too many results": {file: numbered(100, "v") + "reboot=true\n", want: true},
		"the request is kept with too much text": {
			file: numbered(31, strings.Repeat("v", 250)) + "reboot=true\n",
			want: true,
		},
		"the request is kept with text that is longer in JSON": {file: numbered(31, strings.Repeat(`\`, 60)) + "reboot=true\n", want: true},
		"the request is ignored after the part that is read":   {file: "a=" + strings.Repeat("v", MaxInputBytes) + "\nreboot=true\n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			results, truncated, _ := ParseResults([]byte(tt.file))
			if got := RebootRequested(results); got != tt.want {
				t.Errorf("the runner sees %v, want %v, in %v", got, tt.want, results)
			}
			o := Outcome{Message: strings.Repeat("m", MaxMessageBytes), Results: results, Truncated: truncated}
			got, ok := Decode(string(o.Encode()))
			if !ok || RebootRequested(got.Results) != tt.want {
				t.Errorf("the controller sees %v, want %v, in %v", RebootRequested(got.Results), tt.want, got.Results)
			}
		})
	}
}

func numbered(n int, value string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "a%03d=%s\n", i, value)
	}
	return b.String()
}
