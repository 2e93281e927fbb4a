# One image per service:
#   docker build --build-arg SERVICE=./fault-quarantine -t nvsentinel/fault-quarantine:0.1.0 .
FROM golang:1.26 AS build
ARG SERVICE
ARG VERSION=0.1.0
WORKDIR /src
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-X github.com/nvidia/nvsentinel/internal/daemon.version=$VERSION" -o /service "$SERVICE"

# No shell and no package manager, only the program and the authorities of TLS.
FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /service /service
USER 65532:65532
ENTRYPOINT ["/service"]
