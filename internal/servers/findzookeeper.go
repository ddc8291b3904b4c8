package servers

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// installedJars is the directory of the jars of Debian's packages.
const installedJars = "/usr/share/java"

// zookeeperJars are the jars that a server loads, without ".jar".
var zookeeperJars = []string{"zookeeper", "zookeeper-jute", "slf4j-api", "slf4j-simple", "metrics-core", "snappy-java"}

// zookeeper finds ZooKeeper's jars and a Java to run them: first the installed ones, then the
// unpacked ones.
func (p places) zookeeper() (found []*Program, rejected []string) {
	consider := func(java, jars, tree string) {
		if info, err := os.Stat(java); err != nil || info.IsDir() {
			return
		}
		program, err := zookeeperOf(java, jars, tree)
		switch {
		case err != nil:
			rejected = append(rejected, err.Error())
		case program != nil:
			found = append(found, program)
		}
	}
	for _, dir := range p.path {
		consider(filepath.Join(dir, "java"), installedJars, "")
	}
	if p.folder != "" {
		tree := filepath.Join(p.folder, "zookeeper")
		consider(filepath.Join(tree, "jre/bin/java"), filepath.Join(tree, "jars"), tree)
	}
	return found, rejected
}

// zookeeperOf returns the program for a directory of jars, or nil if it does not contain ZooKeeper.
func zookeeperOf(java, jars, tree string) (*Program, error) {
	versions, _ := filepath.Glob(filepath.Join(jars, "zookeeper-[0-9]*.jar"))
	if len(versions) == 0 {
		return nil, nil
	}
	for _, name := range zookeeperJars {
		if _, err := os.Stat(filepath.Join(jars, name+".jar")); err != nil {
			return nil, fmt.Errorf("%s has no %s.jar", jars, name)
		}
	}
	version := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(versions[0]), "zookeeper-"), ".jar")
	if older(version, oldest[KindZooKeeper]) {
		return nil, fmt.Errorf("%s is %s", versions[0], version)
	}
	return &Program{Kind: KindZooKeeper, Name: KindZooKeeper.String(), Path: java, Version: version, Tree: tree, jars: jars}, nil
}

// zookeeperArgs returns Java's arguments for a server with a configuration file.
func (p *Program) zookeeperArgs(config string) []string {
	var path []string
	for _, name := range zookeeperJars {
		path = append(path, filepath.Join(p.jars, name+".jar"))
	}
	args := append([]string{}, zookeeperFlags...)
	return append(args, "-cp", strings.Join(path, ":"), "org.apache.zookeeper.server.quorum.QuorumPeerMain", config)
}
