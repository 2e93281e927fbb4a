package bench

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// folderOf returns a folder of programs; one of them prints the flags that it knows, or its
// arguments.
func folderOf(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	text := "#!/bin/bash\nif [[ $1 == --help ]]; then printf '  --known\\n    \\ta flag\\n  -old string\\n'; exit; fi\nprintf '%s ' \"$@\"\n"
	if err := os.WriteFile(filepath.Join(dir, "program"), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestTurns(t *testing.T) {
	folder := folderOf(t)
	var bins []string
	values := []float64{1, 10, 20, 3}
	measure := inTurns(func(_ context.Context, o Options) ([]Row, error) {
		bins = append(bins, o.Bin)
		turn := len(bins) - 1
		rows := []Row{{
			Figure: "wait", Measured: Quantity{values[turn], Seconds, true}, Baseline: Quantity{float64(turn + 1), Seconds, true},
			Target: Target{Under: Quantity{values[turn] + 1, Seconds, true}}, Note: "a note", Remarks: "seen by " + filepath.Base(o.Bin)[:1],
		}}
		if o.Bin != "present" {
			rows = append(rows, Row{Figure: "races", Measured: Quantity{2, Times, true}})
		}
		return rows, nil
	})
	rows, err := measure(t.Context(), Options{Bin: "present", Against: folder, Progress: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	if len(bins) != 4 || bins[0] != "present" || bins[3] != "present" || bins[1] != bins[2] || bins[1] == "present" {
		t.Errorf("turns of %q", bins)
	}
	want := []Row{
		{
			Figure: "wait", Measured: Quantity{2, Seconds, true}, Other: Quantity{15, Seconds, true}, Baseline: Quantity{2.5, Seconds, true},
			Target: Target{Under: Quantity{3, Seconds, true}},
			Note:   "a note", Remarks: "seen by p; against: seen by n; turns 1.00 s (10.00 s, 20.00 s) 3.00 s; against: the present connectors",
		},
		{
			Figure: "races", Other: Quantity{2, Times, true},
			Remarks: "turns - (2.00, 2.00) -; against: the present connectors",
		},
	}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

func TestUnknownFlagsAreOmitted(t *testing.T) {
	x, err := newOther(t.Context(), Options{Against: folderOf(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := x.close(); err != nil {
			t.Error(err)
		}
	}()
	out, err := exec.Command(filepath.Join(x.options.Bin, "program"),
		"--known", "a b", "--new", "value", "--new2=x", "--old=y", "--known", "--newest", "--", "--new", "rest").CombinedOutput()
	if got := string(out); err != nil || got != "--known a b --old=y --known -- --new rest " {
		t.Errorf("given %q, %v", got, err)
	}
	if got := leftOut(x.dir); !slices.Equal(got, []string{"--new", "--new2", "--newest"}) {
		t.Errorf("left out %q", got)
	}
	if note := x.note(); !strings.Contains(note, "without --new, --new2, --newest") {
		t.Errorf("note %q", note)
	}
}

func TestTraffic(t *testing.T) {
	before, err := parseTraffic("# HELP x\n" + `apiserver_request_total{code="200",component="apiserver",resource="nodes",subresource="",verb="GET"} 5` + "\n")
	if err != nil {
		t.Fatal(err)
	}
	after, err := parseTraffic(`apiserver_request_total{code="200",component="apiserver",resource="nodes",subresource="",verb="GET"} 25
apiserver_request_total{code="200",resource="nodes",subresource="status",verb="PATCH"} 10
apiserver_request_total{code="409",resource="nodes",subresource="",verb="PATCH"} 4
apiserver_request_total{code="200",resource="leases",subresource="",verb="PUT"} 100
apiserver_request_total{code="200",resource="nodes",subresource="",verb="WATCH"} 100
apiserver_watch_events_total{group="",resource="nodes",version="v1"} 430
`)
	if err != nil {
		t.Fatal(err)
	}
	requests := after.requests.since(before.requests)
	if got := requests.each(10); got != "GET nodes 2.00, PATCH nodes/status 1.00, PATCH nodes 409 0.40" {
		t.Errorf("requests %s", got)
	}
	if got := requests.sum(conflict); got != 4 {
		t.Errorf("%v conflicts", got)
	}
	if got := after.watched.since(before.watched).sum(""); got != 430 {
		t.Errorf("%v events", got)
	}
}

func TestTheTimeOfATree(t *testing.T) {
	all := map[int]process{
		2: {parent: 1, used: time.Second, ended: 2 * time.Second}, 3: {parent: 2, used: 4 * time.Second},
		4: {parent: 3, ended: 8 * time.Second}, 5: {parent: 1, used: time.Hour},
	}
	if got := tree(all, 2); got != 15*time.Second {
		t.Errorf("%s", got)
	}
	self, err := lookUp(os.Getpid())
	if err != nil || self.parent != os.Getppid() || self.name == "" {
		t.Errorf("this process: %+v, %v", self, err)
	}
}
