// Package docs holds what people read to what the program does: README.md, the pages below docs, docker-compose.yml and
// the Dockerfile. It has tests only.
package docs
