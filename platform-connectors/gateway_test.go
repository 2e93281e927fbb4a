package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/freeport"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/authn"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/gateway"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/gateway/gatewaytest"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/upstream"
	"github.com/nvidia/nvsentinel/store-client/remote"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// avenue is a node whose connector goes through two gateways, each a process, with
// tokens of a real API server.
type avenue struct {
	*site
	address   [2]string
	inspect   [2]string // where each lets the store be read; empty is nowhere
	cert, key string
	account   string
	token     string
	program   string
	flags     []string // of the connector, besides
}

func newAvenue(t *testing.T) *avenue {
	t.Helper()
	a := &avenue{site: newSite(t)}
	a.makeStoreReachable()
	a.cert, a.key = gatewaytest.Certificate(t)
	for i := range a.address {
		port, err := freeport.Find(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		a.address[i] = fmt.Sprintf("127.0.0.1:%d", port)
	}
	namespace := a.cluster.Namespace(t)
	a.account = "system:serviceaccount:" + namespace + ":connectors"
	a.token = filepath.Join(a.dir, "token")
	a.show(a.site.token(namespace, "connectors", nodeName, gateway.Audience))
	var err error
	if a.program, err = testkit.Binary(t.TempDir(), "node-connector"); err != nil {
		t.Fatal(err)
	}
	return a
}

// show makes a token the one of the connector's pod.
func (a *avenue) show(token string) {
	a.t.Helper()
	if err := os.WriteFile(a.token, []byte(token), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

// gateway starts one of the two.
func (a *avenue) gateway(i int) *process {
	a.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		a.t.Fatal(err)
	}
	return a.run(exe, "--role=gateway", "--kubeconfig="+a.cluster.AdminKubeconfig(), "--store="+a.dsn(), "--single-host",
		"--gateway-listen="+a.address[i], "--gateway-cert-file="+a.cert, "--gateway-key-file="+a.key, "--gateway-accounts="+a.account,
		"--inspect-address="+a.inspect[i], "--metrics-address=off", "--log-format=text")
}

// connector starts the one of the node.
func (a *avenue) connector() *process {
	a.t.Helper()
	return a.run(a.program, append([]string{"--node-name=" + nodeName, "--socket=" + a.socket, "--wal-dir=" + filepath.Join(a.dir, "spool"),
		"--kubeconfig=" + a.cluster.AdminKubeconfig(), "--gateway=" + strings.Join(a.address[:], ","), "--gateway-ca-file=" + a.cert,
		"--gateway-token-file=" + a.token, "--metrics-address=off", "--log-format=text"}, a.flags...)...)
}

// TestGatewaysAreKilledWhileEventsFlow: one gateway after the other is killed as by
// a power cut while four publishers send. Every acknowledged event is stored once
// and in its publisher's order, and a lost fault set is rebuilt through a gateway.
func TestGatewaysAreKilledWhileEventsFlow(t *testing.T) {
	a := newAvenue(t)
	gateways := []*process{a.gateway(0), a.gateway(1)}
	connector := a.connector()
	const publishers, each, kills = 4, 60, 3
	var sent atomic.Int64
	ids := make([][]string, publishers)
	var wg sync.WaitGroup
	for n := range publishers {
		wg.Go(func() {
			client := a.client()
			for seq := 1; seq <= each; seq++ {
				e := event(fmt.Sprint("p", n), seq)
				e.Id = uuid.Must(uuid.NewV7()).String()
				if err := send(t.Context(), client, e); err != nil {
					t.Error(err)
					return
				}
				ids[n] = append(ids[n], e.GetId())
				sent.Add(1)
			}
		})
	}
	for kill := range kills {
		await(t, func() (bool, string) {
			return sent.Load() >= int64(publishers*each*(kill+1)/(kills+1)), fmt.Sprint(sent.Load(), " events are acknowledged")
		})
		gateways[kill%2].kill()
		gateways[kill%2] = a.gateway(kill % 2)
	}
	wg.Wait()
	all := awaitStored(t, a.records(), publishers*each)
	stored := make([][]string, publishers)
	for _, r := range all {
		var n, seq int
		if _, err := fmt.Sscanf(r.Event.Message, "p%d/%d", &n, &seq); err != nil {
			t.Fatal(err)
		}
		stored[n] = append(stored[n], r.ID)
	}
	for n := range publishers {
		if fmt.Sprint(stored[n]) != fmt.Sprint(ids[n]) {
			t.Errorf("publisher %d sent %d events, %d are stored, or in another order", n, len(ids[n]), len(stored[n]))
		}
	}
	connector.kill()
	if err := os.Remove(filepath.Join(a.dir, "spool", "faults.json")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	a.forgetConditions()
	a.connector()
	await(t, func() (bool, string) {
		got := a.conditions()[check]
		return strings.Contains(got, "GPU-p3"), got
	})
}

// TestAGatewayLetsItsStoreBeRead at its loopback address, as long as it lives.
func TestAGatewayLetsItsStoreBeRead(t *testing.T) {
	a := newAvenue(t)
	port, err := freeport.Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	a.inspect[0] = fmt.Sprintf("127.0.0.1:%d", port)
	g := a.gateway(0)
	stored := storetest.Record(nodeName)
	storetest.MustAppend(t, a.records(), stored)
	reader := remote.Open(func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", a.inspect[0])
	})
	defer reader.Close()
	await(t, func() (bool, string) {
		got, err := reader.Get(t.Context(), stored.ID)
		return err == nil && got.Event.NodeName == nodeName, fmt.Sprint(got.ID, err)
	})
	g.kill()
	if _, err := reader.List(t.Context(), store.Query{}); err == nil {
		t.Error("a gateway that is gone answers")
	}
}

// TestNoReaderKeepsEventsFromTheStore: where the address to read at is taken, a gateway
// serves connectors all the same.
func TestNoReaderKeepsEventsFromTheStore(t *testing.T) {
	a := newAvenue(t)
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	a.inspect[0] = taken.Addr().String()
	a.gateway(0)
	a.connector()
	if err := send(t.Context(), a.client(), event("a", 1)); err != nil {
		t.Fatal(err)
	}
	awaitStored(t, a.records(), 1)
}

// forgetConditions takes the check's condition from the Node.
func (a *avenue) forgetConditions() {
	a.t.Helper()
	node, err := a.cluster.Client().CoreV1().Nodes().Get(a.t.Context(), nodeName, metav1.GetOptions{})
	if err != nil {
		a.t.Fatal(err)
	}
	node.Status.Conditions = nil
	if _, err := a.cluster.Client().CoreV1().Nodes().UpdateStatus(a.t.Context(), node, metav1.UpdateOptions{}); err != nil {
		a.t.Fatal(err)
	}
}

// TestAGatewayBelievesTokensOnly: with the token of another node's pod, of another
// account, of no pod, or for the connector, nothing is stored; the spool keeps the event
// and it is stored when the pod's own token is there.
func TestAGatewayBelievesTokensOnly(t *testing.T) {
	a := newAvenue(t)
	a.gateway(0)
	namespace := strings.Split(a.account, ":")[2]
	good, err := os.ReadFile(a.token)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.cluster.AddNode(t.Context(), localcluster.NodeSpec{Name: "gpu-9"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.cluster.DeleteNode(context.WithoutCancel(t.Context()), "gpu-9"); err != nil {
			t.Error(err)
		}
	})
	for _, bad := range []struct{ name, token, message string }{
		{"another account", a.site.token(namespace, "train", nodeName, gateway.Audience), "not an account of connectors"},
		{"no pod", a.site.token(namespace, "connectors", "", gateway.Audience), "not bound to a Pod"},
		{"another audience", a.site.token(namespace, "connectors", nodeName, authn.Audience), "rejected the token"},
	} {
		g, err := upstream.Open(upstream.Config{Address: a.address[0], TokenFile: a.token, CAFile: a.cert}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		a.show(bad.token)
		await(t, func() (bool, string) {
			_, err := g.Append(t.Context(), []record.Record{storetest.Record(nodeName)})
			return strings.Contains(fmt.Sprint(err), bad.message), fmt.Sprint(bad.name, ": ", err)
		})
		g.Close()
	}
	// A token of gpu-9 is for events about gpu-9, whichever node the connector believes to be on.
	a.show(a.site.token(namespace, "connectors", "gpu-9", gateway.Audience))
	connector := a.connector()
	foreign := event("foreign", 1)
	foreign.Id = uuid.Must(uuid.NewV7()).String()
	a.send(foreign)
	await(t, func() (bool, string) { // and not sent again, by a token that may publish events about gpu-7
		return strings.Contains(connector.log.String(), "dead-lettered"), "the record is not refused for good"
	})
	a.show(string(good))
	own := event("own", 1)
	own.Id = uuid.Must(uuid.NewV7()).String()
	a.send(own)
	if all := awaitStored(t, a.records(), 1); all[0].ID != own.GetId() {
		t.Errorf("stored is %s", all[0].Event.Message)
	}
}
