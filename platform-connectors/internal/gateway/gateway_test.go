package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	faults "github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/authn"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/gateway"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/gateway/gatewaytest"
	"github.com/nvidia/nvsentinel/platform-connectors/internal/upstream"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// TestRecordPath: what a connector appends is in the store when it is answered, once,
// and in order; its history is its own node's.
func TestRecordPath(t *testing.T) {
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
	if n := h.requests.Load(); n != 2 {
		t.Errorf("the API server was asked %d times about two tokens", n)
	}
	gone := fmt.Errorf("no connection with secret words")
	h.store.err.Store(&gone)
	if _, err := seven.Append(t.Context(), []record.Record{storetest.Record("gpu-7")}); status.Code(err) != codes.Unavailable || strings.Contains(err.Error(), "secret") {
		t.Errorf("with the store away: %v", err)
	}
	if n := h.store.failed.Load(); n != 1 {
		t.Errorf("the store that is away was asked %d times by one call", n)
	}
}

// TestEventsWithoutACounter: their order is that in which the store got them, whatever the
// connector's own count is, and one that is brought again is known by its id and content.
func TestEventsWithoutACounter(t *testing.T) {
	h := newHall(t)
	seven := h.connector(of("gpu-7"))
	brought := make([]record.Record, 3)
	for i := range brought {
		brought[i] = storetest.Record("gpu-7", func(r *record.Record) {
			r.Event.IsHealthy = i == 1                         // a recovery between two faults
			r.Seq, r.SeqEpoch = uint64(9-i), "the connector's" // its spool began again
		})
	}
	for range 2 { // the first answer is lost
		for i, r := range brought {
			r.Seq += uint64(i) // a record that is read again may have another place
			if _, err := seven.Append(t.Context(), []record.Record{r}); err != nil {
				t.Fatal(err)
			}
		}
	}
	stored := h.stored()
	if len(stored) != len(brought) {
		t.Fatalf("%d records are stored, want %d", len(stored), len(brought))
	}
	for i, r := range stored {
		if r.ID != brought[i].ID || r.Seq != 0 || r.SeqEpoch != "" {
			t.Errorf("record %d is %s with place %d in %q, want %s with none", i, r.ID, r.Seq, r.SeqEpoch, brought[i].ID)
		}
		if i > 0 && (!faults.Before(stored[i-1], r) || faults.Before(r, stored[i-1]) || faults.Follows(stored[i-1], r)) {
			t.Errorf("record %d is not after the one before it by the store's order alone", i)
		}
	}
	if diff := cmp.Diff(stored, faults.InOrder([]record.Record{stored[2], stored[0], stored[1]})); diff != "" {
		t.Errorf("in order (-want +got):\n%s", diff)
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

// TestRefusedRecordIsReportedWithItsProblem: a dead letter of the connector can report
// whether the gateway or the store refused it, also where a batch goes in parts.
func TestRefusedRecordIsReportedWithItsProblem(t *testing.T) {
	h := newHall(t)
	long := storetest.Record("gpu-7", func(r *record.Record) {
		r.Event.Metadata = map[string]string{}
		for i := range 60 {
			r.Event.Metadata[fmt.Sprint("k", i)] = strings.Repeat("&", 4<<10)
		}
	})
	stored, foreign := storetest.Record("gpu-7"), storetest.Record("gpu-8")
	other := stored
	other.Event.Message = "another"
	reported := map[string]string{}
	ctx := upstream.Listen(t.Context(), func(id, problem string) { reported[id] = problem })
	results, err := h.connector(of("gpu-7")).Append(ctx, []record.Record{stored, long, foreign, other})
	want := []store.AppendResult{store.Appended, store.Appended, store.Refused, store.Refused}
	if diff := cmp.Diff(want, results); err != nil || diff != "" {
		t.Fatalf("results (-want +got), %v:\n%s", err, diff)
	}
	if diff := cmp.Diff(map[string]string{
		foreign.ID: `the record is about node "gpu-8", and its connector is the one of node "gpu-7"`,
		other.ID:   upstream.OtherContent,
	}, reported); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
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
		return metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", "Bearer "+token(authn.Audience, account, node)))
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

// TestAGatewayThatIsNoneIsShownNoToken.
func TestAGatewayThatIsNoneIsShownNoToken(t *testing.T) {
	h := newHall(t)
	h.ca, _ = gatewaytest.Certificate(t) // another authority
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := h.connector(of("gpu-7")).History(ctx, 0); err == nil {
		t.Error("it was believed")
	}
	if n := h.requests.Load(); n != 0 {
		t.Errorf("%d tokens were shown", n)
	}
}

// TestTheAuthorityMayComeLater: a connector without the CA file of the gateway reports that,
// and goes on when the file is there.
func TestTheAuthorityMayComeLater(t *testing.T) {
	h := newHall(t)
	known := h.ca
	h.ca = filepath.Join(t.TempDir(), "ca.crt")
	c := h.connector(of("gpu-7"))
	testkit.Until(t, time.Minute, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.History(ctx, 0)
		return err != nil && strings.Contains(err.Error(), "reading the CA certificates of the gateways")
	})
	pem, err := os.ReadFile(known)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(h.ca, pem, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := c.History(t.Context(), 0); err != nil {
		t.Errorf("with the file: %v", err)
	}
}

// moved is a store that is another server now and then.
type moved struct {
	*away
	requests atomic.Int64
	name     atomic.Value
}

func (m *moved) Server(context.Context) (string, error) {
	m.requests.Add(1)
	return m.is(), nil
}

func (m *moved) is() string { return m.name.Load().(string) }

func (m *moved) AppendTo(ctx context.Context, server string, records []record.Record) ([]store.AppendResult, string, error) {
	if server != "" && server != m.is() {
		return nil, m.is(), store.ErrMoved
	}
	results, _, err := m.away.AppendTo(ctx, "", records)
	return results, m.is(), err
}

// TestGatewayReportsServerID: it takes nothing for another one, names the present
// one, and does not ask the store each time.
func TestGatewayReportsServerID(t *testing.T) {
	m := &moved{}
	m.name.Store("one")
	h := newHall(t, func(g *gateway.Gateway, _ *gateway.Limits) {
		m.away, _ = g.Store.(*away)
		g.Store = m
	})
	c := h.connector(of("gpu-7"))
	say := func(server string, records ...record.Record) (int, string, error) {
		results, now, err := c.AppendTo(t.Context(), server, records)
		return len(results), now, err
	}
	if n, now, err := say("", storetest.Record("gpu-7")); n != 1 || now != "one" || err != nil {
		t.Errorf("any server: %d, %q, %v", n, now, err)
	}
	for range 5 {
		if _, now, err := say("one"); now != "one" || err != nil {
			t.Errorf("the same server: %q, %v", now, err)
		}
	}
	if n := m.requests.Load(); n != 1 {
		t.Errorf("asked %d times, want once", n)
	}
	m.name.Store("two")
	if n, now, err := say("one", storetest.Record("gpu-7")); n != 0 || now != "two" || !errors.Is(err, store.ErrMoved) {
		t.Errorf("another server: %d, %q, %v", n, now, err)
	}
	if _, now, err := say("two"); now != "two" || err != nil || m.requests.Load() != 2 {
		t.Errorf("a name that the gateway did not know: %q, %v, asked %d times", now, err, m.requests.Load())
	}
	if all, err := h.store.List(t.Context(), store.Query{}); len(all) != 1 || err != nil {
		t.Errorf("%d records are stored, %v", len(all), err)
	}
}
