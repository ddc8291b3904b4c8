package capture_test

import "testing"

// channels is a schema with a cycle: a channel has domains, and one of any channel's is its
// default. Deletes begin in the cycle or in a table above it, and go on to tables below it.
var channels = []string{
	"CREATE TABLE shops (id INT PRIMARY KEY)",
	"CREATE TABLE languages (id INT PRIMARY KEY)",
	"CREATE TABLE channels (id INT PRIMARY KEY, shop_id INT, domain_id INT, FOREIGN KEY (shop_id) REFERENCES shops (id) ON DELETE CASCADE ON UPDATE CASCADE)",
	`CREATE TABLE domains (id VARCHAR(9) PRIMARY KEY, channel_id INT NOT NULL, language_id INT, code INT UNIQUE, FOREIGN KEY (language_id) REFERENCES languages (id) ON DELETE CASCADE,
		CONSTRAINT of_channel FOREIGN KEY (channel_id) REFERENCES channels (id) ON DELETE CASCADE ON UPDATE CASCADE)`,
	"ALTER TABLE channels ADD CONSTRAINT of_domain FOREIGN KEY (domain_id) REFERENCES domains (code) ON DELETE CASCADE ON UPDATE CASCADE",
	"CREATE TABLE urls (id INT PRIMARY KEY, channel_id INT, FOREIGN KEY (channel_id) REFERENCES channels (id) ON DELETE CASCADE ON UPDATE CASCADE)",
	`CREATE TABLE exports (id INT PRIMARY KEY, channel_id INT, domain_id VARCHAR(9), FOREIGN KEY (channel_id) REFERENCES channels (id) ON DELETE SET NULL ON UPDATE CASCADE,
		FOREIGN KEY (domain_id) REFERENCES domains (id) ON DELETE CASCADE ON UPDATE CASCADE)`,
	"CREATE TABLE files (id INT PRIMARY KEY, export_id INT, FOREIGN KEY (export_id) REFERENCES exports (id) ON DELETE CASCADE)",
}

// channelRows are the rows of channels, instead of others.
var channelRows = []string{
	"DELETE FROM files", "DELETE FROM exports", "DELETE FROM urls", "UPDATE channels SET domain_id = NULL", "DELETE FROM domains", "DELETE FROM channels",
	"DELETE FROM shops", "DELETE FROM languages",
	"INSERT INTO shops VALUES (1), (2)", "INSERT INTO languages VALUES (1), (2)",
	"INSERT INTO channels (id, shop_id) VALUES (1, 1), (2, NULL), (3, NULL), (4, 2), (5, NULL)",
	"INSERT INTO domains VALUES ('one', 1, NULL, 1), ('more', 1, 2, NULL), ('two', 2, NULL, 2), ('three', 3, 1, 3), ('four', 4, NULL, 4), ('five', 5, 2, 5)",
	"UPDATE channels SET domain_id = CASE id WHEN 1 THEN 1 WHEN 2 THEN 1 WHEN 3 THEN 2 WHEN 5 THEN 5 END", // 4 has no default
	"INSERT INTO urls VALUES (11, 1), (12, 2), (13, 3), (14, 4), (15, 5)",
	"INSERT INTO exports VALUES (21, 1, 'more'), (22, 3, 'four'), (23, 4, 'three'), (24, 5, NULL)",
	"INSERT INTO files VALUES (31, 21), (32, 22), (33, 23), (34, 24)",
}

// A delete passes a cycle of tables: it begins there or above, and the captured table is there or
// below. The server goes round once for each row that it reaches.
func TestDeletesInACycle(t *testing.T) {
	t.Parallel()
	section, all := "", []watched{}
	for table, value := range map[string]string{"channels": "domain_id", "domains": "language_id", "urls": "channel_id", "exports": "channel_id", "files": "export_id"} {
		section += "  " + table + ": {entity: product, id: id, params: {value: " + value + "}}\n"
		all = append(all, watched{table, "id", "id", value})
	}
	s := newShop(t, channels...)
	s.apply(section)
	if got := s.apply(section); len(got) > 0 {
		t.Errorf("done a second time: %q", got)
	}
	for statement, changes := range map[string]int{
		"DELETE FROM domains WHERE id = 'one'":                     3 + 4 + 3 + 3 + 2,
		"DELETE FROM channels WHERE id = 1":                        3 + 4 + 3 + 3 + 2,
		"DELETE FROM shops WHERE id = 1":                           3 + 4 + 3 + 3 + 2,
		"DELETE FROM domains WHERE id = 'three'":                   1 + 1 + 1,
		"DELETE FROM domains WHERE id = 'five'":                    1 + 1 + 1 + 1,
		"DELETE FROM channels WHERE id = 4":                        1 + 1 + 1 + 2 + 1,
		"DELETE FROM languages WHERE id = 2":                       1 + 2 + 1 + 2 + 1,
		"UPDATE channels SET id = 6 WHERE id = 1":                  1 + 1 + 1,
		"UPDATE domains SET code = 6 WHERE id = 'one'":             2,
		"UPDATE domains SET id = 'first', code = 7 WHERE code = 4": 1,
	} {
		s.exec(channelRows...)
		s.covers(changes, statement, all...)
	}
}

// In MySQL the definer needs a privilege to lock the rows of each table of a cycle.
func TestDefinerLocksCycles(t *testing.T) {
	t.Parallel()
	s := newShop(t, append(channels, channelRows...)...)
	definer := s.account("INSERT ON cache_outbox", "SELECT, TRIGGER ON shops", "SELECT, TRIGGER ON languages", "SELECT, TRIGGER ON channels", "SELECT, TRIGGER ON domains", "SELECT, TRIGGER ON urls")
	c := s.capturer("  urls: {entity: product, id: id, params: {value: channel_id}}\n")
	c.Definer = definer
	s.needsLocks(c, "UPDATE (`domain_id`) ON `"+s.Name+"`.`channels`", "UPDATE (`channel_id`) ON `"+s.Name+"`.`domains`")
	s.covers(1, "DELETE FROM domains WHERE id = 'five'", watched{"urls", "id", "id", "channel_id"})
	s.covers(3, "DELETE FROM shops WHERE id = 1", watched{"urls", "id", "id", "channel_id"})
}
