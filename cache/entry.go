package cache

import (
	"bytes"
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
)

// An entry is the JSON value of a key in Redis. Times are by the clock of Redis, in milliseconds
// since 1970.
type entry struct {
	Value json.RawMessage `json:"v"`
	// Expiry is when the value stops being fresh; for a sliding value it is its hard end.
	Expiry int64 `json:"e"`
	// Format is absent in this format. Entries of other formats are neither read nor replaced.
	Format int `json:"f"`
	// Codec is the name of the codec of Value, absent for JSON: see codecNamed.
	Codec string `json:"c"`
	// Birth is the time of the lease, in microseconds.
	Birth int64 `json:"b"`
	// Stale is when the value stops being given out while a new one is loaded, absent where that is
	// Expiry.
	Stale int64 `json:"s"`
	// OnError is when it stops being given out for a loader that fails, absent where that is
	// Expiry.
	OnError int64 `json:"o"`
	// Cost is how long the load took, in milliseconds.
	Cost int64 `json:"d"`
	// Negative marks that the loader found nothing. Value is null.
	Negative int `json:"n"`
	// Idle is the extension of a sliding value by a read, in milliseconds.
	Idle int64 `json:"i"`
	// Tags are the tag versions that must be current for the value to count, by tag.
	Tags map[string]string `json:"t"`

	size int // of Value as the codec wrote it, or 0 where that is not known
}

// appendTo appends the JSON. The value comes last, and a reader finds the other fields without
// parsing it.
func (e *entry) appendTo(dst []byte) []byte {
	dst = strconv.AppendInt(append(dst, `{"e":`...), e.Expiry, 10)
	number := func(name byte, n int64) {
		if n != 0 {
			dst = strconv.AppendInt(append(dst, ',', '"', name, '"', ':'), n, 10)
		}
	}
	number('b', e.Birth)
	number('s', e.Stale)
	number('o', e.OnError)
	number('d', e.Cost)
	number('n', int64(e.Negative))
	number('i', e.Idle)
	if e.Codec != "" {
		name, _ := json.Marshal(e.Codec)
		dst = append(append(dst, `,"c":`...), name...)
	}
	if len(e.Tags) > 0 {
		tags, _ := json.Marshal(e.Tags)
		dst = append(append(dst, `,"t":`...), tags...)
	}
	return append(append(append(dst, `,"v":`...), e.Value...), '}')
}

var (
	// errCorrupt rejects a text that is not an entry: the value is loaded again.
	errCorrupt = errors.New("corrupt entry")
	// errForeign is an entry of a format that is not known: it is left alone.
	errForeign = errors.New("entry of another format")
)

// parseEntry parses text, keeps parts of it in the entry, and decodes its value, if it has one. If
// fields follow the value, parseOwn returns them as part of the value. JSON values cannot end like
// that, so the fields are then parsed in any order. An entry whose value cannot be decoded is
// corrupt, and is returned too.
func parseEntry(text []byte, codec Codec, decode func(Codec, []byte) (any, error)) (e entry, value any, err error) {
	if e.parseOwn(text) {
		if value, err = e.open(codec, decode); err == nil {
			return e, value, nil
		}
	}
	if e, err = parseOther(text); err != nil {
		return entry{}, nil, err
	}
	value, err = e.open(codec, decode)
	return e, value, err
}

// open decodes the entry's value.
func (e *entry) open(codec Codec, decode func(Codec, []byte) (any, error)) (value any, err error) {
	codec, known := codecNamed(e.Codec, codec)
	switch {
	case e.Format > 1 || e.Format < 0, !known:
		return nil, errForeign
	case e.Expiry == 0 || e.Value == nil:
		return nil, errCorrupt
	case e.Negative != 0 && !json.Valid(e.Value):
		return nil, errCorrupt
	case e.Negative != 0:
		return nil, nil
	}
	data, err := written(codec, e.Value)
	if err == nil {
		value, err = decode(codec, data)
	}
	if err != nil {
		return nil, errCorrupt
	}
	e.size = unpackedSize(codec, data)
	return value, nil
}

// parseOther reads an entry whose fields come in any order.
func parseOther(text []byte) (e entry, err error) {
	if json.Unmarshal(text, &e) == nil {
		return e, nil
	}
	var other struct {
		Format any `json:"f"`
	}
	if json.Unmarshal(text, &other) == nil && other.Format != nil && other.Format != float64(1) {
		return entry{}, errForeign
	}
	return entry{}, errCorrupt
}

// parseOwn reads what appendTo wrote, without looking at the value, and reports whether it could:
// see parseEntry.
func (e *entry) parseOwn(text []byte) bool {
	rest, ok := bytes.CutPrefix(text, []byte(`{"e":`))
	if !ok || text[len(text)-1] != '}' {
		return false
	}
	if e.Expiry, rest, ok = cutNumber(rest); !ok {
		return false
	}
	for len(rest) > 4 && rest[0] == ',' && rest[1] == '"' && rest[3] == '"' && rest[4] == ':' {
		name := rest[2]
		rest = rest[5:]
		var n int64
		switch name {
		case 'v':
			e.Value = rest[:len(rest)-1]
			return true
		case 't':
			decoder := json.NewDecoder(bytes.NewReader(rest))
			if decoder.Decode(&e.Tags) != nil {
				return false
			}
			rest = rest[decoder.InputOffset():]
			continue
		case 'c':
			if e.Codec, rest, ok = cutText(rest); !ok {
				return false
			}
			continue
		}
		if n, rest, ok = cutNumber(rest); !ok {
			return false
		}
		switch name {
		case 'b':
			e.Birth = n
		case 's':
			e.Stale = n
		case 'o':
			e.OnError = n
		case 'd':
			e.Cost = n
		case 'n':
			e.Negative = int(n)
		case 'i':
			e.Idle = n
		default:
			return false
		}
	}
	return false
}

// cutNumber reads a number of digits.
func cutNumber(text []byte) (n int64, rest []byte, ok bool) {
	i := 0
	for i < len(text) && i < 18 && text[i] >= '0' && text[i] <= '9' {
		n = n*10 + int64(text[i]-'0')
		i++
	}
	return n, text[i:], i > 0
}

// cutText reads a text that has nothing escaped in it.
func cutText(text []byte) (s string, rest []byte, ok bool) {
	if len(text) == 0 || text[0] != '"' {
		return "", nil, false
	}
	n := bytes.IndexByte(text[1:], '"')
	if n < 0 || bytes.IndexByte(text[1:n+1], '\\') >= 0 {
		return "", nil, false
	}
	return string(text[1 : n+1]), text[n+2:], true
}

// fresh, stale and onError report what the entry is good for at a time of Redis.
func (e *entry) fresh(now int64) bool { return now < e.Expiry }
func (e *entry) stale(now int64) bool { return now < max(e.Expiry, e.Stale) }
func (e *entry) onError(now int64) bool {
	return e.Negative == 0 && now < max(e.Expiry, e.OnError)
}

// tagNames returns the entry's tags.
func (e *entry) tagNames() []string {
	if len(e.Tags) == 0 {
		return nil
	}
	names := make([]string, 0, len(e.Tags))
	for name := range e.Tags {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// bear reports whether there is a version of every tag. A value that was stored without a tag, for
// example by an older program, is not invalidated with the tag.
func bear(stamps map[string]string, tags []string) bool {
	for _, tag := range tags {
		if _, ok := stamps[tag]; !ok {
			return false
		}
	}
	return true
}

// stands reports whether all tag versions of the entry are unchanged since it was stored.
func (e *entry) stands(stamps map[string]string) bool {
	for tag, stamp := range e.Tags {
		if now, ok := stamps[tag]; !ok || now == "" || now != stamp {
			return false
		}
	}
	return true
}

// digest returns the hash that identifies to a script the value that its caller has read.
func digest(text []byte) string {
	sum := sha1.Sum(text)
	return hex.EncodeToString(sum[:])
}
