# One image of hack/tools/images/images.txt, for who has Docker; make images makes them all
# without. SERVICES are its packages, as that list has them:
#   docker build --build-arg SERVICES=./nvsentinel-controller -t nvsentinel/nvsentinel-controller:0.1.0 .
# A program that calls a C library needs cgo, and an image with that library and a
# glibc no older than this one's, such as DCGM 4 for gpu-health-monitor:
#   docker build --build-arg SERVICES=./health-monitors/gpu-health-monitor,./health-monitors/metadata-collector --build-arg CGO=1 --build-arg BASE=<image with libdcgm.so.4> ...
ARG BASE=scratch
FROM golang:1.26 AS build
ARG SERVICES
ARG CGO=0
ARG VERSION=0.1.0
WORKDIR /src
COPY . .
# grpcnotrace: without gRPC's pages of traces a program, and its memory, is half as large.
# lazy: functions of a C library are bound when they are called, because an older
# one may lack those that never are.
# The first program is /service, each other one has its own name.
RUN mkdir /programs && name=service && for package in $(echo "$SERVICES" | tr , ' '); do \
      CGO_ENABLED=$CGO go build -trimpath -tags grpcnotrace -ldflags "-s -w -X github.com/nvidia/nvsentinel/internal/daemon.version=$VERSION -extldflags=-Wl,-z,lazy" \
        -o "/programs/${name:-$(basename "$package")}" "$package" && name= || exit 1; \
    done
# The monitor of the kernel log reads a journal (source: journal) with systemd's
# own program, as log-collector does, the plugin of IPMI speaks through ipmitool, and no
# other image has either.
RUN mkdir /beside && case "$SERVICES" in */syslog-health-monitor*|*/log-collector*) \
      apt-get update && apt-get install -y --no-install-recommends systemd && hack/journalctl.sh /beside ;; \
    */csp-plugins/ipmi) \
      apt-get update && apt-get install -y --no-install-recommends ipmitool && hack/ipmitool.sh /beside ;; \
    esac
RUN GOWORK=off go -C hack/tools build -o /usr/local/bin/release ./release && mkdir /texts && for program in /programs/*; do \
      release licenses --program "$program" --dir /texts || exit 1; \
    done

# No shell and no package manager, only the program and the authorities of TLS.
FROM $BASE
COPY --from=build /beside/ /
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /texts/ /
COPY --from=build /programs/ /
ENV PATH=/usr/bin
USER 65532:65532
ENTRYPOINT ["/service"]
