package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/sqltext"
	"github.com/unstale/unstale/invalidation"
)

// CureDiffers is the fix for a lookup that finds other rows for several IDs together.
const CureDiffers = "let each row depend on its own ID alone: GROUP BY or PARTITION BY the columns of by, and no limit on all rows"

// IsLookupFault reports whether the lookup caused an error of CheckLookup. Otherwise the server did
// not answer.
func IsLookupFault(err error) bool {
	var slow *session.SlowLookupError
	return errors.As(err, &slow) || session.IsStatementFault(err)
}

// LookupCure returns the fix for a lookup that fails.
func LookupCure(err error) string {
	var slow *session.SlowLookupError
	switch {
	case errors.As(err, &slow):
		return "index the columns that it looks up by, or raise --lookup-timeout"
	case session.IsGrouping(err):
		return "name every column that it selects in GROUP BY, or take MIN or MAX of it; a column of ORDER BY must be selected if there is a DISTINCT"
	}
	return "correct its SQL, or the grants of this account"
}

// A LookupProof is the result of a comparison of one lookup.
type LookupProof struct {
	// IDs is for how many IDs it was asked, together and one by one. Rows is how many rows it
	// found.
	IDs, Rows int
	// Differs names an ID whose rows are others together with other IDs than alone. It is "" if
	// there is none.
	Differs string
	// Unproven is why the comparison shows nothing. It is "" if it shows something.
	Unproven string
}

// String returns the proof as one clause.
func (p LookupProof) String() string {
	switch {
	case p.Differs != "":
		return p.Differs
	case p.Unproven != "":
		return "not proven, " + p.Unproven
	}
	return fmt.Sprintf("finds the same %d rows for %d IDs together and one by one", p.Rows, p.IDs)
}

// CheckLookup runs a lookup for IDs that nothing has, and then for up to 20 IDs of the database,
// together
// and one by one, in one snapshot of the data. It writes nothing. It returns an error if the lookup
// fails or the server does not answer. Each statement has the time limit of a lookup.
func CheckLookup(ctx context.Context, s *session.Sessions, l *invalidation.Lookup) (p LookupProof, err error) {
	madeUp := [][]string{slices.Repeat([]string{"unstale-check-1"}, len(l.By)), slices.Repeat([]string{"unstale-check-2"}, len(l.By))}
	if first, last := sqltext.Element(sqltext.Tokens(l.SQL)); first < last && len(l.By) == 1 { // UUID_TO_BIN refuses other texts
		madeUp = [][]string{{"ffffffff-ffff-4fff-bfff-fffffffffff1"}, {"ffffffff-ffff-4fff-bfff-fffffffffff2"}}
	}
	if l.Single {
		_, err := session.NewLookups(s).Lookup(ctx, l.SQL, madeUp[:1], l.Values())
		return LookupProof{Unproven: "it is asked for one ID at a time: " + l.SingleReason}, err
	}
	snapshot, err := session.NewLookups(s).LookupSnapshot(ctx)
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, snapshot.Close()) }()
	if _, err := snapshot.Lookup(ctx, l.SQL, madeUp, l.Values()); err != nil {
		return p, err
	}
	ids, why := sample(ctx, snapshot, l)
	if why != "" {
		return LookupProof{Unproven: why}, ctx.Err()
	}
	return compare(ctx, snapshot, l, ids)
}

// sample returns IDs to ask for, or why there are too few.
func sample(ctx context.Context, snapshot *session.LookupSnapshot, l *invalidation.Lookup) (ids [][]string, why string) {
	query, ok := idQuery(l.SQL)
	if !ok {
		return nil, "its SQL does not compare a column with the list, as in WHERE product_id IN (?)"
	}
	ids, err := snapshot.Select(ctx, query, len(l.By))
	if err != nil {
		return nil, "its tables cannot be asked for IDs: " + err.Error()
	}
	switch len(ids) {
	case 0:
		return nil, "the tables are empty, or no row fits its conditions"
	case 1:
		return nil, "the tables have one ID only"
	}
	ids = slices.DeleteFunc(ids, func(id []string) bool { return !utf8.ValidString(strings.Join(id, ",")) })
	if len(ids) < 2 {
		return nil, "the IDs in its tables are bytes and not text"
	}
	return ids, ""
}

// compare asks for IDs together and one by one.
func compare(ctx context.Context, snapshot *session.LookupSnapshot, l *invalidation.Lookup, ids [][]string) (LookupProof, error) {
	together, err := snapshot.Lookup(ctx, l.SQL, ids, l.Values())
	if err != nil {
		return LookupProof{}, err
	}
	var alone [][]string
	finds := 0
	for _, id := range ids {
		rows, err := snapshot.Lookup(ctx, l.SQL, [][]string{id}, l.Values())
		if err != nil {
			return LookupProof{}, err
		}
		if len(rows) > 0 {
			finds++
		}
		alone = append(alone, rows...)
	}
	a, b := byID(l, alone), byID(l, together)
	p := LookupProof{IDs: len(ids), Rows: len(alone)}
	either := maps.Clone(a)
	maps.Copy(either, b)
	for _, id := range slices.Sorted(maps.Keys(either)) {
		if !maps.Equal(a[id], b[id]) {
			p.Differs = fmt.Sprintf("for %s it finds %s alone, and %s together with %d other IDs", id, shorten(a[id]), shorten(b[id]), len(ids)-1)
			return p, nil
		}
	}
	if finds < 2 {
		p.Unproven = fmt.Sprintf("it finds something for %d of %d IDs", finds, len(ids))
	}
	return p, nil
}

// byID groups the values of rows by ID, as text. Workers drop repeated rows.
func byID(l *invalidation.Lookup, rows [][]string) map[string]map[string]bool {
	all := map[string]map[string]bool{}
	for _, row := range rows {
		id := quotedList(row[:len(l.By)])
		if all[id] == nil {
			all[id] = map[string]bool{}
		}
		all[id][quotedList(row[len(l.By):])] = true
	}
	return all
}

// quotedList writes values so that different ones never look the same.
func quotedList(values []string) string {
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = fmt.Sprintf("%q", v)
	}
	return strings.Join(quoted, ", ")
}

// mostShown is how many values of an ID are shown.
const mostShown = 5

func shorten(values map[string]bool) string {
	if len(values) == 0 {
		return "nothing"
	}
	return listed(slices.Sorted(maps.Keys(values)), mostShown)
}
