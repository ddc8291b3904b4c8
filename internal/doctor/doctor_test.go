package doctor_test

import (
	"strings"

	"github.com/unstale/unstale/internal/doctor"
)

// testHealthy: in a healthy installation nothing is worse than info, except checks that are unknown
// until a worker runs. Without the accounts of the audit, and without anything, other checks are unknown and
// never ok.
func testHealthy(w *testbed) {
	t := w.t
	t.Helper()
	unknown := map[bool][]string{}
	for _, audited := range []bool{false, true} {
		if audited {
			w.withAudit()
		}
		for _, f := range w.examine() {
			switch {
			case f.Severity == doctor.Unknown:
				unknown[audited] = append(unknown[audited], f.Check)
			case f.Severity.AtLeast(doctor.Warning) || f.Title == "" || f.Check == "":
				t.Errorf("audited %v: %+v", audited, f)
			}
		}
	}
	if got, want := strings.Join(unknown[true], " "), "queue running-map beacon databases"; got != want {
		t.Errorf("with the audit %s is unknown, wanted %s", got, want)
	}
	if got, want := strings.Join(unknown[false], " "), "redis-rights redis-publishers queue running-map beacon databases mysql-inserts purge transactions mysql-replication redis-memory redis-persistence redis-slowlog redis-replication redis-state state"; got != want {
		t.Errorf("without the audit %s is unknown, wanted %s", got, want)
	}
	w.inputs.AuditMySQL, w.inputs.AuditRedis = nil, nil
	for _, f := range doctor.Examine(t.Context(), &doctor.Inputs{}) {
		if f.Severity != doctor.Unknown {
			t.Errorf("of nothing: %+v", f)
		}
	}
}
