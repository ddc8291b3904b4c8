package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jmoiron/sqlx"

	"github.com/unstale/unstale/internal/session"
)

// A Correction is one dead letter as it was read, and the values to put it back with.
type Correction struct {
	Letter DeadLetter
	Entity string
	Params *string // JSON text, put back byte for byte; nil: none
}

// ErrLetterChanged reports that a dead letter is no longer as it was read, because another operator
// acted first.
var ErrLetterChanged = errors.New("the dead letter has changed or is gone; read it again with `unstale dead show`")

// Contract: as putBackSQL, for one letter, which it locks. It appends one row, or none if the
// letter has changed. Its effect ends with the transaction.
const putBackCorrectedSQL = `INSERT INTO cache_outbox_delayed (entity, entity_id, params, trace, created_at, due_at, first_id, repeated)
SELECT ?, o.entity_id, ?, o.trace, o.created_at, UTC_TIMESTAMP(6), o.first_id, o.repeated
FROM cache_outbox_dead AS o FORCE INDEX (PRIMARY)
WHERE o.id = ? AND o.entity = ? AND o.entity_id = ? AND o.params <=> ? FOR UPDATE`

// RetryCorrected puts one dead letter back as RetryDead does, with another entity or other
// parameters. The audit keeps the old and the new values, but only the first 4 KiB of parameters.
func (o *Orders) RetryCorrected(ctx context.Context, c Correction) error {
	l := &c.Letter
	arguments := struct {
		ID           uint64  `json:"id"`
		Entity       string  `json:"entity"`
		Params       *string `json:"params"`
		EntityBefore string  `json:"entity_before"`
		ParamsBefore *string `json:"params_before"`
		EntityID     string  `json:"entity_id"`
	}{l.ID, c.Entity, head(c.Params), l.Entity, head(l.Params), l.EntityID}
	err := o.audited(context.WithoutCancel(ctx), ActionCorrect, arguments, func(tx *sqlx.Tx) (int, error) {
		n, err := session.Affected(tx.ExecContext(ctx, putBackCorrectedSQL, c.Entity, c.Params, l.ID, l.Entity, l.EntityID, l.Params))
		if err == nil && n == 1 {
			n, err = session.Affected(tx.ExecContext(ctx, removeDeadSQL, fmt.Sprintf("[%d]", l.ID)))
		}
		if err == nil && n != 1 {
			err = ErrLetterChanged
		}
		return 1, err
	})
	if err != nil {
		return fmt.Errorf("retry dead letter %d: %w", l.ID, err)
	}
	return nil
}

// head returns the part of a text that the audit keeps.
func head(text *string) *string {
	if text == nil {
		return nil
	}
	kept := session.ErrorText(*text)
	return &kept
}
