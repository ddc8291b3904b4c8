package limit

import (
	_ "embed" // for the scripts

	"github.com/redis/go-redis/v9"
)

// mostExact is the largest Max of which every attempt is kept with its time: Redis packs a sorted set tightly up to 128
// members (zset-max-listpack-entries).
const mostExact = 100

var (
	//go:embed exact.lua
	exactText string
	//go:embed counted.lua
	countedText string

	exactScript   = redis.NewScript(exactText)
	countedScript = redis.NewScript(countedText)
)
