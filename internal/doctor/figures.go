package doctor

import (
	"cmp"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
)

const (
	// largeValue is the smallest size to report: it takes a millisecond or so on the wire, and all
	// clients wait.
	largeValue = 100 << 10
	// longLife is typical of a database rather than of a cache.
	longLife = 24 * time.Hour
)

// Figures describe the keys of a family.
type Figures struct {
	Keys       int64         `json:"keys"`
	Bytes      int64         `json:"bytes"`
	Largest    int64         `json:"largest_bytes"`
	LargestKey KeyName       `json:"largest_key,omitempty"`
	Large      int64         `json:"large"`       // of more than 100 KiB
	Eternal    int64         `json:"without_ttl"` // keys
	EternalKey KeyName       `json:"without_ttl_key,omitempty"`
	Long       int64         `json:"life_above_a_day"` // keys, by their TTL or since they were last used, unless their read allows more
	LongKey    KeyName       `json:"life_above_a_day_key,omitempty"`
	LongFor    time.Duration `json:"-"` // of LongKey, the longest
	LongestTTL time.Duration `json:"-"`
	Hottest    int64         `json:"hottest_freq"` // 0 to 255, logarithmic; -1: not told
	HottestKey KeyName       `json:"hottest_key,omitempty"`
	Late       int64         `json:"ttl_above_read"` // keys whose read allows less
	LateKey    KeyName       `json:"ttl_above_read_key,omitempty"`
	Unnamed    int64         `json:"unnamed"` // keys that a read of the map should name
	UnnamedKey KeyName       `json:"unnamed_key,omitempty"`
}

// marks are what the reads of the map tell about a key.
type marks struct {
	late, unnamed bool
	longest       time.Duration // that its read allows; 0: it has none
}

// note adds a key.
func (f *Figures) note(i *keyspace.KeyInfo, m marks) {
	one := Figures{Keys: 1, Bytes: max(i.Bytes, 0), Largest: i.Bytes, LargestKey: KeyName(i.Name), Hottest: i.Freq}
	if i.Freq >= 0 {
		one.HottestKey = KeyName(i.Name)
	}
	if i.Bytes > largeValue {
		one.Large = 1
	}
	if i.TTL == keyspace.NoTTL {
		one.Eternal, one.EternalKey = 1, KeyName(i.Name)
	}
	one.LongestTTL = i.TTL
	if life := max(i.TTL, i.Idle); life > max(longLife, m.longest) {
		one.Long, one.LongFor, one.LongKey = 1, life, KeyName(i.Name)
	}
	if m.late {
		one.Late, one.LateKey = 1, KeyName(i.Name)
	}
	if m.unnamed {
		one.Unnamed, one.UnnamedKey = 1, KeyName(i.Name)
	}
	if f.Keys == 0 {
		*f = one
		return
	}
	f.add(&one)
}

// add adds another family.
func (f *Figures) add(o *Figures) {
	if f.Keys == 0 {
		*f = *o
		return
	}
	f.Keys += o.Keys
	f.Bytes += o.Bytes
	f.Large += o.Large
	f.Eternal += o.Eternal
	f.Long += o.Long
	if o.LongestTTL > f.LongestTTL {
		f.LongestTTL = o.LongestTTL
		if o.Late > 0 {
			f.LateKey = o.LateKey
		}
	}
	if o.LongFor > f.LongFor {
		f.LongFor, f.LongKey = o.LongFor, o.LongKey
	}
	f.Late += o.Late
	f.Unnamed += o.Unnamed
	f.UnnamedKey = cmp.Or(f.UnnamedKey, o.UnnamedKey)
	if o.Largest > f.Largest {
		f.Largest, f.LargestKey = o.Largest, o.LargestKey
	}
	if o.Hottest > f.Hottest {
		f.Hottest, f.HottestKey = o.Hottest, o.HottestKey
	}
	if f.EternalKey == "" {
		f.EternalKey = o.EternalKey
	}
}
