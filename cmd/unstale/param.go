package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/unstale/unstale/invalidation"
)

// addParams adds --param, which may be given often. A comma never splits: values are text.
func addParams(flags *pflag.FlagSet) *[]string {
	return flags.StringArray("param", nil, "a parameter as name=value; given twice, the name is a list")
}

// parseParams turns name=value pairs into parameters, in the order of first appearance. A name that
// is given twice is a list.
func parseParams(pairs []string) (invalidation.Params, error) {
	var params invalidation.Params
	at := map[string]int{}
	for _, pair := range pairs {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return nil, usageError{fmt.Errorf("--param %q: must be name=value", pair)}
		}
		if i, known := at[name]; known {
			params[i].Values = append(params[i].Values, value)
			params[i].List = true
			continue
		}
		at[name] = len(params)
		params = append(params, invalidation.Param{Name: name, Values: []string{value}})
	}
	return params, nil
}

// paramsJSON writes parameters in the form of a row.
func paramsJSON(params invalidation.Params) (json.RawMessage, error) {
	if len(params) == 0 {
		return nil, nil
	}
	object := make(map[string]any, len(params))
	for _, p := range params {
		if p.List {
			object[p.Name] = p.Values
		} else {
			object[p.Name] = p.Values[0]
		}
	}
	return json.Marshal(object)
}
