package capture_test

import (
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/capture"
	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/testenv"
)

const (
	plainCapture = "  products: {entity: product, id: id, watch: [name], on: [update], params: {category_id: category_id}}\n"
	whoseRights  = "GRANT SELECT, TRIGGER ON products TO ACCOUNT"
	outboxRights = "GRANT INSERT ON cache_outbox TO ACCOUNT"
)

// Missing privileges of a definer are reported before there are triggers, exactly as a later write
// would find them: an accepted definer never fails a write, and a working one is never refused.
func TestWhatADefinerMay(t *testing.T) {
	t.Parallel()
	s := newShop(t, products, "CREATE TABLE extra (id INT PRIMARY KEY, p INT)",
		"CREATE FUNCTION twice(x INT) RETURNS INT DETERMINISTIC RETURN 2 * x", "INSERT INTO products (id) VALUES (1)")
	const (
		subquery = `  products: {entity: product, id: id, on: [update], params: {value: "(WITH one AS (SELECT 1 AS n) SELECT MAX(e.p) FROM one, (SELECT p FROM extra) AS e WHERE TRIM(LEADING 'x' FROM e.p) = {row}.id)"}}` + "\n"
		function = `  products: {entity: product, id: "twice({row}.id)", on: [update]}` + "\n"
	)
	for name, c := range map[string]struct {
		section string // plainCapture
		given   []string
	}{
		"the least":                         {"", []string{whoseRights, outboxRights}},
		"on all databases":                  {"", []string{"GRANT SELECT, INSERT, TRIGGER ON *.* TO ACCOUNT"}},
		"by a pattern":                      {"", []string{"GRANT ALL ON `PATTERN%`.* TO ACCOUNT"}},
		"a better pattern has fewer":        {"", []string{"GRANT ALL ON `PATTERN%`.* TO ACCOUNT", "GRANT SELECT, TRIGGER ON `DATABASE`.* TO ACCOUNT"}},
		"a better pattern has all":          {"", []string{"GRANT SELECT ON `PATTERN%`.* TO ACCOUNT", "GRANT ALL ON `DATABASE`.* TO ACCOUNT"}},
		"two patterns share":                {"", []string{"GRANT INSERT ON `PATTERN%`.* TO ACCOUNT", "GRANT SELECT, TRIGGER ON `DATABASE`.* TO ACCOUNT"}},
		"columns":                           {"", []string{"GRANT INSERT (entity, entity_id, params) ON cache_outbox TO ACCOUNT", "GRANT TRIGGER, SELECT (id, name, category_id) ON products TO ACCOUNT"}},
		"columns of the outbox too few":     {"", []string{"GRANT INSERT (entity, entity_id) ON cache_outbox TO ACCOUNT", whoseRights}},
		"columns of the table too few":      {"", []string{outboxRights, "GRANT TRIGGER, SELECT (id, name) ON products TO ACCOUNT"}},
		"the table and columns":             {"", []string{whoseRights, outboxRights, "GRANT SELECT (id) ON products TO ACCOUNT"}},
		"a role that is not default":        {"", []string{"CREATE ROLE ROLE_", "GRANT INSERT ON cache_outbox TO ROLE_", "GRANT ROLE_ TO ACCOUNT", whoseRights}},
		"a default role":                    {"", []string{"CREATE ROLE ROLE_", "GRANT INSERT ON cache_outbox TO ROLE_", "GRANT ROLE_ TO ACCOUNT", whoseRights, "SET DEFAULT ROLE"}},
		"everybody":                         {"", []string{"GRANT INSERT ON cache_outbox TO PUBLIC", whoseRights}},
		"a subquery":                        {subquery, []string{whoseRights, outboxRights}},
		"a subquery, with its right":        {subquery, []string{whoseRights, outboxRights, "GRANT SELECT ON extra TO ACCOUNT"}},
		"a function":                        {function, []string{whoseRights, outboxRights}},
		"a function, with its right":        {function, []string{whoseRights, outboxRights, "GRANT EXECUTE ON FUNCTION twice TO ACCOUNT"}},
		"a function, with rights on it all": {function, []string{"GRANT ALL ON `DATABASE`.* TO ACCOUNT"}},
	} {
		if name == "everybody" && s.Flavor != servers.KindMariaDB {
			continue
		}
		t.Run(name, func(t *testing.T) {
			section := c.section
			if section == "" {
				section = plainCapture
			}
			s.wantTheTruth(t, section, c.given)
		})
	}
}

// wantTheTruth compares the result of the check for a definer with given privileges with the effect
// of its trigger.
func (s *shop) wantTheTruth(t *testing.T, section string, given []string) {
	t.Helper()
	account, role := capture.Account{User: s.Name, Host: "localhost"}, "r_"+s.Name
	escaped := strings.ReplaceAll(s.Name, "_", `\_`)
	setDefault := "SET DEFAULT ROLE " + role + " TO " + account.String()
	if s.Flavor == servers.KindMariaDB {
		setDefault = "SET DEFAULT ROLE " + role + " FOR " + account.String()
	}
	names := strings.NewReplacer("ACCOUNT", account.String(), "ROLE_", role, "PATTERN", escaped[:len(escaped)-2], "DATABASE", escaped, "SET DEFAULT ROLE", setDefault)
	s.exec("CREATE USER " + account.String() + " ACCOUNT LOCK")
	defer func() {
		s.exec("DROP USER IF EXISTS "+account.String(), "DROP ROLE IF EXISTS "+role)
		if strings.Contains(strings.Join(given, ";"), "PUBLIC") {
			s.exec("REVOKE INSERT ON cache_outbox FROM PUBLIC")
		}
	}()
	for _, statement := range given {
		s.exec(names.Replace(statement))
	}
	c := s.capturer(section)
	c.Definer = account
	_, said := c.Rehearse(t.Context())
	statements, err := c.Statements(t.Context())
	if err != nil || len(statements) != 1 {
		t.Fatal(statements, err)
	}
	s.exec(statements...)
	_, happened := s.DB.ExecContext(t.Context(), "UPDATE products SET name = CONCAT(COALESCE(name, ''), 'x')")
	if (said == nil) != (happened == nil) || said != nil && !strings.Contains(said.Error(), "too few rights") {
		t.Errorf("said: %v; a write: %v", said, happened)
	}
	// Later changes of privileges are reported as well.
	if _, told := c.Examine(t.Context()); (told == nil) != (happened == nil) {
		t.Errorf("told later: %v; a write: %v", told, happened)
	}
	if err := c.Drop(t.Context(), func(capture.Existing) bool { return true }, func(capture.Existing) {}); err != nil {
		t.Error(err)
	}
}

// With these settings of MySQL, names of databases are not patterns, privileges are partially
// revoked, and more roles are active in a session than in a trigger. The fix for a missing account
// creates it.
func TestWhatADefinerMayBySettings(t *testing.T) {
	t.Parallel()
	s := newShopOn(t, testenv.OwnDatabase(t), products, "INSERT INTO products (id) VALUES (1)")
	c := s.capturer(plainCapture)
	c.Definer = capture.Account{User: "new", Host: "localhost"}
	err := c.Apply(t.Context(), func(capture.Change) { t.Error("a trigger was made") })
	if err == nil {
		t.Fatal("applied")
	}
	_, cure, _ := strings.Cut(err.Error(), "\n")
	s.exec(strings.Split(strings.TrimSuffix(strings.TrimSpace(cure), ";"), ";\n  ")...)
	s.applyBy(c)
	s.want("UPDATE products SET name = 'x'", `product 1 {"category_id": [null, null]}`)
	s.apply("  products: {entity: product, id: id, on: [delete]}\n")
	if s.Flavor == servers.KindMariaDB {
		return
	}
	s.exec("SET GLOBAL partial_revokes = 1", "SET GLOBAL activate_all_roles_on_login = 1")
	for _, given := range [][]string{
		{"GRANT ALL ON `sho_`.* TO ACCOUNT"},
		{"GRANT ALL ON `shop`.* TO ACCOUNT"},
		{"GRANT SELECT, INSERT, TRIGGER ON *.* TO ACCOUNT", "REVOKE INSERT ON shop.* FROM ACCOUNT"},
		{"GRANT SELECT, INSERT, TRIGGER ON *.* TO ACCOUNT", "REVOKE INSERT ON mysql.* FROM ACCOUNT"},
		{"GRANT SELECT, INSERT, TRIGGER ON *.* TO ACCOUNT", "REVOKE INSERT ON shop.* FROM ACCOUNT", outboxRights},
		{"CREATE ROLE ROLE_", "GRANT INSERT ON cache_outbox TO ROLE_", "GRANT ROLE_ TO ACCOUNT", whoseRights},
	} {
		s.wantTheTruth(t, plainCapture, given)
	}
	own := s.account("SELECT, TRIGGER ON products", "SELECT ON cache_outbox_version")
	s.exec("CREATE ROLE writes", "GRANT INSERT ON cache_outbox TO writes", "GRANT writes TO "+own.String())
	c = s.capturer(plainCapture)
	c.DB = s.as(own)
	if _, err := c.DB.ExecContext(t.Context(), "INSERT INTO cache_outbox (entity, entity_id) VALUES ('product', '1')"); err != nil {
		t.Errorf("the role is not active: %v", err)
	}
	if _, err := c.Rehearse(t.Context()); err == nil || !strings.Contains(err.Error(), "GRANT INSERT (entity, entity_id, params) ON `shop`.`cache_outbox`") {
		t.Errorf("%v", err)
	}
}
