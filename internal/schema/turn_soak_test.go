//go:build soak

package schema

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/testenv"
)

// A step that takes longer than the lease, and meanwhile holds back renewals on all nodes, costs no
// turn.
func TestLongStepOnACluster(t *testing.T) {
	p := newPair(t, testenv.OwnPrimaries(t))
	a := p.start(0, "")
	a.until("turn\n")
	b := p.start(1, "")
	b.until(waits(a))
	p.exec("INSERT INTO " + p.name + ".steps (who) VALUES ('1'), ('2'), ('3'), ('4'), ('5'), ('6'), ('7'), ('8')")
	for steps, took := 0, time.Duration(0); took < 2*testLease; {
		testenv.Eventually(t, "twice as many rows", func() bool { // the step may not have ended on this node
			_, err := p.db.ExecContext(t.Context(), "INSERT INTO "+p.name+".steps (who) SELECT who FROM "+p.name+".steps")
			return err == nil
		})
		began := time.Now()
		for _, change := range []string{"ADD COLUMN slow INT AS (LENGTH(SHA2(CONCAT(who, REPEAT('x', 16000000)), 512))) STORED", "DROP COLUMN slow"} {
			if _, err := fmt.Fprintf(a.in, "ALTER TABLE %s.steps %s\n", p.name, change); err != nil {
				t.Fatal(err)
			}
			steps++
			testenv.Eventually(t, "the step to end", func() bool { return strings.Count(a.text(), "stepped") == steps })
			took = max(took, time.Since(began))
		}
	}
	a.end()
	if !strings.HasSuffix(a.text(), "stepped\nended\n") {
		t.Error("the holder did not end well")
	}
	b.until("\nturn\n")
	b.end()
}
