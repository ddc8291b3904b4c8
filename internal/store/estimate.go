package store

import "math"

// An Estimate is a share of stale entries, as a sample of batches shows it.
type Estimate struct {
	Share float64 // estimated; not a number if nothing was found
	// Below is the upper bound of the share of batches with a stale entry, with 95% confidence. If
	// no stale entry was found, it is 3/Batches.
	Below float64
	// Batches is the effective size of the sample. Keys of one batch fail together, so a batch
	// counts once. If the weights differ, Batches is less than the number of batches.
	Batches float64
}

// StalePerEntry estimates how many of the entries that have a lease time are stale when their batch
// has been settled.
func (s *Sums) StalePerEntry() Estimate {
	return estimate(s.WStale, s.WWithEntry, s.WStaleBatches, s.WEntryBatches, s.WWEntryBatches)
}

// StalePerInvalidation estimates how many of the invalidated keys have a stale entry when their
// batch has been settled. An absent key is not stale.
func (s *Sums) StalePerInvalidation() Estimate {
	return estimate(s.WStale, s.WKnown, s.WStaleBatches, s.WSampled, s.WWSampled)
}

// estimate returns the estimate of stale among all, from weighted sums of a sample. The batches are
// the sums of the weights and of their squares.
func estimate(stale, all, staleBatches, batches, squares float64) Estimate {
	if all == 0 || batches == 0 {
		return Estimate{Share: math.NaN(), Below: 1}
	}
	n := batches * batches / squares // Kish's effective sample size
	return Estimate{Share: stale / all, Below: min(upper(staleBatches/batches*n)/n, 1), Batches: n}
}

// upper returns the mean of a Poisson distribution that has n events or fewer in 5% of all cases.
// It uses the approximation of Wilson and Hilferty. With 1% more, that is never below the exact
// bound.
func upper(n float64) float64 {
	if n == 0 {
		return 3
	}
	k := n + 1
	root := 1 - 1/(9*k) + 1.6449/(3*math.Sqrt(k))
	return 1.01 * k * root * root * root
}
