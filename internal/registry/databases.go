package registry

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/operate"
)

const (
	// DatabasePeriod is how often each worker publishes its database.
	DatabasePeriod = 5 * time.Second
	// databaseLife is the age from which no worker serves a database.
	databaseLife = 3 * DatabasePeriod
	// forgetDatabase bounds the age of a record, and so how long after its last worker a restored
	// database is recognized.
	forgetDatabase = 30 * 24 * time.Hour
	// restoredPrefix and the ID of an outbox are the field that says that its database is older
	// than Redis.
	restoredPrefix = "restored:"
)

// A Database is a field of keyspace.SourcesPage: a database that workers serve.
type Database struct {
	Source string   `json:"source"` // the ID of the outbox
	Server string   `json:"server"`
	Schema string   `json:"schema"`
	Names  []string `json:"names"`   // of the map, as globs
	LastID uint64   `json:"last_id"` // the greatest that its journal has had

	age time.Duration
}

// field returns the ID of the database, which a copy with the same ID of the outbox does not share.
func (d *Database) field() string {
	sum := sha256.Sum256([]byte(d.Source + "\n" + d.Server + "\n" + d.Schema))
	return hex.EncodeToString(sum[:16])
}

func (d *Database) lives() bool { return d.age < databaseLife }

func (d *Database) String() string {
	return fmt.Sprintf("%s on server %s (ID %s)", d.Schema, d.Server, d.Source)
}

// A restored is what shows that a database is older than Redis.
type restored struct {
	Had uint64 `json:"had"` // the last ID of the journal before
	Has uint64 `json:"has"` // and after
}

// A page is keyspace.SourcesPage.
type page struct {
	databases []Database
	restored  map[string]restored // by the ID of the outbox
	old       []string            // fields that no worker has renewed for a month
}

func readPage(ctx context.Context, b *keyspace.Board) (p page, err error) {
	posted, err := b.Read(ctx, keyspace.SourcesPage)
	if err != nil {
		return p, err
	}
	p.restored = map[string]restored{}
	for _, f := range posted {
		if source, is := strings.CutPrefix(f.Field, restoredPrefix); is {
			var r restored
			if json.Unmarshal([]byte(f.Text), &r) == nil {
				p.restored[source] = r
			}
			continue
		}
		d := Database{}
		switch {
		case f.Age > forgetDatabase:
			p.old = append(p.old, f.Field)
		case json.Unmarshal([]byte(f.Text), &d) == nil:
			d.age = f.Age
			p.databases = append(p.databases, d)
		}
	}
	return p, nil
}

// PostDatabase publishes that a worker serves a database. It returns the conflicts of its outbox, and
// the names of the maps of other outboxes, as globs.
// lastBatch returns the last ID of the journal. If a record of the outbox that no worker renews, or
// the one of this database, had a higher ID, the database is older than Redis: it was restored.
// That is kept until ForgetDatabases. An error of Redis is a *keyspace.Outage.
func PostDatabase(ctx context.Context, b *keyspace.Board, d Database, lastBatch func(context.Context) (uint64, error)) (conflicts []operate.Conflict, others []string, err error) {
	p, err := readPage(ctx, b)
	if err != nil {
		return nil, nil, err
	}
	// Read it after the page: an ID is committed before a worker publishes it.
	has, err := lastBatch(ctx)
	if err != nil {
		return nil, nil, err
	}
	last, alone := p.last(d.Source), true
	for _, o := range p.databases {
		alone = alone && (o.Source != d.Source || o.field() == d.field() || !o.lives())
		if o.field() == d.field() {
			d.LastID = o.LastID
		}
	}
	if last != nil && alone && 0 < has && has < last.LastID { // an empty journal shows nothing
		r := restored{last.LastID, has}
		text, err := json.Marshal(r)
		if err == nil {
			err = b.Post(ctx, keyspace.SourcesPage, restoredPrefix+d.Source, string(text))
		}
		if err != nil {
			return nil, nil, err
		}
		p.restored[d.Source], d.LastID = r, 0
	}
	d.LastID = max(d.LastID, has)
	text, err := json.Marshal(d)
	if err == nil {
		err = b.Post(ctx, keyspace.SourcesPage, d.field(), string(text))
	}
	if err == nil {
		err = b.Remove(ctx, keyspace.SourcesPage, p.old...)
	}
	if err != nil {
		return nil, nil, err
	}
	p.databases = append(p.databases, d)
	for _, o := range p.databases {
		if o.Source != d.Source {
			others = append(others, o.Names...)
		}
	}
	return p.conflicts(d.Source), others, nil
}

// last returns the record of an outbox that was renewed last, or nil.
func (p *page) last(source string) (last *Database) {
	for i := range p.databases {
		if d := &p.databases[i]; d.Source == source && (last == nil || d.age < last.age) {
			last = d
		}
	}
	return last
}

// conflicts returns those of an outbox.
func (p *page) conflicts(source string) (list []operate.Conflict) {
	if r, is := p.restored[source]; is {
		list = append(list, operate.Conflict{Kind: operate.ConflictRestored,
			Cure: "run unstale source restored: docs/operations.md#after-a-restore",
			Text: fmt.Sprintf("the database is older than Redis, as after a restore: its journal had batch %d and then ended with %d, so Redis may hold what was stored from the data that is gone", r.Had, r.Has)})
	}
	var own *Database
	for i := range p.databases {
		if d := &p.databases[i]; d.Source == source && d.lives() && (own == nil || d.age < own.age) {
			own = d
		}
	}
	if own == nil {
		return list
	}
	told := map[string]bool{own.field(): true}
	for i := range p.databases {
		o := &p.databases[i]
		if !o.lives() || told[o.field()] {
			continue
		}
		told[o.field()] = true
		if o.Server == own.Server && o.Schema == own.Schema { // it had another ID a moment ago
			continue
		}
		if o.Source == source {
			list = append(list, operate.Conflict{Kind: operate.ConflictID,
				Cure: "give the copy its own ID with unstale source replace: docs/operations.md#two-databases-on-one-redis",
				Text: fmt.Sprintf("two databases have one ID, so readers take heartbeats and write tokens of one for those of the other: %s and %s", own, o)})
			continue
		}
		if name := overlap(own.Names, o.Names); name != "" {
			list = append(list, operate.Conflict{Kind: operate.ConflictNames,
				Cure: "give each database a Redis or names of its own: docs/operations.md#two-databases-on-one-redis",
				Text: fmt.Sprintf("workers of two databases unlink the same names, such as %s: %s and %s", name, own, o)})
		}
	}
	slices.SortStableFunc(list, func(a, b operate.Conflict) int {
		return slices.Index(operate.ConflictKinds, a.Kind) - slices.Index(operate.ConflictKinds, b.Kind)
	})
	return list
}

// Conflicts returns those of an outbox. known reports whether a worker publishes its database now.
// The error is a *keyspace.Outage.
func Conflicts(ctx context.Context, b *keyspace.Board, source string) (list []operate.Conflict, known bool, err error) {
	p, err := readPage(ctx, b)
	if err != nil {
		return nil, false, err
	}
	last := p.last(source)
	return p.conflicts(source), last != nil && last.lives(), nil
}

// ForgetDatabases removes what is known of an outbox: what its journal has had, and that its
// database was restored. Workers publish it again. The error is a *keyspace.Outage.
func ForgetDatabases(ctx context.Context, b *keyspace.Board, source string) error {
	p, err := readPage(ctx, b)
	if err != nil {
		return err
	}
	fields := []string{restoredPrefix + source}
	for i := range p.databases {
		if p.databases[i].Source == source {
			fields = append(fields, p.databases[i].field())
		}
	}
	return b.Remove(ctx, keyspace.SourcesPage, fields...)
}
