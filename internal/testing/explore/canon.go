// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"bytes"
	"encoding/binary"
	"math/rand"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Canon writes states so that states from which the same can happen are equal bytes: names with numbers, such as UIDs, are numbered by
// the order in which they occur, times are relative to the current one, and what no decision reads is left out.
type Canon struct {
	// Skip are the fields that are left out, as type.field, or as field for all types.
	Skip []string
	// IDs are the prefixes of the names that are numbered.
	IDs []string
	// Old is the age from which all times are the same. Times that differ by less than Grain are the same, too.
	Old, Grain time.Duration

	encoders  map[reflect.Type]encode
	skip      map[string]bool
	now, seen time.Time
	alias     map[string]string
	live      map[string]bool
	out       []byte
	places    map[uint64]uint32
}

// View is what a state says about its own names.
type View struct {
	Now time.Time
	// Seen is the time up to which everything has been observed, if that makes a difference.
	Seen time.Time
	// Alias are names that stand for others, such as a name that is derived from a UID.
	Alias map[string]string
	// Live are the names of all that exists. Entries of maps whose keys have the name of another thing are left out.
	Live map[string]bool
}

// mark begins a name with a number. It is no byte of any text.
const mark = 0xFF

type encode func(v reflect.Value)

// Bytes returns the canonical form of the parts. It is valid until the next call.
func (c *Canon) Bytes(view View, parts ...any) []byte {
	if c.encoders == nil {
		c.encoders, c.skip = map[reflect.Type]encode{}, map[string]bool{}
		for _, field := range c.Skip {
			c.skip[field] = true
		}
		c.places = map[uint64]uint32{}
	}
	c.now, c.seen, c.alias, c.live, c.out = view.Now, view.Seen, view.Alias, view.Live, c.out[:0]
	for _, part := range parts {
		v := reflect.ValueOf(part)
		c.compile(v.Type())(v)
		c.out = append(c.out, '\n')
	}
	c.renumber()
	return c.out
}

// renumber replaces each number of a name by its place in the order in which such names occur.
func (c *Canon) renumber() {
	clear(c.places)
	c.eachName(func(id int, number []byte) {
		name := uint64(id)<<32 | uint64(binary.BigEndian.Uint32(number)) //nolint:gosec // there are few prefixes
		place, known := c.places[name]
		if !known {
			place = uint32(len(c.places)) //nolint:gosec // there are few names
			c.places[name] = place
		}
		binary.BigEndian.PutUint32(number, place)
	})
}

func (c *Canon) eachName(do func(id int, number []byte)) {
	for at := 0; ; at += 6 {
		next := bytes.IndexByte(c.out[at:], mark)
		if next < 0 {
			return
		}
		at += next
		do(int(c.out[at+1]), c.out[at+2:at+6])
	}
}

func (c *Canon) compile(t reflect.Type) encode {
	if e := c.encoders[t]; e != nil {
		return e
	}
	var do encode
	c.encoders[t] = func(v reflect.Value) { do(v) } // for types that contain themselves
	do = c.encoder(t)
	c.encoders[t] = do
	return do
}

//nolint:cyclop // one case for each kind
func (c *Canon) encoder(t reflect.Type) encode {
	switch t {
	case reflect.TypeFor[time.Time]():
		return c.time
	case reflect.TypeFor[*rand.Rand]():
		return func(reflect.Value) {}
	}
	switch t.Kind() {
	case reflect.Pointer:
		elem := c.compile(t.Elem())
		return func(v reflect.Value) {
			if !v.IsNil() {
				elem(v.Elem())
			}
		}
	case reflect.Interface:
		return func(v reflect.Value) {
			if !v.IsNil() {
				c.out = append(c.out, v.Elem().Type().String()...)
				c.compile(v.Elem().Type())(v.Elem())
			}
		}
	case reflect.Map:
		return c.mapping(t)
	case reflect.Slice, reflect.Array:
		elem := c.compile(t.Elem())
		return func(v reflect.Value) {
			for i := range v.Len() {
				elem(v.Index(i))
				c.out = append(c.out, ',')
			}
		}
	case reflect.Struct:
		return c.structure(t)
	case reflect.String:
		return func(v reflect.Value) { c.text(v.String()) }
	case reflect.Bool:
		return func(v reflect.Value) { c.out = strconv.AppendBool(c.out, v.Bool()) }
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return func(v reflect.Value) { c.out = strconv.AppendInt(c.out, v.Int(), 10) }
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return func(v reflect.Value) { c.out = strconv.AppendUint(c.out, v.Uint(), 10) }
	default: // a function: what it does is said by another field
		return func(reflect.Value) {}
	}
}

func (c *Canon) time(v reflect.Value) {
	t := exported(v).Interface().(time.Time) //nolint:forcetypeassert // it is called for no other type
	since := max(min(c.now.Sub(t), c.Old), -c.Old)
	if t.IsZero() {
		c.out = append(c.out, '-')
		return
	}
	c.out = strconv.AppendInt(c.out, since.Round(max(c.Grain, 1)).Milliseconds(), 10)
	if !c.seen.IsZero() && t.After(c.seen) {
		c.out = append(c.out, '*')
	}
}

func (c *Canon) structure(t reflect.Type) encode {
	type field struct {
		index int
		do    encode
	}
	var fields []field
	for i := range t.NumField() {
		if f := t.Field(i); !c.skip[f.Name] && !c.skip[t.Name()+"."+f.Name] {
			fields = append(fields, field{i, c.compile(f.Type)})
		}
	}
	return func(v reflect.Value) {
		c.out = append(c.out, '{')
		for _, f := range fields {
			if of := v.Field(f.index); !isEmpty(of) {
				c.out = append(strconv.AppendInt(c.out, int64(f.index), 10), ':')
				f.do(of)
			}
		}
		c.out = append(c.out, '}')
	}
}

func isEmpty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Map, reflect.Slice:
		return v.Len() == 0
	default:
		return v.IsZero()
	}
}

func (c *Canon) mapping(t reflect.Type) encode {
	key, elem := c.compile(t.Key()), c.compile(t.Elem())
	return func(v reflect.Value) {
		from := len(c.out)
		type entry struct{ from, to int }
		entries := make([]entry, 0, v.Len())
		for all := v.MapRange(); all.Next(); {
			if k := all.Key(); k.Kind() == reflect.String && !c.exists(k.String()) {
				continue
			}
			at := len(c.out)
			key(all.Key())
			c.out = append(c.out, '=')
			elem(all.Value())
			c.out = append(c.out, ';')
			entries = append(entries, entry{at, len(c.out)})
		}
		written := slices.Clone(c.out[from:])
		slices.SortFunc(entries, func(a, b entry) int {
			return bytes.Compare(written[a.from-from:a.to-from], written[b.from-from:b.to-from])
		})
		c.out = c.out[:from]
		for _, e := range entries {
			c.out = append(c.out, written[e.from-from:e.to-from]...)
		}
	}
}

// exists reports whether the key of a map has no name of a thing that is gone.
func (c *Canon) exists(key string) bool {
	if alias, is := c.alias[key]; is {
		key = alias
	}
	for part := range strings.SplitSeq(key, "/") {
		if id, _ := c.number(part); id >= 0 && c.IDs[id] != "" && !c.live[part] {
			return false
		}
	}
	return true
}

// number is the index of the prefix of a name, and its number; -1 if it is no name with a number.
func (c *Canon) number(name string) (id int, number uint32) {
	digits := len(name)
	for digits > 0 && name[digits-1] >= '0' && name[digits-1] <= '9' {
		digits--
	}
	if digits == len(name) {
		return -1, 0
	}
	n, err := strconv.ParseUint(name[digits:], 10, 32)
	if id = slices.Index(c.IDs, name[:digits]); id < 0 || err != nil {
		return -1, 0
	}
	return id, uint32(n)
}

func (c *Canon) text(s string) {
	if alias, is := c.alias[s]; is {
		s = alias
	}
	for len(s) > 0 {
		part, rest, more := strings.Cut(s, "/")
		if id, n := c.number(part); id >= 0 {
			c.out = append(c.out, mark, byte(id)) //nolint:gosec // there are few prefixes
			c.out = binary.BigEndian.AppendUint32(c.out, n)
		} else {
			c.out = append(c.out, part...)
		}
		if more {
			c.out = append(c.out, '/')
		}
		s = rest
	}
}

// exported is a value that may be from an unexported field.
func exported(v reflect.Value) reflect.Value {
	if v.CanInterface() {
		return v
	}
	if v.CanAddr() {
		return settable(v)
	}
	return fromUnexported(v)
}

// fromUnexported copies a value of a struct type with only basic fields, as those of time.Time.
func fromUnexported(v reflect.Value) reflect.Value {
	next := reflect.New(v.Type()).Elem()
	for i := range v.NumField() {
		switch from, to := v.Field(i), settable(next.Field(i)); from.Kind() { //nolint:exhaustive // the fields of time.Time
		case reflect.Uint64:
			to.SetUint(from.Uint())
		case reflect.Int64:
			to.SetInt(from.Int())
		case reflect.Pointer:
			to.Set(reflect.NewAt(from.Type().Elem(), from.UnsafePointer()))
		}
	}
	return next
}
