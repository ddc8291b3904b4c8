package maptool

import (
	"go/token"
	"strings"
)

// initialisms are words that Go writes in one case.
var initialisms = map[string]bool{"id": true, "url": true, "uuid": true, "sku": true, "api": true, "http": true, "json": true, "html": true, "sql": true, "ip": true}

// exportedName returns a name of the map as an exported Go name: product_id becomes ProductID.
func exportedName(name string) string {
	var b strings.Builder
	for word := range strings.SplitSeq(name, "_") {
		switch {
		case word == "":
		case initialisms[strings.ToLower(word)]:
			b.WriteString(strings.ToUpper(word))
		default:
			b.WriteString(strings.ToUpper(word[:1]) + word[1:])
		}
	}
	return b.String()
}

// localName returns a name of the map as the name of an argument: product_id becomes productID.
func localName(name string) string {
	exported := exportedName(name)
	local := exported
	for word := range strings.SplitSeq(name, "_") {
		if word != "" {
			local = strings.ToLower(word[:1]) + word[1:]
			if initialisms[strings.ToLower(word)] {
				local = strings.ToLower(word)
			}
			local += exported[len(word):]
			break
		}
	}
	switch {
	case local == "":
		return "value"
	case token.IsKeyword(local), len(local) == 1, local[0] == 't' && strings.Trim(local[1:], "0123456789") == "":
		return local + "Value"
	}
	switch local {
	case "cache", "outbox", "params", "strconv", "time", "string", "append", "make", "byte", "any", "nil", "id":
		return local + "Value"
	}
	return local
}
