package verify

import (
	"fmt"
	"strings"
	"time"
)

// A spec is the configuration of a reader process, as JSON in the first line of its input.
type spec struct {
	Process int    `json:"process"`
	Seed    uint64 `json:"seed"`
	Table   string `json:"table"` // file
	Keys    int    `json:"keys"`
	First   int    `json:"first"` // id of the first key's row
	Kinds   []kind `json:"kinds"`
	MySQL   string `json:"mysql"`
	// the same for clients, over TCP
	MySQLURL string `json:"mysql_url"`
	Redis    string `json:"redis"` // address
	DB       int    `json:"db"`    // of Redis
	// addresses of the nodes of a Cluster, in place of Redis
	Cluster []string `json:"cluster"`
	// file with the address of the master, if that changes
	Master string `json:"master"`
	// address for the subscription, if it differs
	Subscriber string        `json:"subscriber"`
	Sources    []string      `json:"sources"` // none: no memory
	TTL        time.Duration `json:"ttl"`
	Grace      time.Duration `json:"grace"`  // after a window
	Reads      int           `json:"reads"`  // a second
	Astray     bool          `json:"astray"` // a settled write may be missing, within the bound
	Gets       bool          `json:"gets"`   // read only by Get, without L1
	Stock      int           `json:"stock"`  // values in memory, in addition to the keys
	Plant      string        `json:"plant"`
	RawValues  bool          `json:"raw_values"` // see Config
	// shadow reads of values from Redis, per second; 0: none
	ShadowRate float64 `json:"shadow_rate"`
}

// A kind is how a key is invalidated.
type kind string

const (
	item   kind = "item"   // by name
	held   kind = "held"   // by name, with a hold
	tagged kind = "tagged" // by its tag
	list   kind = "list"   // by a pattern
	member kind = "member" // by an index set
)

// lease is the lease of the map and of the readers.
const lease = 2 * time.Second

// workerMap maps each kind of key. An ID is a number, so texts need no escaping.
const workerMap = `version: 1
lease: 2s
entities:
  item:   {keys: ["verify:item:{id}"]}
  held:   {keys: ["verify:held:{id}"], hold: 2s}
  tagged: {tags: ["verify-{id}"]}
  list:   {patterns: ["verify:list:{id}:*"]}
  member: {sets: ["verify:set:{id}"]}
`

// otherMap has another hold and one more entity.
var otherMap = strings.Replace(workerMap, "hold: 2s}", "hold: 300ms}\n  spare:  {keys: [\"verify:spare:{id}\"]}", 1)

// kind returns the kind of a key.
func (s *spec) kind(key int) kind { return s.Kinds[key%len(s.Kinds)] }

// id returns the ID of the MySQL row of a key.
func (s *spec) id(key int) int { return s.First + key }

// name returns a key in Redis.
func (s *spec) name(key int) string {
	if k := s.kind(key); k != list {
		return fmt.Sprintf("verify:%s:%d", k, s.id(key))
	}
	return fmt.Sprintf("verify:list:%d:p1", s.id(key))
}

func (s *spec) tag(key int) string { return fmt.Sprint("verify-", s.id(key)) }
func (s *spec) set(key int) string { return fmt.Sprint("verify:set:", s.id(key)) }
