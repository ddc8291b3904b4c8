package conform

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// A wire reads RESP 2 and 3.
type wire struct {
	in  *bufio.Reader
	raw bytes.Buffer // what was read
}

func newWire(in io.Reader) *wire { return &wire{in: bufio.NewReaderSize(in, 1<<16)} }

// take returns the bytes that were read since the last call.
func (w *wire) take() []byte {
	raw := bytes.Clone(w.raw.Bytes())
	w.raw.Reset()
	return raw
}

// A refusal is an error reply.
type refusal string

// value reads a reply, or a command: a string, an int64, a refusal, a list, or nil. Maps and sets
// are lists.
func (w *wire) value() (any, error) {
	line, err := w.in.ReadString('\n')
	w.raw.WriteString(line)
	if err != nil {
		return nil, err
	}
	kind, text := line[0], strings.TrimRight(line[1:], "\r\n")
	switch kind {
	case '+', ',', '(', '#':
		return text, nil
	case '-':
		return refusal(text), nil
	case '_':
		return nil, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("line %.40q: no RESP", line)
	}
	switch kind {
	case ':':
		return n, nil
	case '$', '=', '!':
		if n < 0 {
			return nil, nil
		}
		begin := w.raw.Len()
		_, err = io.CopyN(&w.raw, w.in, n+2)
		return string(bytes.TrimSuffix(w.raw.Bytes()[begin:], []byte("\r\n"))), err
	case '%', '|':
		n *= 2
	}
	var list []any
	for range n {
		one, err := w.value()
		if err != nil {
			return nil, err
		}
		list = append(list, one)
	}
	if kind == '>' || kind == '|' { // a push or attributes: the reply is yet to come
		return w.value()
	}
	return list, nil
}

// A command is one command of a client.
type command struct {
	name string // in upper case
	args []string

	script     string // that it runs; empty: none
	keys, argv []string
}

// command reads a command: a list of texts.
func (w *wire) command() (c command, err error) {
	value, err := w.value()
	words, _ := value.([]any)
	for i, word := range words {
		if text := fmt.Sprint(word); i == 0 {
			c.name = strings.ToUpper(text)
		} else {
			c.args = append(c.args, text)
		}
	}
	c.findScript()
	return c, err
}
