package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/unstale/unstale/internal/doctor"
	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/invalidation"
)

// review implements "unstale doctor --keys".
func (d *doctorCommand) review(ctx context.Context, p process) error {
	switch {
	case d.sample < 1:
		return usageError{fmt.Errorf("--sample %d: must be at least 1", d.sample)}
	case d.json && d.markdown:
		return usageError{errors.New("--json and --markdown: give one of them")}
	case len(d.checks) > 0:
		return usageError{errors.New("--check and --keys: give one of them")}
	}
	url := cmp.Or(d.auditRedis, d.redis.url)
	if url.text == "" {
		return usageError{errors.New("no Redis given; set --redis-url or --audit-redis-url")}
	}
	m, err := loadMap(p, d.mapFile)
	var faults invalidation.Faults
	if errors.As(err, &faults) {
		return mapError(err)
	}
	k, user, err := d.openRedis(url)
	if err != nil {
		return err
	}
	r := doctor.NewReview(m, err) // without a file there is none, which the report says
	r.User, r.NoNames = user, d.noNames
	walked, failed := k.Contents.Walk(ctx, d.sample, r.Note)
	report := r.Report(walked, failed)
	if err := errors.Join(d.printReview(p, report), k.Close()); err != nil {
		return err
	}
	if failed != nil {
		return fmt.Errorf("the review covers what was seen before: %w", failed)
	}
	return d.verdict(doctor.Worst(report.Findings))
}

func (d *doctorCommand) printReview(p process, r *doctor.ReviewReport) error {
	switch {
	case d.json:
		return output.JSON(p.Out, r)
	case d.markdown:
		return r.Markdown(p.Out)
	}
	return r.Text(p.Out)
}
