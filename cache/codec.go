package cache

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"runtime/debug"
)

// A Codec turns values into bytes and back. It must be safe for concurrent use, and Unmarshal must not keep data. Where one
// panics, it is as if it had returned an error.
type Codec interface {
	// Name tells entries of this codec from others, in every process that shares them: such as "msgpack". Only JSON's is
	// empty.
	Name() string
	Marshal(v any) ([]byte, error)
	Unmarshal(data []byte, v any) error
}

// JSON is the codec of Config by default: encoding/json, whose output stands in the entry as it is.
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

// encode returns the JSON that stands for a value in an entry, its own or a string of base64, the name of its codec, and how
// many bytes the codec wrote. A value of more than above bytes is packed where that makes it shorter; 0 packs none.
func encode(codec Codec, above int, v any) (value []byte, name string, size int, err error) {
	data, err := marshal(codec, v)
	if err != nil {
		return nil, "", 0, err
	}
	if above > 0 && len(data) > above && len(data) <= mostUnpacked {
		longest := len(data)
		if codec != JSON {
			longest = base64.StdEncoding.EncodedLen(longest)
		}
		pack(data, func(packed []byte) {
			if base64.StdEncoding.EncodedLen(len(packed)) < longest {
				value = quoted(packed)
			}
		})
		if value != nil {
			return value, packedName(codec.Name()), len(data), nil
		}
	}
	if codec == JSON {
		return data, "", len(data), nil
	}
	return quoted(data), codec.Name(), len(data), nil
}

// quoted is data as a JSON string of base64.
func quoted(data []byte) []byte {
	text := make([]byte, 0, base64.StdEncoding.EncodedLen(len(data))+2)
	return append(base64.StdEncoding.AppendEncode(append(text, '"'), data), '"')
}

// written is what the codec wrote, of the JSON that stands for it in an entry.
func written(codec Codec, value []byte) ([]byte, error) {
	if codec == JSON {
		return value, nil
	}
	return unquoted(value)
}

// refused is deferred, and makes an error of a panic: the methods of values are called too.
func refused(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: the codec panicked: %v\n%s", ErrSerialization, p, debug.Stack())
	}
}

// unquoted is the inverse of quoted. Other writers escape what need not be.
func unquoted(text []byte) (data []byte, err error) {
	if n := len(text); n >= 2 && text[0] == '"' && text[n-1] == '"' {
		if data, err = base64.StdEncoding.AppendDecode(nil, text[1:n-1]); err == nil {
			return data, nil
		}
	}
	err = json.Unmarshal(text, &data)
	return data, err
}
