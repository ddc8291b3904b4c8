package worker

// A row is heavy if it exceeds one of these limits, or if one answer of a lookup has more rows than
// lightNames. Batches of light rows leave it to a batch of heavy ones, so light rows do not pay for
// it.
const (
	lightNames  = 500      // keys, patterns and sets
	lightBytes  = 64 << 10 // of their names, and of parameters that are copied to other tables
	lightParams = 8 << 10  // bytes of parameters
)

// A weight is the amount of data that the worker keeps in memory for a row and writes when it
// settles the row.
type weight struct {
	names int // keys, patterns and sets
	bytes int // of their names, and of parameters that are copied to other tables
}

func (n weight) isHeavy() bool { return n.names > lightNames || n.bytes > lightBytes }

// A budget bounds the weight of one batch, and with it the worker's memory and the time that the
// batch takes. One row always fits.
type budget struct {
	keys   int // distinct ones
	sweeps int // distinct patterns and sets, each of which is a row to be written
	names  int // of all rows, each as often as a row has it
	bytes  int // of these, and of parameters that are copied
	params int // bytes of parameters that are decoded
	light  bool
}

const (
	batchNames   = 100_000
	batchBytes   = 4 << 20
	batchSweeps  = 10_000
	batchDecoded = 1 << 20
	// A batch of heavy rows makes about as many distinct names as one row may at the default limit
	// of a map.
	heavyKeys  = 10_000
	heavyNames = 40_000
)

func (c *Config) lightBudget() budget {
	return budget{keys: c.BatchKeys, sweeps: batchSweeps, names: max(batchNames, c.BatchKeys), bytes: batchBytes, params: batchDecoded, light: true}
}

func (c *Config) heavyBudget() budget {
	return budget{keys: min(c.BatchKeys, heavyKeys), sweeps: batchSweeps, names: heavyNames, bytes: batchBytes, params: batchDecoded}
}
