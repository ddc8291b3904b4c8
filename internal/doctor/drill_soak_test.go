//go:build soak

package doctor_test

import (
	"os"
	"strings"
	"testing"
)

// TestDrill plants faults one by one. The check that docs/doctor.md names finds each of them during
// the fault, and not before or after, even without the accounts of the audit if the page allows it.
func TestDrill(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	w.withState()
	testHealthy(w)
	w.withAudit()
	testCuts(w)
	testHitRatio(w)
	testExcess(w)
	testFloatIDs(w)
	testElsewhere(w)
	w.useMap(everything + "capture:\n  products: {entity: product, id: id, on: [insert]}\n")
	w.applyTriggers()
	page, err := os.ReadFile(drillPage)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range drill {
		if !pageFinds(string(page), f) {
			t.Errorf("%s does not name %s as %s for %s with the account %s", drillPage, f.name, f.severity, f.check, f.account)
		}
		if before := find(w.examine(f.check), f.check, f.says); before != nil {
			t.Errorf("%s: found before it is there: %+v", f.name, before)
		}
		f.plant(w)
		mysql, redis := w.inputs.AuditMySQL, w.inputs.AuditRedis
		if f.account != "audit" {
			w.inputs.AuditMySQL, w.inputs.AuditRedis = nil, nil
		}
		got := find(w.examine(f.check), f.check, f.says)
		w.inputs.AuditMySQL, w.inputs.AuditRedis = mysql, redis
		if got == nil {
			t.Fatalf("%s: not found: %+v", f.name, w.examine(f.check))
		}
		if got.Severity != f.severity || got.Evidence == "" || got.Cure == "" {
			t.Errorf("%s: %+v", f.name, got)
		}
		switch {
		case f.cure && strings.HasPrefix(got.Cure, "GRANT"):
			w.sql(strings.Split(got.Cure, "\n")...)
		case f.cure:
			w.do(got.Cure)
		default:
			f.heal(w)
		}
		if after := find(w.examine(f.check), f.check, f.says); after != nil {
			t.Errorf("%s: found after it is cured: %+v", f.name, after)
		}
	}
}
