package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/unstale/unstale/internal/capture"
)

// captures compares the map's section capture with the triggers. It uses the audit's account if
// there is one: a worker's account sees no triggers.
func captures(ctx context.Context, e *Exam) (all []Finding, err error) {
	wanted := e.Map.Captures()
	if len(wanted) == 0 {
		return []Finding{well("the map captures no table")}, nil
	}
	on, audited := e.MySQL, e.reached[auditMySQL] == nil && e.elsewhere[auditMySQL] == nil
	switch {
	case audited:
		on = e.AuditMySQL
	case e.reached[aMySQL] != nil:
		return nil, errors.New("it needs " + string(aMySQL))
	}
	c := &capture.Capturer{DB: on.DB(), Captures: wanted, Definer: e.Definer, Notify: func(string) {}}
	changes, err := c.Plan(ctx)
	var fault capture.Fault
	switch {
	// a worker's account does not see the tables of the application
	case errors.As(err, &fault) && !audited:
		return []Finding{unseen("whether the triggers are those of the map", err, notGivenSQL)}, nil
	case err != nil && !errors.As(err, &fault):
		return nil, err
	case err != nil:
		return []Finding{found(Critical, "the tables do not allow what the map captures", err.Error(),
			"correct the map's section capture, or the tables")}, nil
	}
	hidden := 0
	for _, change := range changes {
		what := fmt.Sprintf("%s on %s", change.Event(), change.Table())
		switch change.State {
		case capture.InPlace:
		case capture.Unknown:
			hidden++
		case capture.WrongDefiner:
			if e.Definer == (capture.Account{}) {
				continue // the expected account is unknown
			}
			all = append(all, found(Warning, "a trigger has another definer: "+what, "it is "+change.Have.Definer, "unstale capture apply --definer "+e.Definer.String()))
		case capture.Outdated:
			all = append(all, found(Warning, "a trigger of an earlier version has a defect: "+what, change.Have.Name, "unstale capture apply, which replaces it; docs/capture.md"))
		case capture.NotInMap, capture.RenamedAway, capture.Duplicate:
			all = append(all, found(Warning, "a trigger is "+string(change.State)+": "+what, change.Have.Name, "unstale capture apply, which drops it"))
		default:
			all = append(all, found(Critical, "a trigger is "+string(change.State)+", so writes leave stale keys behind: "+what,
				"by the map there is to be one", "unstale capture apply"))
		}
	}
	if hidden > 0 {
		all = append(all, unseen(fmt.Sprintf("%d of %s", hidden, count(len(changes), "trigger")),
			errors.New("without the right TRIGGER on a table the server shows none of it"), notGivenSQL))
	}
	if len(all) == 0 {
		all = append(all, well("%s are those of the map", count(len(changes), "trigger")))
	}
	more, err := definers(ctx, c, changes)
	if err != nil {
		return all, err
	}
	all = append(all, more...)
	more, err = captureSessions(ctx, e, on, changes)
	return append(all, more...), err
}

// definers checks whether the accounts that triggers run as exist and have their privileges.
func definers(ctx context.Context, c *capture.Capturer, changes []capture.Change) (all []Finding, err error) {
	list, err := c.Definers(ctx, changes)
	for _, d := range list {
		what := fmt.Sprintf("%s of %s", d.Account, count(d.Triggers, "trigger"))
		switch {
		case d.Err == nil:
			all = append(all, well("the definer %s has its privileges", what))
		case errors.Is(d.Err, capture.ErrUnreadable):
			all = append(all, unseen("whether the definer "+what+" has its privileges", d.Err,
				"GRANT SELECT (User, Host) ON mysql.user to the account of --audit-mysql-dsn shows whether it exists, SELECT ON mysql.* what it may do"))
		default:
			evidence, cure, _ := strings.Cut(d.Err.Error(), ":\n")
			all = append(all, found(Critical, "the definer "+what+" cannot do what they do, so every write to their tables fails", evidence, strings.TrimSpace(cure)))
		}
	}
	return all, err
}
