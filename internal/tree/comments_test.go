package tree

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// Every package has one comment that describes its purpose: "Package x ...", or "Command x ..." for
// a program.
func TestPackageComments(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		var comments []string
		for _, file := range p.GoFiles {
			parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, file), nil, parser.PackageClauseOnly|parser.ParseComments)
			if err != nil {
				t.Error(err)
				continue
			}
			if parsed.Doc == nil {
				continue
			}
			comments = append(comments, file)
			word, name := "Package", parsed.Name.Name
			if name == "main" {
				word, name = "Command", filepath.Base(p.name())
			}
			if begin := word + " " + name + " "; !strings.HasPrefix(parsed.Doc.Text(), begin) {
				t.Errorf("%s: the comment of %s does not begin with %q", p.name(), file, begin)
			}
		}
		if len(comments) != 1 {
			t.Errorf("%s has a package comment in %q, wanted it in one file", p.name(), comments)
		}
	}
}
