package protocol

import "testing"

func BenchmarkGlobMatch(b *testing.B) {
	g, err := CompileGlob("zahraah:prod:category:7:list:*:s:new")
	if err != nil {
		b.Fatal(err)
	}
	for name, key := range map[string]string{
		"match": "zahraah:prod:category:7:list:p1:s:new", "other": "zahraah:prod:product:12345",
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				g.Match(key)
			}
		})
	}
}

func BenchmarkMessageAppend(b *testing.B) {
	m := Message{Epoch: "0123456789abcdef", Seq: 7}
	for range MaxEntries {
		m.Keys = append(m.Keys, "zahraah:prod:product:12345")
	}
	var buf []byte
	for b.Loop() {
		buf = m.Append(buf[:0], FormatEvent)
	}
	b.SetBytes(int64(len(buf)))
}
