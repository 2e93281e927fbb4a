package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/nvidia/nvsentinel/api/protos"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/report"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/gateway"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/gateway/gatewaytest"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storeopen"
)

func TestCommandLine(t *testing.T) {
	s, err := parse([]string{"--nodes=3", "--first=7", "--dir=/tmp/d", "--gateway=localhost:8443", "--kubeconfig=/k/{node}", "--gateway-token-file=/t/{node}", "--", "--dedup-window=0s"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.config(s.name(2))
	if cfg.NodeName != "gpu-9" || cfg.Socket != "/tmp/d/gpu-9.sock" || cfg.SpoolDir != "/tmp/d/gpu-9/spool" || cfg.Kube.Kubeconfig != "/k/gpu-9" {
		t.Errorf("the third connector: %+v", cfg)
	}
	if got := cfg.Gateway.TokenFile; got != "/t/gpu-9" {
		t.Errorf("its token is in %s", got)
	}
	if !slices.Equal(s.connectorArgs, []string{"--dedup-window=0s"}) {
		t.Errorf("each gets %q", s.connectorArgs)
	}
	_, err = parse([]string{"--nodes=0", "--dir=" + strings.Repeat("d", 120), "--identify"}, io.Discard)
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"--nodes", "not an absolute path", "107 bytes", "--gateway is required", "--identify requires"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not in %v", want, err)
		}
	}
}

// TestConnectors: each has an ingest endpoint of its own, and what it accepts is stored.
func TestConnectors(t *testing.T) {
	dir, err := os.MkdirTemp("", "fleet") // short, for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	dsn := "sqlite://" + filepath.Join(dir, "records.db")
	gate := gatewaytest.Open(t, "gpu-3")
	gate.Serve(t, gatewaytest.Options{DSN: dsn})
	tokens := t.TempDir()
	for _, node := range []string{"gpu-3", "gpu-4"} {
		if err := os.WriteFile(filepath.Join(tokens, node), []byte(gatewaytest.Token(gateway.Audience, gatewaytest.Connectors, node)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := parse([]string{
		"--nodes=2", "--first=3", "--dir=" + dir, "--gateway=" + gate.Upstream.Address, "--gateway-ca-file=" + gate.Upstream.CAFile,
		"--gateway-token-file=" + filepath.Join(tokens, "{node}"), "--", "--kubernetes=false", "--publisher-tokens=off",
	}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	output, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := serve(ctx, s, out)
		out.Close()
		ended <- err
	}()
	if line, err := bufio.NewReader(output).ReadString('\n'); line != "ready\n" {
		t.Fatalf("said %q, %v, %v", line, err, <-ended)
	}
	for _, node := range []string{"gpu-3", "gpu-4"} {
		publish(t, s.socket(node), node)
	}
	stop() // each sends what it has accepted, now or in its next life
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// publish sends an event and waits until it is accepted, then until it is stored.
func publish(t *testing.T, socket, node string) {
	t.Helper()
	conn, err := report.Dial(socket, "")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	id := uuid.Must(uuid.NewV7()).String()
	_, err = protos.NewPlatformConnectorClient(conn).HealthEventOccurredV1(t.Context(), &protos.HealthEvents{Version: 1, Events: []*protos.HealthEvent{{
		Version: 1, Id: id, Agent: "syslog-health-monitor", ComponentClass: "GPU", CheckName: "SysLogsXIDError", NodeName: node, GeneratedTimestamp: timestamppb.Now(),
	}}}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	dsn := "sqlite://" + filepath.Join(filepath.Dir(socket), "records.db")
	records, err := storeopen.Open(t.Context(), dsn, storeopen.Options{SingleHost: true})
	if err != nil {
		t.Fatal(err)
	}
	defer records.Close()
	testkit.Until(t, time.Minute, func() bool {
		found, err := records.List(t.Context(), store.Query{Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(found, func(r record.Record) bool { return r.ID == id && r.Event.NodeName == node })
	})
}
