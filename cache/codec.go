package cache

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"
	"sync"
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

const (
	// mostUnpacked bounds the uncompressed size of a value. Larger values are not compressed, and a
	// compressed entry that is larger is corrupt.
	mostUnpacked = 64 << 20
	// mostRatio is by how much DEFLATE can shrink anything at most.
	mostRatio = 1032
	// mostPooled is how large a buffer is kept for the next value.
	mostPooled = 1 << 20
	// gzipName marks the names of codecs whose values are packed.
	gzipName = "gzip"
)

// gzipped is a codec whose values are packed: the form of an entry above Config.CompressAbove.
type gzipped struct{ Codec }

// Name returns gzip for JSON, and the name of another codec with gzip.
func (g gzipped) Name() string { return packedName(g.Codec.Name()) }

func packedName(name string) string {
	if name == "" {
		return gzipName
	}
	return name + "+" + gzipName
}

// isPackedName reports whether a codec has a name as packedName gives it.
func isPackedName(name string) bool { return name == gzipName || strings.HasSuffix(name, "+"+gzipName) }

func (g gzipped) Unmarshal(data []byte, v any) error {
	data, err := unpack(data)
	if err != nil {
		return err
	}
	return g.Codec.Unmarshal(data, v)
}

// codecNamed returns the codec of an entry that names one: the given codec or its compressed form.
// It reports false for other names.
func codecNamed(name string, codec Codec) (Codec, bool) {
	own := codec.Name()
	switch {
	case name == own:
		return codec, true
	case isPackedName(name) && name == packedName(own):
		return gzipped{codec}, true
	}
	return nil, false
}

// A packer compresses into a reused buffer, at the fastest level: see docs/cache.md.
type packer struct {
	buffer bytes.Buffer
	writer *gzip.Writer
}

var (
	packers = sync.Pool{New: func() any {
		p := &packer{}
		p.writer, _ = gzip.NewWriterLevel(&p.buffer, gzip.BestSpeed) // a level that exists
		return p
	}}
	readers = sync.Pool{New: func() any { return new(gzip.Reader) }}
)

// pack compresses data and calls use with the result, which is the packer's again afterwards.
func pack(data []byte, use func([]byte)) {
	p := packers.Get().(*packer)
	defer func() {
		if p.buffer.Cap() <= mostPooled {
			packers.Put(p)
		}
	}()
	p.buffer.Reset()
	p.writer.Reset(&p.buffer)
	if _, err := p.writer.Write(data); err != nil {
		return // a buffer does not fail
	}
	if p.writer.Close() == nil {
		use(p.buffer.Bytes())
	}
}

// unpack reverses pack. It allocates at most mostUnpacked for any data.
func unpack(data []byte) ([]byte, error) {
	r := readers.Get().(*gzip.Reader)
	defer readers.Put(r)
	if err := r.Reset(bytes.NewReader(data)); err != nil {
		return nil, fmt.Errorf("unpack value: %w", err)
	}
	out := bytes.NewBuffer(make([]byte, 0, min(packedSize(data), mostRatio*len(data), mostUnpacked)+bytes.MinRead))
	if n, err := io.Copy(out, io.LimitReader(r, mostUnpacked+1)); err != nil {
		return nil, fmt.Errorf("unpack value: %w", err)
	} else if n > mostUnpacked {
		return nil, errors.New("unpack value: it is too large")
	}
	return out.Bytes(), nil
}

// packedSize returns the size that packed data declares in its last four bytes.
func packedSize(data []byte) int { return int(binary.LittleEndian.Uint32(data[max(len(data)-4, 0):])) }
