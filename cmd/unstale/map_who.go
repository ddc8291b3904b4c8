package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/unstale/unstale/internal/history"
	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/invalidation"
)

func newMapWho(p process) *cobra.Command {
	var (
		file   string
		limit  int
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "who KEY",
		Short: "Show which rows reach a key, and which read it is",
		Long: `Show which rows reach a key, without a server: their entity, ID, parameters and template. Values that
are not given can be anything. Members of index sets are not in the map, so a key that only a set
lists is not found. If the map has reads, the output also has those with this key. Exit code 1 if no
row reaches the key.`,
		Example: `  unstale map who zahraah:prod:product:42
  unstale map who --map mapping.yaml zahraah:prod:category:7:list:p1 --json`,
		Args: exactArgs("KEY"),
		RunE: func(_ *cobra.Command, args []string) error {
			if args[0] == "" {
				return usageError{errors.New("KEY is empty")}
			}
			if err := checkLimit(limit); err != nil {
				return err
			}
			m, err := loadMap(p, file)
			if err != nil {
				return err
			}
			found, all := m.Origins(args[0], limit)
			out := originsOf(m, args[0], found, all)
			if asJSON {
				err = output.JSON(p.Out, out)
			} else {
				err = out.print(p)
			}
			switch {
			case len(found) == 0 && !all:
				return errors.Join(err, fmt.Errorf("%s can be parted in too many ways by the templates of %s: the search was ended before it found a row", printable(args[0]), file))
			case len(found) == 0:
				return errors.Join(err, fmt.Errorf("no row of %s reaches %s, as far as the map alone tells; compare the key with the templates: unstale map explain --entity NAME",
					file, printable(args[0])))
			}
			return err
		},
	}
	cmd.Flags().StringVar(&file, "map", defaultMap, "the map's file")
	cmd.Flags().IntVar(&limit, "limit", 100, "at most this many")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// origins are the JSON of who. The lists are never null.
type origins struct {
	Key        string         `json:"key"`
	MapVersion string         `json:"map_version"`
	Complete   bool           `json:"complete"` // there are no others
	Origins    []origin       `json:"origins"`
	Reads      []history.Read `json:"reads"` // entries of the section reads
	hasReads   bool           // the map has the section
}

type origin struct {
	Entity   string              `json:"entity"`
	ID       string              `json:"id,omitempty"` // none: any
	Params   map[string][]string `json:"params"`
	LookedUp []string            `json:"looked_up"` // of those, what a lookup may find
	// of those, what has these values where the row does not give it
	Defaults []string `json:"defaults"`
	Via      []string `json:"via"`
	Kind     string   `json:"kind"`
	Template string   `json:"template"`
	names    []string // of Params, in the same order
}

func printReads(p process, all []history.Read) {
	for _, r := range all {
		text := fmt.Sprintf("read: %s, %s %s", r.Read, r.Kind, printable(r.Template))
		if r.Unsure {
			text += ", if a value contains a colon"
		}
		fmt.Fprintln(p.Out, text)
	}
}

func originsOf(m *invalidation.Map, key string, found []invalidation.Origin, all bool) *origins {
	out := &origins{Key: key, MapVersion: m.Version(), Complete: all, Origins: []origin{}, Reads: []history.Read{}, hasReads: len(m.Reads().All()) > 0}
	out.Reads = append(out.Reads, history.ReadsOf(m, key)...)
	for _, o := range found {
		one := origin{
			Entity: o.Entity, ID: o.ID, Params: map[string][]string{}, LookedUp: []string{}, Defaults: []string{}, Via: append([]string{}, o.Via...),
			Kind: string(o.By.Kind), Template: o.By.Text,
		}
		for _, param := range o.Params {
			one.Params[param.Name] = param.Values
			one.names = append(one.names, param.Name)
		}
		for _, entity := range append([]string{o.Entity}, o.Via...) {
			d, _ := m.Describe(entity)
			for _, n := range d.Names {
				one.addSource(n)
			}
		}
		out.Origins = append(out.Origins, one)
	}
	return out
}

// addSource records a name whose values a row need not give.
func (o *origin) addSource(n invalidation.NameSource) {
	if !slices.Contains(o.names, n.Name) {
		return
	}
	if n.Lookup != nil && !slices.Contains(o.LookedUp, n.Name) {
		o.LookedUp = append(o.LookedUp, n.Name)
	}
	if !slices.Contains(o.Defaults, n.Name) && len(n.Default) > 0 && !slices.ContainsFunc(o.Params[n.Name], func(v string) bool { return !slices.Contains(n.Default, v) }) {
		o.Defaults = append(o.Defaults, n.Name)
	}
}

func (o *origins) print(p process) error {
	w := tabwriter.NewWriter(p.Out, 0, 0, 2, ' ', 0)
	for _, one := range o.Origins {
		fmt.Fprintf(w, "%s\t%s\t%s %s\n", printable(one.Entity), one.row(), one.Kind, one.by())
	}
	if err := w.Flush(); err != nil {
		return err
	}
	printReads(p, o.Reads)
	if o.hasReads && len(o.Reads) == 0 && len(o.Origins) > 0 {
		fmt.Fprintln(p.Out, "read: none has this key")
	}
	if !o.Complete && len(o.Origins) > 0 {
		fmt.Fprintln(p.Out, "there are more, or may be: raise --limit; a key of many parts can be made in so many ways that the search is ended")
	}
	return nil
}

// row writes what a row must have.
func (o *origin) row() string {
	var all []string
	if o.ID != "" {
		all = append(all, "id="+printable(o.ID))
	}
	for _, name := range o.names {
		text := name + "=" + printable(strings.Join(o.Params[name], ","))
		switch {
		case slices.Contains(o.LookedUp, name):
			text += " (given or looked up)"
		case slices.Contains(o.Defaults, name):
			text += " (given or by default)"
		}
		all = append(all, text)
	}
	if len(all) == 0 {
		return "any id"
	}
	return strings.Join(all, " ")
}

func (o *origin) by() string {
	if len(o.Via) == 0 {
		return printable(o.Template)
	}
	return printable(o.Template) + ", as " + strings.Join(o.Via, " as ")
}
