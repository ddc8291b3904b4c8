package demo

import (
	"strings"

	"github.com/unstale/unstale/internal/servers"
)

// Database returns the name of the demo's own database.
func (d *Demo) Database() string { return d.place.database }

// PrivateRedis returns the demo's own Redis.
func (d *Demo) PrivateRedis() *servers.Redis { return d.place.privateRedis }

// PrivateMySQL returns the demo's own database server.
func (d *Demo) PrivateMySQL() *servers.MySQL { return d.place.privateMySQL }

// GuideOn returns the instructions that Serve prints on given servers.
func GuideOn(cfg Config) (string, error) {
	p, err := newPlace(cfg)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = newGuide(p, "unstale", "mapping.yaml", "cache:invalidate").write(&b)
	return b.String(), err
}

// JudgeReaders returns the faults of two kinds of readers.
func JudgeReaders(naive, ours *Readers) []string {
	p := player{report: &Report{}}
	readerScenes{&p}.judgeReaders(naive, ours)
	return p.report.Faults
}
