package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/unstale/unstale/internal/keyspace"
	"github.com/unstale/unstale/internal/output"
	"github.com/unstale/unstale/invalidation"
)

func newMap(p process) *cobra.Command {
	return group("map", "Check, explain, test and describe maps", newMapCheck(p), newMapExplain(p), newMapTest(p), newMapWho(p), newMapSchema(p))
}

func loadMap(p process, file string) (*invalidation.Map, error) {
	src, err := invalidation.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return invalidation.Parse(file, src, p.Env)
}

func newMapCheck(p process) *cobra.Command {
	var (
		asJSON bool
		sample int64
		redis  redisFlags
		db     mysqlFlags
	)
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Check a map: every fault with its place and cure, or a summary",
		Long: `Check a map: every fault with its place and cure, or a summary with advice. With --redis-url
it also looks at a sample of the keys that are there, without changing any, and returns how many
each pattern matches, whatever a row gives for its variables. With --mysql-dsn it compares the
section capture with the tables that are there.`,
		Example: `  unstale map check mapping.yaml
  unstale map check mapping.yaml --redis-url redis://cache:6379/0
  unstale map check mapping.yaml --mysql-dsn 'user:password@tcp(127.0.0.1:3306)/shop'
  APP_ENV=staging unstale map check mapping.yaml --json`,
		Args: exactArgs("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := loadMap(p, args[0])
			var faults invalidation.Faults
			if err != nil && !errors.As(err, &faults) {
				return err
			}
			if sample < 1 {
				return usageError{fmt.Errorf("--sample %d: wanted 1 or more", sample)}
			}
			var found *estimate
			var failed error // to estimate: the map is told about in any case
			if redis.url != "" && len(faults) == 0 {
				keyspace.SetClientLog(nil)
				found, failed = estimatePatterns(cmd.Context(), redis, m, sample)
			}
			if db.dsn != "" && len(faults) == 0 {
				failed = errors.Join(failed, checkCapture(cmd.Context(), db, m))
			}
			if asJSON {
				return errors.Join(output.JSON(p.Out, checkObject(m, faults, found)), failed, faultCount(args[0], faults))
			}
			for _, f := range faults {
				fmt.Fprintln(p.Err, f)
			}
			if len(faults) == 0 {
				printCheck(p, args[0], m)
				found.print(p)
			}
			return errors.Join(failed, faultCount(args[0], faults))
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	cmd.Flags().Int64Var(&sample, "sample", 100_000, "how many keys to look at")
	redis.add(cmd.Flags())
	db.add(cmd.Flags())
	showEnv(cmd.Flags(), "json", "sample", "redis-url", "mysql-dsn") // a check asks a server only where the call says so
	return cmd
}

func faultCount(file string, faults invalidation.Faults) error {
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %s", file, count(len(faults), "fault"))
}

// A place is a fault or an advice in JSON.
type place struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Text    string `json:"text"`
	Problem string `json:"problem"`
	Cure    string `json:"cure"`
}

func places(faults []invalidation.Fault) []place {
	out := make([]place, len(faults))
	for i, f := range faults {
		out[i] = place(f)
	}
	return out
}

func checkObject(m *invalidation.Map, faults invalidation.Faults, found *estimate) any {
	out := struct {
		OK       bool     `json:"ok"`
		Version  string   `json:"version,omitempty"`
		Channel  string   `json:"channel,omitempty"`
		Format   string   `json:"format,omitempty"`
		Lease    string   `json:"lease,omitempty"`
		Entities []string `json:"entities,omitempty"`
		Faults   []place  `json:"faults"`
		Advice   []place  `json:"advice"`

		Keyspace *estimate `json:"keyspace,omitempty"`
	}{OK: len(faults) == 0, Faults: places(faults), Advice: []place{}}
	if out.OK {
		out.Version, out.Channel, out.Format, out.Lease = m.Version(), m.Channel(), string(m.Format()), m.Lease().String()
		out.Entities, out.Advice = m.Entities(), places(m.Warnings())
		out.Keyspace = found
	}
	return out
}

func printCheck(p process, file string, m *invalidation.Map) {
	limits := m.Limits()
	fmt.Fprintf(p.Out, "%s is good: version %s, %s\n", file, m.Version(), count(len(m.Entities()), "entity", "entities"))
	fmt.Fprintf(p.Out, "  entities  %s\n", strings.Join(m.Entities(), ", "))
	fmt.Fprintf(p.Out, "  publish   %s, format %s\n", m.Channel(), m.Format())
	fmt.Fprintf(p.Out, "  lease     %s\n", m.Lease())
	fmt.Fprintf(p.Out, "  limits    %s of parameters, %s a row, %s of literal prefix in a pattern\n",
		count(limits.ParamsBytes, "byte"), count(limits.KeysPerRow, "key"), count(limits.PatternPrefix, "byte"))
	for _, w := range m.Warnings() {
		fmt.Fprintf(p.Out, "advice: %s\n", w)
	}
}

func newMapSchema(p process) *cobra.Command {
	return &cobra.Command{
		Use:     "schema",
		Short:   "Print the JSON Schema of maps, for editors",
		Example: "  unstale map schema > mapping.schema.json",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := p.Out.Write(invalidation.Schema())
			return err
		},
	}
}
