package capture_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/capture"
	"github.com/unstale/unstale/internal/mysqlerr"
	"github.com/unstale/unstale/internal/servers"
)

// An account that does not see all columns of a table, or all foreign keys of a parent, is refused:
// its triggers would ignore them. The error has the grant.
func TestColumnsThatCannotBeSeen(t *testing.T) {
	t.Parallel()
	s := newShop(t, append(slices.Clone(threeLevels), "CREATE TABLE coupons (id INT PRIMARY KEY, `a``\"éb` INT, secret INT INVISIBLE)")...)
	own := s.account("SELECT (id), TRIGGER ON coupons", "SELECT, TRIGGER ON images", "TRIGGER ON variants", "SELECT, INSERT ON cache_outbox", "SELECT ON cache_outbox_version")
	c := s.capturer("  coupons: {entity: product, id: id}\n")
	c.DB = s.as(own)
	wantFault := func(want string) {
		t.Helper()
		if err := c.Apply(t.Context(), func(capture.Change) { t.Error("a trigger was made") }); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("apply: %v, wanted %s", err, want)
		}
		if _, err := c.Plan(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("plan: %v, wanted %s", err, want)
		}
	}
	wantFault("does not see the columns `a``\"éb`, `secret`, so their changes would leave no row; GRANT SELECT ON `coupons` to it")
	s.grant(own, "SELECT (`a``\"éb`) ON coupons")
	wantFault("does not see the columns `secret`,")
	s.grant(own, "SELECT ON coupons")
	if _, err := c.Plan(t.Context()); err != nil {
		t.Error(err)
	}
	s.exec("REVOKE TRIGGER ON variants FROM " + own.String())
	c.Captures = s.capturer(imageCapture).Captures
	if s.shows(own) {
		wantFault("its parent variants: the database has no table variants, or the account may not see it: GRANT SELECT, TRIGGER on it")
		s.grant(own, "TRIGGER ON variants")
		wantFault("its parent variants: the account does not see the columns `id`, `product_id`")
		s.grant(own, "SELECT ON variants")
		wantFault("its parent products: the database has no table products")
		return
	}
	wantFault("the account may not see what the foreign key images_ibfk_1 from images to variants does when its parent changes")
	s.grant(own, "TRIGGER ON *")
	c.DB = s.as(own) // a right on a database takes effect on new connections
	wantFault("its parent variants: the account does not see the columns `id`, `product_id`")
	s.grant(own, "SELECT ON variants")
	wantFault("its parent products: the account does not see the columns")
}

// A trigger from an account that did not see a column differs from the map for an account that
// does.
func TestTriggersThatIgnoreColumns(t *testing.T) {
	t.Parallel()
	s := newShop(t, "CREATE TABLE coupons (id INT PRIMARY KEY, code INT, secret INT)", "INSERT INTO coupons VALUES (1, 1, 1)")
	// an earlier version created it without SELECT (secret)
	s.apply("  coupons: {entity: product, id: id, watch: [id, code], on: [update]}\n")
	s.want("UPDATE coupons SET secret = 2")
	const section = "  coupons: {entity: product, id: id, on: [update]}\n"
	if got := s.states(section); !slices.Equal(got, []string{"changed: AFTER UPDATE on coupons"}) {
		t.Error(got)
	}
	s.apply(section)
	s.want("UPDATE coupons SET secret = 3", "product 1")
}

// MySQL cannot store a trigger that names some columns (3507). Such a capture is refused before the
// first trigger is created, and no other capture is.
func TestNamesThatCannotBeStored(t *testing.T) {
	t.Parallel()
	s := newShop(t, "CREATE TABLE fine (id INT PRIMARY KEY)")
	for i, name := range []string{"a", "ï", "a`b", "ï`a", "a`ï", "a`ïb", "a`b`ï", "a`b`ïc", "`ï", "`ïa", "a`b`c`ïde", "a`b`c`ïdef", "aï`b", "aï``b", "ab`", "éé`a", "a`b`c`d`ïa", "aï`b`c`d`a", "日`本", "日本`a", "a`日本"} {
		quoted := strings.ReplaceAll(name, "`", "``")
		table := fmt.Sprintf("t%d", i)
		s.exec(fmt.Sprintf("CREATE TABLE %s (id INT PRIMARY KEY, `%s` INT)", table, quoted))
		_, err := s.DB.ExecContext(t.Context(), fmt.Sprintf("CREATE TRIGGER tried AFTER UPDATE ON %s FOR EACH ROW SET @x = OLD.`%s`", table, quoted))
		stored := err == nil
		if !stored && mysqlerr.Number(err) != 3507 || !stored && s.Flavor == servers.KindMariaDB {
			t.Fatalf("%s: %v", name, err)
		}
		s.exec("DROP TRIGGER IF EXISTS tried")
		made := 0
		err = s.capturer("  fine: {entity: product, id: id}\n  "+table+": {entity: product, id: id}\n").Apply(t.Context(), func(capture.Change) { made++ })
		switch {
		case stored && err != nil:
			t.Errorf("%s: %v", name, err)
		case !stored && (err == nil || made > 0 || !strings.Contains(err.Error(), "line 7 of the map: the capture of "+table+": MySQL cannot store a trigger on "+table+" that names `"+quoted+"` (3507)")):
			t.Errorf("%s: %d triggers, then %v", name, made, err)
		}
		if !stored {
			s.apply("  fine: {entity: product, id: id}\n  " + table + ": {entity: product, id: id, watch: [id]}\n")
		}
		s.want(fmt.Sprintf("INSERT INTO %s (id) VALUES (1)", table), "product 1")
		if err := s.capturer("  fine: {entity: product, id: id}\n").Drop(t.Context(), func(capture.Existing) bool { return true }, func(capture.Existing) {}); err != nil {
			t.Fatal(err)
		}
	}
	if s.Flavor == servers.KindMariaDB {
		return
	}
	s.exec("CREATE TABLE parent (`a``ï` INT PRIMARY KEY)",
		"CREATE TABLE child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent (`a``ï`) ON DELETE CASCADE)")
	err := s.capturer("  fine: {entity: product, id: id}\n  child: {entity: product, id: id}\n").Apply(t.Context(), func(capture.Change) {})
	if err == nil || !strings.Contains(err.Error(), "line 7 of the map: the capture of child: MySQL cannot store a trigger on parent that names `a``ï` (3507)") {
		t.Errorf("the key of a parent: %v", err)
	}
}
