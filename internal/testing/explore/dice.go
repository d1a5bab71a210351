// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package explore

import "math/rand"

// Dice are the source of a rand.Rand whose next throws are decided. In the simulations, a 0 of n is what happens rarely. So all throws
// that are not decided are as high as possible.
type Dice struct {
	throws []int
	// rest is what all throws are after these.
	rest int
	// Count is how many throws there were since Show.
	Count int
}

// benign is n-1 modulo each n up to 12, and 99 modulo 100.
const benign = 138599

// NewDice returns dice that always show the highest number, and a random source that throws them.
func NewDice() (*Dice, *rand.Rand) {
	d := &Dice{rest: benign}
	return d, rand.New(d)
}

// Show decides the next throws. A negative number is the highest one.
func (d *Dice) Show(throws ...int) { d.throws, d.rest, d.Count = throws, benign, 0 }

// ShowZeros decides all throws but the first n: they show 0.
func (d *Dice) ShowZeros(n int, throws ...int) {
	d.Show(throws...)
	for range n - len(throws) {
		d.throws = append(d.throws, -1)
	}
	d.rest = 0
}

// ShowOne decides the first throws, and the one after the first n.
func (d *Dice) ShowOne(n, throw int, throws ...int) {
	d.ShowZeros(n, throws...)
	d.throws, d.rest = append(d.throws, throw), benign
}

// Int63 is a throw. Rand takes its upper 32 bits.
func (d *Dice) Int63() int64 {
	d.Count++
	throw := d.rest
	if len(d.throws) > 0 {
		throw, d.throws = d.throws[0], d.throws[1:]
	}
	if throw < 0 {
		throw = benign
	}
	return int64(throw) << 32
}

// Seed does nothing.
func (d *Dice) Seed(int64) {}
