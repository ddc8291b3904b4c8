package cache

import (
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

// encode returns the JSON of a value in an entry (its own, or a base64 string), the name of its
// codec, and how many bytes the codec wrote. It compresses a value of more than above bytes if that
// makes it shorter. If above is 0, it never compresses.
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

// quoted returns data as a JSON string of base64.
func quoted(data []byte) []byte {
	text := make([]byte, 0, base64.StdEncoding.EncodedLen(len(data))+2)
	return append(base64.StdEncoding.AppendEncode(append(text, '"'), data), '"')
}

// written returns the output of the codec from its JSON form in an entry.
func written(codec Codec, value []byte) ([]byte, error) {
	if codec == JSON {
		return value, nil
	}
	return unquoted(value)
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
