package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/unstale/unstale/internal/maptool"
	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/invalidation"
)

// generateCommand is "unstale map generate".
type generateCommand struct {
	lang, pkg, class, out  string
	typescript, php, check bool
}

func newMapGenerate(p process) *cobra.Command {
	g := &generateCommand{}
	cmd := &cobra.Command{
		Use:   "generate FILE",
		Short: "Generate code from the names of a map",
		Long: `Generate a Go package, a TypeScript module or a PHP class with a function per entry of the section
reads and per entity. Readers and writers then contain no names of keys, entities and parameters.
The output does not depend on the environment: the code reads the variables of the map when it runs.

Exit codes:
  0  the code is written, or with --check, the file is up to date
  1  the map has an error, a name cannot be generated, or with --check, the file differs
  2  wrong usage`,
		Example: `  unstale map generate --lang go --package shopcache -o shopcache/shopcache.go mapping.yaml
  unstale map generate --lang go --package shopcache -o shopcache/shopcache.go --check mapping.yaml
  unstale map generate --typescript -o src/shopcache.ts mapping.yaml
  unstale map generate --php --class 'App\ShopCache' -o src/ShopCache.php mapping.yaml`,
		Args: exactArgs("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			for lang, chosen := range map[string]bool{"typescript": g.typescript, "php": g.php} {
				if chosen && cmd.Flags().Changed("lang") && g.lang != lang {
					return usageError{fmt.Errorf("--%s cannot be combined with --lang %s", lang, g.lang)}
				}
			}
			switch {
			case g.typescript && g.php:
				return usageError{errors.New("--typescript cannot be combined with --php")}
			case g.typescript:
				g.lang = "typescript"
			case g.php:
				g.lang = "php"
			}
			return g.generateCode(p, args[0])
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&g.lang, "lang", "go", "language: go, typescript or php")
	flags.BoolVar(&g.typescript, "typescript", false, "the same as --lang typescript")
	flags.BoolVar(&g.php, "php", false, "the same as --lang php")
	flags.StringVar(&g.class, "class", "", "name of the PHP class, with its namespace (default \"ShopCache\")")
	flags.StringVar(&g.pkg, "package", "", "name of the Go package (required for Go)")
	flags.StringVarP(&g.out, "output", "o", "", "file to write; without it, standard output")
	flags.BoolVar(&g.check, "check", false, "write nothing, and fail if the file is not up to date")
	return cmd
}

func (g *generateCommand) generateCode(p process, file string) error {
	switch {
	case !slices.Contains([]string{"go", "typescript", "php"}, g.lang):
		return usageError{fmt.Errorf("--lang %s: must be go, typescript or php", g.lang)}
	case g.lang == "typescript" && g.pkg != "":
		return usageError{errors.New("--package is for Go; a TypeScript module has the name of its file")}
	case g.lang == "php" && g.pkg != "":
		return usageError{errors.New("--package is for Go; use --class for PHP")}
	case g.lang != "php" && g.class != "":
		return usageError{errors.New("--class is for PHP")}
	case g.lang == "go" && g.pkg == "":
		return usageError{errors.New("--package is required, for example --package shopcache")}
	case g.check && g.out == "":
		return usageError{errors.New("--check needs the file to compare: give -o FILE")}
	}
	m, err := parseNames(file)
	if err != nil {
		return err
	}
	names, base := maptool.NamesOf(m), filepath.Base(file)
	var code []byte
	switch g.lang {
	case "go":
		code, err = maptool.GenerateGo(names, g.pkg, base)
	case "typescript":
		code, err = maptool.GenerateTypeScript(names, base)
	case "php":
		code, err = maptool.GeneratePHP(names, cmp.Or(g.class, "ShopCache"), base)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if g.out == "" {
		_, err := p.Out.Write(code)
		return err
	}
	now, err := os.ReadFile(g.out)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	switch same := err == nil && bytes.Equal(now, code); {
	case same:
		fmt.Fprintf(p.Out, "%s is up to date\n", g.out)
		return nil
	case g.check:
		return fmt.Errorf("%s is not up to date with %s; run unstale map generate without --check", g.out, file)
	}
	if err := os.MkdirAll(filepath.Dir(g.out), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(g.out, code, 0o644); err != nil {
		return err
	}
	fmt.Fprintf(p.Out, "wrote %s\n", g.out)
	return nil
}

// parseNames parses a map for its names, with any environment.
func parseNames(file string) (*invalidation.Map, error) {
	src, err := invalidation.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return invalidation.ParseNames(file, src)
}

func newMapDescribe(p process) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "describe FILE",
		Short: "List the reads and entities of a map",
		Long: `List the entries of the section reads and the entities of a map. With --json, the output is the
input of code generators: templates in parts, types, and times in milliseconds. If the variables of
the map are set, it has the fingerprint of reads, which readers report in their statistics.`,
		Example: `  unstale map describe mapping.yaml
  APP_ENV=prod unstale map describe mapping.yaml --json`,
		Args: exactArgs("FILE"),
		RunE: func(_ *cobra.Command, args []string) error { return describeNames(p, args[0], asJSON) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// namesObject is the JSON of describe.
type namesObject struct {
	*maptool.Names
	ReadsVersion string `json:"reads_version,omitempty"` // if all variables are set
}

func describeNames(p process, file string, asJSON bool) error {
	m, err := parseNames(file)
	if err != nil {
		return err
	}
	out := namesObject{Names: maptool.NamesOf(m)}
	if now, err := loadMap(p, file); err == nil {
		out.ReadsVersion = now.Reads().Version()
	}
	if asJSON {
		return output.JSON(p.Out, out)
	}
	w := tabwriter.NewWriter(p.Out, 0, 0, 2, ' ', 0)
	for _, r := range out.Reads {
		fmt.Fprintf(w, "read\t%s\t%s\t%s\t%s\n", r.Name, r.Key, lifetime(r), readFrom(r))
	}
	for _, e := range out.Entities {
		fmt.Fprintf(w, "entity\t%s\tid: %s\t%s\t\n", e.Name, e.Type, paramList(e))
	}
	if out.ReadsVersion != "" {
		fmt.Fprintf(w, "fingerprint of reads\t%s\n", out.ReadsVersion)
	}
	return w.Flush()
}

func lifetime(r maptool.Read) string {
	short := func(ms int64) string {
		text := (time.Duration(ms) * time.Millisecond).String()
		if strings.HasSuffix(text, "m0s") {
			text = strings.TrimSuffix(text, "0s")
		}
		return text
	}
	if r.Least == r.Most {
		return short(r.Least)
	}
	return short(r.Least) + ".." + short(r.Most)
}

func readFrom(r maptool.Read) string {
	if r.ExpiresOnly != "" {
		return "only expires: " + printable(r.ExpiresOnly)
	}
	return "from " + strings.Join(r.From, ", ")
}

func paramList(e maptool.Entity) string {
	var all []string
	for _, p := range e.Params {
		text := p.Name + ": " + string(p.Type)
		if p.Required {
			text += " (required)"
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

// A description is the JSON that explain prints for an entity without a row. The lists are never
// null.
type description struct {
	Entity     string        `json:"entity"`
	MapVersion string        `json:"map_version"`
	Templates  []mapTemplate `json:"templates"`
	As         []aliasSource `json:"as"`
	Names      []nameSource  `json:"names"`
	Params     []string      `json:"params"` // that a row may give
	Reads      []string      `json:"reads"`  // that rows reach, some only for some values
	Repeat     []string      `json:"repeat"`
	Hold       string        `json:"hold,omitempty"`
}

type mapTemplate struct {
	Kind     string `json:"kind"`
	Template string `json:"template"`
}

type aliasSource struct {
	Entity string `json:"entity"`
	ID     string `json:"id"`
}

// A nameSource is the origin of the values of a name: row, each or lookup.
type nameSource struct {
	Name     string   `json:"name"`
	From     string   `json:"from"`
	Optional bool     `json:"optional,omitempty"`
	Values   []string `json:"values,omitempty"`
	By       []string `json:"by,omitempty"`
	SQL      string   `json:"sql,omitempty"`
	Always   bool     `json:"always,omitempty"` // the lookup runs even if the row gives it
	Default  []string `json:"default,omitempty"`
	With     []string `json:"with,omitempty"` // the names whose values go together with these
}

func describe(m *invalidation.Map, d invalidation.Description) *description {
	out := &description{
		Entity: d.Entity, MapVersion: m.Version(), Templates: []mapTemplate{}, As: []aliasSource{}, Names: []nameSource{},
		Params: append([]string{}, d.Params...), Reads: readsOf(m, d.Entity, func(string) bool { return true }),
	}
	for _, n := range d.Makes {
		out.Templates = append(out.Templates, mapTemplate{string(n.Kind), n.Text})
	}
	for _, a := range d.As {
		out.As = append(out.As, aliasSource(a))
	}
	for _, n := range d.Names {
		source := nameSource{Name: n.Name, From: "row", Optional: n.Optional, Default: n.Default, With: n.With}
		switch {
		case n.Each != nil:
			source.From, source.Values = "each", n.Each
		case n.Lookup != nil:
			source.From, source.By, source.SQL, source.Always = "lookup", n.Lookup.By, n.Lookup.SQL, n.Lookup.Always
		}
		out.Names = append(out.Names, source)
	}
	out.Repeat, out.Hold = delays(d.Repeat, d.Hold)
	return out
}

func (d *description) print(p process, asJSON bool) error {
	if asJSON {
		return output.JSON(p.Out, d)
	}
	w := tabwriter.NewWriter(p.Out, 0, 0, 2, ' ', 0)
	for _, t := range d.Templates {
		fmt.Fprintf(w, "%s\t%s\n", t.Kind, printable(t.Template))
	}
	for _, a := range d.As {
		fmt.Fprintf(w, "as\t%s, with the id %s\n", a.Entity, printable(a.ID))
	}
	for _, read := range d.Reads {
		fmt.Fprintf(w, "read\t%s\n", read)
	}
	for _, delay := range d.Repeat {
		fmt.Fprintf(w, "repeat\t%s\n", delay)
	}
	if d.Hold != "" {
		fmt.Fprintf(w, "hold\t%s\n", d.Hold)
	}
	for _, n := range d.Names {
		fmt.Fprintf(w, "{%s}\t%s\n", n.Name, n.told())
	}
	return w.Flush()
}

// mostShown is how many values of an enumeration are shown.
const mostShown = 20

func (n *nameSource) told() string {
	switch {
	case n.Name == "id":
		return "the row's id"
	case n.From == "each" && len(n.Values) > mostShown:
		return fmt.Sprintf("each of %s and %d more", printable(strings.Join(n.Values[:mostShown], ", ")), len(n.Values)-mostShown)
	case n.From == "each":
		return "each of " + printable(strings.Join(n.Values, ", "))
	case n.Always && n.Optional:
		return "from the row, and looked up by " + n.lookup() + n.otherwise()
	case n.Always:
		return "from the row" + n.otherwise() + ", and looked up by " + n.lookup()
	case n.From == "lookup":
		return "from the row, or looked up by " + n.lookup()
	case n.Optional, n.Default != nil:
		return "from the row" + n.along() + n.otherwise()
	}
	return "from the row, which must give it" + n.along()
}

// otherwise returns what replaces a name that the row does not give.
func (n *nameSource) otherwise() string {
	switch {
	case n.Optional:
		return "; without it, what uses it makes nothing"
	case len(n.Default) > 0:
		return ", or by default " + printable(strings.Join(n.Default, ", "))
	case n.Default != nil:
		return ", or by default no value"
	}
	return ""
}

func (n *nameSource) lookup() string {
	return strings.Join(n.By, ", ") + n.along() + ": " + strings.Join(strings.Fields(n.SQL), " ")
}

// along returns the names whose values go together with these.
func (n *nameSource) along() string {
	if len(n.With) == 0 {
		return ""
	}
	return ", value by value with {" + strings.Join(n.With, "}, {") + "}"
}
