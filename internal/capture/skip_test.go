package capture_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/mysqlerr"
)

// dead takes all dead letters, as "entity 'id' params reason error".
func (s *shop) dead() (all []string) {
	s.t.Helper()
	return s.take("CONCAT(entity, ' ''', entity_id, ''' ', COALESCE(params, '-'), ' ', reason, ' ', error)", "cache_outbox_dead")
}

// wantDead compares the dead letters with the beginnings and an error's number, such as "product
// '7' - (1406)".
func (s *shop) wantDead(want ...string) {
	s.t.Helper()
	got := s.dead()
	ok := slices.EqualFunc(got, want, func(got, want string) bool {
		begin, number, _ := strings.Cut(want, " (")
		return strings.HasPrefix(got, begin+" capture_failed a trigger of ") && strings.HasSuffix(got, " ("+number)
	})
	if !ok {
		s.t.Errorf("dead letters %q, wanted %q", got, want)
	}
}

const things = "CREATE TABLE things (id INT PRIMARY KEY, parent INT, name VARCHAR(50), length INT NOT NULL DEFAULT 1) DEFAULT CHARACTER SET utf8mb4"

// The rows of a capture that skips errors: a row that cannot be inserted becomes a dead letter,
// complete if possible, and the write succeeds. The other rows of the same write are inserted.
func TestSkip(t *testing.T) {
	t.Parallel()
	s := newShop(t, things)
	s.apply(`  things: {entity: product, id: "REPEAT({row}.name, {row}.length)", params: {category_id: parent}, on_error: skip}
`)
	s.want("INSERT INTO things VALUES (1, 7, 'a', 1), (2, 8, 'b', 1)", `product a {"category_id": ["7"]}`, `product b {"category_id": ["8"]}`)
	s.wantDead()
	long := strings.Repeat("a", 256) // 300 in the table
	s.want("UPDATE things SET length = 300 WHERE id = 1", `product a {"category_id": ["7", "7"]}`)
	s.wantDead(`product '` + long + `' {"category_id": ["7", "7"]} (1406)`)
	s.want("UPDATE things SET length = length + 2", `product bbb {"category_id": ["8", "8"]}`, `product b {"category_id": ["8", "8"]}`)
	s.wantDead(`product '`+long+`' {"category_id": ["7", "7"]} (1406)`, `product '`+long+`' {"category_id": ["7", "7"]} (1406)`)
	s.want("DELETE FROM things", `product bbb {"category_id": ["8"]}`)
	s.wantDead(`product '` + long + `' {"category_id": ["7"]} (1406)`)
}

// If even the ID fails, the dead letter has none.
func TestSkipWithoutAnID(t *testing.T) {
	t.Parallel()
	const section = `  things: {entity: product, id: "(SELECT {row}.id UNION SELECT 2)", params: {category_id: parent}`
	s := newShop(t, things)
	s.apply(section + "}\n")
	if _, err := s.DB.ExecContext(t.Context(), "INSERT INTO things (id) VALUES (1)"); mysqlerr.Number(err) != 1242 {
		t.Errorf("a trigger that fails: %v", err)
	}
	s.apply(section + ", on_error: skip}\n")
	s.want("INSERT INTO things (id, parent) VALUES (1, 7), (2, 8)", `product 2 {"category_id": ["8"]}`)
	s.wantDead("product '' - (1242)")
	s.want("UPDATE things SET parent = 9", `product 2 {"category_id": ["8", "9"]}`)
	// for the row, and for the check whether the old ID needs another row
	s.wantDead("product '' - (1242)", "product '' - (1242)")
	s.want("DELETE FROM things", `product 2 {"category_id": ["9"]}`)
	s.wantDead("product '' - (1242)")
}

// Changes by foreign keys are skipped in the same way.
func TestSkipOfCascades(t *testing.T) {
	t.Parallel()
	s := newShop(t, "CREATE TABLE parents (id INT PRIMARY KEY)", `CREATE TABLE things (
		id INT PRIMARY KEY, parent INT, length INT NOT NULL, FOREIGN KEY (parent) REFERENCES parents (id) ON DELETE CASCADE)`,
		"CREATE TABLE numbers (n INT)", "INSERT INTO numbers VALUES (1), (2)",
		"INSERT INTO parents VALUES (1), (2)", "INSERT INTO things VALUES (1, 1, 1), (2, 2, 300)")
	s.apply(`  things: {entity: product, id: "REPEAT('a', {row}.length)", on_error: skip}
`)
	s.want("DELETE FROM parents WHERE id = 1", "product a")
	s.wantDead()
	s.want("DELETE FROM parents WHERE id = 2")
	s.wantDead("product '" + strings.Repeat("a", 256) + "' - (1406)")

	// One without an ID represents all later children.
	s.apply(`  things: {entity: product, id: "(SELECT {row}.id FROM numbers WHERE n = 1 OR {row}.length = 300)", on_error: skip}
`)
	s.exec("INSERT INTO parents VALUES (1)", "INSERT INTO things VALUES (1, 1, 1), (2, 1, 300), (3, 1, 1)")
	s.rows()
	s.dead()
	s.want("DELETE FROM parents", "product 1")
	s.wantDead("product '1' - (1242)", "product '' - (1242)")
}

// A revoked privilege, and a missing outbox: the whole row becomes a dead letter, which a retry
// puts back. If the dead letter fails too, the row is lost, and the write succeeds.
func TestSkipWithoutAnOutbox(t *testing.T) {
	t.Parallel()
	s := newShop(t, products)
	definer := s.account("INSERT ON cache_outbox", "SELECT, TRIGGER ON products")
	c := s.capturer(strings.Replace(productCapture, "}}", "}, on_error: skip}", 1))
	c.Definer = definer
	if err := c.Apply(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "GRANT INSERT (entity, ") || !strings.Contains(err.Error(), "cache_outbox_dead") {
		t.Fatalf("without a right to dead letters: %v", err)
	}
	s.grant(definer, "INSERT ON cache_outbox_dead")
	s.applyBy(c)
	s.exec("REVOKE INSERT ON cache_outbox FROM " + definer.String())
	s.want("INSERT INTO products (id, category_id) VALUES (1, 7)")
	s.wantDead(`product '1' {"category_id": ["7"]} (1142)`)
	s.grant(definer, "INSERT ON cache_outbox")
	s.want("UPDATE products SET name = 'x'", `product 1 {"category_id": ["7", "7"]}`)

	s.exec("RENAME TABLE cache_outbox TO gone", "UPDATE products SET name = 'y'", "RENAME TABLE gone TO cache_outbox")
	s.wantDead(`product '1' {"category_id": ["7", "7"]} (1146)`)
	s.exec("RENAME TABLE cache_outbox TO gone, cache_outbox_dead TO gone_too", "UPDATE products SET name = 'z'", "RENAME TABLE gone TO cache_outbox, gone_too TO cache_outbox_dead")
	s.wantDead()
}

// A lock that is not granted in time fails the write, as it would in a transaction that inserts the
// row itself.
func TestSkipDoesNotHideLocks(t *testing.T) {
	t.Parallel()
	s := newShop(t, products, "INSERT INTO products (id) VALUES (1)")
	s.apply(strings.Replace(productCapture, "}}", "}, on_error: skip}", 1))
	holder, writer := s.conn(), s.conn()
	for _, statement := range []string{"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "BEGIN", "SELECT * FROM cache_outbox FOR UPDATE"} {
		if _, err := holder.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := writer.ExecContext(t.Context(), "SET innodb_lock_wait_timeout = 1"); err != nil {
		t.Fatal(err)
	}
	if _, err := writer.ExecContext(t.Context(), "UPDATE products SET name = 'x'"); mysqlerr.Number(err) != mysqlerr.LockTimeout {
		t.Errorf("the write behind a lock: %v", err)
	}
	if _, err := holder.ExecContext(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	s.wantDead()
	s.want("UPDATE products SET name = 'y'", `product 1 {"category_id": [null, null]}`)
}

// A column that is gone is skipped too. A trigger that cannot begin, since its definer is gone,
// fails the write.
func TestSkipOfATriggerThatIsBroken(t *testing.T) {
	t.Parallel()
	s := newShop(t, products)
	definer := s.account("INSERT ON cache_outbox", "INSERT ON cache_outbox_dead", "SELECT, TRIGGER ON products")
	c := s.capturer(strings.Replace(productCapture, "}}", "}, on_error: skip}", 1))
	c.Definer = definer
	s.applyBy(c)
	s.exec("INSERT INTO products (id) VALUES (1)", "ALTER TABLE products DROP COLUMN price")
	s.rows()
	s.want("UPDATE products SET name = 'x'")
	s.wantDead("product '' - (1054)")
	s.exec("DROP USER " + definer.String())
	if _, err := s.DB.ExecContext(t.Context(), "UPDATE products SET name = 'y'"); mysqlerr.Number(err) != 1449 {
		t.Errorf("without a definer: %v", err)
	}
}
