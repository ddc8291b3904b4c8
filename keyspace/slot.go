package keyspace

import (
	"strconv"
	"strings"
)

// slotCount is the number of hash slots of a Redis Cluster.
const slotCount = 16384

// crcTable serves CRC-16/XMODEM, the checksum that Redis Cluster uses:
// polynomial 0x1021, initial value 0, not reflected.
var crcTable = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			crc <<= 1
			if carry {
				crc ^= 0x1021
			}
		}
		table[i] = crc
	}
	return table
}()

// slot is the hash slot of a key, from the bytes of its hash tag if it has
// one and from all of its bytes otherwise.
func slot(key string) uint16 {
	if tag, ok := hashTag(key); ok {
		key = tag
	}
	var crc uint16
	for i := range len(key) {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^key[i]]
	}
	return crc % slotCount
}

// hashTag is what stands between the first { and the first } after it, if
// that is not empty. It is Redis' rule to the letter.
func hashTag(key string) (string, bool) {
	_, rest, ok := strings.Cut(key, "{")
	if !ok {
		return "", false
	}
	tag, _, ok := strings.Cut(rest, "}")
	return tag, ok && tag != ""
}

// sameSlotTag is a text that, as a hash tag, leads to the slot of key. It is
// the key's own tag or the key itself, so that people can read it; a key with
// a } but no tag can't be a tag, and gets the smallest number whose slot is
// the same: 16,384 tries or so, well below a millisecond.
func sameSlotTag(key string) string {
	if tag, ok := hashTag(key); ok {
		return tag
	}
	if key != "" && !strings.Contains(key, "}") {
		return key
	}
	want := slot(key)
	for n := 0; ; n++ {
		if tag := strconv.Itoa(n); slot(tag) == want {
			return tag
		}
	}
}
