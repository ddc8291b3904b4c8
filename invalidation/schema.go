package invalidation

import _ "embed"

//go:embed mapping.schema.json
var schema []byte

// Schema returns the JSON Schema (draft 2020-12) of mapping.yaml, for editors. Parse checks more
// than it can say.
func Schema() []byte { return append([]byte(nil), schema...) }
