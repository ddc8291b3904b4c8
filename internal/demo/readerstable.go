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
		one.Arranged.write(b, one.Name)
	}
	fmt.Fprintf(b, `
Not arranged: %d readers look at %d products until %d writers have changed each price %d times, with
the same seeds for both. Then every row is settled, and Redis is compared with MySQL:

`, manyReaders, loadedPrices, manyWriters, changesEach)
	for _, one := range r.Readers {
		one.writeLoad(b)
	}
	if r.Forgotten == nil {
		return
	}
	b.WriteString(`
And the row that nobody inserted: somebody changes a price in a console. Then the same with the
triggers of "unstale capture":

`)
	r.Forgotten.Without.write(b, "without capture")
	r.Forgotten.With.write(b, "with capture")
	if len(r.Tills) == 0 {
		return
	}
	b.WriteString(`
And a lock, which ends by itself: two tills redeem one coupon. The first is frozen between its
SELECT and its INSERT, until its lock has ended and the second is through:

`)
	for _, one := range r.Tills {
		one.write(b)
	}
}

// nameWidth fits the names of both kinds of readers, and of what comes after them.
const nameWidth = 21

func (o Outcome) write(b *strings.Builder, name string) {
	redis := "Redis has none"
	if o.RedisCents != nil {
		redis = "Redis says " + money(*o.RedisCents)
		if *o.RedisCents != o.MySQLCents {
			redis += fmt.Sprintf(", and will for %.0f minutes", (time.Duration(o.RedisSeconds) * time.Second).Minutes())
		}
	}
	fmt.Fprintf(b, "%-*sproduct %d: MySQL says %s, %s\n", nameWidth, name, o.Product, money(o.MySQLCents), redis)
	fmt.Fprintf(b, "%-*sthe next reader gets %s\n", nameWidth, "", money(o.NextCents))
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
