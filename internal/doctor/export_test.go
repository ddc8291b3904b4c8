package doctor

// MemoryOf returns the findings of the check redis-memory for an answer to INFO.
func MemoryOf(text string) []Finding {
	i := &info{addr: "redis", values: map[string]string{}}
	for _, section := range []string{"server", "memory", "stats"} {
		i.addSection(section, text)
	}
	return i.judge(memoryOf)
}

// QueryRows returns the result of a query.
var QueryRows = queryRows
