package doctor_test

import (
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/doctor"
	"github.com/unstale/unstale/internal/servers"
	"github.com/unstale/unstale/internal/session"
	"github.com/unstale/unstale/internal/testenv"
	"github.com/unstale/unstale/invalidation"
)

// CheckLookup compares the rows for several IDs with the rows for each. If it cannot, the lookup is not
// proven.
func TestCheckLookup(t *testing.T) {
	t.Parallel()
	env := testenv.MySQL(t)
	for _, stmt := range []string{
		"CREATE TABLE listed (product INT, category INT NULL, shop VARCHAR(9), PRIMARY KEY (product, shop), INDEX (category))",
		"INSERT INTO listed WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 30) SELECT i, i MOD 7, 'a' FROM n",
		"INSERT INTO listed VALUES (1, 9, 'b'), (2, 9, 'b')",
		"CREATE TABLE nobody (product INT, category INT)", "CREATE TABLE one (product INT, category INT)", "INSERT INTO one VALUES (1, 7), (1, 8)",
		"CREATE TABLE bytes (product BINARY(2), category INT)", "INSERT INTO bytes VALUES (x'ff01', 7), (x'ff02', 8)",
		"CREATE TABLE wide (product BINARY(16), category INT)", "INSERT INTO wide SELECT UNHEX(LEFT(SHA2(category, 256), 32)), id FROM (SELECT 1 AS category UNION SELECT 2 UNION SELECT 3) AS c, (SELECT 7 AS id UNION SELECT 8) AS i",
		"CREATE TABLE above (id INT PRIMARY KEY, parent INT NULL)", "INSERT INTO above VALUES (1, NULL), (2, 1), (3, 2), (4, 2), (5, 4), (6, 5)",
	} {
		if _, err := env.DB.Exec(stmt); err != nil {
			t.Fatal(err)
		}
	}
	dsn, err := session.ParseDSN(env.DSN)
	if err != nil {
		t.Fatal(err)
	}
	s, err := session.Open(session.Config{MySQL: dsn, Worker: "test", LookupTimeout: 2e9})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const same = "finds the same "
	for _, c := range []struct{ sql, want string }{
		{"SELECT product, category FROM listed WHERE product IN (?)", same + "22 rows for 20 IDs"},
		{"SELECT product, shop, category FROM listed AS l WHERE (product, shop) IN (?)", same + "20 rows for 20 IDs"},
		{"SELECT product, MAX(category) FROM listed WHERE product IN (?) GROUP BY product", same + "20 rows for 20 IDs"},
		{"SELECT product, category FROM (SELECT product, category, ROW_NUMBER() OVER (PARTITION BY product ORDER BY category) AS n FROM listed WHERE product IN (?)) x WHERE n = 1", same + "20 rows"},
		{"SELECT l.product, m.category FROM listed l JOIN listed m ON m.category = l.category WHERE l.product IN (?) AND l.shop = 'b'", same},
		{"WITH RECURSIVE u (start, id) AS (SELECT id, parent FROM above WHERE id IN (?) UNION SELECT u.start, a.parent FROM u JOIN above AS a ON a.id = u.id) SELECT start, id FROM u", same + "12 rows for 6 IDs"},
		{"SELECT LOWER(HEX(product)), category FROM wide WHERE product IN (UNHEX(?))", same + "6 rows for 3 IDs"},
		{"SELECT HEX(product) AS id, MAX(category) FROM wide WHERE product IN (UNHEX(REPLACE(?, '-', ''))) GROUP BY product", same + "3 rows for 3 IDs"},
		{"WITH w AS (SELECT product, category FROM wide WHERE product IN (UNHEX(?))) SELECT LOWER(HEX(product)), category FROM w", same + "6 rows for 3 IDs"},
		{"SELECT LOWER(HEX(product)), MIN(category) FROM wide WHERE product IN (UNHEX(?)) GROUP BY category", "not proven, it is asked for one ID at a time: GROUP BY does not name product"},

		{"SELECT product, category FROM (SELECT product, category, ROW_NUMBER() OVER (ORDER BY category) AS n FROM listed WHERE product IN (?)) x WHERE n = 1", "not proven, it is asked for one ID at a time: a window has no PARTITION BY"},
		{"SELECT MIN(product), category FROM listed WHERE product IN (?) GROUP BY category", "not proven, it is asked for one ID at a time: GROUP BY does not name MIN(product)"},
		{"SELECT product, FLOOR(RAND() * 1000000000) FROM listed WHERE product IN (?) AND shop = 'a'", " together with 19 other IDs"},
		{"SELECT product, MAX(category) FROM listed WHERE product IN (?) GROUP BY product HAVING product < 2", "not proven, it finds something for 1 of 20 IDs"},

		{"SELECT product, category FROM nobody WHERE product IN (?)", "not proven, the tables are empty, or no row fits its conditions"},
		{"SELECT product, category FROM listed WHERE product IN (?) AND shop = '{shop}'", "not proven, the tables are empty, or no row fits its conditions"},
		{"SELECT product, category FROM one WHERE product IN (?)", "not proven, the tables have one ID only"},
		{"SELECT product, category FROM bytes WHERE product IN (?)", "not proven, the IDs in its tables are bytes and not text"},
		{"SELECT product, category FROM listed WHERE FIND_IN_SET(product, CONCAT_WS(',', ?))", "not proven, its SQL does not compare a column with the list"},
		{"WITH w AS (SELECT 7 AS c), v AS (SELECT product, category FROM listed JOIN w ON c > category WHERE product IN (?)) SELECT product, category FROM v", "not proven, its tables cannot be asked for IDs: "},
		{"SELECT product, category FROM listed WHERE product IN (?) LIMIT 1", "not proven, it is asked for one ID at a time: its SQL has a fault"},

		{"SELECT product, CONCAT(shop, category) FROM listed WHERE product IN (?) GROUP BY product", "Error 1055"},
		{"SELECT product, category FROM listed WHERE product = ?", "Error 1064"},
		{"SELECT product, nothing FROM listed WHERE product IN (?)", "Error 1054"},
		{"SELECT BIN_TO_UUID(product), category FROM wide WHERE product IN (UUID_TO_BIN(?))", map[string]string{string(servers.KindMySQL): same + "6 rows for 3 IDs", string(servers.KindMariaDB): "Error 1305"}[string(env.Flavor)]},
	} {
		by, params := "[id]", "[c]"
		if strings.Contains(c.sql, "(product, shop) IN") {
			by, params = "[id, shop]", "[c, shop]"
		}
		m, err := invalidation.Parse("map.yaml", []byte("version: 1\nparams: {c: {lookup: {by: "+by+", sql: \""+c.sql+"\"}}}\nentities: {e: {params: "+params+", keys: [\"{c}\"]}}\n"), nil)
		if err != nil {
			t.Fatal(err)
		}
		p, err := doctor.CheckLookup(t.Context(), s, m.Lookups()[0])
		got := p.String()
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s:\n got %s\nwanted %s", c.sql, got, c.want)
		}
	}
}
