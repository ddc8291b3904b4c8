# The image of unstale: one static binary.
#
#   docker build --build-arg VERSION=v1.2.3 --tag unstale .
#
# The last stage is scratch: nothing in it needs updates but the binary, and it comes from no other
# registry. It holds no shell, so the health check of docker-compose.yml calls "unstale health". The
# map is not part of it: mount yours at /etc/unstale/mapping.yaml, and set the variables that it
# requires, such as APP_ENV.

FROM --platform=$BUILDPLATFORM golang:1.26-bookworm AS build
ENV CGO_ENABLED=0
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod \
    go mod download
COPY . .
ARG VERSION= TARGETOS TARGETARCH
RUN --mount=type=cache,target=/go/pkg/mod \
    --mount=type=cache,target=/root/.cache/go-build \
    GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -ldflags "-s -w -X main.version=$VERSION" -o /out/unstale ./cmd/unstale

FROM scratch
# For rediss:// and for MySQL with tls=true.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/unstale /unstale
# A container's loopback is its own: probes and scrapers come from outside.
ENV UNSTALE_MAP=/etc/unstale/mapping.yaml \
    UNSTALE_LISTEN=:9117
USER 65532:65532
EXPOSE 9117
ENTRYPOINT ["/unstale"]
CMD ["run"]
