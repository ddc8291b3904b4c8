package docs

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A block is a fenced block of a page.
type block struct {
	page string
	line int // of its fence
	lang string
	text string
}

// pages returns the names of all pages.
func pages(t testing.TB) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	for i, name := range names {
		names[i] = "docs/" + filepath.Base(name)
	}
	return append(names, "README.md", "CHANGELOG.md")
}

// blocks returns the fenced blocks of a page in one of the given languages, from top to bottom.
func blocks(t testing.TB, page string, langs ...string) (found []block) {
	t.Helper()
	var open *block
	for i, line := range strings.SplitAfter(read(t, page), "\n") {
		fence, isFence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case isFence && open == nil:
			open = &block{page: page, line: i + 1, lang: fence}
		case isFence:
			if slices.Contains(langs, open.lang) {
				found = append(found, *open)
			}
			open = nil
		case open != nil:
			open.text += line
		}
	}
	if open != nil {
		t.Fatalf("%s:%d: the block is not closed", page, open.line)
	}
	return found
}

// lines returns the lines of a section: its heading, and the next heading of its level.
func lines(t testing.TB, page, heading string) (from, to int) {
	t.Helper()
	level, _, _ := strings.Cut(heading, " ")
	for i, line := range strings.Split(read(t, page), "\n") {
		switch {
		case line == heading:
			from = i + 1
		case from > 0 && strings.HasPrefix(line, level+" "):
			return from, i + 1
		}
	}
	t.Fatalf("%s has no section %q, or it is the last one", page, heading)
	return 0, 0
}

// onlyBlock returns the single block of a page in a language that contains part.
func onlyBlock(t testing.TB, page, lang, part string) block {
	t.Helper()
	var found []block
	for _, b := range blocks(t, page, lang) {
		if strings.Contains(b.text, part) {
			found = append(found, b)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%s has %d blocks in %q with %q, wanted one", page, len(found), lang, part)
	}
	return found[0]
}

// table returns the rows of all tables of a page whose first column has the given title. Cells have
// no backquotes.
func table(t testing.TB, page, title string) (rows [][]string) {
	t.Helper()
	within := false
	for _, line := range strings.Split(read(t, page), "\n") {
		inner, isRow := strings.CutPrefix(line, "| ")
		if !isRow {
			within = within && strings.HasPrefix(line, "|")
			continue
		}
		cells := strings.Split(strings.TrimSuffix(inner, "|"), "|")
		for i, cell := range cells {
			cells[i] = strings.TrimSpace(strings.ReplaceAll(cell, "`", ""))
		}
		if within {
			rows = append(rows, cells)
		}
		within = within || cells[0] == title
	}
	if len(rows) == 0 {
		t.Fatalf("%s has no table with the first column %q", page, title)
	}
	return rows
}

// statements splits SQL at semicolons and omits comments.
func statements(b block) (list []string) {
	var text strings.Builder
	for _, line := range strings.Split(b.text, "\n") {
		line, _, _ = strings.Cut(line, "-- ")
		text.WriteString(line + "\n")
	}
	for _, statement := range strings.Split(text.String(), ";") {
		if s := strings.TrimSpace(statement); s != "" {
			list = append(list, s)
		}
	}
	return list
}
