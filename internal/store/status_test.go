package store_test

import (
	"testing"
	"time"

	"github.com/unstale/unstale/internal/storetest"
)

// The first row's created_at does not affect the age of the rows behind it.
func TestStatusWithARowAhead(t *testing.T) {
	t.Parallel()
	env := storetest.Migrated(t)
	s := storetest.Open(t, env.DSN)
	if _, err := env.DB.Exec("INSERT INTO cache_outbox (entity, entity_id, created_at) VALUES ('first', '1', UTC_TIMESTAMP(6) + INTERVAL 1 HOUR), " +
		"('second', '2', UTC_TIMESTAMP(6) - INTERVAL 1 HOUR), ('third', '3', UTC_TIMESTAMP(6) + INTERVAL 2 HOUR)"); err != nil {
		t.Fatal(err)
	}
	st, err := s.Overview.Status(t.Context())
	if err != nil || st.First == nil || st.First.ID != 1 || st.Ahead == nil || st.Ahead.Entity != "first" || st.Ahead.Age > -59*time.Minute || st.OldestAge < time.Hour || st.OldestAge > 2*time.Hour {
		t.Errorf("%+v, %v", st, err)
	}
}
