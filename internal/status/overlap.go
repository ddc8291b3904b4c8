package status

import "slices"

// overlap returns a glob of a that shares a name with some glob of b, or "". Both are globs of
// maps: without brackets.
func overlap(a, b []string) string {
	others := make([]glob, len(b))
	for i, text := range b {
		others[i] = parseGlob(text)
	}
	for _, text := range a {
		g := parseGlob(text)
		if slices.ContainsFunc(others, g.overlaps) {
			return text
		}
	}
	return ""
}

// Tokens of a glob that are not bytes.
const (
	anyText = -1
	anyByte = -2
)

type glob []int

func parseGlob(text string) (g glob) {
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '*':
			g = append(g, anyText)
		case c == '?':
			g = append(g, anyByte)
		case c == '\\' && i+1 < len(text):
			i++
			g = append(g, int(text[i]))
		default:
			g = append(g, int(c))
		}
	}
	return g
}

// overlaps reports whether some name matches both. It compares the places of g with those of other,
// row by row.
func (g glob) overlaps(other glob) bool {
	// row[j]: the tokens of g so far and j of other match one text
	row := make([]bool, len(other)+1)
	row[0] = true
	for j, t := range other {
		row[j+1] = row[j] && t == anyText
	}
	for _, t := range g {
		next := make([]bool, len(other)+1)
		next[0] = row[0] && t == anyText
		for j, o := range other {
			switch {
			// which matches nothing, or what the other token matches
			case t == anyText || o == anyText:
				next[j+1] = row[j+1] || next[j]
			default:
				next[j+1] = row[j] && (t == o || t == anyByte || o == anyByte)
			}
		}
		if !slices.Contains(next, true) {
			return false
		}
		row = next
	}
	return row[len(other)]
}
