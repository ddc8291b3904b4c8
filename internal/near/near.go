// Package near finds the known name that a misspelled name was meant to be.
package near

import (
	"strconv"
	"strings"
)

// leastPrefix is how many letters of a name are taken for its beginning.
const leastPrefix = 4

// Name returns the known name that is most like name, or else the first that begins with it, or ""
// if there is none.
func Name(name string, known []string) string {
	if best := Within(name, known, min(2, max(1, len(name)/3))); best != "" || len(name) < leastPrefix {
		return best
	}
	name = strings.ToLower(name)
	for _, candidate := range known {
		if strings.HasPrefix(strings.ToLower(candidate), name) {
			return candidate
		}
	}
	return ""
}

// Within returns the known name that is most like name, or "" if each differs in more than most
// letters.
func Within(name string, known []string, most int) (best string) {
	name = strings.ToLower(name)
	for _, candidate := range known {
		if d := distance(name, strings.ToLower(candidate), most+1); d <= most {
			best, most = candidate, d-1
		}
	}
	return best
}

// DidYouMean asks for the nearest of the known names, or returns otherwise if none is near.
func DidYouMean(name string, known []string, otherwise string) string {
	return Ask(Name(name, known), otherwise)
}

// Ask asks for a name that was found, or returns otherwise if it is "".
func Ask(found, otherwise string) string {
	if found == "" {
		return otherwise
	}
	return "did you mean " + strconv.Quote(found) + "?"
}

// distance counts the insertions, deletions, replacements and swaps of neighbors that turn a into
// b, or returns limit if they are at least that many.
func distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	older, old, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range old {
		old[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(old[j]+1, row[j-1]+1, old[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], older[j-2]+1)
			}
		}
		older, old, row = old, row, older
	}
	return min(old[len(b)], limit)
}
