package cloudevent_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/event-exporter/cloudevent"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files")

func frame(t *testing.T) cloudevent.Frame {
	t.Helper()
	f, err := cloudevent.NewFrame(map[string]string{"cluster": "prod-1", "region": "us-west-2"})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestGolden compares the whole event, as it stands in a request, with a file.
func TestGolden(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.FixedZone("", 3600))
	everything := testkit.Fault("0195c000-0000-7000-8000-000000000003").At(at).Code("79", "48").GPU("GPU-1").Entity("PCI", "0000:b3:00").
		Boot("b1").Seq("e1", 7).Action(record.ActionCustom).Record()
	everything.Event.CustomRecommendedAction = "RESEAT"
	everything.Event.QuarantineOverrides = &record.Override{Force: true}
	everything.Event.DrainOverrides = &record.Override{Skip: true}
	everything.Event.Message = "Xid 79 \u00fc <\"&\n"
	timeless := testkit.Fault("0195c000-0000-7000-8000-000000000004").Record()
	timeless.Event.GeneratedTimestamp = time.Time{}
	newer, err := record.Decode([]byte(`{"id": "0195c000-0000-7000-8000-000000000006", "healthevent": {"agent": "a", "checkname": "c", "nodename": "n",
"generatedtimestamp": "2026-01-02T03:04:05Z", "recommendedaction": "NEWER_ACTION", "severity": {"score": 7}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]record.Record{
		"fault":        testkit.Fault("0195c000-0000-7000-8000-000000000001").Code("79").GPU("GPU-1").Record(),
		"recovery":     testkit.Recovery("0195c000-0000-7000-8000-000000000002").Record(),
		"everything":   everything,
		"timeless":     timeless,
		"newer":        newer,
		"persist-only": testkit.Fault("0195c000-0000-7000-8000-000000000005").PersistOnly().NotFatal().Record(),
	} {
		t.Run(name, func(t *testing.T) {
			e, err := frame(t).Of(r)
			if err != nil {
				t.Fatal(err)
			}
			body, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			var got bytes.Buffer
			if err := json.Indent(&got, body, "", "  "); err != nil {
				t.Fatal(err)
			}
			got.WriteByte('\n')
			file := filepath.Join("testdata", name+".json")
			if *rewrite {
				if err := os.WriteFile(file, got.Bytes(), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("event (-want +got):\n%s", diff)
			}
		})
	}
}

// TestStatusIsNotExported: an event is about what happened, and is the same
// whatever was decided since.
func TestStatusIsNotExported(t *testing.T) {
	before := testkit.Fault("r1").Record()
	after := testkit.Fault("r1").Status(record.Status{NodeQuarantined: record.Quarantined, Session: "s"}).Record()
	a, errA := frame(t).Of(before)
	b, errB := frame(t).Of(after)
	if errA != nil || errB != nil {
		t.Fatal(errA, errB)
	}
	if a.String() != b.String() {
		t.Errorf("before:\n%s\nafter:\n%s", a, b)
	}
}

func TestARecordThatMakesNoEvent(t *testing.T) {
	if _, err := frame(t).Of(testkit.Fault("").Record()); err == nil || !strings.Contains(err.Error(), "id") {
		t.Errorf("a record without an id: %v", err)
	}
}

func TestNewFrame(t *testing.T) {
	for name, ok := range map[string]bool{
		"a": true, "prod-1.us_west": true, "7": true,
		"": false, "-a": false, "a-": false, "a/b": false, "a b": false, "ä": false, "a\n": false,
	} {
		_, err := cloudevent.NewFrame(map[string]string{"cluster": name})
		if (err == nil) != ok {
			t.Errorf("cluster %q: %v", name, err)
		}
	}
	if _, err := cloudevent.NewFrame(nil); err == nil || !strings.Contains(err.Error(), `cluster is missing`) {
		t.Errorf("no metadata: %v", err)
	}
}
