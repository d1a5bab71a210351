package controller

import (
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// A look at a NodeJob is linear in the nodes, so a thousand nodes that join at once must not cost a thousand looks.
	// Events are gathered for so long, and for gatherShare times what the last look took: looks take at most one in
	// gatherShare+1 parts of a processor, however many nodes there are and however busy the machine is.
	leastGather   = 50 * time.Millisecond
	longestGather = time.Second
	gatherShare   = 10
)

// looks remembers how long the last look at each NodeJob took. The zero value is ready to use.
type looks struct {
	mu   sync.Mutex
	took map[client.ObjectKey]time.Duration
}

func (l *looks) looked(job client.ObjectKey, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.took == nil {
		l.took = map[client.ObjectKey]time.Duration{}
	}
	l.took[job] = took
}

// gather is how long events of a NodeJob are gathered before it is looked at.
func (l *looks) gather(job client.ObjectKey) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return min(max(leastGather, gatherShare*l.took[job]), longestGather)
}

func (l *looks) forget(job client.ObjectKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.took, job)
}
