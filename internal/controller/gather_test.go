package controller

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestEventsAreGatheredForLongerWhereALookTakesLonger(t *testing.T) {
	job, other := client.ObjectKey{Name: "a"}, client.ObjectKey{Name: "b"}
	tests := map[string]struct{ took, want time.Duration }{
		"nothing to see":         {0, 50 * time.Millisecond},
		"a thousand nodes":       {3 * time.Millisecond, 50 * time.Millisecond},
		"many nodes":             {20 * time.Millisecond, 200 * time.Millisecond},
		"requests that hang":     {time.Minute, time.Second},
		"a clock that goes back": {-time.Minute, 50 * time.Millisecond},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var l looks
			l.looked(job, tt.took)
			if got := l.gather(job); got != tt.want {
				t.Errorf("gathers for %v, want %v", got, tt.want)
			}
			if got := l.gather(other); got != leastGather {
				t.Errorf("another NodeJob gathers for %v, want %v", got, leastGather)
			}
			l.forget(job)
			if got := l.gather(job); got != leastGather {
				t.Errorf("when it is gone, for %v, want %v", got, leastGather)
			}
		})
	}
}
