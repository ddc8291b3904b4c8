package protocol

import (
	"math"
	"strconv"
	"time"
)

const (
	// PopularPrefix begins the names of the sorted sets where readers count reads: see [PopularAt].
	PopularPrefix = Prefix + "popular:"
	// MostPopular is how many keys such a set keeps: those with the highest scores.
	MostPopular = 5000
	// MaxPopularKey is the length limit of a key in it, in bytes.
	MaxPopularKey = 256
	// PopularLife is the TTL of the set, from the latest report on.
	PopularLife = 2 * popularEra
	// PopularDecay is the factor for the scores of a set to compare them with scores of the next
	// set.
	PopularDecay = 1.0 / (1 << 63) / (1 << 63) / (1 << 2)

	popularHalfLife = time.Hour
	popularEra      = 128 * popularHalfLife // of one set: weights stay in range
)

// PopularAt returns the name of the sorted set of a time of Redis, in milliseconds. Readers whose
// keys begin with prefix add their reads to it. Its members are keys without the prefix. A read
// adds weight, which doubles each hour, so older reads count for less. previous is the set of the
// time before: see PopularDecay.
func PopularAt(prefix string, ms int64) (key, previous string, weight float64) {
	name := func(era int64) string { return PopularPrefix + strconv.FormatInt(era, 10) + ":" + prefix }
	era, since := ms/popularEra.Milliseconds(), ms%popularEra.Milliseconds()
	return name(era), name(era - 1), math.Exp2(float64(since) / float64(popularHalfLife.Milliseconds()))
}
