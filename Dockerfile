# One image per service, for who has Docker; make images makes them all without:
#   docker build --build-arg SERVICE=./fault-quarantine -t nvsentinel/fault-quarantine:0.1.0 .
# A program that calls a C library needs cgo, and an image with that library and a
# glibc no older than this one's, such as DCGM 4 for gpu-health-monitor:
#   docker build --build-arg SERVICE=./health-monitors/gpu-health-monitor --build-arg CGO=1 --build-arg BASE=<image with libdcgm.so.4> ...
ARG BASE=scratch
FROM golang:1.26 AS build
ARG SERVICE
ARG CGO=0
ARG VERSION=0.1.0
WORKDIR /src
COPY . .
# grpcnotrace: without gRPC's pages of traces a program, and its memory, is half as large.
# lazy: functions of a C library are bound when they are called, because an older
# one may lack those that never are.
RUN CGO_ENABLED=$CGO go build -trimpath -tags grpcnotrace -ldflags "-s -w -X github.com/nvidia/nvsentinel/internal/daemon.version=$VERSION -extldflags=-Wl,-z,lazy" \
      -o /service "$SERVICE"
# The monitor of the kernel log reads a journal (source: journal) with systemd's
# own program, as log-collector does, the plugin of IPMI speaks through ipmitool, and no
# other image has either.
RUN mkdir /beside && case "$SERVICE" in */syslog-health-monitor|*/log-collector) \
      apt-get update && apt-get install -y --no-install-recommends systemd && hack/journalctl.sh /beside ;; \
    */csp-plugins/ipmi) \
      apt-get update && apt-get install -y --no-install-recommends ipmitool && hack/ipmitool.sh /beside ;; \
    esac

# No shell and no package manager, only the program and the authorities of TLS.
FROM $BASE
COPY --from=build /beside/ /
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /service /service
ENV PATH=/usr/bin
USER 65532:65532
ENTRYPOINT ["/service"]
