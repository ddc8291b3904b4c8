package main

// A secret is the value of a flag that no output may show. Its variable may be replaced by one for
// a file: see applyEnv.
type secret struct {
	text string
	file string // that text was read from, or ""
}

// Set implements pflag.Value.
func (s *secret) Set(text string) error {
	*s = secret{text: text}
	return nil
}

// String implements pflag.Value.
func (s *secret) String() string { return s.text }

// Type implements pflag.Value.
func (s *secret) Type() string { return "string" }
