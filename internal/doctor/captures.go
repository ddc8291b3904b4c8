package doctor

import (
	"context"
	"errors"
	"fmt"

	"github.com/unstale/unstale/internal/capture"
)

// captures compares the map's section capture with the triggers, by the audit's account if there is one: a worker's
// sees none.
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
	case errors.As(err, &fault) && !audited: // a worker's account does not see the tables of the application
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
				continue // nobody said who it is to be
			}
			all = append(all, found(Warning, "a trigger has another definer: "+what, "it is "+change.Have.Definer, "unstale capture apply --definer "+e.Definer.String()))
		case capture.NotInMap, capture.RenamedAway:
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
	return all, nil
}
