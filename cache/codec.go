package cache

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"runtime/debug"
)

// A Codec encodes and decodes values. It must be safe for concurrent use, and Unmarshal must not
// keep data. A panic of a Codec counts as an error.
type Codec interface {
	// Name tells entries of this codec from others, in every process that shares them: such as
	// "msgpack". Only JSON's is empty.
	Name() string
	Marshal(v any) ([]byte, error)
	Unmarshal(data []byte, v any) error
}

// JSON is the default codec of Config: encoding/json. An entry contains its output unchanged.
var JSON Codec = jsonCodec{}

type jsonCodec struct{}

func (jsonCodec) Name() string                       { return "" }
func (jsonCodec) Marshal(v any) ([]byte, error)      { return json.Marshal(v) }
func (jsonCodec) Unmarshal(data []byte, v any) error { return json.Unmarshal(data, v) }

// marshal returns what the codec writes.
func marshal(codec Codec, v any) (data []byte, err error) {
	defer refused(&err)
	if data, err = codec.Marshal(v); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSerialization, err)
	}
	return data, nil
}

// encode sets the value of an entry, the name of its codec, and its size. It compresses a value of
// more than above bytes if that makes it shorter, and never if above is 0. A value that is
// not JSON becomes a base64 string, or the bytes of format 2 if raw is set.
func (e *entry) encode(codec Codec, above int, raw bool, v any) error {
	data, err := marshal(codec, v)
	if err != nil {
		return err
	}
	form, length := quoted, base64.StdEncoding.EncodedLen
	if raw {
		form, length = bytes.Clone, func(n int) int { return n }
	}
	e.Value, e.Codec = nil, codec.Name()
	if above > 0 && len(data) > above && len(data) <= mostUnpacked {
		longest := len(data)
		if codec != JSON {
			longest = length(longest)
		}
		pack(data, func(packed []byte) {
			if length(len(packed)) < longest {
				e.Value, e.Codec = form(packed), packedName(codec.Name())
			}
		})
	}
	switch {
	case e.Value == nil && codec == JSON:
		e.Value = data
		return nil
	case e.Value == nil && raw:
		e.Value = data
	case e.Value == nil:
		e.Value = quoted(data)
	}
	e.raw = raw
	return nil
}

// quoted returns data as a JSON string of base64.
func quoted(data []byte) []byte {
	text := make([]byte, 0, base64.StdEncoding.EncodedLen(len(data))+2)
	return append(base64.StdEncoding.AppendEncode(append(text, '"'), data), '"')
}

// refused must be deferred. It converts a panic to an error, since codecs call methods of values.
func refused(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: the codec panicked: %v\n%s", ErrSerialization, p, debug.Stack())
	}
}

// unquoted reverses quoted. Other writers may escape more than necessary.
func unquoted(text []byte) (data []byte, err error) {
	if n := len(text); n >= 2 && text[0] == '"' && text[n-1] == '"' {
		if data, err = base64.StdEncoding.AppendDecode(nil, text[1:n-1]); err == nil {
			return data, nil
		}
	}
	err = json.Unmarshal(text, &data)
	return data, err
}
