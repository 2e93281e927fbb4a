# One image per service:
#   docker build --build-arg SERVICE=./fault-quarantine -t nvsentinel/fault-quarantine:0.1.0 .
FROM golang:1.26 AS build
ARG SERVICE
ARG VERSION=0.1.0
WORKDIR /src
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-X github.com/nvidia/nvsentinel/internal/daemon.version=$VERSION" -o /service "$SERVICE"
# The monitor of the kernel log reads a journal (source: journal) with systemd's
# own program, and no other image has it.
RUN mkdir /beside && case "$SERVICE" in */syslog-health-monitor) \
      apt-get update && apt-get install -y --no-install-recommends systemd && hack/journalctl.sh /beside ;; \
    esac

# No shell and no package manager, only the program and the authorities of TLS.
FROM scratch
COPY --from=build /beside/ /
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /service /service
ENV PATH=/usr/bin
USER 65532:65532
ENTRYPOINT ["/service"]
