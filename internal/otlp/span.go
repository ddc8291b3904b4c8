package otlp

import "time"

// A Span is one piece of work that is over: a consumer's, with a trace of its own.
type Span struct {
	Name       string
	Start, End time.Time
	Attributes []Attribute
	Links      Links
	Error      string // why it failed, "" if it has not
}

// An Attribute says one thing about a span, or about who has made it.
type Attribute struct {
	Name string
	text string
	n    int64
	isN  bool
}

// Text is an attribute of text.
func Text(name, value string) Attribute { return Attribute{Name: name, text: value} }

// Number is an attribute that can be compared and added.
func Number[T int | int64](name string, value T) Attribute {
	return Attribute{Name: name, n: int64(value), isN: true}
}
