package invalidation

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/unstale/unstale/protocol"
)

// What a map that does not say otherwise gets.
const (
	defaultLease         = 10 * time.Second
	defaultParamsBytes   = 64 << 10
	defaultKeysPerRow    = 10_000
	defaultPatternPrefix = 8
)

// DefaultChannel is the channel of a map that names none.
const DefaultChannel = "cache:invalidate"

// What a map may say at most.
const (
	maxLease         = time.Hour
	maxHold          = time.Hour
	maxRepeat        = 24 * time.Hour
	maxRepeats       = 10
	maxParamsBytes   = 16<<20 - 1 // what a MEDIUMTEXT holds
	maxKeysPerRow    = 1_000_000
	maxPatternPrefix = 1024
	maxChannel       = 255
)

func (c *compiler) readVars() {
	c.vars = map[string]*variable{}
	for _, v := range c.doc.vars {
		if !c.newName(v.name, "a var") {
			continue
		}
		resolved := &variable{at: v.name.at}
		c.vars[v.name.text] = resolved
		if v.list {
			resolved.list = c.readListVar(v)
		} else {
			resolved.value, _ = c.readVar(v.name.text, v.values[0])
		}
	}
}

// readListVar resolves a list, which is never empty.
func (c *compiler) readListVar(v varPart) []string {
	var all []string
	seen := map[string]bool{}
	for _, value := range v.values {
		text, ok := c.readVar(v.name.text, value)
		switch {
		case !ok:
		case seen[text]:
			c.add(value.at, value.text, "the same value twice in "+v.name.text, "remove one of the two")
		case len(all) == maxEach:
			c.add(value.at, value.text, "more than "+strconv.Itoa(maxEach)+" values", "use a pattern, or an index set")
			return all
		default:
			seen[text] = true
			all = append(all, text)
		}
	}
	if len(all) == 0 {
		return []string{""} // reported
	}
	return all
}

// readVar resolves one value of a var.
func (c *compiler) readVar(name string, value scalar) (string, bool) {
	if !value.given {
		return "", false
	}
	before := len(c.faults)
	text := c.interpolate(value)
	switch {
	case len(c.faults) > before:
	case text == "":
		c.add(value.at, value.text, "the var "+name+" is empty", "give it a value, or remove it and its uses")
	case hasControl(text):
		c.add(value.at, value.text, "the var "+name+" has a line break or another control character", "remove it from the value")
	}
	return text, len(c.faults) == before
}

// readShared reads the enumerations that every entity may use.
func (c *compiler) readShared() {
	c.each = map[string]*declaredName{}
	for _, part := range c.doc.each {
		if c.newName(part.name, "an enumeration") {
			c.each[part.name.text] = &declaredName{at: part.name.at, values: c.eachValues(part)}
		}
	}
}

const cureEnv = `write "${NAME}", or "${NAME:-value}" for a default`

// interpolate replaces every ${NAME} and ${NAME:-default}. As in a shell, the default also replaces an empty value.
func (c *compiler) interpolate(s scalar) string {
	var b strings.Builder
	rest := s.text
	for {
		before, after, found := strings.Cut(rest, "${")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		inside, behind, closed := strings.Cut(after, "}")
		name, fallback, hasFallback := strings.Cut(inside, ":-")
		switch {
		case !closed:
			c.add(s.at, s.text, "${ is not closed", cureEnv)
			return ""
		case !isName(name) || strings.Contains(fallback, "${"):
			c.add(s.at, "${"+inside+"}", "not an environment variable", cureEnv)
		}
		value, set := c.env(name)
		switch {
		case value == "" && hasFallback:
			value = fallback
		case !set && isName(name):
			c.add(s.at, "${"+inside+"}", "the environment variable "+name+" is not set", "set it, or give a default: ${"+name+":-value}")
		}
		b.WriteString(value)
		rest = behind
	}
}

func (c *compiler) publish() (channel string, format protocol.Format) {
	channel, format = DefaultChannel, protocol.FormatEvent
	if s := c.doc.publish.channel; s.given && c.plainText(s) {
		channel = s.text
		if s.text == "" || len(s.text) > maxChannel || hasControl(s.text) || strings.ContainsAny(s.text, "{}*?[] ") {
			c.add(s.at, s.text, "not a name for a channel: it is taken as it is written, without variables or wildcards",
				`write a plain name such as "cache:invalidate"`)
		}
	}
	if s := c.doc.publish.format; s.given && c.plainText(s) {
		format = protocol.Format(s.text)
		if format != protocol.FormatEvent && format != protocol.FormatArray {
			c.add(s.at, s.text, "unknown format", c.didYouMean(s.text, []string{"event", "array"}, "write event or array"))
		}
	}
	return channel, format
}

func (c *compiler) lease() time.Duration {
	if s := c.doc.lease; s.given {
		return c.duration(s, "lease", maxLease)
	}
	return defaultLease
}

// duration reads a duration of at least a millisecond, the unit of Redis' clocks.
func (c *compiler) duration(s scalar, name string, most time.Duration) time.Duration {
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
		c.add(s.at, s.text, name+" is not a duration", cure)
	case d < time.Millisecond || d > most || d%time.Millisecond != 0:
		c.add(s.at, s.text, name+" must be from 1ms to "+shortDuration(most)+", in whole milliseconds", "write a duration in that range, such as 10s")
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

func (c *compiler) readLimits() Limits {
	part := c.doc.limits
	return Limits{
		ParamsBytes:   c.size(part.params),
		KeysPerRow:    c.number(part.keysPerRow, "keys_per_row", defaultKeysPerRow, maxKeysPerRow),
		PatternPrefix: c.number(part.patternPrefix, "pattern_prefix", defaultPatternPrefix, maxPatternPrefix),
	}
}

func (c *compiler) number(s scalar, name string, otherwise, most int) int {
	if !s.given || !c.plainText(s) {
		return otherwise
	}
	n, ok := wholeNumber(s.text, most)
	if !ok || n < 1 {
		c.add(s.at, s.text, name+" must be a whole number from 1 to "+strconv.Itoa(most), "write a number in that range, such as "+strconv.Itoa(otherwise))
		return otherwise
	}
	return n
}

// size reads a number of bytes, with or without a unit.
func (c *compiler) size(s scalar) int {
	if !s.given || !c.plainText(s) {
		return defaultParamsBytes
	}
	digits, unit := s.text, 1
	for suffix, factor := range map[string]int{"KiB": 1 << 10, "MiB": 1 << 20} {
		if text, ok := strings.CutSuffix(s.text, suffix); ok {
			digits, unit = strings.TrimRight(text, " "), factor
		}
	}
	n, ok := wholeNumber(digits, math.MaxInt32)
	switch {
	case !ok:
		c.add(s.at, s.text, "params is not a size", "write a number of bytes, or one with KiB or MiB, such as 64KiB")
	case n < 1 || n > maxParamsBytes/unit:
		c.add(s.at, s.text, "params must be from 1 byte to less than 16MiB", "write a size in that range, such as 64KiB")
	default:
		return n * unit
	}
	return defaultParamsBytes
}

// wholeNumber reads decimal digits without sign or leading zero.
func wholeNumber(text string, most int) (int, bool) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > most || strconv.Itoa(n) != text {
		return 0, false
	}
	return n, true
}
