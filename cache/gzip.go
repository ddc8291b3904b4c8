package cache

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
)

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
