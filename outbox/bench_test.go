package outbox_test

import (
	"fmt"
	"testing"

	"github.com/unstale/unstale/outbox"
)

// The cost of a reader that shows a token (whether its writes are settled), compared with a row by
// its primary key.
func BenchmarkSettled(b *testing.B) {
	env := migrated(b)
	exec(b, env.DB, "CREATE TABLE floor (id INT PRIMARY KEY)")
	exec(b, env.DB, "INSERT INTO floor VALUES (1)")
	b.Run("floor", func(b *testing.B) {
		for b.Loop() {
			var id int
			if err := env.DB.QueryRow("SELECT id FROM floor WHERE id = 1").Scan(&id); err != nil {
				b.Fatal(err)
			}
		}
	})
	for _, rows := range []int{1, 20, 1000} {
		token := write(b, env.DB, products(rows)...)
		exec(b, env.DB, "DELETE FROM cache_outbox")
		b.Run(fmt.Sprintf("rows=%d", rows), func(b *testing.B) {
			for b.Loop() {
				if ok, err := outbox.Settled(b.Context(), env.DB, token); err != nil || !ok {
					b.Fatal(ok, err)
				}
			}
		})
	}
}
