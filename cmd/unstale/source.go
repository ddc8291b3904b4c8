package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/status"
	"github.com/unstale/unstale/internal/store"
	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/protocol"
)

func newSourceReplace(p process) *cobra.Command {
	f := &mysqlFlags{}
	cmd := &cobra.Command{
		Use:   "replace ID",
		Short: "Give a copy of a database its own ID",
		Long: `Give the outbox another random ID, if it has the given one. "unstale status --json" shows the
ID as "source".

A database that was restored from another one has its ID. Readers then take heartbeats and write
tokens of one database for those of the other. Run the command on the copy, and then restart its
workers and its readers. Its write tokens expire.

The account needs SELECT, INSERT and DELETE on cache_outbox_source, like the account of migrations.`,
		Example: "  unstale source replace 0123456789abcdef0123456789abcdef",
		Args:    exactArgs("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.onSessions(cmd.Context(), "source", func(s *session.Sessions) error {
				id, err := s.ReplaceSource(cmd.Context(), args[0])
				if err == nil {
					fmt.Fprintf(p.Out, "the ID is now %s; restart the workers and the readers of this database\n", id)
				}
				return err
			})
		},
	}
	f.addMySQLFlags(cmd.Flags())
	return cmd
}

// restoredCommand is "unstale source restored".
type restoredCommand struct {
	mysql   mysqlFlags
	redis   redisFlags
	mapFile string
}

func newSourceRestored(p process) *cobra.Command {
	c := &restoredCommand{}
	cmd := &cobra.Command{
		Use:   "restored",
		Short: "Unlink all keys of the map after a restore",
		Long: `Unlink all keys of the map, in Redis and in the memory of readers. Run it after the database was
restored from a backup: Redis may hold entries that readers stored from the data that is gone, and
the journal that named their keys is gone as well. The command requests one sweep for each name of
the map, and a worker runs them with one scan. Then "unstale status" no longer reports the
restore.

The members of index sets are unlinked only if a key or pattern of the map covers them. If the map
does not cover all that Redis holds of the database, empty Redis instead.`,
		Example: "  unstale source restored --map mapping.yaml",
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.requestSweeps(cmd.Context(), p) },
	}
	flags := cmd.Flags()
	c.mysql.addMySQLFlags(flags)
	c.redis.addRedisFlags(flags)
	flags.StringVar(&c.mapFile, "map", defaultMap, "the map's file")
	return cmd
}

func (c *restoredCommand) requestSweeps(ctx context.Context, p process) error {
	m, err := loadMap(p, c.mapFile)
	if err != nil {
		return mapError(err)
	}
	requests, sets, err := sweepsOfAll(m)
	if err != nil {
		return err
	}
	err = c.redis.onKeyspace(func(k *keyspace.Keyspace) error {
		return c.mysql.onSessions(ctx, "source", func(s *session.Sessions) error {
			source, err := s.Source(ctx)
			if err != nil {
				return err
			}
			if err := store.NewSweeps(s).RequestSweeps(ctx, requests); err != nil {
				return err
			}
			return status.ForgetDatabases(ctx, k.StatusHashes, source)
		})
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(p.Out, "requested %s; 'unstale status' shows when workers have finished them\n", output.Things(len(requests), "sweep"))
	if len(sets) > 0 {
		fmt.Fprintf(p.Err, "members of these index sets are unlinked only if a key or pattern of the map covers them: %s\n", strings.Join(sets, ", "))
	}
	return nil
}

// sweepsOfAll returns a sweep for each name of a map, and the index sets, which have none: without
// a set, its members are unknown. It leaves out a name that begins with a value, which would sweep
// other applications' keys.
func sweepsOfAll(m *invalidation.Map) (requests []store.Sweep, sets []string, err error) {
	holds := map[string]int64{}
	for _, n := range m.Names() {
		if n.Kind == invalidation.KindSet {
			sets = append(sets, n.Text)
			continue
		}
		g, err := protocol.CompileGlob(n.Glob)
		if err != nil {
			return nil, nil, fmt.Errorf("%s of entity %s: %w", n.Text, n.Entity, err)
		}
		if g.Prefix() == "" {
			return nil, nil, fmt.Errorf("%s of entity %s begins with a value, so a sweep would unlink keys of other programs; empty Redis instead", n.Text, n.Entity)
		}
		holds[n.Glob] = max(holds[n.Glob], n.Hold.Milliseconds())
	}
	for glob, hold := range holds {
		requests = append(requests, store.Sweep{Kind: store.SweepPattern, Name: glob, HoldMillis: hold})
	}
	slices.SortFunc(requests, func(a, b store.Sweep) int { return strings.Compare(a.Name, b.Name) })
	return requests, slices.Compact(sets), nil
}
