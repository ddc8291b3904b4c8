package doctor

import "strings"

// advisedBytes is the longest name that the grammar advises.
const advisedBytes = 64

// A rule is a rule of the grammar of names, which is advice.
type rule struct {
	name   string
	breaks func(name string) bool
}

var grammar = []rule{
	{"upper case", func(n string) bool { return strings.ContainsFunc(n, func(r rune) bool { return r >= 'A' && r <= 'Z' }) }},
	{"a space, a newline or a quote", func(n string) bool { return strings.ContainsAny(n, " \t\r\n'\"`") }},
	{"more than 64 bytes", func(n string) bool { return len(n) > advisedBytes }},
	{"no : or _ between parts", func(n string) bool { return !strings.ContainsAny(n, ":_") }},
}

// A Breach is the number of names that break a rule, with an example.
type Breach struct {
	Rule    string  `json:"rule"`
	Keys    int64   `json:"keys"`
	Example KeyName `json:"example,omitempty"`
}

// breaches counts the broken rules.
type breaches [4]Breach

func (b *breaches) note(name string) {
	for i, r := range grammar {
		if r.breaks(name) {
			if b[i].Keys++; b[i].Keys == 1 {
				b[i].Rule, b[i].Example = r.name, KeyName(name)
			}
		}
	}
}

// list returns the breaches with at least one name.
func (b *breaches) list() []Breach {
	list := []Breach{}
	for _, one := range b {
		if one.Keys > 0 {
			list = append(list, one)
		}
	}
	return list
}
