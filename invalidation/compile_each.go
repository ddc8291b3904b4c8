package invalidation

import (
	"strconv"
	"strings"
)

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
		switch {
		case !c.plainText(s):
		case seen[s.text]:
			c.add(s.at, s.text, "the same value twice in "+part.name.text, "remove one of the two")
		case strings.Contains(s.text, "..") && isSpan(s.text):
			c.add(s.at, s.text, "a range inside a list", "write the range alone: "+part.name.text+": "+s.text)
		default:
			seen[s.text] = true
			all = append(all, s.text)
		}
		if len(all) > maxEach {
			c.add(s.at, s.text, "more than "+strconv.Itoa(maxEach)+" values", "use a pattern, or an index set")
			return all[:maxEach]
		}
	}
	return all
}

func isSpan(text string) bool {
	first, last, ok := strings.Cut(text, "..")
	_, isFirst := wholeNumber(first, 1<<30)
	_, isLast := wholeNumber(last, 1<<30)
	return ok && isFirst && isLast
}

// span returns the numbers of a range such as 1..20, the last one included.
func (c *scalars) span(s scalar) []string {
	first, last, _ := strings.Cut(s.text, "..")
	from, isFrom := wholeNumber(first, 1<<30)
	to, isTo := wholeNumber(last, 1<<30)
	switch {
	case !isFrom || !isTo:
		c.add(s.at, s.text, "not a range of whole numbers", cureEach)
	case from > to:
		c.add(s.at, s.text, "the range ends before it begins", "write the smaller number first: "+last+".."+first)
	case to-from >= maxEach:
		c.add(s.at, s.text, "the range has more than "+strconv.Itoa(maxEach)+" values", "use a pattern, or an index set")
	default:
		all := make([]string, 0, to-from+1)
		for n := from; n <= to; n++ {
			all = append(all, strconv.Itoa(n))
		}
		return all
	}
	return []string{""}
}
