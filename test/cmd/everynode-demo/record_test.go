// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

func TestARecordingShowsEachLineWhenItWasPrinted(t *testing.T) {
	var r recording
	r.prompt("kubectl get nodejobs")
	r.print("NAME <a&b>\n"+strings.Repeat("x", columns+1)+"\n", time.Minute)
	r.prompt("true")
	var texts, delays []string
	decoder := xml.NewDecoder(strings.NewReader(string(r.svg())))
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		start, ok := token.(xml.StartElement)
		if !ok || start.Name.Local != "text" {
			continue
		}
		var text string
		if err := decoder.DecodeElement(&text, &start); err != nil {
			t.Fatal(err)
		}
		texts = append(texts, text)
		for _, a := range start.Attr {
			if a.Name.Local == "style" {
				delays = append(delays, a.Value)
			}
		}
	}
	want := []string{"$ kubectl get nodejobs", "NAME <a&b>", strings.Repeat("x", columns), "x", "$ true"}
	if strings.Join(texts, "\n") != strings.Join(want, "\n") {
		t.Errorf("lines %q, want %q", texts, want)
	}
	if got := strings.Join(
		delays,
		" ",
	); got != "animation-delay:0.0s animation-delay:2.5s animation-delay:2.5s animation-delay:2.5s animation-delay:4.0s" {
		t.Errorf("delays %s", got)
	}
}
