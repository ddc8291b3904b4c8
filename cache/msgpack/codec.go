// Package msgpack is a codec of package cache for MessagePack. It is smaller than JSON and
// preserves bytes and large numbers in untyped values. Applications that do not import it do not
// link it.
//
//	products, err := cache.New(cache.Config{Redis: client, Codec: msgpack.Codec{}})
//
// A struct is a map of its exported fields, with names from the tag "msgpack", or else the tag
// "json". A type with MarshalBinary and UnmarshalBinary uses these. time.Time is the timestamp of
// MessagePack: an instant with nanoseconds, which decodes in UTC. Marshal refuses values that would
// decode differently: see Codec.Marshal.
package msgpack

import (
	"errors"
	"reflect"
	"sync"

	"github.com/ugorji/go/codec"
)

// mostDepth is how deep a value may be nested. An entry that goes deeper is corrupt.
const mostDepth = 1000

// handle is the configuration of both directions. It does not change after the first use.
var handle = func() *codec.MsgpackHandle {
	// the present format, which tells text from bytes and has timestamps
	h := &codec.MsgpackHandle{WriteExt: true}
	h.MapType = reflect.TypeFor[map[string]any]()
	h.TypeInfos = codec.NewTypeInfos([]string{"msgpack", "json"})
	h.MaxDepth = mostDepth
	return h
}()

var (
	encoders = sync.Pool{New: func() any { return codec.NewEncoderBytes(nil, handle) }}
	decoders = sync.Pool{New: func() any { return codec.NewDecoderBytes(nil, handle) }}
)

// Codec is for cache.Config. Its zero value is ready, and safe for concurrent use.
type Codec struct{}

// Name returns what entries call it.
func (Codec) Name() string { return "msgpack" }

// Marshal returns the MessagePack of a value. It refuses channels, functions, and types that would
// lose what they hold: a struct with unexported fields that knows to write itself as text or JSON
// (such as big.Int), and not as bytes. Give such a type MarshalBinary and UnmarshalBinary, or keep
// JSON.
func (Codec) Marshal(v any) (data []byte, err error) {
	if err := checkType(reflect.TypeOf(v)); err != nil {
		return nil, err
	}
	e := encoders.Get().(*codec.Encoder)
	defer func() { e.ResetBytes(nil); encoders.Put(e) }()
	e.ResetBytes(&data)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return data, nil
}

// Unmarshal reads one value, and nothing may follow it.
func (Codec) Unmarshal(data []byte, v any) error {
	d := decoders.Get().(*codec.Decoder)
	defer func() { d.ResetBytes(nil); decoders.Put(d) }()
	d.ResetBytes(data)
	if err := d.Decode(v); err != nil {
		return err
	}
	if d.NumBytesRead() != len(data) {
		return errors.New("something follows the value")
	}
	return nil
}
