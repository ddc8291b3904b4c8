package status

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/store"
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

// A Database is a field of keyspace.SourcesHash: a database that workers serve.
type Database struct {
	Source string   `json:"source"` // the ID of the outbox
	Server string   `json:"server"`
	Schema string   `json:"schema"`
	Names  []string `json:"names"` // of the map, as globs
	// The newest batch that its journal has had, as a store.Mark. Workers of earlier versions
	// publish only its ID.
	LastSum uint32 `json:"last_sum,omitempty"`
	LastID  uint64 `json:"last_id"`

	age time.Duration
}

// Field returns the ID of the database, which a copy with the same ID of the outbox does not share.
func (d *Database) Field() string {
	sum := sha256.Sum256([]byte(d.Source + "\n" + d.Server + "\n" + d.Schema))
	return hex.EncodeToString(sum[:16])
}

// lives reports whether workers serve the database. It may be nil.
func (d *Database) lives() bool { return d != nil && d.age < databaseLife }

func (d *Database) String() string {
	return fmt.Sprintf("%s on server %s (ID %s)", d.Schema, d.Server, d.Source)
}

// A restored is what shows that a database is older than Redis.
type restored struct {
	Had uint64 `json:"had"` // the ID of a batch that is gone
	Has uint64 `json:"has"` // the last ID of the journal then
	// Than is the field of the database on another server that had the batch, unless the worker
	// had served that one. If workers still serve it, the database is a copy, and not older.
	Than string `json:"than,omitempty"`
}

// A page is keyspace.SourcesHash.
type page struct {
	databases map[string]*Database // by their fields
	restored  map[string]restored  // by the ID of the outbox
	old       []string             // fields that no worker has renewed for a month
}

func readPage(ctx context.Context, b *keyspace.StatusHashes) (p page, err error) {
	posted, err := b.Read(ctx, keyspace.SourcesHash)
	if err != nil {
		return p, err
	}
	p.databases, p.restored = map[string]*Database{}, map[string]restored{}
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
			p.databases[f.Field] = &d
		}
	}
	return p, nil
}

// PostDatabase publishes that a worker serves a database. It returns the conflicts of its outbox, and
// the names of the maps of other outboxes, as globs.
//
// served is the field of the database that this worker has served so far, or "". If it begins to
// serve another one, as after a failover, PostDatabase removes the records of the outbox on other
// servers. Workers that still serve them publish them again.
//
// lost compares the journal with the batches that the worker knows and with the given one, like
// store.Lost. A database that has lost a batch is older than Redis: it was restored, or it was a
// replica that lagged. That is kept until ForgetDatabases. An error of Redis is a *keyspace.Outage.
func PostDatabase(ctx context.Context, b *keyspace.StatusHashes, d Database, served string, lost func(context.Context, store.Mark) (lost uint64, newest store.Mark, err error)) (conflicts []store.Conflict, others []string, err error) {
	p, err := readPage(ctx, b)
	if err != nil {
		return nil, nil, err
	}
	own, remove := p.databases[d.Field()], p.old
	before := own // the record that the journal is compared with
	if served != d.Field() && (served != "" || !own.lives()) {
		before = p.last(d.Source)
		for field, o := range p.databases {
			if o.Source == d.Source && o != own {
				remove = append(remove, field)
				delete(p.databases, field)
			}
		}
	}
	if before != nil {
		d.LastID, d.LastSum = before.LastID, before.LastSum
	}
	// Compare it after the page was read: a batch is committed before a worker publishes it.
	gone, newest, err := lost(ctx, store.Mark{ID: d.LastID, Sum: d.LastSum})
	if err != nil {
		return nil, nil, err
	}
	if newest.ID > 0 { // an empty journal shows nothing
		d.LastID, d.LastSum = newest.ID, newest.Sum
	}
	r := p.restored[d.Source]
	if gone > 0 {
		than := ""
		if served == "" && before != own && r.Had == 0 {
			than = before.Field()
		}
		p.restored[d.Source] = restored{gone, newest.ID, than}
		err = post(ctx, b, restoredPrefix+d.Source, p.restored[d.Source])
	} else if p.databases[r.Than].lives() {
		remove = append(remove, restoredPrefix+d.Source)
	}
	if err == nil {
		err = post(ctx, b, d.Field(), d)
	}
	if err == nil {
		err = b.Remove(ctx, keyspace.SourcesHash, remove...)
	}
	if err != nil {
		return nil, nil, err
	}
	p.databases[d.Field()] = &d
	for _, o := range p.databases {
		if o.Source != d.Source {
			others = append(others, o.Names...)
		}
	}
	return p.conflicts(d.Source), others, nil
}

func post(ctx context.Context, b *keyspace.StatusHashes, field string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return b.Post(ctx, keyspace.SourcesHash, field, string(text))
}

// last returns the record of an outbox that was renewed last, or nil.
func (p *page) last(source string) (last *Database) {
	for _, d := range p.databases {
		if d.Source == source && (last == nil || d.age < last.age) {
			last = d
		}
	}
	return last
}

// conflicts returns those of an outbox.
func (p *page) conflicts(source string) (list []store.Conflict) {
	if r, is := p.restored[source]; is && !p.databases[r.Than].lives() {
		list = append(list, store.Conflict{Kind: store.ConflictRestored,
			Cure: "run unstale source restored on the primary: docs/operations.md#after-a-restore",
			Text: fmt.Sprintf("the database is older than Redis, as after a restore or a failover to a replica that lagged: its journal has lost batch %d and then ended with %d, so Redis may hold what was stored from the data that is gone", r.Had, r.Has)})
	}
	own := p.last(source)
	if !own.lives() {
		return list
	}
	for _, field := range slices.Sorted(maps.Keys(p.databases)) {
		if o := p.databases[field]; o != own && o.lives() && o.Source == source {
			list = append(list, store.Conflict{Kind: store.ConflictID,
				Cure: "stop the workers of the one that is not in use, or if it is a copy, give it its own ID with unstale source replace: docs/operations.md#two-databases-on-one-redis",
				Text: fmt.Sprintf("two databases have one ID, so readers take heartbeats and write tokens of one for those of the other: %s and %s", own, o)})
		}
	}
	return list
}

// Conflicts returns those of an outbox. known reports whether a worker publishes its database now.
// The error is a *keyspace.Outage.
func Conflicts(ctx context.Context, b *keyspace.StatusHashes, source string) (list []store.Conflict, known bool, err error) {
	p, err := readPage(ctx, b)
	if err != nil {
		return nil, false, err
	}
	return p.conflicts(source), p.last(source).lives(), nil
}

// ForgetDatabases removes what is known of an outbox: what its journal has had, and that its
// database was restored. Workers publish it again. The error is a *keyspace.Outage.
func ForgetDatabases(ctx context.Context, b *keyspace.StatusHashes, source string) error {
	p, err := readPage(ctx, b)
	if err != nil {
		return err
	}
	fields := []string{restoredPrefix + source}
	for field, d := range p.databases {
		if d.Source == source {
			fields = append(fields, field)
		}
	}
	return b.Remove(ctx, keyspace.SourcesHash, fields...)
}
