package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jmoiron/sqlx"
)

// A Correction is one dead letter, as it was read, and what it is to be put back with.
type Correction struct {
	Letter DeadLetter
	Entity string
	Params *string // JSON text, put back byte for byte; nil: none
}

// ErrLetterChanged says that a dead letter is no longer what was read: another operator was faster.
var ErrLetterChanged = errors.New("the dead letter has changed or is gone; look again with `unstale dead show`")

// Contract: as putBackSQL, for one letter, which it locks. It appends one row, or none where the letter is another one by
// now. Its effect ends with the transaction.
const putBackCorrectedSQL = `INSERT INTO cache_outbox_delayed (entity, entity_id, params, trace, created_at, due_at, first_id, repeated)
SELECT ?, o.entity_id, ?, o.trace, o.created_at, UTC_TIMESTAMP(6), o.first_id, o.repeated
FROM cache_outbox_dead AS o FORCE INDEX (PRIMARY)
WHERE o.id = ? AND o.entity = ? AND o.entity_id = ? AND o.params <=> ? FOR UPDATE`

// RetryCorrected puts one dead letter back as RetryDead does, with another entity or other parameters. The audit keeps
// both; of parameters that are longer than 4 KiB the head.
func (s *Store) RetryCorrected(ctx context.Context, c Correction) error {
	l := &c.Letter
	arguments := struct {
		ID           uint64  `json:"id"`
		Entity       string  `json:"entity"`
		Params       *string `json:"params"`
		EntityBefore string  `json:"entity_before"`
		ParamsBefore *string `json:"params_before"`
		EntityID     string  `json:"entity_id"`
	}{l.ID, c.Entity, head(c.Params), l.Entity, head(l.Params), l.EntityID}
	err := s.audited(context.WithoutCancel(ctx), ActionCorrect, arguments, func(tx *sqlx.Tx) (int, error) {
		n, err := affected(tx.ExecContext(ctx, putBackCorrectedSQL, c.Entity, c.Params, l.ID, l.Entity, l.EntityID, l.Params))
		if err == nil && n == 1 {
			n, err = affected(tx.ExecContext(ctx, removeDeadSQL, fmt.Sprintf("[%d]", l.ID)))
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

// head is a text as far as the audit keeps it.
func head(text *string) *string {
	if text == nil {
		return nil
	}
	kept := errorText(*text)
	return &kept
}
