package cache

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
)

// A Codec turns values into bytes and back. It must be safe for concurrent use, and Unmarshal must not keep data.
type Codec interface {
	// Name tells entries of this codec from others, in every process that shares them: such as "msgpack".
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

// encode returns the JSON that stands for a value in an entry: its own, or a string of base64.
func encode(codec Codec, v any) ([]byte, error) {
	data, err := codec.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSerialization, err)
	}
	if codec == JSON {
		return data, nil
	}
	text := make([]byte, 0, base64.StdEncoding.EncodedLen(len(data))+2)
	return append(base64.StdEncoding.AppendEncode(append(text, '"'), data), '"'), nil
}

// decode is the inverse of encode.
func decode(codec Codec, data []byte, v any) error {
	if codec == JSON {
		return codec.Unmarshal(data, v)
	}
	var text []byte
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	return codec.Unmarshal(text, v)
}
