package capture

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/unstale/unstale/internal/sqltext"
)

// Prefix begins the name of every trigger of unstale.
const Prefix = "unstale_"

// Switch is the session variable that disables triggers if it is 'off'. It is compared as bytes:
// otherwise a number would convert 'off' to a number, which MySQL refuses (1292) and MariaDB treats
// as 0.
const Switch = "@unstale_capture"

// SQLMode is the required mode for creating triggers, since they keep it: a value that is too long
// fails the write instead of being truncated, so the row cannot name another key.
const SQLMode = "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION"

// A Trigger is a trigger that a map requires.
type Trigger struct {
	Table  string
	Timing string // AFTER or BEFORE
	Event  string // INSERT, UPDATE or DELETE
	Body   string // from BEGIN to END
	Tree   bool   // it reads a tree in its table, and loses rows of the tree at READ COMMITTED
}

// Name returns the name of the trigger, or of its nth twin while another trigger has that name.
func (t Trigger) Name(n int) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{t.Table, t.Timing, t.Event, t.Body}, "\x00")))
	name := Prefix + strings.ToLower(t.Event) + "_" + hex.EncodeToString(sum[:8])
	if n > 1 {
		name += fmt.Sprint("_", n)
	}
	return name
}

// newer matches the parts of a trigger that earlier versions did not write, or wrote otherwise:
// locks on middle levels, hints, trees, and comparisons of texts. See lockLevel, unlimited, tree
// and alsoAsText.
var newer = regexp.MustCompile(`(?s)    BEGIN\n      DECLARE unstale_rows .*?\n    END;\n| /\*\+ SET_VAR\(.*?\*/|SET STATEMENT sql_big_selects .*? FOR ` +
	"|WITH RECURSIVE unstale_tree .*?\n +SELECT |FROM [^;]*?unstale_tree[^;]*;" +
	"|\n      AND CAST\\(OLD\\.`(?:[^`]|``)*` AS CHAR\\) <=> CAST\\(NEW\\.`(?:[^`]|``)*` AS CHAR\\)")

// older returns the trigger without these parts. For a trigger without a tree, this is the trigger
// that earlier versions created from the same map. It equals t if they had no defect.
func (t Trigger) older() *Trigger {
	t.Body = newer.ReplaceAllString(t.Body, "")
	return &t
}

// SQL returns the statement that creates the trigger.
func (t Trigger) SQL(name string, definer Account) string {
	return fmt.Sprintf("CREATE DEFINER = %s TRIGGER %s %s %s ON %s FOR EACH ROW\n%s", definer, quote(name), t.Timing, t.Event, quote(t.Table), t.Body)
}

// unstorable returns a name in the trigger that MySQL cannot store (3507), or "". In its dictionary
// MySQL repeats bytes at the beginning and at the end of a name, one for each backtick in the name.
// If that cuts a character, the text is invalid.
func (t Trigger) unstorable() string {
	for _, token := range sqltext.Tokens(t.Body) {
		if token[0] != '`' || len(token) < 2 {
			continue
		}
		name := token[1 : len(token)-1]
		n := strings.Count(name, "``")
		if !utf8.ValidString(name[:n]) || !utf8.ValidString(name[len(name)-n:]) {
			return token
		}
	}
	return ""
}

// newTrigger creates a trigger from the statements of its captures.
func newTrigger(table, timing, event string, statements []string) Trigger {
	return Trigger{Table: table, Timing: timing, Event: event, Body: "BEGIN\n  IF NOT (CAST(" + Switch + " AS BINARY) <=> 'off') THEN\n" + strings.Join(statements, "") + "  END IF;\nEND"}
}

// ofRows returns the triggers that the writers need on a table, one for each operation.
func ofRows(table string, writers []*writer) (all []Trigger) {
	for _, event := range []string{"INSERT", "UPDATE", "DELETE"} {
		var body []string
		for _, w := range writers {
			if w.on(event) {
				body = append(body, w.statements(event))
			}
		}
		if len(body) > 0 {
			all = append(all, newTrigger(table, "AFTER", event, body))
		}
	}
	return all
}
