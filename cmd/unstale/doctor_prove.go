package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/unstale/unstale/internal/doctor"
	"github.com/unstale/unstale/internal/output"
)

// proof implements "unstale doctor --prove".
func (d *doctorCommand) proof(ctx context.Context, p process) (err error) {
	if d.keys || len(d.checks) > 0 {
		return usageError{errors.New("--prove cannot be combined with --keys or --check")}
	}
	d.redis.timeout = max(d.redis.timeout, doctorPatience)
	config, err := d.mysql.config()
	if err != nil {
		return err
	}
	options, err := d.redis.options()
	if err != nil {
		return err
	}
	exam, closeAll, err := d.exam(p)
	defer func() { err = errors.Join(err, closeAll()) }()
	if err != nil {
		return err
	}
	r, failed := doctor.Prove(ctx, config, exam, options)
	if r.MySQL == "" {
		return failed
	}
	if d.json {
		err = output.JSON(p.Out, struct {
			Unstale string `json:"unstale"`
			doctor.ProofReport
		}{versionText(), r})
	} else {
		fmt.Fprintf(p.Out, "unstale %s on %s and %s\n", versionText(), r.MySQL, r.Redis)
		doctor.Sort(r.Findings)
		err = d.print(p, r.Findings)
	}
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	return d.verdict(r.Worst)
}
