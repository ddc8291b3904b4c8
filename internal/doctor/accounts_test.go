package doctor_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/doctor"
)

// accountsPage has the privileges of a worker's accounts.
const accountsPage = "../../docs/accounts.md"

// workerRules returns the rules that the page gives a worker in Redis.
func workerRules(t testing.TB) string {
	t.Helper()
	page, err := os.ReadFile(accountsPage)
	if err != nil {
		t.Fatal(err)
	}
	_, rules, found := strings.Cut(string(page), "ACL SETUSER unstale on >change-me-3 ")
	if !found {
		t.Fatalf("%s has no account of Redis", accountsPage)
	}
	rules, _, _ = strings.Cut(rules, "\n")
	return "on >secret " + rules
}

// The page grants a worker the commands that the doctor counts as a worker's.
func TestAccountsPageOfRedis(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(accountsPage)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range doctor.WorkerCommands {
		if !strings.Contains(string(page), "+"+name+" ") && !strings.Contains(string(page), "+"+name+"`") {
			t.Errorf("%s does not grant +%s", accountsPage, name)
		}
	}
	for rule := range strings.FieldsSeq(workerRules(t)) {
		if name, isCommand := strings.CutPrefix(rule, "+"); isCommand && !slices.Contains(doctor.WorkerCommands, name) {
			t.Errorf("%s grants %s, which the doctor takes for too much", accountsPage, rule)
		}
	}
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
