package draft

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/unstale/unstale/internal/capture"
	"github.com/unstale/unstale/invalidation"
)

var (
	// unnamed matches what the name of an entity or a parameter does not contain in a draft.
	unnamed = regexp.MustCompile(`[^a-z0-9]+`)
	// oddPlurals are words whose singular does not follow from their ending.
	oddPlurals = map[string]string{
		"movies": "movie", "cookies": "cookie", "caches": "cache", "statuses": "status", "bonuses": "bonus", "buses": "bus",
		"series": "series", "species": "species", "news": "news", "gps": "gps", "sms": "sms", "css": "css", "js": "js",
		"lens": "lens", "canvas": "canvas", "alias": "alias", "aliases": "alias", "atlas": "atlas", "has": "has", "goods": "goods",
	}
)

// words returns a name in lower case with _ between its words.
func words(name string) string {
	return strings.Trim(unnamed.ReplaceAllString(strings.ToLower(name), "_"), "_")
}

// singular returns the singular of a name's last word, or the name if that is not certain.
func singular(name string) string {
	cut := strings.LastIndexByte(name, '_') + 1
	first, last := name[:cut], name[cut:]
	if one, odd := oddPlurals[last]; odd {
		return first + one
	}
	ends := func(all ...string) bool {
		return slices.ContainsFunc(all, func(end string) bool { return strings.HasSuffix(last, end) })
	}
	switch {
	case len(last) < 4 || !ends("s") || ends("ss", "us", "is", "os", "as"):
		return name
	case ends("ies"):
		return first + strings.TrimSuffix(last, "ies") + "y"
	case ends("sses", "xes", "ches", "shes", "zzes"):
		return first + strings.TrimSuffix(last, "es")
	case ends("oes", "uses", "ves", "yses"):
		return name
	}
	return first + strings.TrimSuffix(last, "s")
}

// commonPrefix returns the first word of names and its _ if most of them share it, or "". The name
// of a table is not a prefix: product_media belongs to product.
func commonPrefix(tables []capture.Description) string {
	count := map[string]int{}
	for _, t := range tables {
		count[singular(words(t.Name))+"_"] -= len(tables)
		if word, rest, ok := strings.Cut(t.Name, "_"); ok && rest != "" {
			count[word+"_"]++
		}
	}
	for prefix, n := range count {
		if n >= 3 && 3*n >= 2*len(tables) {
			return prefix
		}
	}
	return ""
}

// A namer gives names that are not used twice.
type namer map[string]bool

// free returns the first name that is not used, or one of them with a number.
func (n namer) free(names ...string) string {
	for i := 2; ; i++ {
		for _, name := range names {
			if name = name[:min(len(name), 56)]; name != "" && !n[name] && !invalidation.IsReserved(name) {
				n[name] = true
				return name
			}
		}
		last := names[len(names)-1]
		names = []string{fmt.Sprintf("%s_%d", last[:min(len(last), 52)], i)}
		if last == "" {
			names = []string{fmt.Sprintf("table_%d", i)}
		}
	}
}

// entityName returns the name of a table's entity.
func (n namer) entityName(table, prefix string) string {
	short := words(strings.TrimPrefix(table, prefix))
	return n.free(singular(short), short, words(table))
}

// Columns and tables that seldom matter to cached values.
var (
	noiseTimes  = regexp.MustCompile(`(?i)^(.*_)?((updated|modified|changed|touched|created)(_?(at|on|date|time|gmt|ts|by))?|(last|date)_?(update|updated|upd|add|added|modified|modification|changed|created|login|seen|activity|access|visit)(_?(at|on|date|time|gmt))?|(post|comment)_modified(_gmt)?|(updated|created|modified)at)$`)
	noiseCounts = regexp.MustCompile(`(?i)^(.*_)?(views?|hits?|visits?|impressions|downloads|clicks|counter)(_?(count|counter|total))?$`)
	noiseTables = regexp.MustCompile(`(?i)^(.*_)?(logs?|sessions?|queues?|migrations?(_versions?)?|failed_jobs|messenger_messages|locks?|cache|tmp|temp|backup)$|^_.*_(gho|ghc|del|old|new)$`)
	timeTypes   = []string{"date", "datetime", "timestamp", "int", "bigint", "binary", "varbinary"}
	textTypes   = []string{"char", "varchar", "enum", "set"}
	numberTypes = []string{"tinyint", "smallint", "mediumint", "int", "bigint"}
)

// isNoise reports whether a column seldom matters: a time of a change, or a counter of visits.
func isNoise(c capture.Column) bool {
	return slices.Contains(timeTypes, c.Type) && noiseTimes.MatchString(c.Name) ||
		slices.Contains(numberTypes, c.Type) && noiseCounts.MatchString(c.Name)
}

// plainScalar matches text that YAML reads as the same text without quotes.
var plainScalar = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// scalar returns text as a scalar of YAML.
func scalar(text string) string {
	switch strings.ToLower(text) {
	case "y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf":
	default:
		if plainScalar.MatchString(text) {
			return text
		}
	}
	return strconv.Quote(text)
}

// list returns texts as a list of YAML.
func list(texts []string) string { return "[" + strings.Join(scalars(texts), ", ") + "]" }
