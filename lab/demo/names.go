package demo

import (
	"strconv"
	"strings"
)

// names builds the names of the shop's keys. Its value is their common prefix.
type names string

func newNames(app string) names { return names(app + ":" + env + ":") }

func (n names) full(short string) string { return string(n) + short }

// short returns a key without the common prefix, for display.
func (n names) short(key string) string { return strings.TrimPrefix(key, string(n)) }

// owns reports whether a key, or a pattern, belongs to the demo.
func (n names) owns(key string) bool { return strings.HasPrefix(key, string(n)) }

func (n names) product(id int) string { return n.full("product:" + strconv.Itoa(id)) }

func (n names) list(category, page int, sort string) string {
	return n.full("category:" + strconv.Itoa(category) + ":list:p" + strconv.Itoa(page) + ":sort:" + sort)
}

func (n names) home() string { return n.full("home") }

func (n names) city(name string) string { return n.full("shipping:city:" + name) }

func (n names) coupon(code string) string { return n.full("coupon:" + code) }
