package demo

import (
	"fmt"
	"strings"
	"time"
)

// writeReaders shows the problem, and what package cache does about it.
func (r *Report) writeReaders(b *strings.Builder) {
	if len(r.Readers) == 0 {
		return
	}
	b.WriteString(`
Why deleting a key is not enough: a reader selects a price; the price is changed and committed, and
the worker unlinks the key; then the reader stores what it has selected. Arranged step by step:

`)
	for _, one := range r.Readers {
		one.writeArranged(b)
	}
	fmt.Fprintf(b, `
Not arranged: %d readers look at %d products until %d writers have changed each price %d times, with
the same seeds for both. Then every row is settled, and Redis is compared with MySQL:

`, manyReaders, loadedPrices, manyWriters, changesEach)
	for _, one := range r.Readers {
		one.writeLoad(b)
	}
}

// nameWidth fits the names of both kinds of readers.
const nameWidth = 21

func (r *Readers) writeArranged(b *strings.Builder) {
	a := r.Arranged
	redis := "Redis has none"
	if a.RedisCents != nil {
		redis = "Redis says " + money(*a.RedisCents)
		if *a.RedisCents != a.MySQLCents {
			redis += fmt.Sprintf(", and will for %.0f minutes", (time.Duration(a.RedisSeconds) * time.Second).Minutes())
		}
	}
	fmt.Fprintf(b, "%-*sproduct %d: MySQL says %s, %s\n", nameWidth, r.Name, a.Product, money(a.MySQLCents), redis)
	fmt.Fprintf(b, "%-*sthe next reader gets %s\n", nameWidth, "", money(a.NextCents))
}

func (r *Readers) writeLoad(b *strings.Builder) {
	fmt.Fprintf(b, "%-*s%d changes, %d loads: %d old prices stay", nameWidth, r.Name, r.Changes, r.Loads, len(r.Old))
	if r.Refused > 0 {
		fmt.Fprintf(b, ", %d fills refused", r.Refused)
	}
	b.WriteString("\n")
	if len(r.Old) > 0 {
		o := r.Old[0]
		fmt.Fprintf(b, "%-*ssuch as product %d: MySQL says %s, Redis says %s\n", nameWidth, "", o.Product, money(o.MySQLCents), money(o.RedisCents))
	}
}

// money is a price as a shop shows it.
func money(cents int) string { return fmt.Sprintf("%d.%02d", cents/100, cents%100) }
