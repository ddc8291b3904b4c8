package invalidation

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/unstale/unstale/protocol"
)

// Defaults of a map.
const (
	defaultLease         = 10 * time.Second
	defaultParamsBytes   = 64 << 10
	defaultKeysPerRow    = 10_000
	defaultPatternPrefix = 8
)

// Limits of a map.
const (
	maxLease         = time.Hour
	maxHold          = time.Hour
	maxRepeat        = 24 * time.Hour
	maxRepeats       = 10
	maxParamsBytes   = 2 << 20
	maxKeysPerRow    = 50_000
	maxPatternPrefix = 1024
	maxChannel       = 255
)

// settings read what stands at the top of a map.
type settings struct {
	*scalars
	doc *document
}

func (c settings) version() {
	v := c.doc.version
	switch {
	case v.given && v.text != "1":
		c.add(v.at, v.text, "unknown version of the map's grammar", "write version: 1")
	case !c.doc.hasVersion:
		c.add(c.doc.at, "", "version is missing", "write version: 1 in the first line")
	}
}

func (c settings) publish() (channel string, format protocol.Format) {
	channel, format = protocol.DefaultChannel, protocol.FormatEvent
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

func (c settings) lease() time.Duration {
	if s := c.doc.lease; s.given {
		return c.duration(s, "lease", maxLease)
	}
	return defaultLease
}

func (c settings) nameAdvice(vars map[string]*variable) {
	s := c.doc.nameAdvice
	if !s.given || s.text == "on" || s.text == "off" {
		return
	}
	if !strings.Contains(s.text, "{") {
		c.add(s.at, s.text, "name_advice must be on, off, or the order of a name's parts", "write name_advice: off, or "+exampleNameGrammar)
	} else if _, problem := parseNameGrammar(s.text, vars); problem != "" {
		c.add(s.at, s.text, problem, "write vars and text first, then kinds, then {id} and {sub}, such as "+exampleNameGrammar)
	}
}

func (c settings) limits() Limits {
	part := c.doc.limits
	return Limits{
		ParamsBytes:   c.size(part.params),
		KeysPerRow:    c.number(part.keysPerRow, "keys_per_row", defaultKeysPerRow, maxKeysPerRow),
		PatternPrefix: c.number(part.patternPrefix, "pattern_prefix", defaultPatternPrefix, maxPatternPrefix),
	}
}

func (c settings) number(s scalar, name string, otherwise, most int) int {
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
func (c settings) size(s scalar) int {
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
		c.add(s.at, s.text, "params must be from 1 byte to 2MiB", "write a size in that range, such as 64KiB")
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
