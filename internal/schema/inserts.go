package schema

// InsertColumns returns the columns that an account other than a worker's may insert into a table
// that numbers its rows, as GRANT lists them, or "" for another table. The ID is none of them: one
// row with a high ID leaves no ID for the next one.
func InsertColumns(table string) string {
	switch table {
	case "cache_outbox":
		return "entity, entity_id, params, trace"
	case "cache_outbox_delayed":
		return "entity, entity_id, params, trace, created_at, due_at, first_id, repeated"
	case "cache_outbox_dead":
		return "entity, entity_id, params, created_at, first_id, reason, error, map_version"
	case "cache_outbox_sweeps":
		return "kind, name, hold_ms, first_low, first_high"
	}
	return ""
}

// RefuseIDs returns the statement of a trigger that refuses an insert which chooses the ID of its
// row. No migration makes it: docs/operations.md has it for operators. It lets @@insert_id pass
// below 2^62, since a session that replicates statements sets that.
func RefuseIDs(table string) string {
	return "CREATE TRIGGER " + table + "_ids BEFORE INSERT ON " + table + " FOR EACH ROW\n" + refuseIDs
}

const refuseIDs = `IF NEW.id > 0 OR @@insert_id > 4611686018427387904 THEN
  SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'the ID of a row of the outbox must not be chosen';
END IF`
