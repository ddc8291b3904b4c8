package limit

import (
	_ "embed" // for the scripts

	"github.com/redis/go-redis/v9"
)

// mostExact is the largest Max in the exact form, which stores the time of each attempt. With it a
// full subject takes less than 512 bytes of Redis; TestMemory measures that. The other form takes a
// quarter of it, for any Max.
const mostExact = 20

var (
	//go:embed ours.lua
	oursText string
	//go:embed exact.lua
	exactText string
	//go:embed counted.lua
	countedText string
	//go:embed forget.lua
	forgetText string

	exactScript   = redis.NewScript(oursText + exactText)
	countedScript = redis.NewScript(oursText + countedText)
	forgetScript  = redis.NewScript(oursText + forgetText)
)
