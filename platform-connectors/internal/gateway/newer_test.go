package gateway_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/store-client/storetest"
)

// ofANewerVersion is a fault as a connector of a newer version sends it.
func ofANewerVersion(t *testing.T) record.Record {
	t.Helper()
	doc, err := record.AppendJSON(nil, storetest.Record("gpu-7", func(r *record.Record) {
		r.Event.RecommendedAction, r.Event.DrainOverrides = "NEWER_ACTION", &record.Override{Skip: true}
	}))
	if err != nil {
		t.Fatal(err)
	}
	r, err := record.Decode(storetest.Newer(t, doc))
	if err != nil {
		t.Fatal(err)
	}
	r.Status.Extra = nil // nothing that a connector sends
	return r
}

// TestARecordOfANewerConnector is stored and no dead letter: its action is a person's,
// with its name, and what the gateway does not know is stored with it. Sent again it is
// the same, and what the node's history answers is all of it.
func TestARecordOfANewerConnector(t *testing.T) {
	h := newHall(t)
	seven := h.connector(of("gpu-7"))
	r := ofANewerVersion(t)
	for _, want := range []store.AppendResult{store.Appended, store.Duplicate} {
		if results, err := seven.Append(t.Context(), []record.Record{r}); err != nil || len(results) != 1 || results[0] != want {
			t.Fatalf("%v, %v; want %v", results, err, want)
		}
	}
	history, err := seven.History(t.Context(), 0)
	if err != nil || len(history) != 1 {
		t.Fatalf("%d records, %v", len(history), err)
	}
	for how, got := range map[string]record.Record{"stored": h.stored()[0], "history": history[0]} {
		if a := got.Event.Action(); a != record.ActionUnknown || got.Event.Metadata[record.MetadataUnknownAction] != "NEWER_ACTION" {
			t.Errorf("%s: its action is %s, %v", how, a, got.Event.Metadata)
		}
		doc, err := record.AppendJSON(nil, got)
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"", ".healthevent", ".healthevent.drainoverrides", ".healthevent.entitiesimpacted[0]", ".node"}
		if diff := cmp.Diff(want, storetest.NewerAt(t, doc)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", how, diff)
		}
	}
}

// TestAStoreOfANewerVersion: the connector keeps what it has until the gateway is newer.
func TestAStoreOfANewerVersion(t *testing.T) {
	h := newHall(t)
	refused := store.ErrNewer
	h.store.err.Store(&refused)
	if _, err := h.connector(of("gpu-7")).Append(t.Context(), []record.Record{storetest.Record("gpu-7")}); status.Code(err) != codes.Unavailable {
		t.Errorf("the answer is %v", err)
	}
}
