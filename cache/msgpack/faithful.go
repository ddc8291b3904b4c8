package msgpack

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/ugorji/go/codec"
)

// checked remembers what checkType has found: an error, or nil, by type.
var checked sync.Map

// checkType refuses a type whose values would decode differently. It does not check the contents of
// interfaces: they decode as maps and lists, as with JSON.
func checkType(t reflect.Type) error {
	if t == nil {
		return nil
	}
	if known, ok := checked.Load(t); ok {
		err, _ := known.(error)
		return err
	}
	err := inspect(t, map[reflect.Type]bool{})
	checked.Store(t, err)
	return err
}

// inspect implements checkType for a type and all of its parts.
func inspect(t reflect.Type, seen map[reflect.Type]bool) error {
	if seen[t] || t == reflect.TypeFor[time.Time]() || either[encoding.BinaryMarshaler](t) && either[encoding.BinaryUnmarshaler](t) || either[codec.Selfer](t) {
		return nil
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Chan, reflect.Func, reflect.UnsafePointer, reflect.Complex64, reflect.Complex128:
		return fmt.Errorf("MessagePack has nothing for a %v", t)
	case reflect.Map:
		if err := inspect(t.Key(), seen); err != nil {
			return err
		}
		return inspect(t.Elem(), seen)
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return inspect(t.Elem(), seen)
	case reflect.Struct:
		return inspectStruct(t, seen)
	}
	return nil
}

func inspectStruct(t reflect.Type, seen map[reflect.Type]bool) error {
	hides := false
	for field := range t.Fields() {
		switch {
		case !field.IsExported() && !field.Anonymous:
			hides = true
		case left(field):
		default:
			if err := inspect(field.Type, seen); err != nil {
				return fmt.Errorf("%v.%s: %w", t, field.Name, err)
			}
		}
	}
	if hides && (either[encoding.TextMarshaler](t) || either[json.Marshaler](t)) {
		return fmt.Errorf("%v hides what it holds and cannot write it as bytes: it needs MarshalBinary and UnmarshalBinary", t)
	}
	return nil
}

// left reports whether a field's tag leaves it out.
func left(field reflect.StructField) bool {
	if tag, ok := field.Tag.Lookup("msgpack"); ok {
		return tag == "-"
	}
	return field.Tag.Get("json") == "-"
}

// either reports whether a type or a pointer to it has the methods of I.
func either[I any](t reflect.Type) bool {
	i := reflect.TypeFor[I]()
	return t.Implements(i) || reflect.PointerTo(t).Implements(i)
}
