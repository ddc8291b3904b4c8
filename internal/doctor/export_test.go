package doctor

// MemoryOf is what the check named redis-memory says of an answer to INFO.
func MemoryOf(text string) []Finding {
	i := &info{addr: "redis", values: map[string]string{}}
	for _, section := range []string{"memory", "stats"} {
		i.read(section, text)
	}
	return i.judge(memoryOf)
}
