package draft

// A Family is a set of keys that differ only in values.
type Family struct{ parts string }

func (f Family) String() string                          { return f.parts }
func (f Family) template(app string) (kind, text string) { return "", "" }

// Families are ...
type Families struct{}

func (d *Draft) assign(f *Families) {}
