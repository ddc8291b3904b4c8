package chaos

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
)

// A kind is a sort of transaction.
type kind int

const (
	plain      kind = iota // one row, one key
	fan                    // one row that a list makes many keys of
	bulk                   // many rows
	heldOpen               // commits seconds after its insert, while others commit
	scheduled              // a row with a time
	list                   // a pattern
	bad                    // a row that no map knows
	read                   // a reader of the old value is on its way
	rolledBack             // like plain, but it rolls back
	heldBack               // like heldOpen, but it rolls back
	kinds
)

var kindNames = [kinds]string{"plain", "fan", "bulk", "held open", "scheduled", "list", "bad", "read", "rolled back", "held and rolled back"}

func (k kind) String() string { return kindNames[k] }

// rollsBack reports whether the transaction means to roll back.
func (k kind) rollsBack() bool { return k == rolledBack || k == heldBack }

// draw picks a kind: mostly plain ones, which are cheap and so prove the most.
func draw(r *rand.Rand) kind {
	switch n := r.IntN(1000); {
	case n < 800:
		return plain
	case n < 930:
		return rolledBack
	case n < 950:
		return fan
	case n < 965:
		return scheduled
	case n < 975:
		return bad
	case n < 983:
		return heldOpen
	case n < 987:
		return heldBack
	case n < 990:
		return list
	case n < 993:
		return bulk
	default:
		return read
	}
}

// A transaction is one of the shop's, with the keys that it owns.
type transaction struct {
	id   uint64
	kind kind
	size int // of fan and bulk
	// Redis acknowledged its keys between these. No acknowledgement, no transaction.
	setBegan, setDone time.Time
}

// keys returns all keys of the transaction. None is made of a text that the program under test
// would have to escape.
func (t *transaction) keys() []string {
	switch t.kind {
	case fan:
		keys := []string{fmt.Sprint("chaos:thing:", t.id)}
		for n := range t.size {
			keys = append(keys, fmt.Sprintf("chaos:part:%d:%d", t.id, n))
		}
		return keys
	case bulk:
		keys := make([]string, t.size)
		for n := range keys {
			keys[n] = fmt.Sprintf("chaos:thing:%d.%d", t.id, n)
		}
		return keys
	case list:
		return []string{fmt.Sprintf("chaos:shelf:%d:p1", t.id), fmt.Sprintf("chaos:shelf:%d:p2", t.id)}
	case bad:
		return nil // nothing can become of it but a dead letter
	}
	return []string{fmt.Sprint("chaos:thing:", t.id)}
}

// inserts returns the statements between BEGIN and COMMIT, which insert rows of the ledger and of
// the outbox.
func (t *transaction) inserts() string {
	ledger := fmt.Sprintf("INSERT INTO chaos_ledger (tx) VALUES (%d);", t.id)
	row := func(entity, id, params string) string {
		return fmt.Sprintf("INSERT INTO cache_outbox (entity, entity_id, params) VALUES ('%s', '%s', %s);", entity, id, params)
	}
	id := fmt.Sprint(t.id)
	switch t.kind {
	case fan:
		numbers := make([]string, t.size)
		for n := range numbers {
			numbers[n] = fmt.Sprint(n)
		}
		return ledger + row("many", id, `'{"n":[`+strings.Join(numbers, ",")+`]}'`)
	case bulk:
		values := make([]string, t.size)
		for n := range values {
			values[n] = fmt.Sprintf("('thing', '%d.%d')", t.id, n)
		}
		return ledger + "INSERT INTO cache_outbox (entity, entity_id) VALUES " + strings.Join(values, ",") + ";"
	case scheduled:
		return ledger + fmt.Sprintf("INSERT INTO cache_outbox_delayed (entity, entity_id, due_at) VALUES "+
			"('thing', '%d', UTC_TIMESTAMP(6) + INTERVAL %d MICROSECOND);", t.id, t.id%2_000_000)
	case list:
		return ledger + row("shelf", id, "NULL")
	case bad:
		return ledger + row("nonsense", id, "NULL")
	}
	return ledger + row("thing", id, "NULL")
}

// A notebook holds the transactions of the shop until they are checked. Safe for concurrent use.
type notebook struct {
	mu    sync.Mutex
	last  uint64
	pages []transaction
}

// next numbers a transaction.
func (n *notebook) next() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last++
	return n.last
}

func (n *notebook) note(t transaction) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pages = append(n.pages, t)
}

// take returns what was noted since the last call.
func (n *notebook) take() []transaction {
	n.mu.Lock()
	defer n.mu.Unlock()
	pages := n.pages
	n.pages = nil
	return pages
}
