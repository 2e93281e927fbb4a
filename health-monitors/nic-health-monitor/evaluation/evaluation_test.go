package evaluation

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// testNode is a node, its monitor's memory and the time. Every look may be followed
// by a restart, which must change nothing but trials.
type testNode struct {
	reading Reading
	memory  Memory
	policy  Policy
	ids     int
	drivers []string // of cards that are not watched
}

func newTestNode() *testNode {
	return &testNode{
		reading: Reading{At: time.Unix(1_000_000, 0), Boot: "boot-1", CharDevices: true},
		policy: Policy{
			Strategy: record.Process, ConsecutivePolls: 3, Persist: 30 * time.Second, Reload: 15 * time.Minute, Steady: 2 * time.Minute, Settle: 2 * time.Minute,
			QuietTime: 10 * time.Minute, Counters: Counters(),
		},
	}
}

func TestNodeHistories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		l := newTestNode()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return l.run(t, d) })
	})
}

func (tn *testNode) run(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	switch d.Cmd {
	case "cards": // name place model guid state...
		tn.reading.Devices = nil
		for line := range strings.Lines(d.Input) {
			tn.reading.Devices = append(tn.reading.Devices, card(t, strings.Fields(line)))
		}
		return fmt.Sprintf("%d cards\n", len(tn.reading.Devices))
	case "unwatched": // place driver
		tn.reading.Unwatched, tn.drivers = nil, nil
		for line := range strings.Lines(d.Input) {
			location, driver, _ := strings.Cut(strings.TrimSpace(line), " ")
			tn.reading.Unwatched, tn.drivers = append(tn.reading.Unwatched, location), append(tn.drivers, driver)
		}
		return ""
	case "count": // name counter=value...
		tn.count(t, d)
		return ""
	case "look":
		return tn.poll(t, d)
	case "boot":
		tn.reading.Boot = d.CmdArgs[0].Key
		return ""
	case "clock": // is set by so much
		step, err := time.ParseDuration(d.CmdArgs[0].Key)
		if err != nil {
			t.Fatal(err)
		}
		tn.reading.At = tn.reading.At.Add(step)
		return ""
	case "strategy":
		tn.policy.Strategy = record.Strategy(d.CmdArgs[0].Key)
		return ""
	case "restart":
		data, err := tn.memory.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if tn.memory, err = Decode(data); err != nil {
			t.Fatal(err)
		}
		return ""
	case "remembered":
		var err error
		if tn.memory, err = Decode([]byte(d.Input)); err != nil {
			t.Fatal(err)
		}
		return ""
	case "unruled": // code: no rule watches its counter any more
		tn.policy.Counters = slices.DeleteFunc(tn.policy.Counters, func(r Counter) bool { return r.Code == d.CmdArgs[0].Key })
		return ""
	case "cleared":
		var out []string
		for _, k := range tn.memory.Forget(func(ids []string) bool { return slices.Contains(ids, d.CmdArgs[0].Key) }) {
			out = append(out, k.Device+" "+k.Code)
		}
		return strings.Join(out, "\n") + "\n"
	}
	t.Fatalf("unknown command %s", d.Cmd)
	return ""
}

// card reads "mlx5_0 0000:3b:00.0 CX7 guid-1 active,down"; a layer, "eth:" or
// "ib:" before the states, is InfiniBand by default; "-" is a card whose ports
// cannot be listed, and for a GUID one that cannot be read; "nochar" and
// "driver=mlx5_core" may follow.
func card(t *testing.T, f []string) Device {
	t.Helper()
	if len(f) < 5 {
		t.Fatalf("%q is no card", f)
	}
	d := Device{Name: f[0], Location: f[1], Model: f[2], GUID: strings.TrimPrefix(f[3], "-"), CharDevice: !slices.Contains(f[5:], "nochar")}
	for _, x := range f[5:] {
		if driver, is := strings.CutPrefix(x, "driver="); is {
			d.Driver = driver
		}
	}
	layer, states := InfiniBand, f[4]
	if rest, eth := strings.CutPrefix(states, "eth:"); eth {
		layer, states = Ethernet, rest
	}
	if states == "-" {
		return d
	}
	for i, s := range strings.Split(states, ",") {
		d.Ports = append(d.Ports, Port{Number: strconv.Itoa(i + 1), Layer: layer, State: State(s), Counters: map[string]uint64{}})
	}
	return d
}

func (tn *testNode) count(t *testing.T, d *datadriven.TestData) {
	t.Helper()
	for i := range tn.reading.Devices {
		if tn.reading.Devices[i].Name != d.CmdArgs[0].Key {
			continue
		}
		for _, a := range d.CmdArgs[1:] {
			n, err := strconv.ParseUint(a.Vals[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			tn.reading.Devices[i].Ports[0].Counters[a.Key] = n
		}
	}
}

// poll looks every so often (every=, 10 s) for so long (for=, one look).
func (tn *testNode) poll(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	every, span := 10*time.Second, 10*time.Second
	for _, a := range d.CmdArgs {
		x, err := time.ParseDuration(a.Vals[0])
		if err != nil {
			t.Fatal(err)
		}
		switch a.Key {
		case "every":
			every = x
			span = max(span, x)
		case "for":
			span = x
		}
	}
	tn.reading.Drivers = map[string]bool{}
	for _, d := range tn.reading.Devices {
		tn.reading.Drivers[d.Driver] = true
	}
	for _, driver := range tn.drivers {
		tn.reading.Drivers[driver] = true
	}
	var out strings.Builder
	for begun := tn.reading.At; tn.reading.At.Sub(begun) < span; {
		tn.reading.At = tn.reading.At.Add(every)
		var reported []Report
		before := tn.memory.Clone()
		tn.memory, reported = Evaluate(tn.memory, tn.reading, tn.policy)
		if again, same := Evaluate(before, tn.reading, tn.policy); !slices.Equal(reported, same) || len(again.Open) != len(tn.memory.Open) {
			t.Errorf("the same look told %v and then %v", reported, same)
		}
		for _, x := range reported {
			tn.ids++
			id := "id-" + strconv.Itoa(tn.ids)
			tn.memory.Name(x.Key, id)
			fmt.Fprintf(&out, "+%s %s\n", tn.reading.At.Sub(begun), sentence(x, id))
		}
	}
	if out.Len() == 0 {
		return "nothing\n"
	}
	return out.String()
}

func sentence(x Report, id string) string {
	what := "fault"
	if x.Fatal {
		what = "fatal"
	}
	if x.Healthy {
		what = "healthy"
	}
	port := ""
	if x.Key.Port != "" {
		port = "/" + x.Key.Port
	}
	strategy := record.FromProto(x.Event("n1", "b1", time.Unix(0, 0))).ProcessingStrategy
	return fmt.Sprintf("%s %s %s%s %s %s %s %s: %s", id, what, x.Key.Device, port, x.Key.Check, x.Key.Code, x.Action, strategy, x.Reason) + " (" + x.Message + ")"
}
