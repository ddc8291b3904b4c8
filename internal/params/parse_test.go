package params

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func scalarParam(name, value string) Param { return Param{Name: name, Values: []string{value}} }

func listParam(name string, values ...string) Param {
	return Param{Name: name, Values: append([]string{}, values...), List: true}
}

func withGaps(p Param) Param {
	p.gaps = true
	return p
}

func TestParse(t *testing.T) {
	t.Parallel()
	for src, want := range map[string]Params{
		``:                                   nil,
		`null`:                               nil,
		` {} `:                               nil,
		`{"a":null}`:                         nil,
		`{"a":18446744073709551616}`:         {scalarParam("a", "18446744073709551616")},
		`{"a":1.10,"b":1e400,"c":-0}`:        {scalarParam("a", "1.10"), scalarParam("b", "1e400"), scalarParam("c", "-0")},
		`{"a":-0.0E+10}`:                     {scalarParam("a", "-0.0E+10")},
		`{"a":true,"b":false}`:               {scalarParam("a", "true"), scalarParam("b", "false")},
		`{"a":"true"}`:                       {scalarParam("a", "true")},
		`{"a":""}`:                           {scalarParam("a", "")},
		`{"":1}`:                             {scalarParam("", "1")},
		`{"a":"\u0000\b\f\n\r\t\/\\\""}`:     {scalarParam("a", "\x00\b\f\n\r\t/\\\"")},
		`{"a":"\u062e\u062D"}`:               {scalarParam("a", "خح")},
		`{"a":"x\ud83c\udff7y"}`:             {scalarParam("a", "x🏷y")},
		`{"\u0061":"\ufffd\uffff"}`:          {scalarParam("a", "\ufffd\uffff")},
		`{"a":"🏷","b":"خصم"}`:                {scalarParam("a", "🏷"), scalarParam("b", "خصم")},
		`{"a":[]}`:                           {listParam("a")},
		`{"a":[null]}`:                       {withGaps(listParam("a"))},
		`{"a":[1,"x",true,null,-1.5],"b":2}`: {withGaps(listParam("a", "1", "x", "true", "-1.5")), scalarParam("b", "2")},
		"\t{ \"a\" :\r\n [ 1 , 2 ] , \"b\" : \"\" } ": {listParam("a", "1", "2"), scalarParam("b", "")},
	} {
		got, err := Parse([]byte(src))
		if err != nil {
			t.Errorf("%s: %v", src, err)
			continue
		}
		if fmt.Sprintf("%#v", got) != fmt.Sprintf("%#v", want) && len(got)+len(want) > 0 {
			t.Errorf("%s: got %#v, want %#v", src, got, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for src, want := range map[string]string{
		` `:                     `the JSON ends too early`,
		`[]`:                    `the parameters must be a JSON object of scalars and lists of scalars`,
		`"a"`:                   `the parameters must be a JSON object of scalars and lists of scalars`,
		`1`:                     `the parameters must be a JSON object of scalars and lists of scalars`,
		`nul`:                   `not JSON: 'n' at byte 0, want a value`,
		`{`:                     `the JSON ends too early`,
		`{"a"`:                  `"a": the JSON ends too early`,
		`{"a":`:                 `"a": the JSON ends too early`,
		`{"a":1`:                `the JSON ends too early`,
		`{"a":1,}`:              `not JSON: '}' at byte 7, want "`,
		`{"a":1}x`:              `something follows the JSON object`,
		`{"a":1}{"b":2}`:        `something follows the JSON object`,
		`{"a":1 "b":2}`:         `not JSON: '"' at byte 7, want ,`,
		`{a:1}`:                 `not JSON: 'a' at byte 1, want "`,
		`{"a":1,"a":2}`:         `"a": the name is given twice`,
		`{"a":1,"\u0061":2}`:    `"a": the name is given twice`,
		`{"a":null,"a":2}`:      `"a": the name is given twice`,
		`{"a":{}}`:              `"a": an object is neither a scalar nor a list of scalars`,
		`{"a":[{}]}`:            `"a": an object is neither a scalar nor a list of scalars`,
		`{"a":[[1]]}`:           `"a": a list within a list is not a scalar`,
		`{"a":[1,]}`:            `"a": not JSON: ']' at byte 8, want a value`,
		`{"a":[1 2]}`:           `"a": not JSON: '2' at byte 8, want ,`,
		`{"a":[1`:               `"a": the JSON ends too early`,
		`{"a":"\ud800"}`:        `"a": decode value: a lone surrogate (\ud800 to \udfff) is not a character`,
		`{"a":"\ud800\u0041"}`:  `"a": decode value: a lone surrogate (\ud800 to \udfff) is not a character`,
		`{"a":"\udc00\ud800"}`:  `"a": decode value: a lone surrogate (\ud800 to \udfff) is not a character`,
		`{"\ud800":1}`:          `a lone surrogate (\ud800 to \udfff) is not a character`,
		`{"a":"\x"}`:            `"a": decode value: an unknown escape in a string`,
		`{"a":"\u12g4"}`:        `"a": decode value: an unknown escape in a string`,
		`{"a":"\u12`:            `"a": decode value: the JSON ends too early`,
		`{"a":"`:                `"a": decode value: the JSON ends too early`,
		`{"a":"\`:               `"a": decode value: the JSON ends too early`,
		"{\"a\":\"\n\"}":        `"a": decode value: a control character in a string must be escaped`,
		"{\"a\":\"\\n\x01\"}":   `"a": decode value: a control character in a string must be escaped`,
		"{\"a\":\"\xff\"}":      `the parameters are not valid UTF-8`,
		`{"a":01}`:              `not JSON: '1' at byte 6, want ,`,
		`{"a":1.}`:              `"a": decode value: not JSON: '}' at byte 7, want a digit`,
		`{"a":.5}`:              `"a": not JSON: '.' at byte 5, want a value`,
		`{"a":1e}`:              `"a": decode value: not JSON: '}' at byte 7, want a digit`,
		`{"a":-}`:               `"a": decode value: not JSON: '}' at byte 6, want a digit`,
		`{"a":+1}`:              `"a": not JSON: '+' at byte 5, want a value`,
		`{"a":NaN}`:             `"a": not JSON: 'N' at byte 5, want a value`,
		`{"a":tru}`:             `"a": decode value: not JSON: 't' at byte 5, want a value`,
		"\ufeff{\"a\":1}":       `the parameters must be a JSON object of scalars and lists of scalars`,
		`{"category_id":[1,2`:   `"category_id": the JSON ends too early`,
		"{\"\x00\":1}":          `a control character in a string must be escaped`,
		"{\"a\":1}\x00":         `something follows the JSON object`,
		"{\"a\":\x00}":          `"a": not JSON: '\x00' at byte 5, want a value`,
		strings.Repeat("[", 10): `the parameters must be a JSON object of scalars and lists of scalars`,
	} {
		got, err := Parse([]byte(src))
		var fault *Error
		if !errors.As(err, &fault) || err.Error() != want || got != nil {
			t.Errorf("%q: got %v, %v\nwant %s", src, got, err, want)
		}
	}
}

func nestedParam(name string, list bool, kind error) Param {
	return Param{Name: name, List: list, nesting: kind}
}

// A row that was written already may have nested values, of which no template can make anything.
func TestParseNested(t *testing.T) {
	t.Parallel()
	for src, want := range map[string]Params{
		`{"a":{}}`:                                   {nestedParam("a", false, errObjectIn)},
		`{"a":{"b":1,"c":null}}`:                     {nestedParam("a", false, errObjectIn)},
		`{"a":[[]]}`:                                 {nestedParam("a", true, errListIn)},
		`{"a":[1,[2],{"b":[3]}]}`:                    {nestedParam("a", true, errListIn)},
		` { "a" : [ "x" , { } ] } `:                  {nestedParam("a", true, errObjectIn)},
		`{"a":[1],"b":{},"c":[2,3]}`:                 {listParam("a", "1"), nestedParam("b", false, errObjectIn), listParam("c", "2", "3")},
		`{"a":{"x":{"x":[{"x":1},{"x":{}}]}},"x":2}`: {nestedParam("a", false, errObjectIn), scalarParam("x", "2")},
	} {
		got, err := ParseNested([]byte(src))
		if err != nil || fmt.Sprintf("%#v", got) != fmt.Sprintf("%#v", want) {
			t.Errorf("%s: got %#v, %v, want %#v", src, got, err, want)
		}
		for i, p := range got {
			if err := p.Err(); err != want[i].nesting {
				t.Errorf("%s: %v", src, err)
			}
		}
	}
	for src, want := range map[string]string{
		`{"a":{"b":1,"b":2}}`:                            `"a": an object in it has a name twice`,
		`{"a":[{"b":{"c":1}},{"b":{"c":1,"\u0063":2}}]}`: `"a": an object in it has a name twice`,
		`{"a":{},"a":{}}`:                                `"a": the name is given twice`,
		`{"a":{"b"`:                                      `"a": the JSON ends too early`,
		`{"a":{"b":`:                                     `"a": the JSON ends too early`,
		`{"a":{`:                                         `"a": the JSON ends too early`,
		`{"a":[[1`:                                       `"a": the JSON ends too early`,
		`{"a":{}`:                                        `the JSON ends too early`,
		`{"a":[[1,]]}`:                                   `"a": not JSON: ']' at byte 9, want a value`,
		`{"a":{"b":1,}}`:                                 `"a": not JSON: '}' at byte 12, want "`,
		`{"a":{1:2}}`:                                    `"a": not JSON: '1' at byte 6, want "`,
		`{"a":{"b" 1}}`:                                  `"a": not JSON: '1' at byte 10, want :`,
		`{"a":[[1}]}`:                                    `"a": not JSON: '}' at byte 8, want ,`,
		`{"a":{"b":[}}`:                                  `"a": not JSON: '}' at byte 11, want a value`,
		`{"a":{"b":"\ud800"}}`:                           `"a": decode value: a lone surrogate (\ud800 to \udfff) is not a character`,
		`{"a":{"b":01}}`:                                 `"a": not JSON: '1' at byte 11, want ,`,
		`{"a":[{}],"b":1,"b":[]}`:                        `"b": the name is given twice`,
	} {
		got, err := ParseNested([]byte(src))
		var fault *Error
		if !errors.As(err, &fault) || err.Error() != want || got != nil {
			t.Errorf("%q: got %v, %v\nwant %s", src, got, err, want)
		}
	}
}

// Names are compared however many there are.
func TestParseDuplicates(t *testing.T) {
	t.Parallel()
	for n := 1; n < 3*manyNames; n++ {
		src := `{"x0":0`
		for i := 1; i < n; i++ {
			src += fmt.Sprintf(`,"x%d":%d`, i, i)
		}
		if p, err := Parse([]byte(src + "}")); err != nil || len(p) != n {
			t.Errorf("%d names: %d, %v", n, len(p), err)
		}
		for _, twice := range []int{0, n / 2, n - 1} {
			if _, err := Parse([]byte(fmt.Sprintf(`%s,"x%d":0}`, src, twice))); err == nil {
				t.Errorf("%d names: x%d given twice", n, twice)
			}
		}
	}
}

// Neither depth nor the number of names makes parsing slow or deep.
func TestParseHostile(t *testing.T) {
	t.Parallel()
	const size = 2 << 20
	var names bytes.Buffer
	names.WriteString(`{"x":0`)
	for i := 0; names.Len() < size; i++ {
		fmt.Fprintf(&names, `,"n%d":0`, i)
	}
	names.WriteByte('}')
	for name, src := range map[string]string{
		"deep lists":    `{"a":` + strings.Repeat("[", size/2) + strings.Repeat("]", size/2) + "}",
		"deep objects":  strings.Repeat(`{"a":`, size/6) + "1" + strings.Repeat("}", size/6),
		"deep names":    `{"a":` + names.String() + `}`,
		"one string":    `{"a":"` + strings.Repeat(`\u0041`, size/6) + `"}`,
		"one number":    `{"a":` + strings.Repeat("1", size) + `}`,
		"many names":    names.String(),
		"many values":   `{"a":[` + strings.Repeat("1,", size/2) + `1]}`,
		"white space":   strings.Repeat(" ", size) + `{}`,
		"many nothings": `{"a":[` + strings.Repeat("null,", size/5) + `1]}`,
	} {
		start := time.Now()
		_, err := Parse([]byte(src))
		if deep := strings.HasPrefix(name, "deep"); deep != (err != nil) {
			t.Errorf("%s: %v", name, err)
		} else if deep {
			if _, err := ParseNested([]byte(src)); err != nil {
				t.Errorf("%s: nested: %v", name, err)
			}
		}
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("%s: %v", name, took)
		}
	}
}

// A row without nested values allocates its text, its parameters and their values. Not parallel,
// since allocations are counted for the whole process.
func TestAllocationsOfScalars(t *testing.T) {
	src := []byte(`{"product_id":12345,"locale":"ar"}`)
	for name, parse := range map[string]func([]byte) (Params, error){"Parse": Parse, "ParseNested": ParseNested} {
		got := testing.AllocsPerRun(1000, func() {
			if _, err := parse(src); err != nil {
				t.Fatal(err)
			}
		})
		if got != 3 {
			t.Errorf("%s: %v allocations", name, got)
		}
	}
}

func TestParamsGet(t *testing.T) {
	t.Parallel()
	p := Params{scalarParam("a", "1"), listParam("b")}
	if got, ok := p.Get("b"); !ok || !got.List {
		t.Errorf("Get(b) = %v, %v", got, ok)
	}
	if _, ok := p.Get("c"); ok {
		t.Error("Get(c) found something")
	}
}

// What both accept means the same to encoding/json and to Parse.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		`{}`, `null`, `{"a":1}`, `{"a":"\ud83c\udff7"}`, `{"a":[1,"x",null,true]}`, `{"a":1.10,"b":-0,"c":1e400}`,
		`{"a":"\ud800"}`, `{"a":{"b":1}}`, `{"a":[{"b":[1,{}]},[]],"c":[2]}`, `{"a":{"b":[}}`, `{"a":1,"a":2}`, `[1]`, "{\"a\":\"\xff\"}", `{"a":"é\/"}`, `{"a" : [ ] }`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		got, err := Parse(src)
		checkNested(t, src, got, err)
		if err != nil {
			if fault := (*Error)(nil); !errors.As(err, &fault) {
				t.Fatalf("%v is not an *Error", err)
			}
			return
		}
		if len(src) == 0 {
			return
		}
		decoder := json.NewDecoder(bytes.NewReader(src))
		decoder.UseNumber()
		var want map[string]any
		if err := decoder.Decode(&want); err != nil {
			t.Fatalf("Parse accepts what encoding/json refuses: %v", err)
		}
		for name, value := range want {
			if value == nil {
				delete(want, name)
			}
		}
		if len(got) != len(want) {
			t.Fatalf("got %v, want %v", got, want)
		}
		for _, p := range got {
			if texts := jsonTexts(want[p.Name]); !reflect.DeepEqual(append([]string{}, p.Values...), texts) {
				t.Fatalf("%q: got %q, want %q", p.Name, p.Values, texts)
			}
		}
	})
}

// checkNested wants of ParseNested what Parse has returned, and beyond that nested values alone.
func checkNested(t *testing.T, src []byte, want Params, refused error) {
	t.Helper()
	got, err := ParseNested(src)
	nested := slices.Contains([]error{errObjectIn, errListIn}, errors.Unwrap(refused))
	switch {
	case err == nil && nested:
		if !slices.ContainsFunc(got, func(p Param) bool { return p.Err() != nil }) || !json.Valid(src) {
			t.Fatalf("%v is not nested", got)
		}
	case !nested && (fmt.Sprint(err) != fmt.Sprint(refused) || !reflect.DeepEqual(got, want)):
		t.Fatalf("got %v, %v, want %v, %v", got, err, want, refused)
	}
}

func jsonTexts(value any) []string {
	list, ok := value.([]any)
	if !ok {
		list = []any{value}
	}
	texts := []string{}
	for _, v := range list {
		if v != nil {
			texts = append(texts, fmt.Sprint(v))
		}
	}
	return texts
}
