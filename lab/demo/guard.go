package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/unstale/unstale/invalidation"
	"github.com/unstale/unstale/worker"
)

// lookupLimit bounds one lookup of the map, on a machine that may be busy.
const lookupLimit = 2 * time.Second

// checkMap checks, before the first row is written, that the map makes only the demo's own keys
// stale: a given Redis has other keys.
func (d *Demo) checkMap(ctx context.Context) error {
	for _, c := range scenario {
		row, err := c.decoded()
		if err != nil {
			return err
		}
		plan, err := worker.Expand(ctx, d.m, d.store.Lookups.Lookup, row)
		if err != nil {
			return fmt.Errorf("%s refuses %q: %w", d.cfg.MapFile, c.name, err)
		}
		for _, name := range slices.Concat(plan.Keys, plan.Patterns, plan.Sets) {
			if !d.names.owns(name) {
				return fmt.Errorf("%s makes %q stale, but the demo's keys begin with %q; write {app}:{env}: there, "+
					`with the vars app: "${KEY_PREFIX:-%s}" and env: {from: APP_ENV}`, d.cfg.MapFile, name, string(d.names), privateApp)
			}
		}
	}
	return nil
}

// decoded returns the change's row as the worker will read it.
func (c change) decoded() (invalidation.Row, error) {
	row := invalidation.Row{Entity: c.row.Entity, ID: c.row.ID}
	if len(c.row.Params) == 0 {
		return row, nil
	}
	text, err := json.Marshal(c.row.Params)
	if err == nil {
		row.Params, err = invalidation.ParseParams(text)
	}
	if err != nil {
		return row, fmt.Errorf("%s: %w", c.name, err)
	}
	return row, nil
}
