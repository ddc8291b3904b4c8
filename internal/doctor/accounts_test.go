package doctor_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/doctor"
	"github.com/unstale/unstale/invalidation"
)

// accountsPage has the privileges of a worker's accounts.
const accountsPage = "../../docs/accounts.md"

// workerRules returns the rules of a worker with a map, by default the testbed's, and with every
// flag.
func workerRules(t testing.TB, mapText ...string) string {
	t.Helper()
	m, err := invalidation.Parse("mapping.yaml", []byte(append(mapText, everything)[0]), shippedEnv)
	if err != nil {
		t.Fatal(err)
	}
	rules := doctor.ACLRules(doctor.Worker, doctor.ACLOptions{Map: m, Wake: "cache:outbox:wake", Wait: true})
	return "on >secret -@all " + strings.Join(rules, " ")
}

// The page grants a worker the privileges that the doctor tries, and nothing else.
func TestAccountsPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(accountsPage)
	if err != nil {
		t.Fatal(err)
	}
	granted := map[string]string{}
	for _, m := range regexp.MustCompile(`GRANT ([A-Z, ]+) ON shop\.(cache_outbox\w*) TO 'unstale'@`).FindAllStringSubmatch(string(page), -1) {
		granted[m[2]] = m[1]
	}
	for _, r := range doctor.WorkerRights {
		if want := strings.Join(r.Rights, ", "); granted[r.Table] != want {
			t.Errorf("%s grants %q on %s, the doctor tries %q", accountsPage, granted[r.Table], r.Table, want)
		}
		delete(granted, r.Table)
	}
	if len(granted) > 0 {
		t.Errorf("%s grants what the doctor does not try: %q", accountsPage, granted)
	}
}
