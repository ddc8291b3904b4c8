package outbox

import (
	"flag"
	"slices"
	"strings"
	"testing"

	"github.com/unstale/unstale/internal/testenv"
)

// Update makes the tests write what they would compare with.
var Update = flag.Bool("update", false, "write what the tests would compare with")

// The texts of write tokens, the rows that they name, and what asks MySQL for them.
func TestConformanceTokens(t *testing.T) {
	t.Parallel()
	type file struct {
		About string `json:"about"`
		Cases []struct {
			Reason    string        `json:"reason"`
			Token     testenv.Bytes `json:"token"`
			Refused   string        `json:"refused,omitempty"`
			Canonical string        `json:"canonical,omitempty"`
			Source    string        `json:"source,omitempty"`
			Made      int64         `json:"made,omitempty"`
			Rows      string        `json:"rows,omitempty"`
			First     []uint64      `json:"first_ids,omitempty"`
			Query     []string      `json:"query,omitempty"`
		} `json:"cases"`
		Joined []struct {
			Reason string   `json:"reason"`
			Tokens []string `json:"tokens"`
			Token  string   `json:"token,omitempty"`
			Error  string   `json:"error,omitempty"`
		} `json:"joined"`
	}
	testenv.Conformance(t, "../protocol/conformance/tokens.json", *Update, func(f *file) {
		for i := range f.Cases {
			c := &f.Cases[i]
			token, err := ParseToken(c.Token.Text)
			c.Refused, c.Canonical, c.Source, c.Made, c.Rows, c.First = "", token.String(), token.source, token.made, "", nil
			if err != nil {
				c.Refused = err.Error()
				continue
			}
			if token.many {
				c.Rows = "many"
			}
			for _, r := range token.runs {
				for n := range min(r.count, 5) {
					c.First = append(c.First, r.first+n*r.step)
				}
			}
			if c.Query != nil {
				c.Query = strings.Split(token.settledQuery(), "\n")
			}
		}
		for i := range f.Joined {
			c := &f.Joined[i]
			c.Token, c.Error = "", ""
			var joined Token
			for text := range slices.Values(c.Tokens) {
				token, err := ParseToken(text)
				testenv.Must(t, err)
				if joined, err = joined.Join(token); err != nil {
					c.Error = err.Error()
				}
			}
			c.Token = joined.String()
		}
	})
}
