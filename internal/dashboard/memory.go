// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// memory is what the watches of all sessions may use.
type memory struct {
	// limit is the memory limit of the program in bytes (GOMEMLIMIT); math.MaxInt64 if it has none.
	limit int64
	// live returns the bytes that were in use after the last garbage collection. If collect is true, it collects garbage first.
	live func(collect bool) int64
}

func newMemory() memory { return memory{limit: debug.SetMemoryLimit(-1), live: liveHeap} }

func liveHeap(collect bool) int64 {
	if collect {
		runtime.GC()
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	return int64(min(live[0].Value.Uint64(), math.MaxInt64))
}

// mustStop returns how many viewers must stop before another one may start. It expects that one needs as much as the others on
// average, and a quarter more, and that those that are loading need that too. Together they may use four fifths of the limit: the
// rest is for what a request or a list needs for a moment. The first viewer may always start.
func (m memory) mustStop(viewers, loading int, live int64) int {
	each := max(live/int64(max(viewers-loading, 1)), 1)
	over := live + int64(1+loading)*(each+each/4) - m.limit/5*4
	return min(int(max(over+each-1, 0)/each), viewers)
}

// isShort reports whether nine tenths of the limit are in use.
func (m memory) isShort() bool {
	most := m.limit / 10 * 9
	return m.live(false) > most && m.live(true) > most // without garbage, which is collected only if that is necessary
}
