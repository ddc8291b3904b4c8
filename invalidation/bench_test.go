package invalidation_test

import (
	"testing"

	"github.com/unstale/unstale/invalidation"
)

var benchmarkMap = `
version: 1
vars: {app: zahraah, env: prod}
entities:
  product:
    params: [category_id]
    keys: ["{app}:{env}:product:{id}"]
    patterns: ["{app}:{env}:category:{category_id}:list:*"]
  variant:
    params: [product_id, category_id]
    as: {product: "{product_id}"}
  coupon:
    keys: ["{app}:{env}:coupon:{id}"]
  page:
    params: [category_id]
    each: {n: 1..20, sort: [new, price]}
    keys: ["{app}:{env}:category:{category_id}:list:p{n}:s:{sort}"]
`

func BenchmarkExpand(b *testing.B) {
	m := mustParse(b, benchmarkMap)
	lists := invalidation.Params{{Name: "category_id", Values: []string{"7", "9"}, List: true}}
	product := append(invalidation.Params{{Name: "product_id", Values: []string{"12345"}}}, lists...)
	for name, row := range map[string]invalidation.Row{
		"exact key":        {Entity: "coupon", ID: "SUMMER2025"},
		"key and patterns": {Entity: "product", ID: "12345", Params: lists},
		"alias":            {Entity: "variant", ID: "98765", Params: product},
		"80 keys":          {Entity: "page", ID: "1", Params: lists},
		"unknown entity":   {Entity: "nothing", ID: "1"},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = m.Expand(row, nil)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

func BenchmarkNeeds(b *testing.B) {
	m := shipped(b)
	for name, row := range map[string]invalidation.Row{
		"none":   {Entity: "coupon", ID: "SUMMER2025"},
		"lookup": {Entity: "product", ID: "12345"},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = m.Needs(row, nil)
			}
		})
	}
}

func BenchmarkParseParams(b *testing.B) {
	for name, src := range map[string]string{
		"none":   ``,
		"scalar": `{"product_id":12345}`,
		"lists":  `{"product_id":12345,"category_id":[7,9,11],"note":"a \"quoted\" text"}`,
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = invalidation.ParseParams([]byte(src))
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	for b.Loop() {
		mustParse(b, benchmarkMap)
	}
}
