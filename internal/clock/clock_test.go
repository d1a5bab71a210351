// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package clock

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// A server's clock is that of its answers, whatever the machine's says.
func TestNowIsTheServersTime(t *testing.T) {
	tests := map[string]struct {
		ahead time.Duration // the server, of the machine
		took  time.Duration // the request
	}{
		"the same clock":                     {},
		"hours ahead":                        {ahead: 3 * time.Hour},
		"hours behind":                       {ahead: -3 * time.Hour},
		"seconds ahead":                      {ahead: 15 * time.Second, took: 200 * time.Millisecond},
		"behind, and slow to answer":         {ahead: -20 * time.Second, took: 2 * time.Second},
		"a little ahead, within its seconds": {ahead: 700 * time.Millisecond},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			now := noon
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				now = now.Add(tt.took / 2)
				w.Header().Set("Date", now.Add(tt.ahead).UTC().Format(http.TimeFormat))
				now = now.Add(tt.took - tt.took/2)
			}))
			defer server.Close()
			c := New(func() time.Time { return now })
			client := http.Client{Transport: c.Wrap(http.DefaultTransport)}
			for range 20 {
				resp, err := client.Get(server.URL)
				if err != nil {
					t.Fatal(err)
				}
				_ = resp.Body.Close()
				now = now.Add(730 * time.Millisecond)
			}
			if off := c.Now().Sub(now.Add(tt.ahead)); off.Abs() > time.Second+tt.took {
				t.Errorf("it is %v off", off)
			}
			if tt.ahead == 0 && !c.Now().Equal(now) {
				t.Errorf("%v, want the machine's time as it is, %v", c.Now(), now)
			}
		})
	}
}

func TestAnswersWithoutATimeChangeNothing(t *testing.T) {
	for _, date := range []string{"", "yesterday"} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header()["Date"] = []string{date} }))
		c := New(func() time.Time { return noon })
		resp, err := (&http.Client{Transport: c.Wrap(http.DefaultTransport)}).Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		server.Close()
		if !c.Now().Equal(noon) {
			t.Errorf("after the date %q it is %v", date, c.Now())
		}
	}
}
