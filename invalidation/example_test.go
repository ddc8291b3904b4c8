package invalidation_test

import (
	"fmt"

	"github.com/unstale/unstale/invalidation"
)

const exampleMap = `
version: 1
vars: {app: shop, env: {from: APP_ENV, one_of: [dev, staging, prod]}}
params:
  category_id:
    lookup:
      by: [id]
      sql: "SELECT product_id, category_id FROM product_categories WHERE product_id IN (?)"
entities:
  product:
    params: [category_id]
    keys: ["{app}:{env}:product:{id}"]
    patterns: ["{app}:{env}:category:{category_id}:list:*"]
`

func environment(name string) (string, bool) {
	if name == "APP_ENV" {
		return "prod", true
	}
	return "", false
}

// A row is expanded in three steps: its parameters are decoded, what it does not give is looked up,
// and the plan is built.
func Example() {
	m, err := invalidation.Parse("mapping.yaml", []byte(exampleMap), environment)
	if err != nil {
		fmt.Println(err)
		return
	}
	params, err := invalidation.ParseParams([]byte(`{"category_id": [7, 9]}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	plan, err := m.Expand(invalidation.Row{Entity: "product", ID: "42", Params: params}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(plan.Keys)
	fmt.Println(plan.Patterns)
	// Output:
	// [shop:prod:product:42]
	// [shop:prod:category:7:list:* shop:prod:category:9:list:*]
}

// Needs returns the values that a row lacks, and the caller provides the answers.
func ExampleMap_Needs() {
	m, err := invalidation.Parse("mapping.yaml", []byte(exampleMap), environment)
	if err != nil {
		fmt.Println(err)
		return
	}
	row := invalidation.Row{Entity: "product", ID: "42"}
	needs, err := m.Needs(row, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	var answers invalidation.Answers
	for _, need := range needs {
		fmt.Println("needs", need.Lookup.Param, "of", need.By)
		answers.Put(need, []string{"7"}) // as the database says
	}
	plan, err := m.Expand(row, &answers)
	fmt.Println(plan.Patterns, err)
	// Output:
	// needs category_id of [42]
	// [shop:prod:category:7:list:*] <nil>
}

// Parse reports every error of a map in one call, each with its place and its fix.
func ExampleParse_faults() {
	_, err := invalidation.Parse("mapping.yaml", []byte(`version: 1
entities:
  product:
    params: [category_id]
    keys:
      - "shop:{categoryid}"
      - {id}
`), environment)
	fmt.Println(err)
	// Output:
	// mapping.yaml:6:9: "{categoryid}": unknown name; did you mean "category_id"?
	// mapping.yaml:7:9: an entry of keys must be text, and it is a mapping; put the template in double quotes: "{id}"
}
