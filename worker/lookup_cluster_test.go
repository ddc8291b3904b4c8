package worker_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/outbox"
	"github.com/unstale/unstale/worker"
)

// A lookup that meets an error of a cluster, which rolls a transaction back or has no quorum, makes
// its rows wait until that has passed. However often it fails, no attempt counts.
func TestLookupsMeetErrorsOfClusters(t *testing.T) {
	t.Parallel()
	w := newWorld(t, `version: 1
params:
  category: {lookup: {by: [id], sql: "SELECT product, category FROM categories WHERE product IN (?) AND cluster() = 0"}}
entities: {product: {params: [category], keys: ["shop:category:{category}"]}}
`)
	w.exec("CREATE TABLE categories (product INT PRIMARY KEY, category INT)")
	w.exec("CREATE TABLE fault (number INT)")
	w.exec("INSERT INTO categories VALUES (1, 10)")
	w.exec("INSERT INTO fault VALUES (0)")
	w.exec(`CREATE FUNCTION cluster() RETURNS INT READS SQL DATA BEGIN
  DECLARE n INT; SELECT number INTO n FROM fault;
  IF n > 0 THEN SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = n, MESSAGE_TEXT = 'WSREP: got error 149 from the cluster'; END IF;
  RETURN 0; END`)
	r := w.worker(worker.Config{MaxAttempts: 1, RetryDelay: time.Millisecond})
	r.start(t)
	for _, number := range []int{mysqlerr.UnknownCommand, mysqlerr.ErrorInCommit, mysqlerr.Deadlock, mysqlerr.HookFailed, mysqlerr.CommitRefused, mysqlerr.GroupState} {
		testenv.Eventually(t, "the worker is ready", func() bool { return r.Health().Ready() == nil })
		w.exec(fmt.Sprintf("UPDATE fault SET number = %d", number))
		w.set("shop:category:10")
		w.enqueue(outbox.Invalidation{Entity: "product", ID: "1"})
		testenv.Eventually(t, fmt.Sprint("an outage by ", number), func() bool {
			err := r.Health().Ready()
			return err != nil && strings.Contains(err.Error(), fmt.Sprint("Error ", number))
		})
		w.exec("UPDATE fault SET number = 0")
		testenv.Eventually(t, "the row is settled", func() bool { return w.count("cache_outbox") == 0 })
		if left, failed := w.left(), w.count("cache_outbox_dead")+w.count("cache_outbox_delayed"); len(left) > 0 || failed > 0 {
			t.Errorf("%d: %q are left, %d rows were taken to be at fault", number, left, failed)
		}
	}
}
