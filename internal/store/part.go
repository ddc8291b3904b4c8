package store

// Limits of the names of a journal row and of their bytes, so neither its writer nor its readers
// need much memory. One name always fits.
const (
	partNames = 20_000
	partBytes = 512 << 10
)

// Cut returns the entries of the next journal row, and the rest. An entry that is too large for one
// row continues in the next: each has some of its names, and all of its other fields.
func Cut(entries []JournalEntry) (part, rest []JournalEntry) {
	names, bytes := partNames, partBytes
	for i := range entries {
		e := &entries[i]
		n, b := e.Names(), e.Bytes()
		if n <= names && b <= bytes {
			names, bytes = names-n, bytes-b
			continue
		}
		if i > 0 {
			return entries[:i:i], entries[i:]
		}
		first, left := e.cut()
		if left.Names() == 0 { // one name, larger than a row should be
			return entries[:1:1], entries[1:]
		}
		return []JournalEntry{first}, append([]JournalEntry{left}, entries[1:]...)
	}
	return entries, nil
}

// cut splits an entry that is too large for one row of the journal into the part for that row, with
// at least one name, and the rest.
func (e *JournalEntry) cut() (first, left JournalEntry) {
	first, left = *e, *e
	names, bytes, none := partNames, partBytes, true
	take := func(list []string) (taken, rest []string) {
		for i, name := range list {
			if names == 0 || len(name) > bytes && !none {
				names = 0
				return list[:i:i], list[i:]
			}
			names, bytes, none = names-1, bytes-len(name), false
		}
		return list, nil
	}
	first.Keys, left.Keys = take(e.Keys)
	first.Patterns, left.Patterns = take(e.Patterns)
	first.Sets, left.Sets = take(e.Sets)
	return first, left
}
