package doctor

import (
	"context"

	"github.com/unstale/unstale/internal/status"
	"github.com/unstale/unstale/internal/store"
)

// databases reports conflicts of this database with Redis and with other databases there.
func databases(ctx context.Context, e *Exam) (all []Finding, err error) {
	source, err := e.MySQL.Source(ctx)
	if err != nil {
		return nil, err
	}
	list, known, err := status.Conflicts(ctx, e.Redis.Board, source)
	if err != nil {
		return nil, err
	}
	for _, c := range list {
		severity, title := Warning, "workers of another database unlink names of this one"
		switch c.Kind {
		case store.ConflictRestored:
			severity, title = Critical, "the database is older than Redis"
		case store.ConflictID:
			severity, title = Critical, "another database has the ID of this one"
		}
		all = append(all, found(severity, title, c.Text, c.Cure))
	}
	switch {
	case len(all) > 0:
		return all, nil
	case !known:
		return []Finding{found(Unknown, "whether workers of another database share this Redis", "no worker publishes which database it serves",
			"start a worker, with the ACL rules of `unstale acl worker`")}, nil
	}
	return []Finding{well("no other database on this Redis has the ID or names of this one, and none was restored")}, nil
}
