package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/unstale/unstale/internal/capture"
)

// Contract: no table.
const currentRoleSQL = "SELECT COALESCE(CURRENT_ROLE(), 'NONE')"

// mysqlExcess compares the grants of the account and of its active roles with those that a worker needs, which is a hint: only a
// trial proves a right, and these are not tried.
func mysqlExcess(ctx context.Context, e *Exam) (all []Finding, err error) {
	db := e.MySQL.DB()
	account, database, err := whoAndWhere(ctx, db)
	if err != nil {
		return nil, err
	}
	g, err := capture.SessionGrants(ctx, db)
	if err != nil {
		return nil, err
	}
	if g == nil {
		return nil, errors.New("the account may not read its own grants")
	}
	active, err := texts(ctx, db, currentRoleSQL)
	if err != nil {
		return nil, err
	}
	held, others := g.Held()
	var excess, revoke []string
	for i := range held {
		if rights := e.needless(&held[i], database); len(rights) > 0 {
			text := strings.Join(rights, ", ")
			excess = append(excess, fmt.Sprintf("%s has %s on %s", held[i].Holder, text, held[i].On()))
			revoke = append(revoke, fmt.Sprintf("REVOKE %s ON %s FROM %s;", text, held[i].On(), held[i].Holder))
		}
	}
	unclear := e.unjudged(held)
	for _, line := range others {
		switch {
		case strings.HasPrefix(line, "GRANT PROXY "):
			excess = append(excess, line)
		case !givesActive(line, active):
			unclear = append(unclear, line)
		}
	}
	if len(excess) > 0 {
		all = append(all, found(Warning, "the worker's MySQL account may do more than a worker does", strings.Join(excess, "\n"),
			strings.Join(append(revoke, "give "+account+" the grants of docs/accounts.md and no others; what a role gives, revoke from the role"), "\n")))
	}
	if len(unclear) > 0 {
		all = append(all, unseen("what else the worker's MySQL account may do", errors.New(strings.Join(unclear, "\n")),
			"revoke roles that are not active in every session, and give "+account+" the grants of docs/accounts.md"))
	}
	if len(all) == 0 {
		all = append(all, well("the worker's MySQL account may do no more than a worker does, by SHOW GRANTS"))
	}
	return all, nil
}

// needless are the rights of a grant that no worker needs, sorted.
func (e *Exam) needless(h *capture.Held, database string) (rights []string) {
	for _, right := range slices.Sorted(maps.Keys(h.Rights)) {
		if e.needs(h, right, database) {
			continue
		}
		if columns := h.Rights[right]; len(columns) > 0 {
			right += " (`" + strings.Join(columns, "`, `") + "`)"
		}
		rights = append(rights, right)
	}
	return rights
}

// isLookups reports whether lookups need such a right on what they name.
func isLookups(h *capture.Held, right string) bool {
	return right == "SELECT" || right == "EXECUTE" && h.Kind != ""
}

// unjudged are the grants that lookups may need, where nobody knows these.
func (e *Exam) unjudged(held []capture.Held) (all []string) {
	for i := range held {
		for _, right := range slices.Sorted(maps.Keys(held[i].Rights)) {
			if e.Map == nil && isLookups(&held[i], right) && !strings.HasPrefix(held[i].Name, "cache_outbox") && held[i].Name != "*" {
				all = append(all, "without a map: "+right+" on "+held[i].On())
			}
		}
	}
	return all
}

func (e *Exam) needs(h *capture.Held, right, database string) bool {
	if h.Database == "*" || h.Name == "*" {
		return false
	}
	for _, t := range WorkerRights {
		if h.Kind == "" && h.Database == database && h.Name == t.Table && slices.Contains(t.Rights, right) {
			return true
		}
	}
	if !isLookups(h, right) {
		return false
	}
	if e.Map == nil {
		return true // which is told
	}
	named := regexp.MustCompile(`(?i)(^|\W)` + regexp.QuoteMeta(h.Name) + `(\W|$)`)
	for _, l := range e.Map.Lookups() {
		if named.MatchString(l.SQL) {
			return true
		}
	}
	return false
}

// roleGrant matches GRANT `a`@`%`, `b`@`%` TO ...; MariaDB writes no host.
var roleGrant = regexp.MustCompile("^GRANT ((?:`(?:[^`]|``)*`(?:@`(?:[^`]|``)*`)?,? ?)+) TO |^GRANT (\\S+) TO ")

// givesActive reports whether a line is about roles that are active, whose rights are listed with the account's own. MariaDB
// lists the default role, too, which is among them.
func givesActive(line string, active []string) bool {
	if strings.HasPrefix(line, "SET DEFAULT ROLE ") {
		return true
	}
	m := roleGrant.FindStringSubmatch(line)
	if m == nil || strings.HasSuffix(line, " WITH ADMIN OPTION") {
		return false
	}
	plain := strings.NewReplacer("`", "", " ", "")
	on := strings.Split(plain.Replace(strings.Join(active, ",")), ",")
	for role := range strings.SplitSeq(plain.Replace(m[1]+m[2]), ",") {
		if !slices.Contains(on, role) {
			return false
		}
	}
	return true
}
