package invalidation

import "strings"

// separators separate the parts of a name.
const separators = ":/.-_|#,;@~"

// splitPrefix splits a template behind the prefix that all names of an application can have: vars
// and separators, perhaps after one constant word.
func (c *globals) splitPrefix(segments []segment) (prefix, rest string, constant bool) {
	var front, back strings.Builder
	for _, s := range segments {
		text := s.text
		switch {
		case back.Len() == 0 && c.vars[s.name] != nil:
			front.WriteString("{" + s.name + "}")
			continue
		case s.name != "":
			text = "{" + s.name + "}"
		case back.Len() == 0:
			text = strings.TrimLeft(text, separators)
			if end := strings.IndexAny(text, separators); front.Len() == 0 && end > 0 && !strings.ContainsAny(text[:end], `*?\`) {
				constant = true
				text = strings.TrimLeft(text[end:], separators)
			}
			front.WriteString(strings.TrimSuffix(s.text, text))
		}
		back.WriteString(text)
	}
	return front.String(), back.String(), constant
}

// A prefixUse is the use of a prefix by the keys and patterns of a map.
type prefixUse struct {
	count    int
	constant bool
	entities distinct
	words    distinct // behind it
}

// isShared reports whether a prefix is that of an application. A constant word can also be the name
// of a thing.
func (u *prefixUse) isShared() bool { return !u.constant || u.entities.several && u.words.several }

// distinct counts different texts, to two.
type distinct struct {
	first   string
	several bool
}

func (d *distinct) add(text string) {
	d.several = d.several || d.first != "" && text != "" && text != d.first
	if d.first == "" {
		d.first = text
	}
}

// usePrefix counts the prefix of a template of an entity.
func (c *globals) usePrefix(uses map[string]*prefixUse, entity string, segments []segment) (prefix string) {
	prefix, rest, constant := c.splitPrefix(segments)
	u := uses[prefix]
	if u == nil {
		u = &prefixUse{constant: constant}
		uses[prefix] = u
	}
	u.count++
	u.entities.add(entity)
	word, _, _ := strings.Cut(rest, "{")
	if end := strings.IndexAny(word, separators+"*?"); end >= 0 {
		word = word[:end]
	}
	u.words.add(word)
	return prefix
}

// checkEverything reports patterns that match all keys of the application in entities that do not
// say so.
func (c *compiler) checkEverything() {
	type pattern struct {
		writtenTemplate
		of       *entityCompiler
		prefix   string
		constant bool
	}
	var wide []pattern
	uses, total := map[string]*prefixUse{}, 0
	for _, e := range c.order {
		for _, w := range e.written {
			if w.list != "keys" && w.list != "patterns" {
				continue
			}
			prefix, rest, constant := c.splitPrefix(w.segments)
			if w.list == "patterns" && strings.Contains(rest, "*") && strings.Trim(rest, "*?"+separators) == "" {
				wide = append(wide, pattern{w, e, prefix, constant})
				continue
			}
			c.usePrefix(uses, e.part.name.text, w.segments)
			total++
		}
	}
	found := map[*entityCompiler]bool{}
	for _, p := range wide {
		found[p.of] = true
		u := uses[p.prefix]
		if (!p.constant || u != nil && u.count == total && u.isShared()) && p.of.part.everything.text != "true" {
			c.lookups.later.add(p.at, p.text, "the pattern matches all keys of the application: its literal text is only their prefix "+p.prefix,
				"write more literal text, or everything: true in the entity "+p.of.entity.name)
		}
	}
	for _, e := range c.order {
		if s := e.part.everything; c.isTrue(s, "everything") && !found[e] && !e.unclear {
			c.add(s.at, "everything", "no pattern of the entity "+e.entity.name+" matches all keys of the application", "remove everything")
		}
	}
}
