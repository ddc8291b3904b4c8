package cache

import "math/rand/v2"

// Seed makes the draws of early refreshes the same in each run. The Cache then has one caller at a
// time.
func (c *Cache) Seed(seed uint64) { c.luck = rand.New(rand.NewPCG(seed, seed)).ExpFloat64 }
