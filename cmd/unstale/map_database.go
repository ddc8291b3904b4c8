package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/unstale/unstale/internal/capture"
	"github.com/unstale/unstale/internal/doctor"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/invalidation"
)

// A lookupProof is the result of a comparison of one lookup, in JSON.
type lookupProof struct {
	Param  string `json:"param"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
	Proven bool   `json:"proven"`
	Says   string `json:"says"`
}

// A databaseCheck holds the faults that a database shows in a map, and the proofs of its lookups.
type databaseCheck struct {
	faults []invalidation.Fault
	proofs []lookupProof
	empty  []emptyID
}

// An emptyID is a capture whose ID may be "", in JSON.
type emptyID struct {
	Table  string `json:"table"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
	Says   string `json:"says"`
}

// checkDatabase compares a map with the tables of a database. It returns an error if the database
// does not answer.
func checkDatabase(ctx context.Context, f mysqlFlags, file string, m *invalidation.Map) (d databaseCheck, err error) {
	s, err := f.open("map")
	if err != nil {
		return d, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	wanted, err := (&capture.Capturer{DB: s.SchemaDB(), Captures: m.Captures()}).Wanted(ctx)
	captures := capture.Faults(err)
	if err != nil && len(captures) == 0 {
		return d, err
	}
	for _, fault := range captures {
		d.faults = append(d.faults, invalidation.Fault{File: file, Line: fault.Line, Column: fault.Column, Text: fault.Table, Problem: fault.Err.Error()})
	}
	if wanted != nil {
		for _, e := range wanted.Empty {
			d.empty = append(d.empty, emptyID{e.Table, e.Line, e.Capture.Column, e.String()})
		}
	}
	return d, d.prove(ctx, s, file, m)
}

// prove runs the lookups of a map.
func (d *databaseCheck) prove(ctx context.Context, s *session.Sessions, file string, m *invalidation.Map) error {
	d.proofs = []lookupProof{}
	for _, l := range m.Lookups() {
		fault := invalidation.Fault{File: file, Line: l.Line, Column: l.Column, Text: l.Param}
		proof, err := doctor.CheckLookup(ctx, s, l)
		switch {
		case err != nil && !doctor.IsLookupFault(err):
			return err
		case err != nil:
			fault.Problem, fault.Cure = "its lookup fails: "+err.Error(), doctor.LookupCure(err)
			d.faults = append(d.faults, fault)
			continue
		case proof.Differs != "":
			fault.Problem, fault.Cure = "its lookup is right for one ID and wrong for several: "+proof.Differs, doctor.CureDiffers
			d.faults = append(d.faults, fault)
		}
		d.proofs = append(d.proofs, lookupProof{l.Param, l.Line, l.Column, proof.Differs == "" && proof.Unproven == "", proof.String()})
	}
	return nil
}

func (d *databaseCheck) print(p process, file string) {
	for _, one := range d.proofs {
		fmt.Fprintf(p.Out, "lookup: %s:%d:%d: %s: %s\n", file, one.Line, one.Column, one.Param, printable(one.Says))
	}
	for _, one := range d.empty {
		fmt.Fprintf(p.Out, "capture: %s:%d:%d: %s: %s\n", file, one.Line, one.Column, one.Table, printable(one.Says))
	}
}
