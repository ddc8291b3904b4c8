package demo

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/unstale/unstale/internal/sleep"
)

// The load: each writer changes the prices of its own products in random order, and readers read
// random products until the writers finish. Both use the same seeds for both kinds of readers.
const (
	changesEach = 6 // of each product's price
	manyReaders = 16
	manyWriters = 4
	paceSeed    = 12

	// from the SELECT to the stored page
	shortestPage, longestPage = 10 * time.Millisecond, 60 * time.Millisecond
	// pause of a reader between two looks
	longestLook = 4 * time.Millisecond
	// pause of a writer between two changes
	longestThought = 10 * time.Millisecond
)

// A loader is one run of the load.
type loader struct {
	reader
	prices prices
	loads  atomic.Uint64
	reads  atomic.Uint64
}

// load runs the load, and waits until the worker has settled every row of it.
func (s readerScenes) load(ctx context.Context, r reader, on prices, result *Readers) error {
	l := &loader{reader: r, prices: on}
	refused := r.refused()
	playing, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	end := func(err error) {
		if err != nil {
			stop(err)
		}
	}
	var readers, writers sync.WaitGroup
	through := make(chan struct{})
	for n := range uint64(manyReaders) {
		readers.Go(func() { end(l.read(playing, rand.New(rand.NewPCG(paceSeed, n)), through)) })
	}
	for n := range manyWriters {
		writers.Go(func() { end(l.write(playing, rand.New(rand.NewPCG(paceSeed, uint64(manyReaders+n))), n)) })
	}
	writers.Wait()
	close(through)
	readers.Wait()
	if playing.Err() != nil {
		return context.Cause(playing)
	}
	result.Changes, result.Reads, result.Loads = loadedPrices*changesEach, l.reads.Load(), l.loads.Load()
	result.Refused = r.refused() - refused
	return s.awaitSettled(ctx)
}

// read looks at one product after another.
func (l *loader) read(ctx context.Context, draw *rand.Rand, through <-chan struct{}) error {
	for {
		select {
		case <-through:
			return nil
		default:
		}
		id := firstPriced + 1 + draw.IntN(loadedPrices)
		page := shortestPage + upTo(draw, longestPage-shortestPage)
		l.reads.Add(1)
		_, err := l.price(ctx, id, func() error {
			l.loads.Add(1)
			return sleep.For(ctx, page)
		})
		if err != nil {
			return err
		}
		if err := sleep.For(ctx, upTo(draw, longestLook)); err != nil {
			return err
		}
	}
}

// write changes the prices of all products of the nth writer. No price of a product occurs twice.
func (l *loader) write(ctx context.Context, draw *rand.Rand, n int) error {
	for change := range changesEach {
		for _, i := range draw.Perm(loadedPrices / manyWriters) {
			id := firstPriced + 1 + n + i*manyWriters
			if err := l.prices.change(ctx, id, priceAtFirst-10*(change+1)); err != nil {
				return err
			}
			if err := sleep.For(ctx, upTo(draw, longestThought)); err != nil {
				return err
			}
		}
	}
	return nil
}

func upTo(draw *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(draw.Int64N(int64(most)))
}
