package judge

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

// life is a node, its monitor's memory and the time. Every look may be followed
// by a restart, which must change nothing but trials.
type life struct {
	reading Reading
	memory  Memory
	policy  Policy
	ids     int
	drivers []string // of cards that are not watched
}

func newLife() *life {
	return &life{
		reading: Reading{At: time.Unix(1_000_000, 0), Boot: "boot-1", CharDevices: true},
		policy: Policy{
			Strategy: record.Process, Looks: 3, Persist: 30 * time.Second, Reload: 15 * time.Minute, Steady: 2 * time.Minute, Settle: 2 * time.Minute,
			Quiet: 10 * time.Minute, Counters: Counters(),
		},
	}
}

func TestLives(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		l := newLife()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return l.run(t, d) })
	})
}

func (l *life) run(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	switch d.Cmd {
	case "cards": // name place model guid state...
		l.reading.Devices = nil
		for line := range strings.Lines(d.Input) {
			l.reading.Devices = append(l.reading.Devices, card(t, strings.Fields(line)))
		}
		return fmt.Sprintf("%d cards\n", len(l.reading.Devices))
	case "unwatched": // place driver
		l.reading.Unwatched, l.drivers = nil, nil
		for line := range strings.Lines(d.Input) {
			location, driver, _ := strings.Cut(strings.TrimSpace(line), " ")
			l.reading.Unwatched, l.drivers = append(l.reading.Unwatched, location), append(l.drivers, driver)
		}
		return ""
	case "count": // name counter=value...
		l.count(t, d)
		return ""
	case "look":
		return l.look(t, d)
	case "boot":
		l.reading.Boot = d.CmdArgs[0].Key
		return ""
	case "clock": // is set by so much
		step, err := time.ParseDuration(d.CmdArgs[0].Key)
		if err != nil {
			t.Fatal(err)
		}
		l.reading.At = l.reading.At.Add(step)
		return ""
	case "strategy":
		l.policy.Strategy = record.Strategy(d.CmdArgs[0].Key)
		return ""
	case "restart":
		data, err := l.memory.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if l.memory, err = Decode(data); err != nil {
			t.Fatal(err)
		}
		return ""
	case "remembered":
		var err error
		if l.memory, err = Decode([]byte(d.Input)); err != nil {
			t.Fatal(err)
		}
		return ""
	case "unruled": // code: no rule watches its counter any more
		l.policy.Counters = slices.DeleteFunc(l.policy.Counters, func(r Counter) bool { return r.Code == d.CmdArgs[0].Key })
		return ""
	case "cleared":
		var out []string
		for _, k := range l.memory.Forget(func(ids []string) bool { return slices.Contains(ids, d.CmdArgs[0].Key) }) {
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

func (l *life) count(t *testing.T, d *datadriven.TestData) {
	t.Helper()
	for i := range l.reading.Devices {
		if l.reading.Devices[i].Name != d.CmdArgs[0].Key {
			continue
		}
		for _, a := range d.CmdArgs[1:] {
			n, err := strconv.ParseUint(a.Vals[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			l.reading.Devices[i].Ports[0].Counters[a.Key] = n
		}
	}
}

// look looks every so often (every=, 10 s) for so long (for=, one look).
func (l *life) look(t *testing.T, d *datadriven.TestData) string {
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
	l.reading.Drivers = map[string]bool{}
	for _, d := range l.reading.Devices {
		l.reading.Drivers[d.Driver] = true
	}
	for _, driver := range l.drivers {
		l.reading.Drivers[driver] = true
	}
	var out strings.Builder
	for begun := l.reading.At; l.reading.At.Sub(begun) < span; {
		l.reading.At = l.reading.At.Add(every)
		var told []Told
		before := l.memory.Clone()
		l.memory, told = Judge(l.memory, l.reading, l.policy)
		if again, same := Judge(before, l.reading, l.policy); !slices.Equal(told, same) || len(again.Open) != len(l.memory.Open) {
			t.Errorf("the same look told %v and then %v", told, same)
		}
		for _, x := range told {
			l.ids++
			id := "id-" + strconv.Itoa(l.ids)
			l.memory.Name(x.Key, id)
			fmt.Fprintf(&out, "+%s %s\n", l.reading.At.Sub(begun), sentence(x, id))
		}
	}
	if out.Len() == 0 {
		return "nothing\n"
	}
	return out.String()
}

func sentence(x Told, id string) string {
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
