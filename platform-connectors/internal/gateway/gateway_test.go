package gateway_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/platform-connectors/authority"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/gate"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/gateway"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/gateway/gatewaytest"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/protos"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/upstream"
	"github.com/nvidia/nvsentinel/platform-connectors/passage"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

const (
	connectors = "system:serviceaccount:nvsentinel:platform-connectors"
	analyzer   = "system:serviceaccount:nvsentinel:health-events-analyzer"
)

// reviewer plays the API server: a token says in words what it is,
// "<audience> <account> <node>"; without a node it is bound to no pod.
func reviewer(asked *atomic.Int64) *fake.Clientset {
	client := fake.NewClientset()
	client.PrependReactor("create", "tokenreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		asked.Add(1)
		create, _ := a.(clienttesting.CreateAction)
		review, _ := create.GetObject().(*authenticationv1.TokenReview)
		review = review.DeepCopy()
		words := append(strings.Split(review.Spec.Token, "~"), "", "", "")
		if words[0] != review.Spec.Audiences[0] {
			review.Status.Error = "the token is expired, or for another audience"
			return true, review, nil
		}
		review.Status = authenticationv1.TokenReviewStatus{
			Authenticated: true, Audiences: review.Spec.Audiences,
			User: authenticationv1.UserInfo{Username: words[1], Extra: map[string]authenticationv1.ExtraValue{}},
		}
		if words[2] != "" {
			review.Status.User.Extra["authentication.kubernetes.io/node-name"] = []string{words[2]}
			review.Status.User.Extra["authentication.kubernetes.io/pod-uid"] = []string{"uid-" + words[2]}
		}
		return true, review, nil
	})
	return client
}

func token(audience, account, node string) string {
	return strings.TrimSuffix(audience+"~"+account+"~"+node, "~")
}

func of(node string) string { return token(gateway.Audience, connectors, node) }

// away is a store that can be made to fail.
type away struct {
	store.Store
	err atomic.Pointer[error]
}

func (a *away) Append(ctx context.Context, records []record.Record) ([]store.AppendResult, error) {
	if err := a.err.Load(); err != nil {
		return nil, *err
	}
	return a.Store.Append(ctx, records)
}

// hall is a gateway that listens, and what stands behind it.
type hall struct {
	t       *testing.T
	address string
	ca      string
	store   *away
	asked   *atomic.Int64
	gateway *gateway.Gateway
	stop    context.CancelFunc
}

func newHall(t *testing.T, edit ...func(*gateway.Gateway, *gateway.Limits)) *hall {
	t.Helper()
	h := &hall{t: t, store: &away{Store: storetest.SQLite(t)}, asked: &atomic.Int64{}}
	review := func(audience string) *gate.Review {
		return gate.NewReview(reviewer(h.asked), gate.Verification{
			Audience: audience, Life: time.Minute, Refused: time.Minute, AtOnce: 16,
		}, clock.RealClock{}, prometheus.NewRegistry())
	}
	h.gateway = &gateway.Gateway{
		Callers: &gateway.Callers{
			Connectors: review(gateway.Audience), Publishers: review(gate.Audience), Accounts: []string{connectors}, Clock: clock.RealClock{},
			Policy: passage.Policy{Agents: append(authority.DefaultAgents(), authority.Agent{Name: "health-events-analyzer", Account: analyzer, ClusterWide: true})},
		},
		Shares: &gateway.Shares{PerSecond: 1 << 20, Burst: 64 << 20, Clock: clock.RealClock{}},
		Store:  h.store, PerNode: 2, Bytes: gateway.NewRoom(gateway.MaxMessage),
		Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler), Metrics: gateway.NewMetrics(prometheus.NewRegistry()),
	}
	limits := gateway.Limits{Connections: 100, PerAddress: 100}
	for _, e := range edit {
		e(h.gateway, &limits)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h.address = l.Addr().String()
	var certificates gateway.Certificates
	certificates.Cert, certificates.Key = gatewaytest.Certificate(t)
	h.ca = certificates.Cert
	ctx, cancel := context.WithCancel(context.Background())
	h.stop = cancel
	done := make(chan error, 1)
	go func() { done <- gateway.Serve(ctx, l, h.gateway, certificates, limits) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return h
}

// connector is the real client with a token.
func (h *hall) connector(token string) *upstream.Gateway {
	h.t.Helper()
	file := filepath.Join(h.t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		h.t.Fatal(err)
	}
	g, err := upstream.Open(upstream.Config{Address: h.address, TokenFile: file, CAFile: h.ca}, slog.New(slog.DiscardHandler))
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { g.Close() })
	return g
}

// bare is a client of an attacker: any header, any message.
func (h *hall) bare() *grpc.ClientConn {
	h.t.Helper()
	conn, err := grpc.NewClient(h.address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})),
		grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(1<<30)))
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { conn.Close() })
	return conn
}

func bearing(t *testing.T, headers ...string) context.Context {
	for i := 1; i < len(headers); i += 2 {
		headers[i] = "Bearer " + headers[i]
	}
	return metadata.AppendToOutgoingContext(t.Context(), headers...)
}

func (h *hall) stored() []record.Record {
	h.t.Helper()
	all, err := h.store.List(h.t.Context(), store.Query{})
	if err != nil {
		h.t.Fatal(err)
	}
	return all
}

func doc(t *testing.T, r record.Record) []byte {
	t.Helper()
	b, err := record.AppendJSON(nil, r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestWay: what a connector appends is in the store when it is answered, once,
// and in order; its history is its own node's.
func TestWay(t *testing.T) {
	h := newHall(t)
	seven, eight := h.connector(of("gpu-7")), h.connector(of("gpu-8"))
	a, b, c := storetest.Record("gpu-7"), storetest.Record("gpu-7"), storetest.Record("gpu-8")
	for range 2 {
		if _, err := seven.Append(t.Context(), []record.Record{b, a}); err != nil {
			t.Fatal(err)
		}
	}
	changed := a
	changed.Event.Message = "another"
	results, err := seven.Append(t.Context(), []record.Record{a, changed, storetest.Record("gpu-8")})
	if diff := cmp.Diff([]store.AppendResult{store.Duplicate, store.Refused, store.Refused}, results); err != nil || diff != "" {
		t.Errorf("results: %v (-want +got):\n%s", err, diff)
	}
	if _, err := eight.Append(t.Context(), []record.Record{c}); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, r := range h.stored() {
		ids = append(ids, r.ID)
	}
	if diff := cmp.Diff([]string{b.ID, a.ID, c.ID}, ids); diff != "" {
		t.Errorf("stored (-want +got):\n%s", diff)
	}
	var own []string
	for after := int64(0); ; {
		page, err := eight.History(t.Context(), after)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		for _, r := range page {
			own, after = append(own, r.ID), r.Append
		}
	}
	if diff := cmp.Diff([]string{c.ID}, own); diff != "" {
		t.Errorf("history of gpu-8 (-want +got):\n%s", diff)
	}
	if err := seven.Dead(t.Context(), store.DeadLetter{ID: "x", Source: "fault-quarantine", Reason: "why"}); err != nil {
		t.Error(err)
	}
	if n := h.asked.Load(); n != 2 {
		t.Errorf("the API server was asked %d times about two tokens", n)
	}
	gone := fmt.Errorf("no connection with secret words")
	h.store.err.Store(&gone)
	if _, err := seven.Append(t.Context(), []record.Record{storetest.Record("gpu-7")}); status.Code(err) != codes.Unavailable || strings.Contains(err.Error(), "secret") {
		t.Errorf("with the store away: %v", err)
	}
}

// TestALargeBatchGoesInParts: no message is too large, and the order is kept.
func TestALargeBatchGoesInParts(t *testing.T) {
	h := newHall(t)
	var batch []record.Record
	for range 5 {
		batch = append(batch, storetest.Record("gpu-7", func(r *record.Record) {
			r.Event.Message = strings.Repeat("<", 32<<10)
			r.Event.Metadata = map[string]string{}
			for i := range 60 {
				r.Event.Metadata[fmt.Sprint("k", i)] = strings.Repeat("&", 4<<10)
			}
		}))
	}
	results, err := h.connector(of("gpu-7")).Append(t.Context(), batch)
	if err != nil || len(results) != 5 {
		t.Fatalf("%v, %v", results, err)
	}
	for i, r := range h.stored() {
		if r.ID != batch[i].ID || record.Content(r) != record.Content(batch[i]) {
			t.Errorf("record %d is another one", i)
		}
	}
}

// TestPublishersOfAllNodes: such an event passes with the publisher's own token
// only, and only from a pod of the connector's node.
func TestPublishersOfAllNodes(t *testing.T) {
	h := newHall(t)
	connector := h.connector(of("gpu-7"))
	derived := func() record.Record {
		return storetest.Record("gpu-9", func(r *record.Record) {
			r.ID = uuid.NewSHA1(uuid.NameSpaceURL, []byte(r.ID)).String()
			r.Event.ID, r.Event.Agent, r.Event.CheckName = r.ID, "health-events-analyzer", "RepeatedXID"
		})
	}
	request := func(account, node string) context.Context {
		return metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", "Bearer "+token(gate.Audience, account, node)))
	}
	for name, tc := range map[string]struct {
		ctx    context.Context
		passed bool
		code   codes.Code
	}{
		"with the token":                             {request(analyzer, "gpu-7"), true, codes.OK},
		"from a spool":                               {t.Context(), false, codes.OK},
		"with the token of another node's pod":       {request(analyzer, "gpu-9"), false, codes.PermissionDenied},
		"with a token of no pod":                     {request(analyzer, ""), false, codes.PermissionDenied},
		"with a monitor's token":                     {request("system:serviceaccount:nvsentinel:syslog-health-monitor", "gpu-7"), false, codes.PermissionDenied},
		"with the connector's own as if it were one": {metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", "Bearer "+of("gpu-7"))), false, codes.Unauthenticated},
	} {
		h.gateway.Callers.Forgive()
		results, err := connector.Append(tc.ctx, []record.Record{derived()})
		if status.Code(err) != tc.code || err == nil && (results[0] == store.Appended) != tc.passed {
			t.Errorf("%s: %v, %v", name, results, err)
		}
	}
	if n := len(h.stored()); n != 1 {
		t.Errorf("%d records are stored", n)
	}
}

// TestWhoIsNotLetIn: no call of theirs is read, and nothing is stored or told.
func TestWhoIsNotLetIn(t *testing.T) {
	h := newHall(t)
	api := protos.NewGatewayClient(h.bare())
	theirs := storetest.Record("gpu-7")
	if _, err := h.connector(of("gpu-7")).Append(t.Context(), []record.Record{theirs}); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		ctx  context.Context
		code codes.Code
	}{
		"no token":                       {t.Context(), codes.Unauthenticated},
		"an empty token":                 {bearing(t, "authorization", ""), codes.Unauthenticated},
		"two tokens":                     {bearing(t, "authorization", of("gpu-7"), "authorization", of("gpu-8")), codes.Unauthenticated},
		"an expired token":               {bearing(t, "authorization", "expired~"+connectors+"~gpu-7"), codes.Unauthenticated},
		"a token for the door":           {bearing(t, "authorization", token(gate.Audience, connectors, "gpu-7")), codes.Unauthenticated},
		"a token for the API server":     {bearing(t, "authorization", token("https://kubernetes.default.svc", connectors, "gpu-7")), codes.Unauthenticated},
		"another account of its node":    {bearing(t, "authorization", token(gateway.Audience, "system:serviceaccount:default:train", "gpu-7")), codes.PermissionDenied},
		"the account in other namespace": {bearing(t, "authorization", token(gateway.Audience, "system:serviceaccount:default:platform-connectors", "gpu-7")), codes.PermissionDenied},
		"a token of no pod":              {bearing(t, "authorization", token(gateway.Audience, connectors, "")), codes.PermissionDenied},
		"a token of 20 KiB":              {bearing(t, "authorization", strings.Repeat("x", 20<<10)), codes.Unauthenticated},
	} {
		for call, err := range map[string]error{
			"append":  second(api.Append(tc.ctx, &protos.AppendRequest{Records: [][]byte{doc(t, storetest.Record("gpu-7"))}})),
			"dead":    second(api.Dead(tc.ctx, &protos.DeadRequest{Id: "x"})),
			"history": second(api.History(tc.ctx, &protos.HistoryRequest{})),
		} {
			// An address whose token was refused has to wait.
			if code := status.Code(err); code != tc.code && (tc.code != codes.Unauthenticated || code != codes.ResourceExhausted) {
				t.Errorf("%s, %s: %v, want %s", name, call, err, tc.code)
			}
		}
		h.gateway.Callers.Forgive()
	}
	if all := h.stored(); len(all) != 1 || all[0].ID != theirs.ID {
		t.Errorf("stored: %d records", len(all))
	}
}

func second[T any](_ T, err error) error { return err }

// TestForgedRecords: a connector in an attacker's hands brings documents that no
// connector makes.
func TestForgedRecords(t *testing.T) {
	h := newHall(t)
	theirs := storetest.Record("gpu-8")
	if _, err := h.connector(of("gpu-8")).Append(t.Context(), []record.Record{theirs}); err != nil {
		t.Fatal(err)
	}
	api := protos.NewGatewayClient(h.bare())
	mine := string(doc(t, storetest.Record("gpu-7")))
	stolen := storetest.Record("gpu-7", func(r *record.Record) { r.ID, r.Event.ID = theirs.ID, theirs.ID })
	for name, forged := range map[string]string{
		"another node":                  strings.Replace(mine, `"nodename":"gpu-7"`, `"nodename":"gpu-8"`, 1),
		"another node in other letters": strings.Replace(mine, `"nodename":"gpu-7"`, `"nodename":"gpu-7","NodeName":"gpu-8"`, 1),
		"a verdict":                     strings.Replace(mine, `"quarantineverdict":null`, `"quarantineverdict":{"reason":"NoRuleMatched"}`, 1),
		"a second status":               strings.Replace(mine, `,"expireAt"`, `,"HEALTHEVENTSTATUS":{"session":"x"},"expireAt"`, 1),
		"another node's id":             string(doc(t, stolen)),
		"a byte that is no text":        strings.Replace(mine, "XID 79", "XID \x00\xff", 1),
		"no document":                   "{",
		"nothing":                       "",
		"null":                          "null",
		"nesting without an end":        strings.Repeat("[", 1<<20),
	} {
		reply, err := api.Append(bearing(t, "authorization", of("gpu-7")), &protos.AppendRequest{Records: [][]byte{[]byte(forged)}})
		if err != nil || reply.GetResults()[0].GetOutcome() != protos.Outcome_OUTCOME_REFUSED {
			t.Errorf("%s: %v, %v", name, reply, err)
		}
	}
	all := h.stored()
	if len(all) != 1 || all[0].Event.NodeName != "gpu-8" || !all[0].Status.Blank() {
		t.Errorf("stored: %+v", all)
	}
	for name, q := range map[string]*protos.AppendRequest{
		"17 MiB":       {Records: [][]byte{make([]byte, 17<<20)}},
		"5000 records": {Records: make([][]byte, 5000)},
	} {
		if _, err := api.Append(bearing(t, "authorization", of("gpu-7")), q); status.Code(err) != codes.ResourceExhausted && status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Another node goes on all the same.
	if _, err := h.connector(of("gpu-8")).Append(t.Context(), []record.Record{storetest.Record("gpu-8")}); err != nil {
		t.Error(err)
	}
}

// TestAFloodOfTokensAsksLittle: the API server is asked about one token of an
// address, then no more for a while; who is known goes on meanwhile.
func TestAFloodOfTokensAsksLittle(t *testing.T) {
	h := newHall(t, func(g *gateway.Gateway, _ *gateway.Limits) { g.Callers.Clock = testkit.NewClock() })
	known := h.connector(of("gpu-7"))
	if _, err := known.Append(t.Context(), []record.Record{storetest.Record("gpu-7")}); err != nil {
		t.Fatal(err)
	}
	before := h.asked.Load()
	api := protos.NewGatewayClient(h.bare())
	var flood sync.WaitGroup
	for worker := range 8 {
		flood.Go(func() {
			for i := range 100 {
				_, _ = api.History(bearing(t, "authorization", fmt.Sprintf("junk-%d-%d", worker, i)), &protos.HistoryRequest{})
			}
		})
	}
	flood.Wait()
	if n := h.asked.Load() - before; n != 1 {
		t.Errorf("800 bad tokens of one address became %d questions, want 1", n)
	}
	if _, err := known.Append(t.Context(), []record.Record{storetest.Record("gpu-7")}); err != nil {
		t.Error(err)
	}
}

// TestWhoSendsSlowlyIsLeft, and holds nobody else up meanwhile.
func TestWhoSendsSlowlyIsLeft(t *testing.T) {
	clk := testkit.NewClock()
	h := newHall(t, func(g *gateway.Gateway, _ *gateway.Limits) { g.Clock = clk })
	var open []grpc.ClientStream
	for range 2 { // as many as a node may have
		stream, err := h.bare().NewStream(bearing(t, "authorization", of("gpu-7")), &grpc.StreamDesc{ClientStreams: true}, protos.Gateway_Append_FullMethodName)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, stream)
	}
	testkit.Until(t, time.Minute, func() bool { return h.gateway.Busy("gpu-7") == 2 })
	if _, err := protos.NewGatewayClient(h.bare()).History(bearing(t, "authorization", of("gpu-7")), &protos.HistoryRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("a third call of the node: %v", err)
	}
	if _, err := h.connector(of("gpu-8")).Append(t.Context(), []record.Record{storetest.Record("gpu-8")}); err != nil {
		t.Error(err)
	}
	testkit.Until(t, time.Minute, func() bool {
		clk.Step(time.Minute)
		return h.gateway.Busy("gpu-7") == 0
	})
	for _, stream := range open {
		if err := stream.RecvMsg(&protos.AppendResponse{}); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("a slow call ended with %v", err)
		}
	}
}

// TestConnectionsAreBounded per address.
func TestConnectionsAreBounded(t *testing.T) {
	h := newHall(t, func(_ *gateway.Gateway, l *gateway.Limits) { l.PerAddress = 2 })
	for range 2 {
		conn, err := tls.Dial("tcp", h.address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	conn, err := net.Dial("tcp", h.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !strings.Contains(fmt.Sprint(err), "reset") {
		t.Errorf("a third connection: %v, want it closed", err)
	}
}

// TestAGatewayThatIsNoneIsShownNoToken.
func TestAGatewayThatIsNoneIsShownNoToken(t *testing.T) {
	h := newHall(t)
	h.ca, _ = gatewaytest.Certificate(t) // another authority
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := h.connector(of("gpu-7")).History(ctx, 0); err == nil {
		t.Error("it was believed")
	}
	if n := h.asked.Load(); n != 0 {
		t.Errorf("%d tokens were shown", n)
	}
}

// TestOneMadNode brings more than its share: it has to wait, and nobody else has.
func TestOneMadNode(t *testing.T) {
	clk := testkit.NewClock()
	h := newHall(t, func(g *gateway.Gateway, _ *gateway.Limits) {
		g.Shares = &gateway.Shares{PerSecond: 10 << 10, Burst: 100 << 10, Clock: clk}
	})
	mad, other := h.connector(of("gpu-7")), h.connector(of("gpu-8"))
	bring := func(c *upstream.Gateway, node string) error {
		_, err := c.Append(t.Context(), []record.Record{storetest.Record(node, func(r *record.Record) { r.Event.Message = strings.Repeat("x", 30<<10) })})
		return err
	}
	passed := 0
	for range 20 {
		err := bring(mad, "gpu-7")
		if err == nil {
			passed++
		} else if status.Code(err) != codes.ResourceExhausted {
			t.Fatal(err)
		}
	}
	if passed != 4 {
		t.Errorf("%d records of 30 KiB passed with a burst of 100 KiB", passed)
	}
	if err := mad.Dead(t.Context(), store.DeadLetter{ID: "x", Body: make([]byte, 1024)}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a dead letter beyond the share: %v", err)
	}
	if err := bring(other, "gpu-8"); err != nil {
		t.Errorf("the other node: %v", err)
	}
	clk.Step(4 * time.Second)
	if err := bring(mad, "gpu-7"); err != nil {
		t.Errorf("after a while: %v", err)
	}
}
