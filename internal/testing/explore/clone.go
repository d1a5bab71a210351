// Copyright The Everynode Authors.
// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"reflect"
	"time"
	"unsafe"
)

// Cloner copies the states of a simulation.
type Cloner struct {
	shared   map[reflect.Type]bool
	deepener map[reflect.Type]*deepener
}

// NewCloner returns a Cloner that copies deeply, except the types of the given values: the simulation never changes what they refer to,
// so that states can share it.
func NewCloner(shared ...any) *Cloner {
	c := &Cloner{shared: map[reflect.Type]bool{reflect.TypeFor[time.Time](): true}, deepener: map[reflect.Type]*deepener{}}
	for _, v := range shared {
		c.shared[reflect.TypeOf(v)] = true
	}
	return c
}

// Clone returns a copy of the state. Pointers that are equal in the state are equal in the copy.
func Clone[S any](c *Cloner, state *S) *S {
	next := new(S)
	*next = *state
	if d := c.compile(reflect.TypeFor[S]()); d.deepen != nil {
		d.deepen(reflect.ValueOf(next).Elem(), map[unsafe.Pointer]reflect.Value{unsafe.Pointer(state): reflect.ValueOf(next)})
	}
	return next
}

// deepener turns a shallow copy of a value into a deep one. Its function is nil for types without references.
type deepener struct {
	deepen func(v reflect.Value, copies map[unsafe.Pointer]reflect.Value)
}

func (c *Cloner) compile(t reflect.Type) *deepener {
	if d := c.deepener[t]; d != nil {
		return d
	}
	d := &deepener{}
	c.deepener[t] = d
	if c.shared[t] {
		return d
	}
	switch t.Kind() { //nolint:exhaustive // all other kinds are values, or are shared
	case reflect.Pointer:
		d.deepen = c.pointer(t)
	case reflect.Map:
		d.deepen = c.mapping(t)
	case reflect.Slice:
		d.deepen = c.slice(t)
	case reflect.Struct:
		d.deepen = c.structure(t)
	}
	return d
}

func (c *Cloner) pointer(t reflect.Type) func(reflect.Value, map[unsafe.Pointer]reflect.Value) {
	elem := c.compile(t.Elem())
	return func(v reflect.Value, copies map[unsafe.Pointer]reflect.Value) {
		if v.IsNil() {
			return
		}
		next, known := copies[v.UnsafePointer()]
		if !known {
			next = reflect.New(t.Elem())
			next.Elem().Set(v.Elem())
			copies[v.UnsafePointer()] = next
			if elem.deepen != nil {
				elem.deepen(next.Elem(), copies)
			}
		}
		v.Set(next)
	}
}

func (c *Cloner) mapping(t reflect.Type) func(reflect.Value, map[unsafe.Pointer]reflect.Value) {
	elem := c.compile(t.Elem())
	return func(v reflect.Value, copies map[unsafe.Pointer]reflect.Value) {
		if v.IsNil() {
			return
		}
		next := reflect.MakeMapWithSize(t, v.Len())
		for entries := v.MapRange(); entries.Next(); {
			value := entries.Value()
			if elem.deepen != nil {
				value = reflect.New(t.Elem()).Elem()
				value.Set(entries.Value())
				elem.deepen(value, copies)
			}
			next.SetMapIndex(entries.Key(), value)
		}
		v.Set(next)
	}
}

func (c *Cloner) slice(t reflect.Type) func(reflect.Value, map[unsafe.Pointer]reflect.Value) {
	elem := c.compile(t.Elem())
	return func(v reflect.Value, copies map[unsafe.Pointer]reflect.Value) {
		if v.IsNil() {
			return
		}
		next := reflect.MakeSlice(t, v.Len(), v.Len())
		reflect.Copy(next, v)
		for i := 0; elem.deepen != nil && i < v.Len(); i++ {
			elem.deepen(next.Index(i), copies)
		}
		v.Set(next)
	}
}

func (c *Cloner) structure(t reflect.Type) func(reflect.Value, map[unsafe.Pointer]reflect.Value) {
	type field struct {
		index int
		*deepener
	}
	var fields []field
	for i := range t.NumField() {
		if d := c.compile(t.Field(i).Type); d.deepen != nil {
			fields = append(fields, field{i, d})
		}
	}
	if len(fields) == 0 {
		return nil
	}
	return func(v reflect.Value, copies map[unsafe.Pointer]reflect.Value) {
		for _, f := range fields {
			f.deepen(settable(v.Field(f.index)), copies)
		}
	}
}

// settable is a field of an addressable struct, which may be unexported.
func settable(field reflect.Value) reflect.Value {
	return reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem()
}
