package outbox

import (
	"testing"
	"time"
)

// A token's life begins at the commit, not at the insert: a transaction may take longer than
// TokenLifetime.
func TestTokenOfLongTransaction(t *testing.T) {
	t.Parallel()
	const took = 310 * time.Second
	w := Writes{token: Token{source: "s", made: 1000}, begun: time.Now().Add(-took)}
	w.token.addRuns(run{first: 7, count: 1, step: 1})
	if made := w.Committed().made; made < 1310 || made > 1310+60 {
		t.Errorf("a token of a transaction of %v was made %d s after its insert", took, made-1000)
	}
	if !new(Writes).Committed().IsZero() {
		t.Error("a token without rows is not zero")
	}
}
