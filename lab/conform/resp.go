package conform

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// A command is one command of a client.
type command struct {
	name string // in upper case
	args []string
	raw  []byte // as it was sent

	script     string // that it runs; empty: none
	keys, argv []string
}

// mostBulk limits a text, and mostParts a list, so that garbage takes no memory.
const mostBulk, mostParts = 64 << 20, 1 << 20

// A wire reads RESP 2 and 3.
type wire struct {
	in  *bufio.Reader
	raw []byte // all bytes read so far
}

func newWire(in io.Reader) *wire { return &wire{in: bufio.NewReaderSize(in, 1<<16)} }

// command reads a command: a list of texts, or a line of words. It forgets what was read before.
func (w *wire) command() (c command, err error) {
	w.raw = nil
	first, err := w.in.Peek(1)
	if err != nil {
		return c, err
	}
	var words []string
	if first[0] == '*' {
		list, err := w.reply()
		if err != nil {
			return c, err
		}
		parts, _ := list.([]any)
		for _, part := range parts {
			words = append(words, fmt.Sprint(part))
		}
	} else {
		line, err := w.line()
		if err != nil {
			return c, err
		}
		words = strings.Fields(line)
	}
	c.raw = w.raw
	if len(words) > 0 {
		c.name, c.args = strings.ToUpper(words[0]), words[1:]
		c.findScript()
	}
	return c, nil
}

func (w *wire) line() (string, error) {
	line, err := w.in.ReadString('\n')
	w.raw = append(w.raw, line...)
	return line, err
}

// countOf reads the number of a line such as "$12".
func countOf(line string, most int) (int, error) {
	n, err := strconv.Atoi(strings.TrimSpace(line[1:]))
	if err != nil || n < -1 || n > most {
		return 0, fmt.Errorf("line %.40q: no number of at most %d", line, most)
	}
	return n, nil
}

// A refusal is an error reply.
type refusal string

// reply reads a reply: a string, an int64, a refusal, a list, or nil. Maps and sets are lists.
func (w *wire) reply() (any, error) {
	line, err := w.line()
	if err != nil {
		return nil, err
	}
	text := strings.TrimRight(line[1:], "\r\n")
	switch line[0] {
	case '+', ',', '(', '#':
		return text, nil
	case '-':
		return refusal(text), nil
	case '_':
		return nil, nil
	case ':':
		return strconv.ParseInt(text, 10, 64)
	case '$', '=', '!':
		n, err := countOf(line, mostBulk)
		if n < 0 || err != nil {
			return nil, err
		}
		bulk := make([]byte, n+2)
		_, err = io.ReadFull(w.in, bulk)
		w.raw = append(w.raw, bulk...)
		return string(bulk[:n]), err
	case '*', '~', '>', '%', '|':
		n, err := countOf(line, mostParts)
		if n < 0 || err != nil {
			return nil, err
		}
		if line[0] == '%' || line[0] == '|' {
			n *= 2
		}
		list := make([]any, n)
		for i := range list {
			if list[i], err = w.reply(); err != nil {
				return nil, err
			}
		}
		if line[0] == '>' || line[0] == '|' { // a push or attributes: the reply is yet to come
			return w.reply()
		}
		return list, nil
	}
	return nil, fmt.Errorf("reply %.40q: unknown type", line)
}
