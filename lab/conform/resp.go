package conform

import (
	"bufio"
	"bytes"
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
}

// mostBulk limits a text, and mostParts a list, so that garbage takes no memory.
const mostBulk, mostParts = 64 << 20, 1 << 20

// readCommand reads a command: an array of bulk strings, or a line of words.
func readCommand(in *bufio.Reader) (c command, err error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return c, err
	}
	c.raw = []byte(line)
	words := strings.Fields(line)
	if strings.HasPrefix(line, "*") {
		n, err := countOf(line, mostParts)
		if err != nil {
			return c, err
		}
		words = nil
		for range n {
			if line, err = in.ReadString('\n'); err != nil {
				return c, err
			}
			size, err := countOf(line, mostBulk)
			if err != nil {
				return c, err
			}
			text := make([]byte, size+2)
			if _, err := io.ReadFull(in, text); err != nil {
				return c, err
			}
			words = append(words, string(text[:size]))
			c.raw = append(append(c.raw, line...), text...)
		}
	}
	if len(words) > 0 {
		c.name, c.args = strings.ToUpper(words[0]), words[1:]
	}
	return c, nil
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

// readReply reads a reply of RESP 2 or 3 and appends its bytes to raw: a string, an int64, a
// refusal, a list, or nil. Maps and sets are lists.
func readReply(in *bufio.Reader, raw *bytes.Buffer) (any, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return nil, err
	}
	raw.WriteString(line)
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
		_, err = io.ReadFull(in, bulk)
		raw.Write(bulk)
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
			if list[i], err = readReply(in, raw); err != nil {
				return nil, err
			}
		}
		if line[0] == '>' || line[0] == '|' { // a push or attributes: the reply is yet to come
			return readReply(in, raw)
		}
		return list, nil
	}
	return nil, fmt.Errorf("reply %.40q: unknown type", line)
}
