package invalidation

import (
	"strconv"
	"strings"
	"time"

	"github.com/unstale/unstale/internal/envtext"
)

// scalars read single values.
type scalars struct {
	*report
	env func(string) (string, bool)
	// anyEnv gives variables that are not set some value.
	anyEnv bool
}

// plainText reports ${...} in a text that is not under vars.
func (c *scalars) plainText(s scalar) bool {
	i := strings.Index(s.text, "${")
	if i < 0 {
		return true
	}
	text, _, closed := strings.Cut(s.text[i:], "}")
	if closed {
		text += "}"
	}
	c.addFault(s.at, text, "${...} is read only under vars", "give the value a name under vars and write {name}")
	return false
}

// hasControl reports whether text has a line break or another control character.
func hasControl(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool { return r < 0x20 || r == 0x7f })
}

const cureEnv = `write "${NAME}", or "${NAME:-value}" for a default`

// interpolate replaces references to environment variables.
func (c *scalars) interpolate(s scalar) string {
	text, closed := envtext.Replace(s.text, func(r envtext.Reference) string {
		value, ok := r.Value(c.env)
		switch {
		case !isName(r.Name) || strings.Contains(r.Default, "${"):
			c.addFault(s.at, r.Text, "not an environment variable", cureEnv)
		case c.anyEnv && value == "" && !r.HasDefault:
			return r.Name
		case !ok:
			c.addFault(s.at, r.Text, "the environment variable "+r.Name+" is not set", "set it, or give a default: ${"+r.Name+":-value}")
		}
		return value
	})
	if !closed {
		c.addFault(s.at, s.text, "${ is not closed", cureEnv)
	}
	return text
}

// duration reads a duration of at least a millisecond, the unit of the clocks of Redis.
func (c *scalars) duration(s scalar, name string, most time.Duration) time.Duration {
	if !c.plainText(s) {
		return time.Millisecond
	}
	d, err := time.ParseDuration(s.text)
	switch {
	case err != nil:
		cure := "write a number with a unit, such as 10s, 500ms or 1m30s"
		if _, err := strconv.ParseUint(s.text, 10, 64); err == nil {
			cure = "add the unit, such as " + s.text + "s or " + s.text + "ms"
		}
		c.addFault(s.at, s.text, name+" is not a duration", cure)
	case d < time.Millisecond || d > most || d%time.Millisecond != 0:
		c.addFault(s.at, s.text, name+" must be from 1ms to "+shortDuration(most)+", in whole milliseconds", "write a duration in that range, such as 10s")
	default:
		return d
	}
	return time.Millisecond
}

// shortDuration writes 1h rather than 1h0m0s.
func shortDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

func (c *scalars) isTrue(s scalar, name string) bool {
	if s.given && s.text != "true" && s.text != "false" {
		c.addFault(s.at, s.text, name+" must be true or false", "write "+name+": true, or remove it")
	}
	return s.text == "true"
}

// maxEach is how many values an enumeration may have.
const maxEach = 10_000

const cureEach = "write a range such as 1..20, or a list such as [new, price]"

// eachValues returns the values of an enumeration.
func (c *scalars) eachValues(part eachPart) []string {
	if part.span.given {
		if !c.plainText(part.span) {
			return []string{""}
		}
		return c.span(part.span)
	}
	var all []string
	seen := map[string]bool{}
	for _, s := range part.values {
		_, _, isSpan := bounds(s.text)
		switch {
		case !c.plainText(s):
		case seen[s.text]:
			c.addFault(s.at, s.text, "the same value twice in "+part.name.text, "remove one of the two")
		case isSpan:
			c.addFault(s.at, s.text, "a range inside a list", "write the range alone: "+part.name.text+": "+s.text)
		default:
			seen[s.text] = true
			all = append(all, s.text)
		}
		if len(all) > maxEach {
			c.addFault(s.at, s.text, "more than "+strconv.Itoa(maxEach)+" values", "use a pattern, or an index set")
			return all[:maxEach]
		}
	}
	return all
}

// bounds returns the numbers of a range such as 1..20.
func bounds(text string) (from, to int, ok bool) {
	first, last, _ := strings.Cut(text, "..")
	from, isFrom := wholeNumber(first, 1<<30)
	to, isTo := wholeNumber(last, 1<<30)
	return from, to, isFrom && isTo
}

// span returns the numbers of a range such as 1..20, the last one included.
func (c *scalars) span(s scalar) []string {
	from, to, ok := bounds(s.text)
	switch {
	case !ok:
		c.addFault(s.at, s.text, "not a range of whole numbers", cureEach)
	case from > to:
		c.addFault(s.at, s.text, "the range ends before it begins", "write the smaller number first: "+strconv.Itoa(to)+".."+strconv.Itoa(from))
	case to-from >= maxEach:
		c.addFault(s.at, s.text, "the range has more than "+strconv.Itoa(maxEach)+" values", "use a pattern, or an index set")
	default:
		all := make([]string, 0, to-from+1)
		for n := from; n <= to; n++ {
			all = append(all, strconv.Itoa(n))
		}
		return all
	}
	return []string{""}
}
