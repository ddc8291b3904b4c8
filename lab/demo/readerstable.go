package demo

import (
	"fmt"
	"strings"
	"time"
)

// writeReaders shows the problem, and how package cache solves it.
func (r *Report) writeReaders(b *strings.Builder) {
	if len(r.Readers) == 0 {
		return
	}
	b.WriteString(`
1. Deleting a key is not enough. A reader selects a price. Then a transaction changes the price, and
the worker deletes the key. Then the reader stores the old price. Step by step:

`)
	for _, one := range r.Readers {
		one.Arranged.write(b, one.Name)
	}
	fmt.Fprintf(b, `
The same race under load: %d readers read %d products while %d writers change each price %d times,
with the same random seeds in both runs. Once all outbox rows are settled, Redis is compared with
MySQL:

`, manyReaders, loadedPrices, manyWriters, changesEach)
	for _, one := range r.Readers {
		one.writeLoad(b)
	}
	if r.Nines != nil {
		r.Nines.write(b)
	}
	if r.Forgotten == nil {
		return
	}
	b.WriteString(`
2. A write without an outbox row: an UPDATE in a database console changes a price. First without
triggers, then with the triggers of "unstale capture":

`)
	r.Forgotten.Without.write(b, "without capture")
	r.Forgotten.With.write(b, "with capture")
	if len(r.Tills) == 0 {
		return
	}
	b.WriteString(`
3. A lock with a TTL is not enough. Two processes, the tills, redeem one coupon. Till 1 is frozen
between its SELECT and its INSERT until its lock has expired and till 2 has finished:

`)
	for _, one := range r.Tills {
		one.write(b)
	}
}

// nameWidth fits the names of both kinds of readers, and of the rows after them.
const nameWidth = 21

func (o Outcome) write(b *strings.Builder, name string) {
	redis := "Redis has no value"
	if o.RedisCents != nil {
		redis = "Redis has " + money(*o.RedisCents)
		if *o.RedisCents != o.MySQLCents {
			redis += fmt.Sprintf(" for %.0f more minutes", (time.Duration(o.RedisSeconds) * time.Second).Minutes())
		}
	}
	fmt.Fprintf(b, "%-*sproduct %d: MySQL has %s, %s\n", nameWidth, name, o.Product, money(o.MySQLCents), redis)
	fmt.Fprintf(b, "%-*sthe next reader gets %s\n", nameWidth, "", money(o.NextCents))
}

func (r *Readers) writeLoad(b *strings.Builder) {
	fmt.Fprintf(b, "%-*s%d changes, %d loads: %d old prices stayed", nameWidth, r.Name, r.Changes, r.Loads, len(r.Old))
	if r.Refused > 0 {
		fmt.Fprintf(b, ", %d fills refused", r.Refused)
	}
	b.WriteString("\n")
	if len(r.Old) > 0 {
		o := r.Old[0]
		fmt.Fprintf(b, "%-*sfor example product %d: MySQL has %s, Redis has %s\n", nameWidth, "", o.Product, money(o.MySQLCents), money(o.RedisCents))
	}
}

// money returns a price as a shop shows it.
func money(cents int) string { return fmt.Sprintf("%d.%02d", cents/100, cents%100) }
