package cache

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"
	"github.com/unstale/unstale/protocol"
)

// An entry is the value of a key in Redis. In format 1 it is JSON. In format 2 the JSON has no
// value, has the field f and is the first line; Value follows as the codec wrote it. Entries of
// other formats are neither read nor replaced. Times are by the clock of Redis, in milliseconds
// since 1970.
type entry struct {
	Value json.RawMessage `json:"v"`
	// Expiry is when the value stops being fresh; for a sliding value it is its hard end.
	Expiry int64 `json:"e"`
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

	raw bool // of format 2
}

// The beginnings of what appendTo writes.
var jsonHead, rawHead = []byte(`{"e":`), []byte(`{"f":2,"e":`)

// appendTo appends the entry. The value comes last, and a reader finds the other fields without
// parsing it.
func (e *entry) appendTo(dst []byte) []byte {
	head := jsonHead
	if e.raw {
		head = rawHead
	}
	dst = strconv.AppendInt(append(dst, head...), e.Expiry, 10)
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
	if e.raw {
		return append(append(dst, "}\n"...), e.Value...)
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
	case !known:
		return nil, errForeign
	case e.Expiry == 0 || e.Value == nil:
		return nil, errCorrupt
	case e.Negative != 0 && !json.Valid(e.Value):
		return nil, errCorrupt
	case e.Negative != 0:
		return nil, nil
	}
	data := []byte(e.Value)
	if codec != JSON && !e.raw {
		data, err = unquoted(data)
	}
	if err == nil {
		value, err = decode(codec, data)
	}
	if err != nil {
		return nil, errCorrupt
	}
	return value, nil
}

// parseOther reads an entry whose fields come in any order. The first line names the format. After
// an unknown format, anything may follow.
func parseOther(text []byte) (e entry, err error) {
	head, value, lines := bytes.Cut(text, []byte{'\n'})
	if !json.Valid(head) {
		head, lines = text, false
	}
	var is struct {
		Format any `json:"f"`
	}
	_ = json.Unmarshal(head, &is)
	switch is.Format {
	case nil, float64(1):
		err = json.Unmarshal(text, &e)
	case float64(2):
		err = json.Unmarshal(head, &e)
		e.raw, e.Value = true, value
		if !lines {
			err = errCorrupt
		}
	default:
		return entry{}, errForeign
	}
	if err != nil {
		return entry{}, errCorrupt
	}
	return e, nil
}

// parseOwn reads what appendTo wrote, without looking at the value, and reports whether it could:
// see parseEntry.
func (e *entry) parseOwn(text []byte) bool {
	if rest, raw := bytes.CutPrefix(text, rawHead); raw {
		head, value, lines := bytes.Cut(rest, []byte{'\n'})
		e.raw, e.Value = true, value
		rest, ok := e.parseFields(head)
		return ok && lines && string(rest) == "}"
	}
	rest, ok := bytes.CutPrefix(text, jsonHead)
	if !ok || text[len(text)-1] != '}' {
		return false
	}
	if rest, ok = e.parseFields(rest); !ok {
		return false
	}
	if rest, ok = bytes.CutPrefix(rest, []byte(`,"v":`)); ok {
		e.Value = rest[:len(rest)-1]
	}
	return ok
}

// parseFields reads the fields from the number of the first one to the value, and returns the rest.
func (e *entry) parseFields(rest []byte) (_ []byte, ok bool) {
	if e.Expiry, rest, ok = cutNumber(rest); !ok {
		return nil, false
	}
	for len(rest) > 4 && rest[0] == ',' && rest[1] == '"' && rest[2] != 'v' && rest[3] == '"' && rest[4] == ':' {
		name := rest[2]
		rest = rest[5:]
		var n int64
		switch name {
		case 't':
			if e.Tags, rest, ok = cutTexts(rest); !ok {
				return nil, false
			}
			continue
		case 'c':
			if e.Codec, rest, ok = cutText(rest); !ok {
				return nil, false
			}
			continue
		}
		if n, rest, ok = cutNumber(rest); !ok {
			return nil, false
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
			return nil, false
		}
	}
	return rest, true
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

// cutTexts reads an object of texts. One that has nothing escaped in it takes no decoder.
func cutTexts(text []byte) (texts map[string]string, rest []byte, ok bool) {
	texts, rest = map[string]string{}, text
	for begin := byte('{'); len(rest) > 0 && rest[0] == begin; begin = ',' {
		var name string
		if name, rest, ok = cutText(rest[1:]); !ok || len(rest) == 0 || rest[0] != ':' {
			break
		}
		if texts[name], rest, ok = cutText(rest[1:]); !ok {
			break
		}
		if len(rest) > 0 && rest[0] == '}' {
			return texts, rest[1:], true
		}
	}
	texts = nil
	decoder := json.NewDecoder(bytes.NewReader(text))
	if decoder.Decode(&texts) != nil {
		return nil, nil, false
	}
	return texts, text[decoder.InputOffset():], true
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
	names := slices.AppendSeq(make([]string, 0, len(e.Tags)), maps.Keys(e.Tags))
	slices.Sort(names)
	return names
}

// bear reports whether there is a version of every tag. A value that was stored without a tag, for
// example by an older program, is not invalidated with the tag.
func bear(stamps map[string]string, tags []string) bool {
	return !slices.ContainsFunc(tags, func(tag string) bool { _, ok := stamps[tag]; return !ok })
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

// stampMargin is how much longer a tag version lives than its entries.
const stampMargin = time.Hour

// tagVersions reads and creates the versions of tags in Redis.
type tagVersions struct{ redis *backend }

// make returns the versions of tags, and creates missing ones.
func (s tagVersions) make(ctx context.Context, tags []string, life time.Duration) (map[string]string, error) {
	return send(ctx, s.redis, "stamps", func(ctx context.Context) (map[string]string, error) {
		cmds, _, err := s.redis.runScripts(ctx, stampCalls(nil, tags, life), nil)
		if err != nil {
			return nil, err
		}
		return stampsOf(tags, cmds)
	})
}

// with returns stamps plus the versions of more tags, which it reads. It creates none.
func (s tagVersions) with(ctx context.Context, stamps map[string]string, more []string) (map[string]string, error) {
	if len(more) == 0 {
		return stamps, nil
	}
	all, err := send(ctx, s.redis, "stamps", func(ctx context.Context) (map[string]string, error) {
		_, read, err := s.redis.runScripts(ctx, nil, more)
		return read, err
	})
	if err != nil {
		return nil, err
	}
	maps.Copy(all, stamps)
	return all, nil
}

// stand reports whether the tag versions of the entry are current. It reads those that are not in
// stamps.
func (s tagVersions) stand(ctx context.Context, e *entry, stamps map[string]string) (bool, error) {
	if len(e.Tags) == 0 {
		return true, nil
	}
	var missing []string
	for tag := range e.Tags {
		if _, ok := stamps[tag]; !ok {
			missing = append(missing, tag)
		}
	}
	stamps, err := s.with(ctx, stamps, missing)
	return err == nil && e.stands(stamps), err
}

// stampCalls appends a run of the stamp script for each tag. All are stampable.
func stampCalls(calls []call, tags []string, life time.Duration) []call {
	for _, tag := range tags {
		stamp := protocol.StampKey(tag)
		hold, _ := protocol.HoldKey(stamp)
		calls = append(calls, call{stampScript, []string{stamp, hold}, []any{rand.Text(), (life + stampMargin).Milliseconds()}})
	}
	return calls
}

func stampsOf(tags []string, cmds []*redis.Cmd) (map[string]string, error) {
	if len(tags) == 0 {
		return nil, nil
	}
	stamps := make(map[string]string, len(tags))
	for i, tag := range tags {
		var err error
		if stamps[tag], err = cmds[i].Text(); err != nil {
			return nil, err
		}
	}
	return stamps, nil
}

// stampable reports whether all tags can have versions: their names allow a tombstone, and entries,
// which are JSON, can contain them. A value with another tag is loaded and not stored, like a key
// without a lease.
func stampable(tags []string) bool {
	return !slices.ContainsFunc(tags, func(tag string) bool {
		_, ok := protocol.HoldKey(protocol.StampKey(tag))
		return !ok || !utf8.ValidString(tag)
	})
}
