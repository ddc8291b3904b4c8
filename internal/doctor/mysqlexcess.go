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

// mysqlExcess compares the grants of the account and of its active roles with the needs of a
// worker. The result is a hint: only a trial proves a privilege, and these are not tried.
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
	reads, err := e.readsOfLookups(ctx, db)
	if err != nil {
		return nil, err
	}
	var excess []string
	for i := range held {
		if rights := reads.needless(&held[i], database); len(rights) > 0 {
			text := strings.Join(rights, ", ")
			excess = append(excess, fmt.Sprintf("%s has %s on %s", held[i].Holder, text, held[i].On()))
		}
	}
	unclear := reads.unjudged(held)
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
			strings.Join(append(reads.create(database, account), "then name the new account in --mysql-dsn"), "\n")))
	}
	if len(unclear) > 0 {
		all = append(all, unseen("what else the worker's MySQL account may do", errors.New(strings.Join(unclear, "\n")),
			"use an account without roles, which has the grants of docs/accounts.md"))
	}
	if len(all) == 0 {
		all = append(all, well("the worker's MySQL account may do no more than a worker does, by SHOW GRANTS"))
	}
	return all, nil
}

// needless returns the privileges of a grant that no worker needs, sorted.
func (r *lookupReads) needless(h *capture.Held, database string) (rights []string) {
	for _, right := range slices.Sorted(maps.Keys(h.Rights)) {
		if r.needs(h, right, database) {
			continue
		}
		if columns := h.Rights[right]; len(columns) > 0 {
			right += " (`" + strings.Join(columns, "`, `") + "`)"
		}
		rights = append(rights, right)
	}
	return rights
}

func (r *lookupReads) needs(h *capture.Held, right, database string) bool {
	if h.Database == "*" || h.Name == "*" {
		return false
	}
	for _, t := range WorkerRights {
		if h.Kind == "" && h.Database == database && h.Name == t.Table && slices.Contains(t.Rights, right) {
			return true
		}
	}
	return isLookups(h, right) && (r.names(h.Name) || r.unclear(h) != "")
}

// roleGrant matches GRANT `a`@`%`, `b`@`%` TO ...; MariaDB writes no host.
var roleGrant = regexp.MustCompile("^GRANT ((?:`(?:[^`]|``)*`(?:@`(?:[^`]|``)*`)?,? ?)+) TO |^GRANT (\\S+) TO ")

// givesActive reports whether a line is about active roles, whose privileges are listed with those
// of the account. MariaDB also lists the default role, which is one of them.
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
