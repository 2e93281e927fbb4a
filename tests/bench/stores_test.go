package bench_test

import (
	"strings"
	"testing"

	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/store-client/mongotest"
	"github.com/nvidia/nvsentinel/tests/bench"
)

// TestStoresAlone measures every store at a tiny size: the stand-in for
// MongoDB, where it can be had, without a claim.
func TestStoresAlone(t *testing.T) {
	testkit.Long(t, "store-client's conformance suites run every store")
	sizes := tiny
	sizes.MongoDB = 10
	table, err := bench.Run(t.Context(), bench.Options{Only: []string{bench.Stores}, Sizes: sizes, Progress: testLog{t}})
	if err != nil {
		t.Fatalf("%v\n%s", err, table)
	}
	t.Logf("\n%s", table)
	stores := []string{"sqlite", "postgresql"}
	if _, err := mongotest.Find(); err == nil {
		stores = append(stores, "mongodb")
	}
	if want := 5 * len(stores); len(table) != want {
		t.Fatalf("%d figures, want %d\n%s", len(table), want, table)
	}
	for i, r := range table {
		store := stores[i/5]
		if !strings.HasPrefix(r.Figure, "store "+store+": ") || r.Measured.Value <= 0 || r.Baseline.Value <= 0 {
			t.Errorf("figure %s: %s, floor %s", r.Figure, r.Measured, r.Baseline)
		}
		if (r.Verdict() == "-") != (store == "mongodb") {
			t.Errorf("figure %s: verdict %s", r.Figure, r.Verdict())
		}
	}
}
