package protocol

import "strings"

// SlotCount is the number of hash slots of a Redis Cluster.
const SlotCount = 16384

// crcTable serves CRC-16/XMODEM, the checksum that Redis Cluster uses: polynomial 0x1021, initial
// value 0, not reflected.
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

// Slot returns the hash slot of a key, from the bytes of its hash tag if it has one and from all of
// its bytes otherwise.
func Slot(key string) uint16 {
	if tag, ok := HashTag(key); ok {
		key = tag
	}
	var crc uint16
	for i := range len(key) {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^key[i]]
	}
	return crc % SlotCount
}

// HashTag returns the text between the first { and the first } after it, if that is not empty,
// exactly as Redis does.
func HashTag(key string) (string, bool) {
	_, rest, ok := strings.Cut(key, "{")
	if !ok {
		return "", false
	}
	tag, _, ok := strings.Cut(rest, "}")
	return tag, ok && tag != ""
}
