package record_test

import (
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
)

var rewrite = flag.Bool("rewrite", false, "rewrite docs/reference/state-transitions.md")

func TestDrawingIsCurrent(t *testing.T) {
	const path = "../../docs/reference/state-transitions.md"
	if *rewrite {
		if err := os.WriteFile(path, []byte(record.Drawing()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(record.Drawing(), string(got)); diff != "" {
		t.Errorf("docs/reference/state-transitions.md is not current; run go test ./data-models/record -args -rewrite\n%s", diff)
	}
}
